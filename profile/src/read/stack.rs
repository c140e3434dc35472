//! A branch stack in place in a recording: not copied, and decoded only on demand.

pub use lbr_msr::record::{EntryFlags, RawBranch};
use lbr_msr::record::{Event, Integrity};

use crate::read::names::Symbol;
use crate::read::note::{Moves, Source};
use crate::read::registers::Registers;

/// The entries of a stack in place, newest first.
#[derive(Clone, Copy, Debug)]
pub enum Entries<'a> {
    /// Records of a little-endian perf.data: from, to, flags.
    Little(&'a [[u8; 24]]),
    /// Records of a big-endian perf.data, whose bit fields start at the top.
    Big(&'a [[u8; 24]]),
    /// Entries parsed from text.
    Parsed(&'a [RawBranch]),
}

impl<'a> Entries<'a> {
    /// Number of entries.
    pub const fn len(&self) -> usize {
        match self {
            Entries::Little(raw) | Entries::Big(raw) => raw.len(),
            Entries::Parsed(branches) => branches.len(),
        }
    }

    /// Whether there are no entries.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at an index, 0 being the newest.
    pub fn get(&self, index: usize) -> Option<RawBranch> {
        match self {
            Entries::Little(raw) => raw.get(index).map(little),
            Entries::Big(raw) => raw.get(index).map(big),
            Entries::Parsed(branches) => branches.get(index).copied(),
        }
    }

    /// Calls `visit` with each entry, newest first. The fast path: checks the byte order once per
    /// stack.
    #[inline]
    pub fn for_each(&self, mut visit: impl FnMut(RawBranch)) {
        match self {
            Entries::Little(raw) => raw.iter().for_each(|entry| visit(little(entry))),
            Entries::Big(raw) => raw.iter().for_each(|entry| visit(big(entry))),
            Entries::Parsed(branches) => branches.iter().for_each(|branch| visit(*branch)),
        }
    }

    /// The entries, newest first.
    pub fn iter(self) -> impl ExactSizeIterator<Item = RawBranch> + DoubleEndedIterator + 'a {
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

/// Converts the flags of a big-endian machine, whose compiler allocates bit fields from the top, to
/// the little-endian layout.
fn from_top(word: u64) -> EntryFlags {
    let field = |at: u32, width: u32| {
        let mask = (1u64 << width) - 1;
        (word >> (64 - at - width) & mask) << at
    };
    let singles = field(0, 1) | field(1, 1) | field(2, 1) | field(3, 1) | field(33, 1);
    EntryFlags(singles | field(4, 16) | field(20, 4) | field(24, 2) | field(26, 4) | field(30, 3))
}

/// Event counts logged with each branch: `PERF_SAMPLE_BRANCH_COUNTERS` (Linux 6.8, Sierra Forest
/// and later).
///
/// Each branch has a word with two bits per counter, the first counter lowest: how often its event
/// occurred since the previous branch, with 3 meaning three or more. Linux orders the counters by
/// the requested events (`intel_pmu_lbr_counters_reorder`), so the first belongs to the first event
/// with the bit in its attribute.
#[derive(Clone, Copy, Debug)]
pub struct Counters<'a> {
    pub(crate) words: &'a [[u8; 8]],
    pub(crate) big: bool,
    /// Bitmap of the counters with an event.
    pub(crate) logged: u8,
}

impl Counters<'_> {
    /// The maximum count in two bits: this or more.
    pub const MAX: u8 = 3;

    /// The counts of the entry at an index, 0 being the newest; `None` for counters without an
    /// event.
    pub fn get(&self, index: usize) -> Option<[Option<u8>; 4]> {
        let bytes = *self.words.get(index)?;
        let word = if self.big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) };
        let count = |i: u32| ((word >> (2 * i)) & u64::from(Self::MAX)) as u8;
        Some([0, 1, 2, 3].map(|i| (self.logged >> i & 1 == 1).then(|| count(i))))
    }
}

/// Process and thread, if recorded.
pub type Thread = (Option<u32>, Option<u32>);

/// Data of a sample besides its branches. Absent is `None`.
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
    /// Sampled instruction address.
    pub ip: Option<u64>,
    /// Event count since the previous sample.
    pub period: Option<u64>,
    /// Index of the event among the recording's events. For text, the number of the event's name; 0
    /// without one.
    pub event: usize,
    /// Weight: number of identical stacks (aggregated text), else 1.
    pub weight: u64,
    /// Hardware index of the newest entry, if recorded.
    pub hw_idx: Option<u64>,
    /// How far the stack can be trusted.
    pub integrity: Integrity,
    /// The source of its branches.
    pub source: Source,
    /// A clear transaction bit means "no", not "unknown".
    pub tsx_known: bool,
    /// Rounds that the recorder had finished before (`PERF_RECORD_FINISHED_ROUND`): no sample of
    /// the round after the next is older than one of this round.
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
    /// The thread and time.
    pub head: SampleHead,
    /// The branches, newest first.
    pub entries: Entries<'a>,
    /// The counts logged with each branch; `None` without.
    pub counters: Option<Counters<'a>>,
    /// The program's registers; `None` if not recorded.
    pub registers: Option<Registers<'a>>,
    /// The kernel's moves of the thread, if recorded.
    pub moves: Moves<'a>,
}

/// An item of a recording.
#[derive(Debug)]
pub enum Item<'a> {
    /// A stack of branches.
    Stack(Stack<'a>),
    /// A fall-through range without the branches around it, from aggregated counts.
    Straight(Straight),
    /// Anything else.
    Event(Event),
    /// A sample that the [selection](crate::Recording::select) dropped and counted.
    LeftOut,
    /// The symbol for numbers that replace addresses in later entries.
    Symbol(Symbol<'a>),
}

/// A fall-through range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Straight {
    /// The thread that executed it, and its count.
    pub head: SampleHead,
    /// Its first byte: the target of some branch.
    pub entry: u64,
    /// The branch at its end.
    pub exit: u64,
}
