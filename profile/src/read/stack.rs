//! A branch stack as a recording holds it: nothing copied, nothing decoded
//! before somebody asks.

use lbr_msr::record::{BranchEntry, BranchStack, Integrity, Sample};
pub use lbr_msr::record::{EntryFlags, RawBranch};

use crate::read::note::Source;
use crate::read::registers::Registers;

/// The entries of a stack, newest first, where they lie.
#[derive(Clone, Copy, Debug)]
pub enum Entries<'a> {
    /// Records of a little-endian perf.data: from, to, flags.
    Little(&'a [[u8; 24]]),
    /// Records of a big-endian perf.data, whose flags count bits from the top.
    Big(&'a [[u8; 24]]),
    /// Entries that were text.
    Parsed(&'a [RawBranch]),
}

impl<'a> Entries<'a> {
    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Entries::Little(raw) | Entries::Big(raw) => raw.len(),
            Entries::Parsed(branches) => branches.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at an index, 0 being the newest.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<RawBranch> {
        match self {
            Entries::Little(raw) => raw.get(index).map(little),
            Entries::Big(raw) => raw.get(index).map(big),
            Entries::Parsed(branches) => branches.get(index).copied(),
        }
    }

    /// Calls `visit` with each entry, newest first. The byte order is looked
    /// at once a stack, not once an entry: this is the fast path.
    #[inline]
    pub fn for_each(&self, mut visit: impl FnMut(RawBranch)) {
        match self {
            Entries::Little(raw) => raw.iter().for_each(|entry| visit(little(entry))),
            Entries::Big(raw) => raw.iter().for_each(|entry| visit(big(entry))),
            Entries::Parsed(branches) => branches.iter().for_each(|branch| visit(*branch)),
        }
    }

    /// Calls `visit` with each entry, oldest first.
    #[inline]
    pub fn for_each_back(&self, mut visit: impl FnMut(RawBranch)) {
        match self {
            Entries::Little(raw) => raw.iter().rev().for_each(|entry| visit(little(entry))),
            Entries::Big(raw) => raw.iter().rev().for_each(|entry| visit(big(entry))),
            Entries::Parsed(branches) => branches.iter().rev().for_each(|branch| visit(*branch)),
        }
    }

    /// The entries, newest first.
    pub fn iter(self) -> impl ExactSizeIterator<Item = RawBranch> + 'a {
        (0..self.len()).map(move |index| self.get(index).unwrap_or_default())
    }
}

/// The three words of a record.
#[inline]
fn words(entry: &[u8; 24]) -> [[u8; 8]; 3] {
    let (words, _) = entry.as_chunks::<8>();
    match words {
        [from, to, flags] => [*from, *to, *flags],
        _ => [[0; 8]; 3],
    }
}

#[inline]
pub(crate) fn little(entry: &[u8; 24]) -> RawBranch {
    let [from, to, flags] = words(entry).map(u64::from_le_bytes);
    RawBranch { from, to, flags: EntryFlags(flags) }
}

pub(crate) fn big(entry: &[u8; 24]) -> RawBranch {
    let [from, to, flags] = words(entry).map(u64::from_be_bytes);
    RawBranch { from, to, flags: from_top(flags) }
}

/// A big-endian machine's compiler allots bit fields from the top of the word:
/// puts each field where little-endian machines have it.
fn from_top(word: u64) -> EntryFlags {
    let field = |at: u32, width: u32| {
        let mask = (1u64 << width) - 1;
        (word >> (64 - at - width) & mask) << at
    };
    let singles = field(0, 1) | field(1, 1) | field(2, 1) | field(3, 1) | field(33, 1);
    EntryFlags(singles | field(4, 16) | field(20, 4) | field(24, 2) | field(26, 4) | field(30, 3))
}

/// What counters counted, branch by branch: `PERF_SAMPLE_BRANCH_COUNTERS`
/// (Linux 6.8, Sierra Forest and later).
///
/// Each branch has a word with two bits for each counter, the lowest for the
/// first: how often its event occurred since the branch before, 3 standing for
/// three and more. Linux puts the counters into the order of the events that
/// were asked for (`intel_pmu_lbr_counters_reorder`), so the first belongs to
/// the first event with the bit in its attribute.
#[derive(Clone, Copy, Debug)]
pub struct Counters<'a> {
    pub(crate) words: &'a [[u8; 8]],
    pub(crate) big: bool,
    /// Bit by counter: an event was counted there.
    pub(crate) logged: u8,
}

impl Counters<'_> {
    /// The highest count that the two bits hold: this often, or more often.
    pub const MAX: u8 = 3;

    /// The counts of the entry at an index, 0 being the newest; `None` for
    /// counters without an event.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<[Option<u8>; 4]> {
        let bytes = *self.words.get(index)?;
        let word = if self.big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) };
        let count = |i: u32| ((word >> (2 * i)) & u64::from(Self::MAX)) as u8;
        Some([0, 1, 2, 3].map(|i| (self.logged >> i & 1 == 1).then(|| count(i))))
    }
}

/// Process and thread, where the recording says them.
pub type Thread = (Option<u32>, Option<u32>);

/// What a sample says beside its branches. Absent is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleHead {
    /// Nanoseconds of the recording's clock.
    pub time: Option<u64>,
    /// Process.
    pub pid: Option<u32>,
    /// Thread.
    pub tid: Option<u32>,
    /// Logical CPU.
    pub cpu: Option<u32>,
    /// Where execution stood.
    pub ip: Option<u64>,
    /// Event count since the sample before.
    pub period: Option<u64>,
    /// Index of the event among the recording's events. Text has no events,
    /// only their names, if those: 0 where it does not say it.
    pub event: usize,
    /// How many identical stacks this one stands for (aggregated text), else 1.
    pub weight: u64,
    /// Slot of the newest entry in the hardware's ring, where recorded.
    pub hw_idx: Option<u64>,
    /// How far the stack can be trusted.
    pub integrity: Integrity,
    /// Where its branches came from.
    pub source: Source,
    /// A clear transaction bit means "no", not "unknown".
    pub tsx_known: bool,
    /// Rounds that the recorder had finished before
    /// (`PERF_RECORD_FINISHED_ROUND`): no sample of the round after the next
    /// is older than one of this.
    pub round: u32,
}

impl Default for SampleHead {
    fn default() -> SampleHead {
        SampleHead {
            time: None,
            pid: None,
            tid: None,
            cpu: None,
            ip: None,
            period: None,
            event: 0,
            weight: 1,
            hw_idx: None,
            integrity: Integrity::UNKNOWN,
            source: Source::Unsaid,
            tsx_known: false,
            round: 0,
        }
    }
}

/// One sample of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Stack<'a> {
    /// What ran, and when.
    pub head: SampleHead,
    /// The branches, newest first.
    pub entries: Entries<'a>,
    /// What was counted at each of them; `None` where nothing was.
    pub counters: Option<Counters<'a>>,
    /// The registers of the program; `None` where they were not recorded.
    pub registers: Option<Registers<'a>>,
}

impl Stack<'_> {
    /// The decoded sample. What the recording does not say becomes 0 there,
    /// because [`Sample`] has no other word for it; entries stay as they are,
    /// empty ones left out.
    #[must_use]
    pub fn to_sample(&self) -> Sample {
        let head = &self.head;
        let mut entries = Vec::with_capacity(self.entries.len());
        for (index, branch) in self.entries.iter().enumerate() {
            if !branch.is_empty() {
                let counters = self.counters.and_then(|counters| counters.get(index));
                entries.push(BranchEntry { counters, ..branch.decode(head.tsx_known) });
            }
        }
        Sample {
            arguments: None,
            time: head.time.unwrap_or(0),
            pid: head.pid.unwrap_or(0),
            tid: head.tid.unwrap_or(0),
            cpu: head.cpu.unwrap_or(0),
            ip: head.ip.unwrap_or(0),
            period: head.period.unwrap_or(0),
            stack: BranchStack { entries, integrity: head.integrity },
        }
    }
}
