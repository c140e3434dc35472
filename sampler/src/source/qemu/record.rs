//! The records from the plugin inside QEMU to `lbr`, two words each.
//!
//! This file is compiled into both (`machine` includes it by path).

use lbr_msr::record::{HwBranchType, MoveKind};
use lbr_msr::soft::Modelled;

/// Number of address bits in a record's first word; the rest is its tag.
const ADDRESS_BITS: u32 = 56;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;
/// Added to the tag of a branch.
const ZERO_LENGTH_CALL: u64 = 0x10;
/// The same, of one that the model mispredicted.
const MISPREDICTED: u64 = 0x20;
/// User addresses have this many bits; above them are the model's cycles.
const TARGET_BITS: u32 = 48;
const START: u64 = 0x80;
const END: u64 = 0x81;
const MAPPED: u64 = 0x82;
const EXEC: u64 = 0x83;
const EXEC_FAILED: u64 = 0x84;
const NAMED: u64 = 0x85;
const NEWEST: u64 = 0x86;
/// The tag of the first kind of move.
const MOVED: u64 = 0x90;

/// The kinds of moves in the order of their tags. Ends have no record: see
/// [`Counts::at`](super::channel::Counts::at).
const MOVES: [MoveKind; 5] = [
    MoveKind::Start,
    MoveKind::Signal,
    MoveKind::SignalAtBranch,
    MoveKind::Return,
    MoveKind::Unknown,
];

/// The classes in order of their tags, from 1.
const CLASSES: [HwBranchType; 6] = [
    HwBranchType::Cond,
    HwBranchType::IndJmp,
    HwBranchType::RelJmp,
    HwBranchType::IndCall,
    HwBranchType::RelCall,
    HwBranchType::Ret,
];

/// A record in a ring, unless it is a branch: that has its [own word](branch_word) and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A thread starts: its first record. The producer waits until this record is released.
    Start {
        /// Its id.
        tid: u32,
        /// The creating thread; 0 for the first of the process.
        parent: u32,
    },
    /// The thread has ended: its last record.
    End,
    /// The program has made memory executable. The producer waits until this record is released, so
    /// that the consumer can read the mapping.
    Mapped {
        /// First address.
        addr: u64,
        /// Length, bytes.
        len: u64,
    },
    /// The program is about to call execve(2). The producer waits.
    Exec,
    /// execve(2) has failed.
    ExecFailed,
    /// The thread has changed its name. The producer waits.
    Named,
    /// The kernel moves the thread.
    Moved {
        /// How; never [`MoveKind::End`].
        kind: MoveKind,
        /// The first instruction that has not executed.
        from: u64,
        /// The next instruction that executes.
        to: u64,
    },
    /// `count` branches follow: the newest since the previous record of this kind; the others are
    /// omitted.
    Newest {
        /// Number of branches that follow.
        count: u64,
        /// The thread's total number of branches, including omitted ones.
        total: u64,
    },
}

/// A record's words in a ring.
pub(super) type Words = [u64; 2];

/// The first word of a branch's record, which is constant per branch; the second is the target.
/// `None` for far branches and for addresses outside user space.
pub(super) fn branch_word(from: u64, class: HwBranchType, zero_length_call: bool) -> Option<u64> {
    let tag = CLASSES.iter().position(|&known| known == class)? as u64 + 1;
    let tag = tag | if zero_length_call { ZERO_LENGTH_CALL } else { 0 };
    (from <= ADDRESS).then_some(tag << ADDRESS_BITS | from)
}

/// The tag of a record, from its first word.
pub(super) const fn tag(word: u64) -> u64 {
    word >> ADDRESS_BITS
}

/// A branch's address, its class, and whether it is a call to the next instruction, from its
/// record's first word; `None` for other records.
#[inline]
pub(super) fn branch(word: u64) -> Option<(u64, HwBranchType, bool)> {
    let tag = tag(word);
    let class = (tag & !(ZERO_LENGTH_CALL | MISPREDICTED)).checked_sub(1)?;
    let class = *CLASSES.get(class as usize)?;
    Some((word & ADDRESS, class, tag & ZERO_LENGTH_CALL != 0))
}

/// The words of a branch with the model's prediction and cycles. Cycles saturate, as in a CPU's
/// records.
pub(super) fn with_model([low, to]: Words, modelled: Modelled) -> Words {
    let mispredicted = if modelled.mispredicted { MISPREDICTED << ADDRESS_BITS } else { 0 };
    let cycles = u64::from(modelled.cycles.min(0xFFFF));
    [low | mispredicted, to & ((1 << TARGET_BITS) - 1) | cycles << TARGET_BITS]
}

/// The target of such a branch, and the model's prediction and cycles.
pub(super) fn model_of([low, high]: Words) -> (u64, Modelled) {
    let above = 64 - TARGET_BITS;
    let to = ((high << above).cast_signed() >> above).cast_unsigned();
    let mispredicted = tag(low) & MISPREDICTED != 0;
    (to, Modelled { mispredicted, cycles: (high >> TARGET_BITS) as u32 })
}

/// Bitmap of the tags of wanted branches.
pub(super) fn tags(wants: impl Fn(HwBranchType, bool) -> bool) -> u32 {
    let words = CLASSES.into_iter().flat_map(|class| [(class, false), (class, true)]);
    let wanted = words.filter(|&(class, zero)| wants(class, zero));
    wanted
        .filter_map(|(class, zero)| branch_word(0, class, zero))
        .fold(0, |all, word| all | 1 << tag(word))
}

impl Record {
    /// The record's words; `None` for an address outside user space.
    pub(super) fn encode(self) -> Option<Words> {
        let tagged = |tag: u64, low: u64, high| {
            (low <= ADDRESS).then_some([tag << ADDRESS_BITS | low, high])
        };
        match self {
            Record::Start { tid, parent } => tagged(START, tid.into(), parent.into()),
            Record::End => tagged(END, 0, 0),
            Record::Mapped { addr, len } => tagged(MAPPED, addr, len),
            Record::Exec => tagged(EXEC, 0, 0),
            Record::ExecFailed => tagged(EXEC_FAILED, 0, 0),
            Record::Named => tagged(NAMED, 0, 0),
            Record::Moved { kind, from, to } => {
                let tag = MOVES.iter().position(|&known| known == kind)?;
                tagged(MOVED + tag as u64, from, to)
            }
            Record::Newest { count, total } => tagged(NEWEST, count, total),
        }
    }

    /// Decodes a record's words.
    ///
    /// # Errors
    /// [`Corrupt`] for an unknown tag.
    #[inline]
    pub(super) fn decode([low, high]: Words) -> Result<Record, Corrupt> {
        let address = low & ADDRESS;
        let tag = tag(low);
        Ok(match tag {
            START => Record::Start { tid: address as u32, parent: high as u32 },
            END => Record::End,
            MAPPED => Record::Mapped { addr: address, len: high },
            EXEC => Record::Exec,
            EXEC_FAILED => Record::ExecFailed,
            NAMED => Record::Named,
            NEWEST => Record::Newest { count: address, total: high },
            _ => {
                let kind = tag.checked_sub(MOVED).and_then(|tag| MOVES.get(tag as usize));
                Record::Moved { kind: *kind.ok_or(Corrupt)?, from: address, to: high }
            }
        })
    }
}

/// The shared memory holds data that no producer writes: the target has overwritten it, or the
/// plugin has another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Corrupt;

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/qemu/record.rs"]
mod tests;
