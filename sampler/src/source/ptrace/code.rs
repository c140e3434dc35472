//! The instructions of a target, decoded just before they execute.

use std::collections::HashMap;
use std::io::IoSliceMut;
use std::sync::Arc;

use lbr_msr::insn::{BranchInsn, Insn, Isa, UnderTrapFlag, abort_target, decode, under_trap_flag};
use lbr_msr::record::{BranchType, HwBranchType};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::maps::{self, Mapping};

/// Longest instruction, bytes.
pub const LONGEST: usize = Isa::X86_64.longest() as usize;
const PAGE: u64 = 4096;

/// An instruction that is about to execute.
#[derive(Clone, Copy, Debug)]
pub struct Decoded {
    /// Its address.
    pub ip: u64,
    /// Its branch type, if any.
    pub insn: Insn,
    /// Its behaviour under single-step.
    pub under_trap_flag: UnderTrapFlag,
    /// For XBEGIN: the fallback address.
    pub abort_target: Option<u64>,
    /// INT 80H, the second system call instruction.
    pub int80: bool,
}

impl Decoded {
    /// Without `bytes`: an instruction that cannot be read, or is not 64-bit code.
    pub(super) fn new(bytes: &[u8], ip: u64) -> Decoded {
        Decoded {
            ip,
            insn: decode(bytes, ip),
            under_trap_flag: under_trap_flag(bytes, ip),
            abort_target: abort_target(bytes, ip),
            int80: bytes.starts_with(&[0xcd, 0x80]),
        }
    }

    /// Whether it is INT3, INT1 or INT n, except for system calls.
    pub fn is_interrupt(&self) -> bool {
        !self.int80 && matches!(self.insn, Insn::Branch(b) if b.branch_type == BranchType::IRQ)
    }

    /// Whether it behaves the same when stepped.
    fn is_plain(&self) -> bool {
        self.under_trap_flag == UnderTrapFlag::Plain && self.abort_target.is_none()
    }
}

/// Consecutively executed instructions whose order does not depend on registers: up to a branch
/// with several targets, or an instruction that must be stepped.
#[derive(Debug, Default)]
pub(super) struct Path {
    /// Their addresses, all different.
    pub(super) instructions: Vec<u64>,
    /// The direct jumps and calls among them, with their positions.
    pub(super) jumps: Vec<(usize, BranchInsn)>,
    /// Its end: the address after the last instruction.
    pub(super) end: u64,
}

/// Maximum number of instructions of a path.
const LONGEST_PATH: usize = 64;

/// The code of one process.
#[derive(Debug, Default)]
pub struct TracedCode {
    decoded: HashMap<u64, Decoded>,
    /// Bytes of unchanging pages, including the start of the next page.
    pages: HashMap<u64, Vec<u8>>,
    paths: HashMap<u64, Arc<Path>>,
    /// Mappings whose bytes do not change; `None` until needed.
    fixed: Option<Vec<Mapping>>,
}

impl TracedCode {
    /// Clears everything: the mappings may have changed.
    pub fn forget(&mut self) {
        self.decoded.clear();
        self.pages.clear();
        self.paths.clear();
        self.fixed = None;
    }

    /// The instruction at `ip`, and whether it was newly decoded. Cached only if its bytes cannot
    /// change unnoticed.
    pub fn at(&mut self, tid: i32, ip: u64) -> (Decoded, bool) {
        if let Some(&known) = self.decoded.get(&ip) {
            return (known, false);
        }
        if self.stays(tid, ip) {
            let page = ip - ip % PAGE;
            let bytes = self
                .pages
                .entry(page)
                .or_insert_with(|| bytes_at(tid, page, PAGE as usize + LONGEST));
            let bytes = bytes.get((ip - page) as usize..).unwrap_or_default();
            let decoded = Decoded::new(bytes.get(..LONGEST).unwrap_or(bytes), ip);
            self.decoded.insert(ip, decoded);
            return (decoded, true);
        }
        (Decoded::new(&bytes_at(tid, ip, LONGEST), ip), true)
    }

    /// The path from `ip`, ending at `function` if it is reached; calls `tell` for each newly
    /// decoded branch.
    pub(super) fn path(
        &mut self,
        tid: i32,
        ip: u64,
        function: Option<u64>,
        tell: impl Fn(&BranchInsn),
    ) -> Arc<Path> {
        if let Some(path) = self.paths.get(&ip) {
            return Arc::clone(path);
        }
        let mut path = Path { end: ip, ..Path::default() };
        while path.instructions.len() < LONGEST_PATH && self.stays(tid, path.end) {
            let (decoded, is_new) = self.at(tid, path.end);
            if let (Insn::Branch(branch), true) = (decoded.insn, is_new) {
                tell(&branch);
            }
            let (next, jump) = match decoded.insn {
                Insn::Straight { len } if decoded.is_plain() => {
                    (path.end.wrapping_add(len.into()), None)
                }
                Insn::Branch(branch) => match (branch.class, branch.target) {
                    (HwBranchType::RelJmp | HwBranchType::RelCall, Some(target)) => {
                        (target, Some(branch))
                    }
                    _ => break,
                },
                _ => break,
            };
            // Addresses are unique, so that an address shows how far a thread has run.
            if next == path.end || path.instructions.contains(&next) {
                break;
            }
            path.jumps.extend(jump.map(|jump| (path.instructions.len(), jump)));
            path.instructions.push(path.end);
            path.end = next;
            if function == Some(next) {
                break;
            }
        }
        let path = Arc::new(path);
        self.paths.insert(ip, Arc::clone(&path));
        path
    }

    /// Whether an instruction's bytes cannot change unnoticed.
    pub(super) fn stays(&mut self, tid: i32, ip: u64) -> bool {
        self.is_fixed(tid, ip) && self.is_fixed(tid, ip.saturating_add(LONGEST as u64 - 1))
    }

    fn is_fixed(&mut self, tid: i32, address: u64) -> bool {
        let fixed = self.fixed.get_or_insert_with(|| {
            let mut mappings = maps::read(tid).unwrap_or_default();
            mappings.retain(|m| m.is_executable() && m.is_fixed());
            mappings
        });
        fixed.iter().any(|m| (m.start..m.end).contains(&address))
    }
}

/// Up to `most` bytes of a process's memory, until the first unreadable one.
pub fn bytes_at(tid: i32, address: u64, most: usize) -> Vec<u8> {
    let mut bytes = vec![0; most];
    let length = read(tid, address, &mut bytes);
    bytes.truncate(length);
    bytes
}

/// The branch at an address of a process, from its current code; `None` if there is none, or the
/// code is unreadable.
pub fn branch_at(tid: i32, address: u64) -> Option<BranchInsn> {
    decode(&bytes_at(tid, address, LONGEST), address).branch()
}

/// Reads memory of a process; returns the number of bytes before the first unreadable one.
pub fn read(tid: i32, address: u64, into: &mut [u8]) -> usize {
    // One read per page: the kernel stops between them, not inside.
    let first = usize::try_from(PAGE - address % PAGE).unwrap_or(into.len()).min(into.len());
    let second = address.checked_add(first as u64);
    let mut remote = vec![RemoteIoVec { base: address as usize, len: first }];
    if let Some(base) = second.filter(|_| first < into.len()) {
        remote.push(RemoteIoVec { base: base as usize, len: into.len() - first });
    }
    process_vm_readv(Pid::from_raw(tid), &mut [IoSliceMut::new(into)], &remote).unwrap_or(0)
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/ptrace/code.rs"]
mod tests;
