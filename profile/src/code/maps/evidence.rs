//! Whether a file is the one that was recorded: its code, held against the
//! branches that came from it, and against the straight code between them.
//!
//! A branch comes from a branch instruction, and a direct one goes where that
//! says. In another build of the file hardly any does. Single branches prove
//! nothing: signals and aborted transactions leave code at any instruction, and
//! some programs rewrite their own.

use std::collections::HashSet;

use super::Maps;
use super::files::FileKind;
use crate::code::maps::Location;
use crate::code::straight;
use crate::code::symbols::Module;
use crate::read::address::crosses;
use crate::read::stack::{Entries, RawBranch};
use lbr_msr::record::BranchType;

/// Branches of a file that are held against its code at most.
const MOST: usize = 128;
/// Straight code that is longer is not looked at, bytes.
const LONGEST: u64 = 256;
/// Stacks whose branches are all looked at; of those behind one of so many.
const FIRST: u64 = 1024;
const ONE_OF: u64 = 64;
/// Branches that the code contradicts, from which on it is another file: where
/// nearly all are such, and where they are a quarter. Code that a program
/// rewrites itself is less.
const FEW: u32 = 3;
const MANY: u32 = 8;
/// Direct branches that go where the code says, from which on it is the file
/// that was recorded, wherever that was.
const ENOUGH: u32 = 2;

/// A branch that came from a file.
#[derive(Clone, Copy, Debug)]
struct Branch {
    offset: u64,
    from: u64,
    to: u64,
}

/// Straight code that ran: where it begins in the file, at which address, and how
/// far behind that the last of its instructions is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    offset: u64,
    entry: u64,
    len: u64,
}

/// What the branches that came from a file say of it.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Of several branches from one address the first.
    branches: Vec<Branch>,
    /// Straight code that ran, each once.
    blocks: Vec<Block>,
    /// What was found in the first of them.
    found: Findings,
}

/// How the code of a file agrees with the branches.
#[derive(Clone, Debug, Default)]
struct Findings {
    /// Branches that were held against it.
    judged: usize,
    /// Blocks that were.
    judged_blocks: usize,
    /// Blocks that no instructions make up from end to end.
    impossible: u32,
    /// Direct branches that go where the code says.
    direct: u32,
    /// Others that come from a branch instruction.
    indirect: u32,
    /// From no branch instruction, or from outside the code.
    no_branch: u32,
    /// From one that leads elsewhere.
    elsewhere: u32,
    /// Where those that the code contradicts went, or began: those of one target,
    /// such as a signal handler, are one.
    targets: HashSet<u64>,
    /// Where in the file the first of them came from.
    first: Option<u64>,
}

/// Why a file is not the one that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contradiction {
    pub(super) no_branch: u32,
    pub(super) elsewhere: u32,
    pub(super) impossible: u32,
    pub(super) of: u32,
    pub(super) first: u64,
}

impl Evidence {
    fn add(&mut self, branch: Branch) {
        let known = |known: &Branch| known.offset == branch.offset;
        if self.branches.len() < MOST && !self.branches.iter().any(known) {
            self.branches.push(branch);
        }
    }

    fn add_block(&mut self, block: Block) {
        if self.blocks.len() < MOST && !self.blocks.contains(&block) {
            self.blocks.push(block);
        }
    }

    /// Whether no branch came from it.
    pub(super) fn is_empty(&self) -> bool {
        self.branches.is_empty()
    }

    /// Begins anew, for another file.
    pub(super) fn restart(&mut self) {
        self.found = Findings::default();
    }

    /// Holds the branches that are new against the code.
    pub(super) fn judge(&mut self, module: &mut Module) {
        if !module.has_code() {
            return;
        }
        let found = &mut self.found;
        for branch in self.branches.get(found.judged..).unwrap_or_default() {
            let Branch { offset, from, to } = *branch;
            found.judged += 1;
            let code = module.address_of_offset(offset).map(|addr| module.code_at(addr));
            let wrong = match straight::branch_in(&code.unwrap_or_default(), from, to) {
                Some(insn) if insn.target == Some(to) => {
                    found.direct += 1;
                    continue;
                }
                Some(insn) if insn.can_reach(to) => {
                    found.indirect += 1;
                    continue;
                }
                Some(_) => &mut found.elsewhere,
                None => &mut found.no_branch,
            };
            if found.targets.insert(to) {
                *wrong += 1;
                found.first.get_or_insert(offset);
            }
        }
        for Block { offset, entry, len } in self.blocks.iter().skip(found.judged_blocks) {
            found.judged_blocks += 1;
            let Some(addr) = module.address_of_offset(*offset) else { continue };
            let no_code = straight::is_no_code(*len, |at| module.code_at(addr.wrapping_add(at)));
            if no_code && found.targets.insert(*entry) {
                found.impossible += 1;
                found.first.get_or_insert(*offset);
            }
        }
    }

    /// Whether the code belongs to the branches, which nothing but the recorded
    /// file's does.
    pub(super) fn confirms(&self) -> bool {
        self.found.direct >= ENOUGH
    }

    /// Why it is another file, if it is.
    pub(super) fn contradiction(&self) -> Option<Contradiction> {
        let Findings { direct, indirect, no_branch, elsewhere, impossible, first, .. } = self.found;
        let (right, wrong) = (direct + indirect, no_branch + elsewhere + impossible);
        let nearly_all = wrong >= FEW && wrong >= 2 * right;
        let many = wrong >= MANY && 3 * wrong >= right;
        let of = right + wrong;
        let first = first.filter(|_| nearly_all || many)?;
        Some(Contradiction { no_branch, elsewhere, impossible, of: of - impossible, first })
    }
}

impl Maps {
    /// Remembers some branches of each file, to hold its code against.
    pub(super) fn gather_evidence(&mut self, space: usize, entries: &Entries<'_>) {
        self.stacks = self.stacks.wrapping_add(1);
        if self.stacks > FIRST && !self.stacks.is_multiple_of(ONE_OF) {
            return;
        }
        entries.for_each(|branch| {
            let RawBranch { from, to, .. } = branch;
            if may_leave_anywhere(&branch) {
                return;
            }
            let Location::File { file, offset } = self.locate(space, from) else { return };
            if let Some(file) = self.files.get_mut(file).filter(|file| file.kind == FileKind::Elf) {
                file.evidence.add(Branch { offset, from, to });
            }
        });
    }
}

impl Maps {
    /// Remembers some of the straight code of each file, where every branch was
    /// recorded.
    pub(crate) fn gather_blocks(&mut self, space: usize, blocks: impl Iterator<Item = (u64, u64)>) {
        if self.stacks > FIRST && !self.stacks.is_multiple_of(ONE_OF) {
            return;
        }
        for (entry, exit) in blocks {
            let len = exit.wrapping_sub(entry);
            if len > LONGEST {
                continue;
            }
            let Location::File { file, offset } = self.locate(space, entry) else { continue };
            if let Some(file) = self.files.get_mut(file).filter(|file| file.kind == FileKind::Elf) {
                file.evidence.add_block(Block { offset, entry, len });
            }
        }
    }
}

/// Whether it may be of an event that strikes any instruction.
fn may_leave_anywhere(branch: &RawBranch) -> bool {
    branch.is_empty()
        || crosses(branch.from, branch.to)
        || branch.flags.abort()
        || branch.flags.not_taken()
        || matches!(branch.flags.branch_type(), Some(BranchType::IRQ | BranchType::SERROR))
}
