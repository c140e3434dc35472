//! Checks whether a file is the recorded one, by comparing its code with the recorded branches and
//! fall-through ranges.
//!
//! A branch comes from a branch instruction, and a direct one goes to that instruction's target. In
//! another build of the file hardly any does. Single branches prove nothing: signals and
//! transaction aborts leave code at any instruction, and some programs modify their code.

use std::collections::HashSet;
use std::path::Path;

use super::Maps;
use super::files::FileKind;
use crate::code::maps::Location;
use crate::code::straight;
use crate::code::symbols::{Module, SymbolError};
use crate::read::crosses;
use crate::read::stack::{Entries, RawBranch};
use lbr_msr::record::BranchType;

/// Maximum number of branches per file to compare.
const MOST: usize = 128;
/// Longer fall-through ranges are not checked, bytes.
const LONGEST: u64 = 256;
/// Number of stacks whose branches are all checked; afterwards one of that many.
const FIRST: u64 = 1024;
const ONE_OF: u64 = 64;
/// Number of contradicting branches that prove another file, if nearly all contradict, or a
/// quarter. Self-modified code causes fewer.
const FEW: u32 = 3;
const MANY: u32 = 8;
/// Number of matching direct branches that confirm the recorded file, wherever it was recorded.
pub(super) const ENOUGH: u32 = 2;

/// A branch from a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Branch {
    offset: u64,
    from: u64,
    to: u64,
}

/// A fall-through range: file offset, address, and the distance to its last instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FallThrough {
    offset: u64,
    entry: u64,
    len: u64,
}

/// The recorded branches of a file.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Of several branches from one address only the first.
    pub(super) branches: Vec<Branch>,
    /// Fall-through ranges, each once.
    blocks: Vec<FallThrough>,
    /// The findings for those already compared.
    pub(super) found: Findings,
}

/// How the code of a file matches its branches.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    /// Number of branches compared.
    judged: usize,
    /// Number of blocks compared.
    judged_blocks: usize,
    /// Blocks that do not consist of instructions from end to end.
    impossible: u32,
    /// Direct branches that match their instruction's target.
    pub(super) direct: u32,
    /// Other branches from branch instructions.
    indirect: u32,
    /// Branches not from a branch instruction, or from outside of the code.
    no_branch: u32,
    /// Branches from an instruction with another target.
    elsewhere: u32,
    /// The targets or starts of contradicting items: those with one target, such as a signal
    /// handler, count once.
    targets: HashSet<u64>,
    /// File offset of the first contradiction.
    first: Option<u64>,
}

impl Evidence {
    /// Compares new branches with the code.
    pub(super) fn judge(&mut self, module: &mut Module) {
        if module.isa.is_none() {
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
        for FallThrough { offset, entry, len } in self.blocks.iter().skip(found.judged_blocks) {
            found.judged_blocks += 1;
            let Some(addr) = module.address_of_offset(*offset) else { continue };
            let no_code = straight::is_no_code(*len, |at| module.code_at(addr.wrapping_add(at)));
            if no_code && found.targets.insert(*entry) {
                found.impossible += 1;
                found.first.get_or_insert(*offset);
            }
        }
    }

    /// Why it is another file, if it is.
    pub(super) fn contradiction(&self, path: &Path) -> Option<SymbolError> {
        let Findings { direct, indirect, no_branch, elsewhere, impossible, first, .. } = self.found;
        let (right, wrong) = (direct + indirect, no_branch + elsewhere + impossible);
        let nearly_all = wrong >= FEW && wrong >= 2 * right;
        let many = wrong >= MANY && 3 * wrong >= right;
        let first = first.filter(|_| nearly_all || many)?;
        let (path, of) = (path.to_owned(), right + no_branch + elsewhere);
        Some(SymbolError::Contradicted { path, of, no_branch, elsewhere, impossible, first })
    }
}

impl Maps {
    /// Collects some branches of each file for comparison.
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
            let Some((Evidence { branches, .. }, offset)) = self.evidence_at(space, from) else {
                return;
            };
            let known = |known: &Branch| known.offset == offset;
            if branches.len() < MOST && !branches.iter().any(known) {
                branches.push(Branch { offset, from, to });
            }
        });
    }

    /// Collects some fall-through ranges of each file, if every branch was recorded.
    pub(crate) fn gather_blocks(&mut self, space: usize, blocks: impl Iterator<Item = (u64, u64)>) {
        if self.stacks > FIRST && !self.stacks.is_multiple_of(ONE_OF) {
            return;
        }
        for (entry, exit) in blocks {
            let len = exit.wrapping_sub(entry);
            if len > LONGEST {
                continue;
            }
            let Some((Evidence { blocks, .. }, offset)) = self.evidence_at(space, entry) else {
                continue;
            };
            let block = FallThrough { offset, entry, len };
            if blocks.len() < MOST && !blocks.contains(&block) {
                blocks.push(block);
            }
        }
    }

    /// The evidence about the program or library at an address, and the offset in it.
    fn evidence_at(&mut self, space: usize, addr: u64) -> Option<(&mut Evidence, u64)> {
        let Location::File { file, offset } = self.locate(space, addr) else { return None };
        let file = self.files.get_mut(file).filter(|file| file.kind == FileKind::Elf)?;
        Some((&mut file.evidence, offset))
    }
}

/// Whether the branch may come from an event that can occur at any instruction.
fn may_leave_anywhere(branch: &RawBranch) -> bool {
    branch.is_empty()
        || crosses(branch.from, branch.to)
        || branch.flags.abort()
        || branch.flags.not_taken()
        || matches!(branch.flags.branch_type(), Some(BranchType::IRQ | BranchType::SERROR))
}
