//! What a recording says of a stack beyond perf's own fields.

use lbr_msr::record::{Head, Integrity, Label};

/// Where the branches of a stack came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Source {
    /// The recording does not say: not one of ours.
    #[default]
    Unsaid,
    /// The registers of a CPU: measured.
    Hardware,
    /// The software LBR: every branch really was taken, everything else about
    /// it is modelled.
    Software,
}

/// The stack note: what `lbr` says of a stack and perf has no field for.
///
/// It travels as the sample's `PERF_SAMPLE_RAW` data, which every reader
/// skips by its length. Twelve bytes:
///
/// | byte | content |
/// |---|---|
/// | 0 to 2 | `lbr` |
/// | 3 | version, 1 |
/// | 4 | label: 0 stream, 1 snapshot, 2 gap, 3 wiped, 4 torn, 5 foreign, 6 stopped, 7 mixed |
/// | 5 | head: 0 unknown, 1 joined to the stack before, 2 branches lost before it |
/// | 6 | bit 0 cut, bit 1 truncated, bit 2 underflow, bit 3 transaction bits are known |
/// | 7 | source: 0 not said, 1 hardware, 2 software LBR |
/// | 8 to 11 | 0 |
///
/// A reader ignores notes of a version that it does not know.
///
/// A LOST record says in the same way which label kept its stacks out: after
/// `id` and `lost` stands a word with `lbr` and the version in its low four
/// bytes and the label's code, or 255 for a queue that was full, in the fifth.
/// Readers find the record's trailer from its end and never see the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackNote {
    /// How far the stack can be trusted.
    pub integrity: Integrity,
    /// Where its branches came from.
    pub source: Source,
    /// A clear transaction bit means "no", not "unknown".
    pub tsx_known: bool,
}

impl StackNote {
    /// The version that this crate writes.
    pub const VERSION: u8 = 1;
    const MAGIC: [u8; 3] = *b"lbr";

    /// The bytes.
    #[must_use]
    pub const fn encode(&self) -> [u8; 12] {
        let [l, b, r] = Self::MAGIC;
        let head = head_code(self.integrity.head);
        let bits = self.integrity.cut as u8
            | (self.integrity.truncated as u8) << 1
            | (self.integrity.underflow as u8) << 2
            | (self.tsx_known as u8) << 3;
        let source = match self.source {
            Source::Unsaid => 0,
            Source::Hardware => 1,
            Source::Software => 2,
        };
        let label = label_code(self.integrity.label);
        [l, b, r, Self::VERSION, label, head, bits, source, 0, 0, 0, 0]
    }

    /// Reads a note; `None` for anything else, and for values that this
    /// version does not have.
    #[must_use]
    pub const fn decode(raw: &[u8]) -> Option<StackNote> {
        // The kernel pads raw data to 8 bytes: more may follow.
        let [b'l', b'b', b'r', Self::VERSION, label, head, bits, source, ..] = *raw else {
            return None;
        };
        let head = match head {
            0 => Head::Unknown,
            1 => Head::Joined,
            2 => Head::Lost,
            _ => return None,
        };
        let Some(label) = label_of(label) else { return None };
        let source = match source {
            0 => Source::Unsaid,
            1 => Source::Hardware,
            2 => Source::Software,
            _ => return None,
        };
        Some(StackNote {
            integrity: Integrity {
                head,
                cut: bits & 1 != 0,
                label,
                truncated: bits & 2 != 0,
                underflow: bits & 4 != 0,
            },
            source,
            tsx_known: bits & 8 != 0,
        })
    }
}

/// Where a note says how its stack joins to the one before.
pub(crate) const HEAD_AT: usize = 5;

/// The code of that in files.
pub(crate) const fn head_code(head: Head) -> u8 {
    match head {
        Head::Unknown => 0,
        Head::Joined => 1,
        Head::Lost => 2,
    }
}

/// The code of a label in files.
pub(crate) const fn label_code(label: Label) -> u8 {
    match label {
        Label::Stream => 0,
        Label::Snapshot => 1,
        Label::Gap => 2,
        Label::Wiped => 3,
        Label::Torn => 4,
        Label::Foreign => 5,
        Label::Stopped => 6,
        Label::Mixed => 7,
    }
}

/// The label of a code in files.
pub(crate) const fn label_of(code: u8) -> Option<Label> {
    Some(match code {
        0 => Label::Stream,
        1 => Label::Snapshot,
        2 => Label::Gap,
        3 => Label::Wiped,
        4 => Label::Torn,
        5 => Label::Foreign,
        6 => Label::Stopped,
        7 => Label::Mixed,
        _ => return None,
    })
}
