//! The values that pass between rooms: entries, stacks, samples, events.
//!
//! Nothing here does I/O. `sampler` emits [`Event`]s into a [`Sink`];
//! `profile` reads and writes them; both meet only in these types.

mod event;
mod perf;

pub use event::{Comm, Event, Lost, Mmap, Sample, Sink, Task};
pub use perf::{EntryFlags, RawBranch};

use alloc::vec::Vec;
use core::fmt;

/// One record as the registers held it, nothing interpreted: what decoding
/// makes a [`BranchEntry`] of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawEntry {
    /// The FROM register (packed kinds: the one register).
    pub from: u64,
    /// The TO register; 0 for packed kinds.
    pub to: u64,
    /// The INFO register, where the facility has one and it was read.
    pub info: Option<u64>,
}

/// A branch type in perf's terms (`PERF_BR_*` of `linux/perf_event.h`).
///
/// The set is open: a code of a newer perf is kept and prints as unknown. It is
/// finer than [`HwBranchType`], which is all that a CPU tells: system calls,
/// interrupts and their returns have types of their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchType(pub u8);

impl BranchType {
    /// Conditional branch: Jcc, JCXZ, LOOP.
    pub const COND: BranchType = BranchType(1);
    /// Unconditional direct jump.
    pub const UNCOND: BranchType = BranchType(2);
    /// Indirect jump.
    pub const IND: BranchType = BranchType(3);
    /// Direct call.
    pub const CALL: BranchType = BranchType(4);
    /// Indirect call.
    pub const IND_CALL: BranchType = BranchType(5);
    /// Near return.
    pub const RET: BranchType = BranchType(6);
    /// System call.
    pub const SYSCALL: BranchType = BranchType(7);
    /// Return from a system call.
    pub const SYSRET: BranchType = BranchType(8);
    /// Conditional call.
    pub const COND_CALL: BranchType = BranchType(9);
    /// Conditional return.
    pub const COND_RET: BranchType = BranchType(10);
    /// Return from an exception or interrupt.
    pub const ERET: BranchType = BranchType(11);
    /// Interrupt or exception.
    pub const IRQ: BranchType = BranchType(12);
    /// SError (Arm).
    pub const SERROR: BranchType = BranchType(13);
    /// Not in a transaction.
    pub const NO_TX: BranchType = BranchType(14);
    /// First of the types that perf stores in `new_type`: fault_align is
    /// `NEW_BASE + 0`, fault_data `+ 1`, fault_inst `+ 2`, arch_1..5 `+ 3..7`.
    pub const NEW_BASE: u8 = 16;

    /// perf's name as `perf script -F brstack` prints it, `None` for a code
    /// that nobody documents.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        const NAMES: [&str; 15] = [
            "",
            "COND",
            "UNCOND",
            "IND",
            "CALL",
            "IND_CALL",
            "RET",
            "SYSCALL",
            "SYSRET",
            "COND_CALL",
            "COND_RET",
            "ERET",
            "IRQ",
            "SERROR",
            "NO_TX",
        ];
        const NEW_NAMES: [&str; 8] = [
            "FAULT_ALGN",
            "FAULT_DATA",
            "FAULT_INST",
            "ARCH_1",
            "ARCH_2",
            "ARCH_3",
            "ARCH_4",
            "ARCH_5",
        ];
        match self.0 {
            1..=14 => Some(NAMES[self.0 as usize]),
            16..=23 => Some(NEW_NAMES[(self.0 - 16) as usize]),
            _ => None,
        }
    }
}

impl fmt::Debug for BranchType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "BranchType({})", self.0),
        }
    }
}

/// What a CPU says of speculation (perf's `PERF_BR_SPEC_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BranchSpec {
    /// Speculative, on a wrong path.
    WrongPath,
    /// Not speculative, on the correct path.
    NonSpecCorrectPath,
    /// Speculative, on the correct path.
    SpecCorrectPath,
}

impl BranchSpec {
    /// perf's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            BranchSpec::WrongPath => "SPEC_WRONG_PATH",
            BranchSpec::NonSpecCorrectPath => "NON_SPEC_CORRECT_PATH",
            BranchSpec::SpecCorrectPath => "SPEC_CORRECT_PATH",
        }
    }

    /// perf's code: 1, 2 or 3.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            BranchSpec::WrongPath => 1,
            BranchSpec::NonSpecCorrectPath => 2,
            BranchSpec::SpecCorrectPath => 3,
        }
    }

    /// The value of perf's code; `None` for 0 (not available) and above 3.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<BranchSpec> {
        Some(match code {
            1 => BranchSpec::WrongPath,
            2 => BranchSpec::NonSpecCorrectPath,
            3 => BranchSpec::SpecCorrectPath,
            _ => return None,
        })
    }
}

/// The coarse branch type that Architectural LBR writes into INFO\[59:56\], and
/// the classes that filters of every CPU tell apart. SDM24 Table 20-2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HwBranchType {
    /// 0: Jcc, J*CXZ, LOOP*.
    Cond,
    /// 1: JMP r/m.
    IndJmp,
    /// 2: JMP rel.
    RelJmp,
    /// 3: CALL r/m.
    IndCall,
    /// 4: CALL rel, not to the next instruction.
    RelCall,
    /// 5: near RET.
    Ret,
    /// 8 to 15: far transfers, interrupts, exceptions and the like.
    Other,
}

impl HwBranchType {
    /// Its name: the register's code, in short and in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            HwBranchType::Cond => "cond",
            HwBranchType::IndJmp => "ind_jmp",
            HwBranchType::RelJmp => "rel_jmp",
            HwBranchType::IndCall => "ind_call",
            HwBranchType::RelCall => "rel_call",
            HwBranchType::Ret => "ret",
            HwBranchType::Other => "other",
        }
    }

    /// perf's type, as Linux maps them; it has none for `Other`.
    #[must_use]
    #[inline]
    pub const fn branch_type(self) -> Option<BranchType> {
        Some(match self {
            HwBranchType::Cond => BranchType::COND,
            HwBranchType::IndJmp => BranchType::IND,
            HwBranchType::RelJmp => BranchType::UNCOND,
            HwBranchType::IndCall => BranchType::IND_CALL,
            HwBranchType::RelCall => BranchType::CALL,
            HwBranchType::Ret => BranchType::RET,
            HwBranchType::Other => return None,
        })
    }
}

/// One taken branch, decoded. A field the record does not carry is `None`:
/// absent is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BranchEntry {
    /// Address of the branch instruction (interrupts: of the next instruction;
    /// faults: of the faulting one), canonical.
    pub from: u64,
    /// Address the branch went to, canonical.
    pub to: u64,
    /// Whether direction or target was mispredicted.
    pub mispredicted: Option<bool>,
    /// Whether the branch retired inside a transaction.
    pub in_tx: Option<bool>,
    /// Whether the record is a transaction abort.
    pub abort: Option<bool>,
    /// Core cycles since the previous record.
    pub cycles: Option<u32>,
    /// Whether [`cycles`](Self::cycles) stands at its highest value, so that
    /// the true count may be larger. `None` where `cycles` is.
    pub cycles_saturated: Option<bool>,
    /// The type that the hardware recorded.
    pub hw_type: Option<HwBranchType>,
    /// The type in perf's terms, from the code bytes or from perf's record.
    pub branch_type: Option<BranchType>,
    /// Speculation (AMD LbrExtV2).
    pub spec: Option<BranchSpec>,
    /// Occurrences of the counters 0 to 3 logged with this branch, each 0 to
    /// 3 (saturating); `None` for a counter that the CPU does not log.
    pub counters: Option<[Option<u8>; 4]>,
}

/// What the registers of a software LBR cannot say: which fields its source
/// really knows. Fields that the source does not know are cleared after
/// decoding, so that nothing modelled looks measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceKnowledge {
    /// The source knows whether a branch was mispredicted.
    pub mispredict: bool,
    /// The source knows cycle counts.
    pub cycles: bool,
    /// The source sees branches of the kernel.
    pub kernel: bool,
}

impl SourceKnowledge {
    /// Hardware: the registers are the truth.
    pub const HARDWARE: SourceKnowledge =
        SourceKnowledge { mispredict: true, cycles: true, kernel: true };

    /// A stepper or an emulator of a program: where branches of user mode go,
    /// and nothing beside.
    pub const USER_BRANCHES: SourceKnowledge =
        SourceKnowledge { mispredict: false, cycles: false, kernel: false };

    /// Clears what the source does not know.
    #[must_use]
    #[inline]
    pub fn mask(self, mut entry: BranchEntry) -> BranchEntry {
        if !self.mispredict {
            entry.mispredicted = None;
        }
        if !self.cycles {
            entry.cycles = None;
            entry.cycles_saturated = None;
        }
        entry
    }
}

/// How a stack joins to the one before it on the same ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Head {
    /// The oldest entry is the next branch after the newest of the stack
    /// before (or the first branch after arming).
    Joined,
    /// Branches between the two stacks were overwritten.
    Lost,
    /// Nothing can be said.
    Unknown,
}

/// What kind of reading a stack came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Label {
    /// A part of the stream of branches.
    Stream,
    /// Call-stack mode: the frames at one moment, not a part of a stream.
    Snapshot,
    /// The mark was overwritten: at least `depth` branches since the last drain.
    Gap,
    /// All-zero slots where the mark or records were expected: a deep C-state
    /// or a reset cleared the ring.
    Wiped,
    /// TOS or entry 0 moved while the ring was read.
    Torn,
    /// Control bits other than ours changed: somebody else uses the LBR.
    Foreign,
    /// Recording was already off when we came to freeze it (#DB, PMI).
    Stopped,
    /// Another user task ran on the CPU since the last drain.
    Mixed,
}

impl Label {
    /// The word shown to people and written to files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Label::Stream => "stream",
            Label::Snapshot => "snapshot",
            Label::Gap => "gap",
            Label::Wiped => "wiped",
            Label::Torn => "torn",
            Label::Foreign => "foreign",
            Label::Stopped => "stopped",
            Label::Mixed => "mixed",
        }
    }

    /// Whether stacks with this label stay out of statistics and files (they
    /// are counted and reported all the same).
    #[must_use]
    pub const fn is_excluded(self) -> bool {
        matches!(self, Label::Torn | Label::Foreign | Label::Mixed | Label::Wiped)
    }
}

/// How far a stack can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Integrity {
    /// How the stack joins to the one before.
    pub head: Head,
    /// The CPU may have run user code between freeze and thaw, so that
    /// branches after this stack may be missing before the next.
    pub cut: bool,
    /// The kind of reading.
    pub label: Label,
    /// Call-stack mode: more frames than the ring is deep.
    pub truncated: bool,
    /// Call-stack mode: returns outran the recorded calls, so that outer
    /// frames are missing.
    pub underflow: bool,
}

impl Integrity {
    /// Joined and not cut: nothing is missing before or after.
    #[must_use]
    pub const fn is_exact(self) -> bool {
        matches!(self.head, Head::Joined) && !self.cut && matches!(self.label, Label::Stream)
    }

    /// A reading about which nothing is known, as of a perf.data of others.
    pub const UNKNOWN: Integrity = Integrity {
        head: Head::Unknown,
        cut: true,
        label: Label::Stream,
        truncated: false,
        underflow: false,
    };
}

/// The branches of one drain, **newest first** (perf's order).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchStack {
    /// Entries, newest first; empty slots left out.
    pub entries: Vec<BranchEntry>,
    /// How far they can be trusted.
    pub integrity: Integrity,
}

impl BranchStack {
    /// The entries in the order in which they were executed.
    pub fn oldest_first(&self) -> impl ExactSizeIterator<Item = &BranchEntry> + '_ {
        self.entries.iter().rev()
    }
}
