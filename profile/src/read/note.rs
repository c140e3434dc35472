//! Data about a stack that perf's fields cannot hold.

use lbr_msr::record::{Head, Integrity, Label, MoveKind, ThreadMove};

/// The source of a stack's branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Source {
    /// Unknown: not recorded by `lbr`.
    #[default]
    Unsaid,
    /// CPU registers: measured.
    Hardware,
    /// The software LBR: every branch was really taken, all other fields are modelled.
    Software,
}

/// The stack note: data of `lbr` about a stack that perf has no field for.
///
/// It is the sample's `PERF_SAMPLE_RAW` data, which every reader can skip. Twelve bytes, and 24 for
/// each [move](ThreadMove):
///
/// | byte | content |
/// |---|---|
/// | 0 to 2 | `lbr` |
/// | 3 | version, 1 |
/// | 4 | label: 0 stream, 1 snapshot, 2 gap, 3 wiped, 4 torn, 5 foreign, 6 stopped, 7 mixed |
/// | 5 | head: 0 unknown, 1 joined to the previous stack, 2 branches lost before it |
/// | 6 | bit 0 cut, bit 1 truncated, bit 2 underflow, bit 3 transaction bits are known |
/// | 7 | source: 0 unknown, 1 hardware, 2 software LBR |
/// | 8 to 11 | number of moves that follow |
///
/// Each move, oldest first:
///
/// | byte | content |
/// |---|---|
/// | 0 to 7 | first instruction that did not execute before, 0 at the start |
/// | 8 to 15 | instruction that executes next, 0 at the end |
/// | 16 to 19 | entries of the stack that are newer |
/// | 20 | 0 start, 1 end, 2 signal, 3 signal after a branch that is recorded when the handler returns, 4 return from a signal, 5 unknown |
/// | 21 to 23 | 0 |
///
/// Files of older versions have 0 moves.
///
/// Readers ignore notes with an unknown version.
///
/// Similarly, a LOST record contains the label that excluded its stacks: after `id` and `lost`
/// follows a word with `lbr` and the version in its low four bytes, and in the fifth byte the
/// label's code, or 255 for a full queue. Readers find the record's trailer from its end and skip
/// the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackNote {
    /// How far the stack can be trusted.
    pub integrity: Integrity,
    /// The source of its branches.
    pub source: Source,
    /// A clear transaction bit means "no", not "unknown".
    pub tsx_known: bool,
}

impl StackNote {
    /// The version that this crate writes.
    pub const VERSION: u8 = 1;
    const MAGIC: [u8; 3] = *b"lbr";

    /// The encoded note.
    pub fn encode(&self) -> [u8; 12] {
        let [l, b, r] = Self::MAGIC;
        let head = code(&HEADS, self.integrity.head);
        let bits = self.integrity.cut as u8
            | (self.integrity.truncated as u8) << 1
            | (self.integrity.underflow as u8) << 2
            | (self.tsx_known as u8) << 3;
        let source = code(&SOURCES, self.source);
        let label = code(&LABELS, self.integrity.label);
        [l, b, r, Self::VERSION, label, head, bits, source, 0, 0, 0, 0]
    }

    /// Parses a note; `None` for anything else, and for values undefined in this version.
    pub fn decode(raw: &[u8]) -> Option<StackNote> {
        // The kernel pads raw data to 8 bytes.
        let [b'l', b'b', b'r', Self::VERSION, label, head, bits, source, ..] = *raw else {
            return None;
        };
        Some(StackNote {
            integrity: Integrity {
                head: *HEADS.get(usize::from(head))?,
                cut: bits & 1 != 0,
                label: label_of(label)?,
                truncated: bits & 2 != 0,
                underflow: bits & 4 != 0,
            },
            source: *SOURCES.get(usize::from(source))?,
            tsx_known: bits & 8 != 0,
        })
    }
}

/// Length of a note without its moves, and of a move.
const FIXED: usize = 12;
const MOVE: usize = 24;

/// The moves of a stack, not yet decoded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moves<'a>(pub(crate) &'a [[u8; MOVE]]);

impl<'a> Moves<'a> {
    /// Returns the moves of a valid note; none if the note is too short for them.
    pub(crate) fn of(raw: &'a [u8]) -> Moves<'a> {
        let count = raw.get(8..FIXED).and_then(|bytes| bytes.try_into().ok());
        let count = count.map_or(0, u32::from_le_bytes) as usize;
        let moves = raw.get(FIXED..).unwrap_or_default().as_chunks().0;
        Moves(moves.get(..count).unwrap_or_default())
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The moves, oldest first.
    pub fn iter(self) -> impl Iterator<Item = ThreadMove> + 'a {
        self.0.iter().map(|bytes| {
            let word = |at| bytes.get(at..).and_then(|rest| rest.first_chunk()).copied();
            let word = |at| u64::from_le_bytes(word(at).unwrap_or_default());
            let [from, to, rest] = [word(0), word(8), word(16)];
            let kind = MOVES.get((rest >> 32) as usize).copied().unwrap_or(MoveKind::Unknown);
            ThreadMove { newer: rest as u32, kind, from, to }
        })
    }
}

/// Returns a note with its stack's moves.
pub(crate) fn with_moves(note: [u8; FIXED], moves: &[ThreadMove]) -> Vec<u8> {
    let [fixed @ .., _, _, _, _] = note;
    let mut bytes = fixed.to_vec();
    bytes.extend_from_slice(&(moves.len() as u32).to_le_bytes());
    for ThreadMove { newer, kind, from, to } in moves {
        let kind = u64::from(code(&MOVES, *kind));
        for word in [*from, *to, kind << 32 | u64::from(*newer)] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

/// Offset of the code for the stack's continuity.
pub(crate) const HEAD_AT: usize = 5;

/// Each value at the index that is its code in files.
pub(crate) const HEADS: [Head; 3] = [Head::Unknown, Head::Joined, Head::Lost];
const SOURCES: [Source; 3] = [Source::Unsaid, Source::Hardware, Source::Software];
pub(crate) const LABELS: [Label; 8] = {
    use Label::{Foreign, Gap, Mixed, Snapshot, Stopped, Stream, Torn, Wiped};
    [Stream, Snapshot, Gap, Wiped, Torn, Foreign, Stopped, Mixed]
};
const MOVES: [MoveKind; 6] = {
    use MoveKind::{End, Return, Signal, SignalAtBranch, Start, Unknown};
    [Start, End, Signal, SignalAtBranch, Return, Unknown]
};

/// The code of a value in files.
pub(crate) fn code<T: PartialEq>(codes: &[T], value: T) -> u8 {
    codes.iter().position(|known| *known == value).unwrap_or(0) as u8
}

/// The label for a code in files.
pub(crate) fn label_of(code: u8) -> Option<Label> {
    LABELS.get(usize::from(code)).copied()
}
