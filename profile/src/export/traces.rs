//! The common unit of all profiles: a branch together with the next taken branch. Branch counts and
//! fall-through ranges are sums of these.

use super::ProfileKind;
use crate::clean::{Cleaned, CommonResult, Continuity, RecordedBranches, View};
use crate::code::maps::Maps;
use crate::index::{Index, hash};
use crate::read::add;
use crate::read::stack::{Entries, RawBranch};

/// The next branch is unknown.
pub(super) const NOT_KNOWN: u64 = u64::MAX;
/// BOLT treats addresses from here on as the kernel's (`KernelBaseAddr` in its `DataAggregator`).
const BOLT_KERNEL: u64 = 0xffff_8000_0000_0000;
/// AutoFDO treats a repeated newest entry as a duplicate if the branch goes back by more than
/// `strip_dup_backedge_stride_limit` bytes. This is the value in its `sample_reader_test.cc`; the
/// default of `create_llvm_prof` is 0x1000.
const AUTOFDO_STRIDE: u64 = 0x50;
/// Maximum number of newer entries searched for one with an end in a file: no LBR stack is deeper.
const DEPTH: usize = 64;

/// A branch, and the address of the next taken branch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trace {
    pub(super) from: u64,
    pub(super) to: u64,
    /// FROM of the next branch, or [`NOT_KNOWN`].
    pub(super) next: u64,
    /// Number of records.
    pub(super) taken: u64,
    /// Number of those known to be mispredicted.
    pub(super) mispredicted: u64,
    /// Number of times the branch was followed by `next`.
    pub(super) ran: u64,
    pub(super) space: u32,
    /// perf's code of the branch type, 0 if the recording has none.
    pub(super) branch_type: u8,
    /// The next branch is in another file than this one's target.
    apart: bool,
}

/// Counts branches with their successors. With `JOIN`, in complete recordings, the newest branch of
/// a stack is followed by the oldest of the thread's next stack, unless entries are missing in
/// between.
#[derive(Debug)]
pub struct Traces<const JOIN: bool> {
    kind: ProfileKind,
    index: Index,
    traces: Vec<Trace>,
    tally: Tally,
}

/// Entries dropped by the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Dropped before pairing: in the kernel (BOLT), duplicates (AutoFDO).
    pub dropped: u64,
    /// Stacks that do not have every taken branch: the code between their entries is unknown.
    pub filtered: u64,
}

/// Everything that was counted.
#[derive(Debug)]
pub struct Traced {
    pub(super) traces: Vec<Trace>,
    /// Entries dropped by the rules.
    pub tally: Tally,
    /// Mappings and files.
    pub maps: Maps,
}

impl<const JOIN: bool> Traces<JOIN> {
    /// Starts without any traces. The tool that reads the profile decides which entries are
    /// dropped and which are neighbours.
    pub fn of(kind: ProfileKind) -> Traces<JOIN> {
        Traces { kind, index: Index::default(), traces: Vec::new(), tally: Tally::default() }
    }

    /// The number of a trace; adds it if it is new.
    #[inline]
    fn number(&mut self, branch: &RawBranch, space: u32, next: u64, maps: &Maps) -> Option<usize> {
        let hash = hash(branch.from, branch.to ^ next.rotate_left(20), space.into());
        let traces = &self.traces;
        let is = |at: u32| {
            traces.get(at as usize).is_some_and(|trace| {
                (trace.from ^ branch.from) | (trace.to ^ branch.to) | (trace.next ^ next) == 0
                    && trace.space == space
            })
        };
        match self.index.find(hash, is) {
            Some(at) => Some(at as usize),
            None => self.insert(hash, branch, space, next, maps),
        }
    }

    #[cold]
    fn insert(
        &mut self,
        hash: u32,
        branch: &RawBranch,
        space: u32,
        next: u64,
        maps: &Maps,
    ) -> Option<usize> {
        let number = u32::try_from(self.traces.len()).ok().filter(|number| *number < u32::MAX)?;
        let (to, after) = (file(maps, space, branch.to), file(maps, space, next));
        self.traces.push(Trace {
            from: branch.from,
            to: branch.to,
            next,
            taken: 0,
            mispredicted: 0,
            ran: 0,
            space,
            branch_type: branch.flags.branch_type().map_or(0, |of| of.0),
            apart: next != NOT_KNOWN && to.is_some() && to != after,
        });
        self.index.insert(hash, number);
        Some(number as usize)
    }

    fn count(&mut self, number: Option<usize>, branch: &RawBranch, weight: u64) {
        let Some(trace) = number.and_then(|number| self.traces.get_mut(number)) else { return };
        add(&mut trace.taken, weight);
        add(&mut trace.ran, weight);
        if branch.flags.mispredicted() == Some(true) {
            add(&mut trace.mispredicted, weight);
        }
    }

    /// llvm-profgen's choice of the next branch if the real one has no end in the file of this
    /// branch's target.
    #[cold]
    fn next_inside(branch: &RawBranch, newer: &Entries<'_>, at: usize, of: (u32, &Maps)) -> u64 {
        let (space, maps) = of;
        let inside = file(maps, space, branch.to);
        for at in (at.saturating_sub(DEPTH)..at).rev() {
            let Some(newer) = newer.get(at) else { break };
            // A branch that only ends inside came from outside, on an unknown path.
            if [newer.from, newer.to].into_iter().any(|end| file(maps, space, end) == inside) {
                return newer.from;
            }
        }
        NOT_KNOWN
    }
}

/// The file that contains an address.
fn file(maps: &Maps, space: u32, addr: u64) -> Option<usize> {
    maps.locate(space as usize, addr).file()
}

/// Whether AutoFDO treats the newest entry as a duplicate.
fn is_duplicate(entries: &Entries<'_>) -> bool {
    let (Some(newest), Some(second)) = (entries.get(0), entries.get(1)) else { return false };
    (newest.from, newest.to) == (second.from, second.to)
        && newest.from > newest.to
        && newest.from - newest.to > AUTOFDO_STRIDE
}

impl<const JOIN: bool> View for Traces<JOIN> {
    type Table = Traced;

    const ORDERED: bool = JOIN;

    fn stack(&mut self, stack: &Cleaned<'_>, maps: &mut Maps) {
        use ProfileKind::{AutoFdo, Llvm, LlvmRaw, Preagg, PreaggTraces};
        let (entries, space, weight) = (stack.entries, stack.space, stack.weight);
        // BOLT drops entries with an end in the kernel before it pairs neighbours
        // (`DataAggregator::parseBranchSample`).
        let is_bolt = matches!(self.kind, Preagg | PreaggTraces);
        // llvm-profgen drops entries with neither end in the program before it pairs neighbours
        // (`PerfScriptReader::extractLBRStack`). It does not detect duplicates.
        let is_llvm = matches!(self.kind, LlvmRaw | Llvm);
        let straight = stack.holds == RecordedBranches::Everything;
        if !straight {
            add(&mut self.tally.filtered, weight);
        }
        // AutoFDO drops the newest entry if it equals the second and goes back by more than 0x50
        // bytes (`PerfDataSampleReader`).
        let duplicate = self.kind == AutoFdo && is_duplicate(&entries);
        let (mut next, mut index) = (NOT_KNOWN, 0);
        entries.for_each(|branch| {
            let at = index;
            index += 1;
            let in_kernel = is_bolt && branch.from.max(branch.to) >= BOLT_KERNEL;
            if branch.flags.not_taken() || in_kernel || duplicate && at == 0 {
                add(&mut self.tally.dropped, weight);
                return;
            }
            let mut number = self.number(&branch, space, next, maps);
            let apart = number.and_then(|at| self.traces.get(at)).is_some_and(|of| of.apart);
            if apart && is_llvm {
                let inside = Self::next_inside(&branch, &entries, at, (space, maps));
                number = self.number(&branch, space, inside, maps);
            }
            self.count(number, &branch, weight);
            next = if straight { branch.from } else { NOT_KNOWN };
        });
        let before = stack.before.filter(|before| JOIN && before.space == space);
        if let (Some(before), Continuity::Before, true) = (before, stack.joins, next != NOT_KNOWN) {
            let branch = RawBranch { from: before.from, to: before.to, ..RawBranch::default() };
            // It was counted when its successor was unknown.
            let alone = self.number(&branch, space, NOT_KNOWN, maps);
            let alone = alone.and_then(|at| self.traces.get_mut(at));
            let branch_type = alone.map_or(0, |alone| {
                alone.ran = alone.ran.saturating_sub(weight);
                alone.branch_type
            });
            let joined = self.number(&branch, space, next, maps);
            if let Some(joined) = joined.and_then(|at| self.traces.get_mut(at)) {
                add(&mut joined.ran, weight);
                joined.branch_type = joined.branch_type.max(branch_type);
            }
        }
    }

    fn finish(self, whole: CommonResult) -> Traced {
        let Traces { traces, tally, .. } = self;
        Traced { traces, tally, maps: whole.maps }
    }
}
