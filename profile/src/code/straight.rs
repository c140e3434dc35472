//! Fall-through ranges: the code between the target of a branch and the next taken branch.

use lbr_msr::insn::{BranchInsn, CodeBytes, Insn};
use lbr_msr::record::BranchType;

use crate::code::maps::{Location, Maps};
use crate::read::LONGEST_BLOCK;

/// A conditional branch that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotTaken {
    /// Its address.
    pub(crate) from: u64,
    /// Address of the next instruction.
    pub(crate) next: u64,
}

/// The result of decoding a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Decoding {
    /// It runs from end to end.
    Runs,
    /// The code bytes are unavailable.
    #[default]
    NoCode,
    /// It is impossible: an unconditional branch is inside, or the last address is in the middle of
    /// an instruction.
    Contradicts,
}

/// Decodes the block from entry to exit, addresses of one space. If it runs, the conditional
/// branches that it does not take are in `passed`; of one that no branch `ended`, the last
/// instruction too.
pub(crate) fn decode(
    maps: &mut Maps,
    space: usize,
    (entry, exit): (u64, u64),
    ended: bool,
    passed: &mut Vec<NotTaken>,
) -> Decoding {
    let location = maps.locate(space, entry);
    let Location::File { file, offset } = location else { return Decoding::NoCode };
    if maps.is_named(location) {
        return Decoding::NoCode;
    }
    let Some(length) = exit.checked_sub(entry).filter(|length| *length <= LONGEST_BLOCK) else {
        return Decoding::Contradicts;
    };
    let end = Location::File { file, offset: offset.wrapping_add(length) };
    if maps.locate(space, exit) != end {
        return Decoding::Contradicts;
    }
    let mut ip = entry;
    while ip < exit {
        let at = Location::File { file, offset: offset.wrapping_add(ip.wrapping_sub(entry)) };
        let Some(code) = maps.code(at) else { return Decoding::NoCode };
        let Some(next) = step(&code, ip, passed) else { return Decoding::Contradicts };
        ip = next;
    }
    if ip != exit {
        return Decoding::Contradicts;
    }
    if ended && let Some(code) = maps.code(end) {
        step(&code, ip, passed);
    }
    Decoding::Runs
}

/// The address of the next instruction of straight-line code; `None` at an unconditional branch
/// and at invalid bytes. Adds a conditional branch to `passed`.
fn step(code: &CodeBytes, ip: u64, passed: &mut Vec<NotTaken>) -> Option<u64> {
    let len = match code.decode(ip) {
        Insn::Straight { len } => len,
        Insn::Branch(branch) if branch.is_conditional() => {
            passed.push(NotTaken { from: ip, next: branch.next() });
            branch.len
        }
        Insn::Branch(branch) if runs_on(&branch) => branch.len,
        Insn::Branch(_) | Insn::Invalid => return None,
    };
    Some(ip.wrapping_add(u64::from(len)))
}

/// Returns the conditional branches that straight-line code may pass from this address to the next
/// unconditional branch.
pub(crate) fn may_pass(maps: &mut Maps, space: usize, mut ip: u64) -> Vec<NotTaken> {
    /// Maximum number of instructions decoded.
    const MOST: usize = 4096;
    let mut passed = Vec::new();
    for _ in 0..MOST {
        let location = maps.locate(space, ip);
        let next = maps.code(location).and_then(|code| step(&code, ip, &mut passed));
        let Some(next) = next else { break };
        ip = next;
    }
    passed
}

/// Whether no sequence of instructions leads from a block's entry to an exit `len` bytes later.
/// `code` returns the bytes at a distance from the entry. A sequence that ends earlier, at an
/// unconditional branch or for lack of bytes, proves nothing: that branch may not be a recorded
/// type.
pub(crate) fn is_no_code(len: u64, mut code: impl FnMut(u64) -> CodeBytes) -> bool {
    let mut at = 0;
    while at < len {
        let code = code(at);
        at += match code.decode(at) {
            Insn::Straight { len } => u64::from(len),
            Insn::Branch(branch) if branch.is_conditional() || runs_on(&branch) => {
                u64::from(branch.len)
            }
            Insn::Branch(_) => return false,
            Insn::Invalid => return code.bytes.len() == usize::from(code.isa.longest()),
        };
    }
    at != len
}

/// The instructions from the entry of a block to its exit, inclusive; `None` if the code bytes are
/// unavailable or contradict it.
pub(crate) fn instructions(
    maps: &mut Maps,
    entry_location: Location,
    entry: u64,
    exit: u64,
) -> Option<u64> {
    let mut count = 0;
    let end = each_instruction(maps, entry_location, entry, exit, |_, _| count += 1);
    (end == Some(exit)).then_some(count)
}

/// Visits the instructions from the entry of a block to its exit, as far as there are code bytes.
/// Returns the address of the last one.
pub(crate) fn each_instruction(
    maps: &mut Maps,
    entry_location: Location,
    entry: u64,
    exit: u64,
    mut visit: impl FnMut(&mut Maps, Location),
) -> Option<u64> {
    let Location::File { file, offset } = entry_location else { return None };
    let mut ip = entry;
    loop {
        let at = Location::File { file, offset: offset.wrapping_add(ip.wrapping_sub(entry)) };
        let code = maps.code(at)?;
        visit(maps, at);
        let len = match code.decode(ip) {
            Insn::Straight { len } | Insn::Branch(BranchInsn { len, .. }) => len,
            Insn::Invalid => return Some(ip),
        };
        let next = ip.wrapping_add(u64::from(len));
        if next > exit || next < ip {
            return Some(ip);
        }
        ip = next;
    }
}

/// Whether execution may continue after this branch without a record: branches into the kernel that
/// return, if only user code is recorded; and calls of the next instruction, which some CPUs do not
/// record.
fn runs_on(branch: &BranchInsn) -> bool {
    branch.is_zero_length_call()
        || matches!(branch.branch_type, BranchType::SYSCALL | BranchType::IRQ)
}

/// The branch that a record's FROM refers to: the instruction there, or the conditional branch that
/// a CPU fused with it.
pub(crate) fn branch_at(
    maps: &mut Maps,
    location: Location,
    from: u64,
    to: u64,
) -> (bool, Option<BranchInsn>) {
    let code = maps.code(location);
    (code.is_some(), code.and_then(|code| branch_in(&code, from, to)))
}

/// The same from the code bytes at FROM.
pub(crate) fn branch_in(code: &CodeBytes, from: u64, to: u64) -> Option<BranchInsn> {
    let branch = code.fused_branch(from);
    branch.filter(|branch| branch.ip == from || branch.target == Some(to))
}
