//! An entry in the form of the kernel's perf events: two addresses and a word of flags.

use super::{BranchEntry, BranchSpec, BranchType, HwBranchType};

/// The flags word of `struct perf_branch_entry`, in little-endian bit order.
///
/// | bits | field |
/// |---|---|
/// | 0 | mispredicted |
/// | 1 | predicted |
/// | 2 | in a transaction |
/// | 3 | transaction abort |
/// | 4 to 19 | core cycles since the previous record, 0 if unknown |
/// | 20 to 23 | type, 15 = see new type |
/// | 24, 25 | speculation |
/// | 26 to 29 | new type |
/// | 30 to 32 | privilege |
/// | 33 | branch not taken (newer perf, in memory and text only) |
///
/// Bits 0 and 1 both clear: prediction unknown. Both set: mispredicted, as perf prints them. Linux
/// `include/uapi/linux/perf_event.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EntryFlags(pub u64);

impl EntryFlags {
    /// Mispredicted.
    pub const MISPREDICTED: u64 = 1;
    /// Predicted.
    pub const PREDICTED: u64 = 1 << 1;
    /// In a transaction.
    pub const IN_TX: u64 = 1 << 2;
    /// Transaction abort.
    pub const ABORT: u64 = 1 << 3;
    /// Not taken.
    pub const NOT_TAKEN: u64 = 1 << 33;
    /// The highest cycle count that fits.
    pub const MAX_CYCLES: u32 = 0xFFFF;
    /// The type code that refers to the new type.
    const EXTENDED: u64 = 15;

    /// Whether the branch was mispredicted; `None` if neither bit is set.
    pub const fn mispredicted(self) -> Option<bool> {
        match self.0 & (Self::MISPREDICTED | Self::PREDICTED) {
            0 => None,
            Self::PREDICTED => Some(false),
            _ => Some(true),
        }
    }

    /// Core cycles since the previous record; `None` for 0, perf's "unknown".
    pub const fn cycles(self) -> Option<u32> {
        match (self.0 >> 4) as u32 & Self::MAX_CYCLES {
            0 => None,
            cycles => Some(cycles),
        }
    }

    /// The type; `None` if not recorded.
    pub const fn branch_type(self) -> Option<BranchType> {
        match (self.0 >> 20) & 0xF {
            0 => None,
            Self::EXTENDED => Some(BranchType(BranchType::NEW_BASE + ((self.0 >> 26) & 0xF) as u8)),
            code => Some(BranchType(code as u8)),
        }
    }

    /// The type code in the word: 0 if there is none, 15 for a new type.
    pub const fn type_code(self) -> u64 {
        (self.0 >> 20) & 0xF
    }

    /// Speculation; `None` if not recorded.
    pub const fn spec(self) -> Option<BranchSpec> {
        BranchSpec::from_code(((self.0 >> 24) & 3) as u8)
    }

    /// In a transaction. Also clear if unknown.
    pub const fn in_tx(self) -> bool {
        self.0 & Self::IN_TX != 0
    }

    /// A transaction abort. Also clear if unknown.
    pub const fn abort(self) -> bool {
        self.0 & Self::ABORT != 0
    }

    /// The branch was not taken (Arm SPE in newer perf).
    pub const fn not_taken(self) -> bool {
        self.0 & Self::NOT_TAKEN != 0
    }

    /// A copy with another type.
    #[must_use]
    #[inline]
    pub const fn with_type(self, branch_type: Option<BranchType>) -> EntryFlags {
        let cleared = self.0 & !(0xF << 20 | 0xF << 26);
        let bits = match branch_type {
            Some(BranchType(code @ 1..=14)) => (code as u64) << 20,
            Some(BranchType(code @ 16..=31)) => {
                Self::EXTENDED << 20 | ((code - BranchType::NEW_BASE) as u64) << 26
            }
            _ => 0,
        };
        EntryFlags(cleared | bits)
    }

    /// A copy with another cycle count, limited to [`MAX_CYCLES`](Self::MAX_CYCLES).
    #[must_use]
    #[inline]
    pub const fn with_cycles(self, cycles: u32) -> EntryFlags {
        let cycles = if cycles > Self::MAX_CYCLES { Self::MAX_CYCLES } else { cycles };
        EntryFlags(self.0 & !(0xFFFF << 4) | (cycles as u64) << 4)
    }

    /// A copy with another speculation state.
    #[must_use]
    #[inline]
    pub const fn with_spec(self, spec: Option<BranchSpec>) -> EntryFlags {
        let code = match spec {
            Some(spec) => spec.code() as u64,
            None => 0,
        };
        EntryFlags(self.0 & !(3 << 24) | code << 24)
    }

    /// The word for a decoded entry. An unknown prediction sets neither bit, unknown cycles are 0.
    /// Type and speculation are set only if `types` is.
    #[inline]
    pub fn of(entry: &BranchEntry, types: bool) -> EntryFlags {
        let mut word = match entry.mispredicted {
            Some(true) => Self::MISPREDICTED,
            Some(false) => Self::PREDICTED,
            None => 0,
        };
        if entry.in_tx == Some(true) {
            word |= Self::IN_TX;
        }
        if entry.abort == Some(true) {
            word |= Self::ABORT;
        }
        let flags = EntryFlags(word).with_cycles(entry.cycles.unwrap_or(0));
        if !types {
            return flags;
        }
        let branch_type = entry.branch_type.or(entry.hw_type.and_then(HwBranchType::branch_type));
        flags.with_type(branch_type).with_spec(entry.spec)
    }
}

/// One entry of a stack: two addresses and the flags word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawBranch {
    /// Source address.
    pub from: u64,
    /// Target address.
    pub to: u64,
    /// All other fields.
    pub flags: EntryFlags,
}

impl RawBranch {
    /// Whether the entry is empty: real recordings contain 0 -> 0.
    pub const fn is_empty(&self) -> bool {
        self.from == 0 && self.to == 0
    }

    /// Decodes the entry. A clear transaction bit means "not in a transaction" if `tsx_known`, else
    /// "unknown": perf's word does not distinguish them.
    pub fn decode(&self, tsx_known: bool) -> BranchEntry {
        let cycles = self.flags.cycles();
        let tsx = |bit: bool| (bit || tsx_known).then_some(bit);
        BranchEntry {
            from: self.from,
            to: self.to,
            mispredicted: self.flags.mispredicted(),
            in_tx: tsx(self.flags.in_tx()),
            abort: tsx(self.flags.abort()),
            cycles,
            cycles_saturated: cycles.map(|cycles| cycles == EntryFlags::MAX_CYCLES),
            hw_type: None,
            branch_type: self.flags.branch_type(),
            spec: self.flags.spec(),
            counters: None,
        }
    }
}
