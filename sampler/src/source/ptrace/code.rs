//! The instructions of a target, decoded as they stand right before they
//! execute.

use std::collections::HashMap;
use std::io::IoSliceMut;
use std::sync::Arc;

use lbr_msr::insn::{BranchInsn, Insn, UnderTrapFlag, abort_target, decode, under_trap_flag};
use lbr_msr::record::{BranchType, HwBranchType};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::maps::{self, Mapping};

/// Longest instruction, SDM Vol. 2, 2.3.11.
const LONGEST: usize = 15;
const PAGE: u64 = 4096;

/// An instruction that is about to execute.
#[derive(Clone, Copy, Debug)]
pub struct Decoded {
    /// Its address.
    pub ip: u64,
    /// What it does to the flow of control.
    pub insn: Insn,
    /// What it does while it is stepped.
    pub under_trap_flag: UnderTrapFlag,
    /// XBEGIN: where an abort goes.
    pub abort_target: Option<u64>,
    /// INT 80H, the other way into a system call.
    pub int80: bool,
}

impl Decoded {
    fn new(bytes: &[u8], ip: u64) -> Decoded {
        Decoded {
            ip,
            insn: decode(bytes, ip),
            under_trap_flag: under_trap_flag(bytes, ip),
            abort_target: abort_target(bytes, ip),
            int80: bytes.starts_with(&[0xcd, 0x80]),
        }
    }

    /// Whether it is INT3, INT1 or INT n, but no system call.
    #[must_use]
    pub fn is_interrupt(&self) -> bool {
        !self.int80 && matches!(self.insn, Insn::Branch(b) if b.branch_type == BranchType::IRQ)
    }

    /// Whether it does the same whether it is stepped or not.
    fn is_plain(&self) -> bool {
        self.under_trap_flag == UnderTrapFlag::Plain && self.abort_target.is_none()
    }

    /// Bytes that are not 64-bit code, or cannot be read.
    pub(super) fn unknown(ip: u64) -> Decoded {
        Decoded::new(&[], ip)
    }
}

/// Instructions that execute one after the other, whatever the registers hold:
/// up to a branch that may go to several places, or one that must be stepped.
#[derive(Debug, Default)]
pub(super) struct Path {
    /// Their addresses, no two alike.
    pub(super) instructions: Vec<u64>,
    /// The direct jumps and calls among them, with their places.
    pub(super) jumps: Vec<(usize, BranchInsn)>,
    /// Where it ends: the address of the instruction behind.
    pub(super) end: u64,
}

/// Instructions of a path at most.
const LONGEST_PATH: usize = 64;

/// The code of one process.
#[derive(Debug, Default)]
pub struct TracedCode {
    decoded: HashMap<u64, Decoded>,
    /// Bytes of the pages that stay as they are, with what follows each.
    pages: HashMap<u64, Vec<u8>>,
    paths: HashMap<u64, Arc<Path>>,
    /// Mappings whose bytes stay as they are; `None` until they are needed.
    fixed: Option<Vec<Mapping>>,
}

impl TracedCode {
    /// Forgets everything: the mappings may have changed.
    pub fn forget(&mut self) {
        self.decoded.clear();
        self.pages.clear();
        self.paths.clear();
        self.fixed = None;
    }

    /// The instruction at `ip`, and whether it was decoded anew. It is kept
    /// only where its bytes cannot change behind our back.
    pub fn at(&mut self, tid: i32, ip: u64) -> (Decoded, bool) {
        if let Some(&known) = self.decoded.get(&ip) {
            return (known, false);
        }
        if self.stays(tid, ip) {
            let page = ip - ip % PAGE;
            let bytes = self.pages.entry(page).or_insert_with(|| {
                let mut bytes = vec![0; PAGE as usize + LONGEST];
                let length = read(tid, page, &mut bytes);
                bytes.truncate(length);
                bytes
            });
            let bytes = bytes.get((ip - page) as usize..).unwrap_or_default();
            let decoded = Decoded::new(bytes.get(..LONGEST).unwrap_or(bytes), ip);
            self.decoded.insert(ip, decoded);
            return (decoded, true);
        }
        let mut bytes = [0u8; LONGEST];
        let length = read(tid, ip, &mut bytes);
        (Decoded::new(bytes.get(..length).unwrap_or_default(), ip), true)
    }

    /// The path from `ip`, up to `function` where it gets there; `tell` is called for
    /// each branch that is decoded anew.
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
            // Each address once, so that one tells how far a thread has come.
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

    /// Whether an instruction's bytes cannot change behind our back.
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

/// Reads memory of a process; returns how many bytes could be read before the
/// first that could not.
pub fn read(tid: i32, address: u64, into: &mut [u8]) -> usize {
    // A piece for each page: the kernel stops between pieces, not inside one.
    let first = usize::try_from(PAGE - address % PAGE).unwrap_or(into.len()).min(into.len());
    let second = address.checked_add(first as u64);
    let mut remote = vec![RemoteIoVec { base: address as usize, len: first }];
    if let Some(base) = second.filter(|_| first < into.len()) {
        remote.push(RemoteIoVec { base: base as usize, len: into.len() - first });
    }
    process_vm_readv(Pid::from_raw(tid), &mut [IoSliceMut::new(into)], &remote).unwrap_or(0)
}
