//! Intel's registers for filtering, depth and top of stack.

use alloc::{
    format,
    string::{String, ToString},
};

use super::{
    field::{Field, Words, replacing},
    fields, flags,
};

flags! {
    /// MSR_LBR_SELECT: bits 0 to 8 **suppress** the types they name, bit 9 enables call-stack mode.
    /// Zero records everything. AMD's LBR_SELECT has the same bits 0 to 8.
    ///
    /// On Nehalem, Westmere and Silvermont, NEAR_IND_JMP also suppresses indirect calls and
    /// returns, and NEAR_REL_JMP relative calls.
    LbrSelect, "SDM 17.7.2, Tables 17-11 to 17-13" {
        CPL_EQ_0 [0] "branches that end in ring 0 are not recorded"
            / "branches that end in ring 0 are recorded";
        CPL_NEQ_0 [1] "branches that end in a ring > 0 are not recorded"
            / "branches that end in a ring > 0 are recorded";
        JCC [2] "conditional branches are not recorded" / "conditional branches are recorded";
        NEAR_REL_CALL [3] "near relative calls are not recorded"
            / "near relative calls are recorded";
        NEAR_IND_CALL [4] "near indirect calls are not recorded"
            / "near indirect calls are recorded";
        NEAR_RET [5] "near returns are not recorded" / "near returns are recorded";
        NEAR_IND_JMP [6] "near indirect jumps are not recorded"
            / "near indirect jumps are recorded";
        NEAR_REL_JMP [7] "near relative jumps are not recorded"
            / "near relative jumps are recorded";
        FAR_BRANCH [8] "far branches, interrupts and exceptions are not recorded"
            / "far branches, interrupts and exceptions are recorded";
        EN_CALLSTACK [9] "call-stack mode: calls push, returns pop" / "no call-stack mode"
            in "SDM 17.9";
    }
}

impl LbrSelect {
    /// Bits 1:0.
    pub(crate) const RINGS: LbrSelect = LbrSelect::CPL_EQ_0.union(LbrSelect::CPL_NEQ_0);
    /// Bits 8:2.
    pub(crate) const BRANCHES: LbrSelect = LbrSelect::from_bits_retain(0x7F << 2);
    /// Bits 8:2 as call-stack mode needs them: only calls and returns recorded. SDM 17.9.
    pub(crate) const BRANCHES_OF_CALL_STACK: LbrSelect = LbrSelect::JCC
        .union(LbrSelect::NEAR_IND_JMP)
        .union(LbrSelect::NEAR_REL_JMP)
        .union(LbrSelect::FAR_BRANCH);
    /// Bits 8:0, which every CPU with the register has.
    pub(crate) const SUPPRESS: LbrSelect = LbrSelect::RINGS.union(LbrSelect::BRANCHES);
}

/// For CPUs with call-stack mode, which requires certain other bits.
pub(crate) const WITH_STACK: [Field; 10] = replacing(
    LbrSelect::FIELDS,
    &[Field::value(
        "EN_CALLSTACK",
        (9, 9),
        "1: call-stack mode: calls push, returns pop; 0: no call-stack mode",
        call_stack_mode,
        "SDM 17.9",
    )],
);

/// For CPUs whose jump bits also suppress calls and returns.
pub(crate) const SWALLOWING: [Field; 10] = {
    const SOURCE: &str = "SDM 17.7.2, Table 17-11";
    const fn swallowed(name: &'static str, bit: u8, about: &'static str, words: Words) -> Field {
        Field::value(name, (bit, bit), about, words, SOURCE)
    }
    replacing(
        LbrSelect::FIELDS,
        &[
            swallowed(
                "NEAR_REL_CALL",
                3,
                "1: near relative calls are not recorded; 0: recorded if NEAR_REL_JMP is 0 too",
                |_, value, all| beside(LbrSelect::NEAR_REL_JMP, "near relative calls", value, all),
            ),
            swallowed(
                "NEAR_IND_CALL",
                4,
                "1: near indirect calls are not recorded; 0: recorded if NEAR_IND_JMP is 0 too",
                |_, value, all| beside(LbrSelect::NEAR_IND_JMP, "near indirect calls", value, all),
            ),
            swallowed(
                "NEAR_RET",
                5,
                "1: near returns are not recorded; 0: recorded if NEAR_IND_JMP is 0 too",
                |_, value, all| beside(LbrSelect::NEAR_IND_JMP, "near returns", value, all),
            ),
            Field::flag(
                "NEAR_IND_JMP",
                6,
                "near indirect jumps, calls and returns are not recorded",
                "near indirect jumps are recorded",
                SOURCE,
            ),
            Field::flag(
                "NEAR_REL_JMP",
                7,
                "near relative jumps and calls are not recorded",
                "near relative jumps are recorded",
                SOURCE,
            ),
        ],
    )
};

flags! {
    /// IA32_LBR_CTL of Architectural LBR: bits **capture** the types they name. CPUID leaf 1CH EBX
    /// tells which may be set; setting another raises #GP. #DB clears LBREn; SMI saves and clears
    /// it.
    LbrCtl, "SDM24 Table 20-3" {
        LBR_EN "LBREn" [0] "branches are recorded" / "branches are not recorded"
            in "Linux msr-index.h";
        OS [1] "branches that end at CPL 0 are recorded"
            / "branches that end at CPL 0 are not recorded" in "Linux msr-index.h";
        USR [2] "branches that end at CPL > 0 are recorded"
            / "branches that end at CPL > 0 are not recorded" in "Linux msr-index.h";
        CALL_STACK [3] "call-stack mode: calls push, returns pop" / "no call-stack mode"
            in "Linux msr-index.h";
        COND [16] "conditional branches are recorded" / "conditional branches are not recorded";
        NEAR_REL_JMP [17] "near relative jumps are recorded"
            / "near relative jumps are not recorded";
        NEAR_IND_JMP [18] "near indirect jumps are recorded"
            / "near indirect jumps are not recorded";
        NEAR_REL_CALL [19] "near relative calls are recorded"
            / "near relative calls are not recorded";
        NEAR_IND_CALL [20] "near indirect calls are recorded"
            / "near indirect calls are not recorded";
        NEAR_RET [21] "near returns are recorded" / "near returns are not recorded";
        OTHER_BRANCH [22] "far branches, interrupts and exceptions are recorded"
            / "far branches, interrupts and exceptions are not recorded";
    }
}

impl LbrCtl {
    /// Bits 2:1.
    pub(crate) const RINGS: LbrCtl = LbrCtl::OS.union(LbrCtl::USR);
    /// Bits 22:16.
    pub(crate) const BRANCHES: LbrCtl = LbrCtl::from_bits_retain(0x7F << 16);

    /// The bits that may be set if CPUID leaf 1CH EBX announces the rings (bit 0), the branch bits
    /// (bit 1) and call stacks (bit 2).
    pub const fn offered(rings: bool, branches: bool, call_stack: bool) -> LbrCtl {
        let none = LbrCtl::empty();
        LbrCtl::LBR_EN
            .union(if rings { LbrCtl::RINGS } else { none })
            .union(if branches { LbrCtl::BRANCHES } else { none })
            .union(if call_stack { LbrCtl::CALL_STACK } else { none })
    }
}

fields! {
    /// IA32_LBR_DEPTH: number of records of Architectural LBR. Any write clears every record; an
    /// unsupported depth raises #GP.
    LbrDepth, "Linux intel/lbr.c" {}
    and [Field::value(
        "DEPTH",
        (63, 0),
        "number of records kept, not a code",
        |_, value, _| format!("{value} records"),
        "Linux intel/lbr.c",
    )]
}

fields! {
    /// MSR_LASTBRANCH_TOS: the index of the most recent record.
    Tos, "SDM 17.4.8" {}
    and [tos(4, "SDM 17.4.8")]
}

fields! {
    /// NetBurst's MSR_LASTBRANCH_TOS: read-only, at another address.
    NetBurstTos, "SDM 17.11.2" {}
    and [tos(3, "SDM 17.11.2")]
}

/// TOS for 2^(`high` + 1) records.
pub(crate) const fn tos(high: u8, source: &'static str) -> Field {
    let words: Words = |_, value, _| format!("record {value} is the newest");
    Field::value("TOS", (high, 0), "index of the newest record", words, source)
}

impl Tos {
    /// The index of the newest of `depth` records: the low log2(depth) bits, because higher bits
    /// may be nonzero. SDM 17.5.1. For a depth of 0, returns 0.
    pub const fn index(self, depth: u32) -> u32 {
        match self.0.checked_rem(depth as u64) {
            Some(index) => index as u32,
            None => 0,
        }
    }
}

/// EN_CALLSTACK of MSR_LBR_SELECT, which requires certain other bits. SDM 17.9.
fn call_stack_mode(_: &Field, value: u64, register: u64) -> String {
    let others = LbrSelect::from_bits_retain(register);
    if value == 0 {
        "no call-stack mode"
    } else if others & LbrSelect::BRANCHES != LbrSelect::BRANCHES_OF_CALL_STACK {
        "call-stack mode, but bits 8:2 are not 1110001b as it needs: the records are undefined"
    } else if others.contains(LbrSelect::RINGS) {
        "call-stack mode, but with both rings suppressed: the records are undefined"
    } else {
        "call-stack mode: calls push, returns pop"
    }
    .to_string()
}

/// A class that `jump` suppresses, too.
fn beside(jump: LbrSelect, what: &str, value: u64, register: u64) -> String {
    if value != 0 {
        return format!("{what} are not recorded");
    }
    match jump.intersection(LbrSelect::from_bits_retain(register)).iter_names().next() {
        None => format!("{what} are recorded"),
        Some((name, _)) => format!("{what} are not recorded: {name} suppresses them too"),
    }
}
