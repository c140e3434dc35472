//! The values that crates exchange: entries, stacks, samples, events.
//!
//! Nothing here does I/O. `sampler` sends [`Event`]s to a [`Sink`], and `profile` reads and writes
//! them; these types are all that the two share.

mod event;
mod perf;

pub use event::{Comm, Event, Lost, Mmap, MoveKind, Sample, Sink, Task, ThreadMove};
pub use perf::{EntryFlags, RawBranch};

use alloc::vec::Vec;
use core::fmt;

/// The raw register values of one record, which decode to a [`BranchEntry`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawEntry {
    /// The FROM register (packed layouts: the only register).
    pub from: u64,
    /// The TO register; 0 for packed layouts.
    pub to: u64,
    /// The INFO register, if the facility has one and it was read.
    pub info: Option<u64>,
}

/// A branch type in perf's terms (`PERF_BR_*` of `linux/perf_event.h`).
///
/// Codes of newer perf versions are kept and print as unknown. This is finer than [`HwBranchType`],
/// the type that a CPU records: it has separate types for system calls, interrupts and their
/// returns.
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
    /// The first of the types that perf stores in `new_type`: fault_align is `NEW_BASE + 0`,
    /// fault_data `+ 1`, fault_inst `+ 2`, arch_1..5 `+ 3..7`.
    pub const NEW_BASE: u8 = 16;

    /// perf's name as `perf script -F brstack` prints it; `None` for an undocumented code.
    pub const fn name(self) -> Option<&'static str> {
        const NAMES: [&str; 24] = [
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
            "",
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
            1..=14 | 16..=23 => Some(NAMES[self.0 as usize]),
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

/// Speculation state of a branch (perf's `PERF_BR_SPEC_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BranchSpec {
    /// Speculative, on a wrong path.
    WrongPath = 1,
    /// Not speculative, on the correct path.
    NonSpecCorrectPath = 2,
    /// Speculative, on the correct path.
    SpecCorrectPath = 3,
}

impl BranchSpec {
    /// perf's name.
    pub const fn name(self) -> &'static str {
        match self {
            BranchSpec::WrongPath => "SPEC_WRONG_PATH",
            BranchSpec::NonSpecCorrectPath => "NON_SPEC_CORRECT_PATH",
            BranchSpec::SpecCorrectPath => "SPEC_CORRECT_PATH",
        }
    }

    /// perf's code: 1, 2 or 3.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The state for perf's code; `None` for 0 (not available) and above 3.
    pub const fn from_code(code: u8) -> Option<BranchSpec> {
        Some(match code {
            1 => BranchSpec::WrongPath,
            2 => BranchSpec::NonSpecCorrectPath,
            3 => BranchSpec::SpecCorrectPath,
            _ => return None,
        })
    }
}

/// The coarse branch type that Architectural LBR writes into INFO\[59:56\], and the classes that
/// the filters of all CPUs distinguish. SDM24 Table 20-2.
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
    /// 8 to 15: far transfers, interrupts, exceptions etc.
    Other,
}

impl HwBranchType {
    /// The register's code name, shortened and in lower case.
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

    /// perf's type as Linux maps it; `None` for `Other`.
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

/// One decoded taken branch. Fields that the record lacks are `None`: absent is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BranchEntry {
    /// Address of the branch instruction (interrupts: of the next instruction;
    /// faults: of the faulting one), canonical.
    pub from: u64,
    /// Target address, canonical.
    pub to: u64,
    /// Whether direction or target was mispredicted.
    pub mispredicted: Option<bool>,
    /// Whether the branch retired inside a transaction.
    pub in_tx: Option<bool>,
    /// Whether the record is a transaction abort.
    pub abort: Option<bool>,
    /// Core cycles since the previous record.
    pub cycles: Option<u32>,
    /// Whether [`cycles`](Self::cycles) is at its maximum, so that the true count may be larger.
    /// `None` without `cycles`.
    pub cycles_saturated: Option<bool>,
    /// The type that the hardware recorded.
    pub hw_type: Option<HwBranchType>,
    /// perf's type, from the code bytes or from perf's record.
    pub branch_type: Option<BranchType>,
    /// Speculation (AMD LbrExtV2).
    pub spec: Option<BranchSpec>,
    /// Occurrences of the events of counters 0 to 3 logged with this branch, each 0 to 3
    /// (saturating); `None` for a counter that the CPU does not log.
    pub counters: Option<[Option<u8>; 4]>,
}

/// The fields that the source of a software LBR really knows, which its registers cannot express.
/// Unknown fields are cleared after decoding, so that modelled values never look measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceKnowledge {
    /// Whether a branch was mispredicted.
    pub mispredict: bool,
    /// Cycle counts.
    pub cycles: bool,
    /// Branches in the kernel.
    pub kernel: bool,
}

impl SourceKnowledge {
    /// Hardware: every field in the registers is measured.
    pub const HARDWARE: SourceKnowledge =
        SourceKnowledge { mispredict: true, cycles: true, kernel: true };

    /// A single-stepper or emulator of a program: only the addresses of user branches.
    pub const USER_BRANCHES: SourceKnowledge =
        SourceKnowledge { mispredict: false, cycles: false, kernel: false };

    /// The same with predictions and cycles of a [model](crate::soft::Model).
    pub const MODELLED: SourceKnowledge =
        SourceKnowledge { mispredict: true, cycles: true, kernel: false };

    /// Clears the fields that the source does not know.
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

/// How a stack continues the previous one of the same LBR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Head {
    /// The oldest entry directly follows the newest of the previous stack (or is the first branch
    /// after arming).
    Joined,
    /// Branches between the two stacks were overwritten.
    Lost,
    /// Unknown.
    Unknown,
}

/// The kind of reading that a stack came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Label {
    /// A part of the stream of branches.
    Stream,
    /// Call-stack mode: the frames at one moment, not part of a stream.
    Snapshot,
    /// The mark was overwritten: at least `depth` branches ran since the last drain.
    Gap,
    /// All-zero slots in place of the mark or of records: a deep C-state or a reset cleared the LBR
    /// stack.
    Wiped,
    /// TOS or entry 0 changed during the read.
    Torn,
    /// Control bits of others changed: someone else uses the LBR.
    Foreign,
    /// Recording was already off at the freeze (#DB, PMI).
    Stopped,
    /// Another user task ran on the CPU since the last drain.
    Mixed,
}

impl Label {
    /// The word printed and written to files.
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

    /// Whether stacks with this label are excluded from statistics and files. They are still
    /// counted and reported.
    pub const fn is_excluded(self) -> bool {
        matches!(self, Label::Torn | Label::Foreign | Label::Mixed | Label::Wiped)
    }
}

/// How far a stack can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Integrity {
    /// How the stack continues the previous one.
    pub head: Head,
    /// The CPU may have run user code between freeze and thaw, so branches may be missing between
    /// this stack and the next.
    pub cut: bool,
    /// The kind of reading.
    pub label: Label,
    /// Call-stack mode: more frames than the LBR stack is deep.
    pub truncated: bool,
    /// Call-stack mode: more returns than recorded calls, so outer frames are missing.
    pub underflow: bool,
}

impl Integrity {
    /// Whether no branch is missing before or after: joined and not cut.
    pub const fn is_exact(self) -> bool {
        matches!(self.head, Head::Joined) && !self.cut && matches!(self.label, Label::Stream)
    }

    /// A reading of unknown integrity, such as from other tools' perf.data.
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
    /// Entries, newest first, without empty slots.
    pub entries: Vec<BranchEntry>,
    /// How far the entries can be trusted.
    pub integrity: Integrity,
    /// The kernel's moves of the thread between and around the entries, oldest first.
    pub moves: Vec<ThreadMove>,
}

impl BranchStack {
    /// The entries in execution order.
    pub fn oldest_first(&self) -> impl ExactSizeIterator<Item = &BranchEntry> + '_ {
        self.entries.iter().rev()
    }
}
