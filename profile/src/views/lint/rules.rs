//! The texts of each kind of finding, and its thresholds for a warning or an error.

/// Thresholds as shares: for a warning, and for an error.
#[derive(Clone, Copy)]
pub(super) struct Limits(pub(super) f64, pub(super) f64);

/// Affected data is invalid and omitted.
pub(super) const DROPPED: Limits = Limits(0.01, 0.5);
/// Affected numbers are wrong.
pub(super) const WRONG: Limits = Limits(0.001, 0.1);
/// At most a warning.
pub(super) const ODD: Limits = Limits(0.01, f64::INFINITY);
/// At most a note.
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
    "no branch in it counts",
    "prints an empty table",
);
pub(super) const EMPTY_STACKS: Rule = rule(
    ["empty_stacks", "stacks"],
    DROPPED,
    "samples without a branch: nothing was recorded before them, or the records were erased",
    "counts them only as samples",
);
pub(super) const ZERO_ENTRIES: Rule = rule(
    ["zero_entries", "entries"],
    DROPPED,
    "entries 0x0 -> 0x0: empty slots, or cleared by a filter",
    "omits them, and joins no block across them",
);
pub(super) const LOST: Rule = rule(
    ["lost", "stacks"],
    WRONG,
    "stacks that the recorder lost or excluded: their branches are missing",
    "prints how many, and joins no block across them",
);
pub(super) const EXCLUDED: Rule = rule(
    ["excluded", "stacks"],
    DROPPED,
    "stacks that changed while they were read, were erased, or belong to another program",
    "excludes them from every count",
);
pub(super) const NO_ADDRESSES: Rule = rule(
    ["no_addresses", "entries"],
    KNOWN,
    "symbols instead of addresses: no code bytes and no source lines, and functions with the same printed name (and file, if printed) look like one; code without a symbol may be anywhere",
    "joins no block between functions, and none in code without a symbol",
);
pub(super) const JOINS_UNKNOWN: Rule = rule(
    ["joins_unknown", "stacks"],
    KNOWN,
    "the recording does not tell how its stacks join: each is separate",
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
    "not every branch was recorded (filter, call-stack mode): there are no blocks between neighbours",
    "counts no blocks and no branches that were not taken",
);
pub(super) const TOP_OF_STACK_BIAS: Rule = rule(
    ["top_of_stack_bias", "stacks"],
    Limits(0.1, f64::INFINITY),
    "stacks whose newest branch is newest at least twice as often as its other positions suggest: the moment of sampling depends on the code",
    "counts them; the newest entries are not a fair sample",
);
pub(super) const DUPLICATED_NEWEST: Rule = rule(
    ["duplicated_newest", "stacks"],
    KNOWN,
    "the newest entry appears twice, and the block between would be longer than the stride (Skylake does this, and so does a loop of one long block)",
    "drops one of the two if the block would be longer than 0x1000 bytes or run backwards",
);
pub(super) const REPEATED_LAST_PAIR: Rule = rule(
    ["repeated_last_pair", "stacks"],
    ODD,
    "the oldest entry appears twice although no loop of one block can cause that",
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
    "neighbours between which code would have run backwards or further than 1 MiB: a branch between them is missing, or one is wrong",
    "omits these blocks",
);
pub(super) const CONTRADICTED_BLOCKS: Rule = rule(
    ["contradicted_blocks", "blocks"],
    KNOWN,
    "the code bytes cannot run from this entry to this exit: the file differs from the executed one, code was rewritten, or a branch is missing",
    "omits these blocks, and concludes nothing about the branches inside",
);
pub(super) const FROM_NO_BRANCH: Rule = rule(
    ["from_no_branch", "entries"],
    KNOWN,
    "FROM is not a branch instruction, or a direct one to another target: the file differs from the executed one, or the entry is an interrupt or a fault",
    "counts them; their type is unknown",
);
pub(super) const OTHER_FILE: Rule = rule(
    ["other_file", "entries"],
    Limits(0.0, 0.5),
    "the file at the path of these branches is another one: its build ID differs, its code contradicts the branches, or it is from another machine",
    "counts them, without names and code; --symfs or --debug-dir can supply the recorded file",
);
pub(super) const KERNEL_ENTRIES: Rule = rule(
    ["kernel_entries", "entries"],
    Limits(0.05, 0.5),
    "kernel addresses although only branches that end in user mode were requested (returns from the kernel have a kernel address as FROM)",
    "counts them as branches, but no block across the boundary",
);
pub(super) const MISPREDICT_NEVER_SET: Rule = rule(
    ["mispredict_never_set", "entries"],
    Limits(0.0, f64::INFINITY),
    "no branch was mispredicted: this CPU, hypervisor or recorder does not record it",
    "prints \"never seen\", with an upper limit that is not reliable here",
);
pub(super) const PREDICTIONS_UNKNOWN: Rule = rule(
    ["predictions_unknown", "entries"],
    KNOWN,
    "the predictions of these branches are unknown",
    "prints - for their rate",
);
pub(super) const CYCLES_CONSTANT: Rule = rule(
    ["cycles_constant", "entries"],
    Limits(0.0, f64::INFINITY),
    "every cycle count is the same: cycles were not measured",
    "prints them unchanged",
);
pub(super) const CYCLES_SATURATED: Rule = rule(
    ["cycles_saturated", "entries"],
    ODD,
    "cycle counts at the highest value that a record can hold: the true count may be larger",
    "counts them by block, as saturated",
);
pub(super) const CYCLES_ZERO: Rule = rule(
    ["cycles_zero", "entries"],
    KNOWN,
    "entries without a cycle count (0 means unknown); the oldest of each stack is not checked",
    "omits them from means and distributions",
);
pub(super) const CUT_OFF: Rule = rule(
    ["cut_off", "records"],
    Limits(0.0, f64::INFINITY),
    "the file ends inside a record, or is damaged there",
    "reads it up to that point",
);
pub(super) const MALFORMED: Rule =
    rule(["malformed", "records"], ODD, "records that are shorter than they claim", "skips them");
pub(super) const REFUSED_LINES: Rule = rule(
    ["refused_lines", "lines"],
    ODD,
    "lines that are not branch stacks",
    "skips them, and prints the first",
);
pub(super) const OUTSIDE_BINARY: Rule = rule(
    ["outside_binary", "branches"],
    Limits(f64::INFINITY, 1.0),
    "branches with neither end in the file of --binary, found by build id or name",
    "shows them; a profile of the file does not count them",
);
pub(super) const FUNCTIONS_DIFFER: Rule = rule(
    ["functions_differ", "branches"],
    WRONG,
    "branches in functions that the file of --binary lacks or has in another size: it is another build",
    "names the recorded functions; a profile gives those of the file the counts of other code",
);
pub(super) const FUNCTIONS_WITHOUT_SAMPLES: Rule = rule(
    ["functions_without_samples", "function entries"],
    ODD,
    "functions were entered, but no branch inside them was recorded",
    "shows who entered them; a profile takes their code as cold",
);
pub(super) const CODE_NOT_SEEN: Rule = rule(
    ["code_not_seen", "branches"],
    Limits(0.05, 0.5),
    "branches that were seen once: another recording would have about this share of branches that this one lacks",
    "counts what was seen: record longer, or with every branch",
);
