//! A made-up, deterministic recording for measuring readers.
//!
//! As in a real program, a branch's target decides what follows: it is a few bytes before another
//! branch, which is taken next or, one time in eight, not taken. Unlike in a real one, all branches
//! are equally frequent and in no order that a cache could learn.

use lbr_msr::record::{BranchEntry, BranchType};

/// Number of distinct (from, to) pairs.
pub(crate) const EDGES: usize = 82_100;
/// Branches per stack.
pub(crate) const DEPTH: usize = 32;

/// Xorshift; Marsaglia.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }
}

/// A branch: its two addresses, the branch after its target, and the usual number of cycles to
/// reach it.
#[derive(Clone, Copy, Debug)]
struct Branch {
    from: u64,
    to: u64,
    next: usize,
    cycles: u32,
}

/// The program, running.
#[derive(Debug)]
pub(crate) struct Program {
    random: Random,
    branches: Vec<Branch>,
}

impl Program {
    /// A program with `len` bytes of code at `start`.
    pub(crate) fn new(start: u64, len: u64) -> Program {
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        let each = len / EDGES as u64;
        // One branch in each stretch of code, entered at or before it.
        let mut places: Vec<(u64, u64)> = Vec::new();
        for stretch in 0..EDGES as u64 {
            let begin = start + stretch * each;
            let from = begin + each / 2 + random.below((each / 2) as usize) as u64;
            places.push((begin + random.below((each / 2) as usize) as u64, from));
        }
        let mut order: Vec<usize> = (0..EDGES).collect();
        for last in (1..EDGES).rev() {
            order.swap(last, random.below(last + 1));
        }
        let branches = places.iter().zip(order).map(|(&(_, from), next)| {
            let cycles = 1 + random.below(30) as u32;
            Branch { from, to: places.get(next).map_or(start, |place| place.0), next, cycles }
        });
        let branches = branches.collect();
        Program { random, branches }
    }

    /// The branches of one stack, newest first.
    pub(crate) fn stack(&mut self) -> Vec<BranchEntry> {
        let mut at = self.random.below(EDGES);
        let mut entries = Vec::with_capacity(DEPTH);
        for _ in 0..DEPTH {
            let Some(branch) = self.branches.get(at).copied() else { continue };
            let missed = self.random.below(16) == 0;
            // Usually the same; sometimes a cache miss or a misprediction.
            let late = [0, 0, 0, 0, 0, 1, 1, 14].get(self.random.below(8)).copied().unwrap_or(0);
            entries.push(BranchEntry {
                from: branch.from,
                to: branch.to,
                mispredicted: Some(missed),
                cycles: Some(branch.cycles + late + if missed { 20 } else { 0 }),
                branch_type: Some(BranchType::COND),
                ..BranchEntry::default()
            });
            let passed = usize::from(self.random.below(8) == 0);
            at = (branch.next + passed) % EDGES;
        }
        entries.reverse();
        entries
    }
}
