//! What travels from the plugin inside QEMU to `lbr`: records of two words.
//!
//! This file is compiled into both (`machine` includes it by path).

use lbr_msr::record::HwBranchType;

/// Addresses in a record's first word have this many bits; the rest is its tag.
const ADDRESS_BITS: u32 = 56;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;
/// Added to the tag of a branch.
const ZERO_LENGTH_CALL: u64 = 0x10;
const START: u64 = 0x80;
const END: u64 = 0x81;
const MAPPED: u64 = 0x82;
const EXEC: u64 = 0x83;
const EXEC_FAILED: u64 = 0x84;
const NAMED: u64 = 0x85;
const NEWEST: u64 = 0x86;

/// The classes in the order of their tags, from 1.
const CLASSES: [HwBranchType; 6] = [
    HwBranchType::Cond,
    HwBranchType::IndJmp,
    HwBranchType::RelJmp,
    HwBranchType::IndCall,
    HwBranchType::RelCall,
    HwBranchType::Ret,
];

/// What a ring carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A branch was taken.
    Branch {
        /// Address of the branch instruction.
        from: u64,
        /// Where it went.
        to: u64,
        /// Its class.
        class: HwBranchType,
        /// A call to the next instruction.
        zero_length_call: bool,
    },
    /// A thread starts: the first record of every thread. The producer waits
    /// until this record is released.
    Start {
        /// Its id.
        tid: u32,
        /// The thread that made it; 0 for the first of the process.
        parent: u32,
    },
    /// The thread has ended: the last record of it.
    End,
    /// The program has made memory executable. The producer waits until this
    /// record is released, so that the mapping can be looked at.
    Mapped {
        /// First address.
        addr: u64,
        /// Length, bytes.
        len: u64,
    },
    /// The program is about to become another by execve(2). The producer waits.
    Exec,
    /// It has not: execve(2) has failed.
    ExecFailed,
    /// The thread has given itself a name. The producer waits.
    Named,
    /// So many branches follow, the newest of those since the record of this kind
    /// before; the others are left out.
    Newest {
        /// Branches that follow.
        count: u64,
        /// Branches of the thread until now, these and those left out.
        total: u64,
    },
}

/// A record as it lies in a ring.
pub(super) type Words = [u64; 2];

/// The first word of a branch's record, which is the same every time the
/// branch is taken; the second is where it went. `None` for far branches and
/// for addresses outside user space.
#[must_use]
pub(super) fn branch_word(from: u64, class: HwBranchType, zero_length_call: bool) -> Option<u64> {
    let tag = CLASSES.iter().position(|&known| known == class)? as u64 + 1;
    let tag = tag | if zero_length_call { ZERO_LENGTH_CALL } else { 0 };
    (from <= ADDRESS).then_some(tag << ADDRESS_BITS | from)
}

/// The tag of a record, by its first word.
#[must_use]
pub(super) const fn tag(word: u64) -> u64 {
    word >> ADDRESS_BITS
}

/// Where a branch is, its class, and whether it is a call to the next
/// instruction, by its record's first word; `None` for other records.
#[inline]
#[must_use]
pub(super) fn branch(word: u64) -> Option<(u64, HwBranchType, bool)> {
    let tag = tag(word);
    let class = (tag & !ZERO_LENGTH_CALL).checked_sub(1)?;
    let class = *CLASSES.get(class as usize)?;
    Some((word & ADDRESS, class, tag & ZERO_LENGTH_CALL != 0))
}

/// The tags of the branches that are wanted, a bit each.
pub(super) fn tags(wants: impl Fn(HwBranchType, bool) -> bool) -> u32 {
    let words = CLASSES.into_iter().flat_map(|class| [(class, false), (class, true)]);
    let wanted = words.filter(|&(class, zero)| wants(class, zero));
    wanted
        .filter_map(|(class, zero)| branch_word(0, class, zero))
        .fold(0, |all, word| all | 1 << tag(word))
}

impl Record {
    /// The record's words; `None` where [`branch_word`] is.
    #[must_use]
    pub(super) fn encode(self) -> Option<Words> {
        let tagged = |tag: u64, low: u64, high| {
            (low <= ADDRESS).then_some([tag << ADDRESS_BITS | low, high])
        };
        match self {
            Record::Branch { from, to, class, zero_length_call } => {
                branch_word(from, class, zero_length_call).map(|word| [word, to])
            }
            Record::Start { tid, parent } => tagged(START, tid.into(), parent.into()),
            Record::End => tagged(END, 0, 0),
            Record::Mapped { addr, len } => tagged(MAPPED, addr, len),
            Record::Exec => tagged(EXEC, 0, 0),
            Record::ExecFailed => tagged(EXEC_FAILED, 0, 0),
            Record::Named => tagged(NAMED, 0, 0),
            Record::Newest { count, total } => tagged(NEWEST, count, total),
        }
    }

    /// What the words mean.
    ///
    /// # Errors
    /// [`Corrupt`] for a tag that is not ours.
    #[inline]
    pub(super) fn decode([low, high]: Words) -> Result<Record, Corrupt> {
        if let Some((from, class, zero_length_call)) = branch(low) {
            return Ok(Record::Branch { from, to: high, class, zero_length_call });
        }
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
            _ => return Err(Corrupt),
        })
    }
}

/// The shared memory holds what no producer writes: the target has written
/// over it, or the plugin is of another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Corrupt;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_the_way() {
        let mut records = vec![
            Record::Start { tid: u32::MAX, parent: 7 },
            Record::End,
            Record::Mapped { addr: 0x7fff_ffff_f000, len: 1 << 40 },
            Record::Exec,
            Record::ExecFailed,
            Record::Named,
            Record::Newest { count: 32, total: u64::MAX },
        ];
        for class in CLASSES {
            for zero_length_call in [false, true] {
                let (from, to) = (0x7fff_ffff_ffff, 0xffff_ffff_ff60_0000);
                records.push(Record::Branch { from, to, class, zero_length_call });
            }
        }
        for record in records {
            assert_eq!(record.encode().map(Record::decode), Some(Ok(record)));
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        assert_eq!(Record::decode([0, 0]), Err(Corrupt));
        assert_eq!(Record::decode([7 << ADDRESS_BITS, 0]), Err(Corrupt), "one past the classes");
        assert_eq!(Record::decode([u64::MAX, 0]), Err(Corrupt));
        assert_eq!(branch_word(1 << 56, HwBranchType::Cond, false), None, "no user address");
        assert_eq!(branch_word(0, HwBranchType::Other, false), None, "a far branch");
    }
}
