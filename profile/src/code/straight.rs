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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Straight {
    /// It runs from end to end, without taking these conditional branches.
    Runs(Vec<NotTaken>),
    /// The code bytes are unavailable.
    NoCode,
    /// It is impossible: an unconditional branch is inside, or the last address is in the middle of
    /// an instruction.
    Contradicts,
}

/// Decodes the block from entry to exit, addresses of one space.
pub(crate) fn decode(maps: &mut Maps, space: usize, entry: u64, exit: u64) -> Straight {
    let location = maps.locate(space, entry);
    let Location::File { file, offset } = location else { return Straight::NoCode };
    if maps.is_named(location) {
        return Straight::NoCode;
    }
    let Some(length) = exit.checked_sub(entry).filter(|length| *length <= LONGEST_BLOCK) else {
        return Straight::Contradicts;
    };
    let end = Location::File { file, offset: offset.wrapping_add(length) };
    if maps.locate(space, exit) != end {
        return Straight::Contradicts;
    }
    let (mut passed, mut ip) = (Vec::new(), entry);
    while ip < exit {
        let at = Location::File { file, offset: offset.wrapping_add(ip.wrapping_sub(entry)) };
        let Some(code) = maps.code(at) else { return Straight::NoCode };
        let Some(next) = step(&code, ip, &mut passed) else { return Straight::Contradicts };
        ip = next;
    }
    if ip == exit { Straight::Runs(passed) } else { Straight::Contradicts }
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

/// Returns the instruction at an address if it is a conditional branch.
pub(crate) fn conditional_at(maps: &mut Maps, space: usize, ip: u64) -> Option<NotTaken> {
    let location = maps.locate(space, ip);
    match maps.code(location)?.decode(ip) {
        Insn::Branch(branch) if branch.is_conditional() => {
            Some(NotTaken { from: ip, next: branch.next() })
        }
        _ => None,
    }
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
    match maps.code(location) {
        Some(code) => (true, branch_in(&code, from, to)),
        None => (false, None),
    }
}

/// The same from the code bytes at FROM.
pub(crate) fn branch_in(code: &CodeBytes, from: u64, to: u64) -> Option<BranchInsn> {
    let branch = code.fused_branch(from);
    branch.filter(|branch| branch.ip == from || branch.target == Some(to))
}
