//! What is written of each kind of finding, and what makes it a warning or an
//! error.

/// Thresholds as shares: from where on a finding is a warning, an error.
#[derive(Clone, Copy)]
pub(super) struct Limits(pub(super) f64, pub(super) f64);

/// Nothing of it should be there; it is left out.
pub(super) const DROPPED: Limits = Limits(0.01, 0.5);
/// It makes numbers wrong wherever it is.
pub(super) const WRONG: Limits = Limits(0.001, 0.1);
/// It never is more than a warning.
pub(super) const ODD: Limits = Limits(0.01, f64::INFINITY);
/// It never is more than a note.
pub(super) const KNOWN: Limits = Limits(f64::INFINITY, f64::INFINITY);

/// A kind of finding; the fields are those of [`Finding`](super::Finding).
pub(super) struct Rule {
    pub(super) id: &'static str,
    pub(super) unit: &'static str,
    pub(super) limits: Limits,
    pub(super) meaning: &'static str,
    pub(super) report: &'static str,
}

const fn rule(
    [id, unit]: [&'static str; 2],
    limits: Limits,
    meaning: &'static str,
    report: &'static str,
) -> Rule {
    Rule { id, unit, limits, meaning, report }
}

pub(super) const NO_BRANCHES: Rule = rule(
    ["no_branches", "recordings"],
    Limits(0.0, 0.0),
    "there is not one branch in it that counts",
    "prints an empty table",
);
pub(super) const EMPTY_STACKS: Rule = rule(
    ["empty_stacks", "stacks"],
    DROPPED,
    "samples without a branch: nothing was recorded before them, or the records were wiped",
    "counts them as samples and nothing else",
);
pub(super) const ZERO_ENTRIES: Rule = rule(
    ["zero_entries", "entries"],
    DROPPED,
    "entries 0x0 -> 0x0: slots that were empty, or that a filter emptied",
    "leaves them out, and joins no block across them",
);
pub(super) const LOST: Rule = rule(
    ["lost", "stacks"],
    WRONG,
    "stacks that the recorder lost or kept out: what ran then is not here",
    "says how many, and joins no block across them",
);
pub(super) const EXCLUDED: Rule = rule(
    ["excluded", "stacks"],
    DROPPED,
    "stacks torn while they were read, wiped, or of somebody else",
    "keeps them out of every count",
);
pub(super) const NO_ADDRESSES: Rule = rule(
    ["no_addresses", "entries"],
    KNOWN,
    "symbols in place of addresses: no code bytes and no source lines, and functions of one printed name (and file, where printed) look like one; what has no symbol is any place",
    "joins no block between functions; of what has no symbol none at all",
);
pub(super) const JOINS_UNKNOWN: Rule = rule(
    ["joins_unknown", "stacks"],
    KNOWN,
    "the recording does not say how its stacks join: each stands for itself",
    "counts no block from one stack to the next",
);
pub(super) const NOT_EXACT: Rule = rule(
    ["not_exact", "stacks"],
    KNOWN,
    "stacks with branches missing before or after them: counts are a sample, not the truth",
    "gives intervals",
);
pub(super) const FILTERED: Rule = rule(
    ["filtered", "stacks"],
    KNOWN,
    "not every branch was recorded (filter, call-stack mode): neighbours are not joined by straight code",
    "counts no blocks and no branches that were not taken",
);
pub(super) const TOP_OF_STACK_BIAS: Rule = rule(
    ["top_of_stack_bias", "stacks"],
    Limits(0.1, f64::INFINITY),
    "stacks whose newest branch is newest at least twice as often as its place in other entries lets expect: the moment of sampling depends on the code",
    "counts them; the newest entries are not a fair sample",
);
pub(super) const DUPLICATED_NEWEST: Rule = rule(
    ["duplicated_newest", "stacks"],
    KNOWN,
    "the newest entry stands there twice, and the block between would be longer than the stride (Skylake does this; a loop of one long block as well)",
    "drops one of the two where the block would be longer than 0x1000 bytes or run backwards",
);
pub(super) const REPEATED_LAST_PAIR: Rule = rule(
    ["repeated_last_pair", "stacks"],
    ODD,
    "the oldest entry stands there twice although no loop of one block can do that",
    "counts both, but no block between them if it would run backwards",
);
pub(super) const DOUBLE_ABORTS: Rule = rule(
    ["double_aborts", "entries"],
    ODD,
    "transaction aborts logged twice, with and without the abort bit (Haswell)",
    "drops the one without the bit",
);
pub(super) const IMPOSSIBLE_FALL_THROUGH: Rule = rule(
    ["impossible_fall_through", "blocks"],
    Limits(0.01, 0.1),
    "neighbours between which code would have run backwards or further than 1 MiB: a branch between them is missing, or one is not what it says",
    "leaves these blocks out",
);
pub(super) const CONTRADICTED_BLOCKS: Rule = rule(
    ["contradicted_blocks", "blocks"],
    KNOWN,
    "the code bytes cannot run from this entry to this exit: the file is not what ran, code was rewritten, or a branch is missing",
    "leaves these blocks out, and concludes nothing about the branches inside",
);
pub(super) const FROM_NO_BRANCH: Rule = rule(
    ["from_no_branch", "entries"],
    KNOWN,
    "FROM is no branch instruction, or a direct one to another target: the file is not what ran, or the entry is of an interrupt or a fault",
    "counts them; their type is unknown",
);
pub(super) const OTHER_FILE: Rule = rule(
    ["other_file", "entries"],
    Limits(0.0, 0.5),
    "what lies where these branches were recorded is another file: its build id differs, its code contradicts the branches, or it is another machine's",
    "counts them, with neither names nor code; --symfs or --debug-dir can give the recorded file",
);
pub(super) const KERNEL_ENTRIES: Rule = rule(
    ["kernel_entries", "entries"],
    Limits(0.05, 0.5),
    "kernel addresses although only branches that end in user mode were asked for (returns from the kernel have its address as FROM)",
    "counts them as branches, but no block across the boundary",
);
pub(super) const MISPREDICT_NEVER_SET: Rule = rule(
    ["mispredict_never_set", "entries"],
    Limits(0.0, f64::INFINITY),
    "no branch at all was mispredicted: this CPU, hypervisor or recorder does not say",
    "says \"never seen\", with an upper limit that is not to be trusted here",
);
pub(super) const PREDICTIONS_UNKNOWN: Rule = rule(
    ["predictions_unknown", "entries"],
    KNOWN,
    "nobody knows whether these branches were predicted",
    "prints - for their rate",
);
pub(super) const CYCLES_CONSTANT: Rule = rule(
    ["cycles_constant", "entries"],
    Limits(0.0, f64::INFINITY),
    "every cycle count is the same: nobody counted",
    "shows them as they are",
);
pub(super) const CYCLES_SATURATED: Rule = rule(
    ["cycles_saturated", "entries"],
    ODD,
    "cycle counts at the highest value that a record holds: the truth may be larger",
    "counts them by block, as saturated",
);
pub(super) const CYCLES_ZERO: Rule = rule(
    ["cycles_zero", "entries"],
    KNOWN,
    "entries without a cycle count (0 stands for unknown); the oldest of each stack are not looked at",
    "leaves them out of means and distributions",
);
pub(super) const CUT_OFF: Rule = rule(
    ["cut_off", "records"],
    Limits(0.0, f64::INFINITY),
    "the file ends in the middle of a record, or is damaged there",
    "reads it up to there",
);
pub(super) const MALFORMED: Rule =
    rule(["malformed", "records"], ODD, "records that announce more than they hold", "skips them");
pub(super) const REFUSED_LINES: Rule = rule(
    ["refused_lines", "lines"],
    ODD,
    "lines that are no branch stacks",
    "skips them, and says the first",
);
