//! The instructions of a target, decoded as they stand right before they
//! execute.

use std::collections::HashMap;
use std::io::IoSliceMut;

use lbr_msr::insn::{Insn, UnderTrapFlag, abort_target, decode, under_trap_flag};
use lbr_msr::record::BranchType;
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

    /// Bytes that are not 64-bit code, or cannot be read.
    pub(super) fn unknown(ip: u64) -> Decoded {
        Decoded::new(&[], ip)
    }
}

/// The code of one process.
#[derive(Debug, Default)]
pub struct Code {
    decoded: HashMap<u64, Decoded>,
    /// Mappings whose bytes stay as they are; `None` until they are needed.
    fixed: Option<Vec<Mapping>>,
}

impl Code {
    /// Forgets everything: the mappings may have changed.
    pub fn forget(&mut self) {
        self.decoded.clear();
        self.fixed = None;
    }

    /// The instruction at `ip`, and whether it was decoded anew. It is kept
    /// only where its bytes cannot change behind our back.
    pub fn at(&mut self, tid: i32, ip: u64) -> (Decoded, bool) {
        if let Some(&known) = self.decoded.get(&ip) {
            return (known, false);
        }
        let mut bytes = [0u8; LONGEST];
        let length = read(tid, ip, &mut bytes);
        let decoded = Decoded::new(bytes.get(..length).unwrap_or_default(), ip);
        if self.is_fixed(tid, ip) && self.is_fixed(tid, ip.saturating_add(LONGEST as u64 - 1)) {
            self.decoded.insert(ip, decoded);
        }
        (decoded, true)
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
