//! The texts of each kind of finding, and its thresholds for a warning or an error.

/// Thresholds as shares: for a warning, and for an error.
#[derive(Clone, Copy)]
pub(super) struct Limits(pub(super) f64, pub(super) f64);

/// Affected data is invalid and omitted.
pub(super) const DROPPED: Limits = Limits(0.01, 0.5);
/// Affected numbers are wrong.
pub(super) const WRONG: Limits = Limits(0.001, 0.1);
/// An error in any number.
pub(super) const ANY: Limits = Limits(0.0, 0.0);
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

/// A table of rules: identifier and unit, thresholds, then meaning and report.
macro_rules! rules {
    ($($name:ident: [$id:literal, $unit:literal], $limits:expr;
        $meaning:literal, $report:literal;)*) => {
        $(pub(super) const $name: Rule = Rule {
            id: $id, unit: $unit, limits: $limits, meaning: $meaning, report: $report,
        };)*
    };
}

rules! {
    NO_BRANCHES: ["no_branches", "recordings"], ANY;
        "no branch in it counts",
        "prints an empty table";
    EMPTY_STACKS: ["empty_stacks", "stacks"], DROPPED;
        "samples without a branch: nothing was recorded before them, or the records were erased",
        "counts them only as samples";
    ZERO_ENTRIES: ["zero_entries", "entries"], DROPPED;
        "entries 0x0 -> 0x0: empty slots, or cleared by a filter",
        "omits them, and joins no block across them";
    LOST: ["lost", "stacks"], WRONG;
        "stacks that the recorder lost or excluded: their branches are missing",
        "prints how many, and joins no block across them";
    EXCLUDED: ["excluded", "stacks"], DROPPED;
        "stacks that changed while they were read, were erased, or belong to another program",
        "excludes them from every count";
    NO_ADDRESSES: ["no_addresses", "entries"], KNOWN;
        "symbols instead of addresses: no code bytes and no source lines, and functions with the same printed name (and file, if printed) look like one; code without a symbol may be anywhere",
        "joins no block between functions, and none in code without a symbol";
    JOINS_UNKNOWN: ["joins_unknown", "stacks"], KNOWN;
        "the recording does not tell how its stacks join: each is separate",
        "counts no block from one stack to the next";
    NOT_EXACT: ["not_exact", "stacks"], KNOWN;
        "stacks with branches missing before or after them: counts are a sample, not the truth",
        "gives intervals";
    FILTERED: ["filtered", "stacks"], KNOWN;
        "not every branch was recorded (filter, call-stack mode): there are no blocks between neighbours",
        "counts no blocks and no branches that were not taken";
    TOP_OF_STACK_BIAS: ["top_of_stack_bias", "stacks"], Limits(0.1, f64::INFINITY);
        "stacks whose newest branch is newest at least twice as often as its other positions suggest: the moment of sampling depends on the code",
        "counts them; the newest entries are not a fair sample";
    DUPLICATED_NEWEST: ["duplicated_newest", "stacks"], KNOWN;
        "the newest entry appears twice, and the block between would be longer than the stride (Skylake does this, and so does a loop of one long block)",
        "drops one of the two if the block would be longer than 0x1000 bytes or run backwards";
    REPEATED_LAST_PAIR: ["repeated_last_pair", "stacks"], ODD;
        "the oldest entry appears twice although no loop of one block can cause that",
        "counts both, but no block between them if it would run backwards";
    DOUBLE_ABORTS: ["double_aborts", "entries"], ODD;
        "transaction aborts logged twice, with and without the abort bit (Haswell)",
        "drops the one without the bit";
    IMPOSSIBLE_FALL_THROUGH: ["impossible_fall_through", "blocks"], Limits(0.01, 0.1);
        "neighbours between which code would have run backwards or further than 1 MiB: a branch between them is missing, or one is wrong",
        "omits these blocks";
    CONTRADICTED_BLOCKS: ["contradicted_blocks", "blocks"], KNOWN;
        "the code bytes cannot run from this entry to this exit: the file differs from the executed one, code was rewritten, or a branch is missing",
        "omits these blocks, and concludes nothing about the branches inside";
    FROM_NO_BRANCH: ["from_no_branch", "entries"], KNOWN;
        "FROM is not a branch instruction, or a direct one to another target: the file differs from the executed one, or the entry is an interrupt or a fault",
        "counts them; their type is unknown";
    OTHER_FILE: ["other_file", "entries"], Limits(0.0, 0.5);
        "the file at the path of these branches is another one: its build ID differs, its code contradicts the branches, or it is from another machine",
        "counts them, without names and code; --symfs or --debug-dir can supply the recorded file";
    KERNEL_ENTRIES: ["kernel_entries", "entries"], Limits(0.05, 0.5);
        "kernel addresses although only branches that end in user mode were requested (returns from the kernel have a kernel address as FROM)",
        "counts them as branches, but no block across the boundary";
    MISPREDICT_NEVER_SET: ["mispredict_never_set", "entries"], Limits(0.0, f64::INFINITY);
        "no branch was mispredicted: this CPU, hypervisor or recorder does not record it",
        "prints \"never seen\", with an upper limit that is not reliable here";
    PREDICTIONS_UNKNOWN: ["predictions_unknown", "entries"], KNOWN;
        "the predictions of these branches are unknown",
        "prints - for their rate";
    CYCLES_CONSTANT: ["cycles_constant", "entries"], Limits(0.0, f64::INFINITY);
        "every cycle count is the same: cycles were not measured",
        "prints them unchanged";
    CYCLES_SATURATED: ["cycles_saturated", "entries"], ODD;
        "cycle counts at the highest value that a record can hold: the true count may be larger",
        "counts them by block, as saturated";
    CYCLES_ZERO: ["cycles_zero", "entries"], KNOWN;
        "entries without a cycle count (0 means unknown); the oldest of each stack is not checked",
        "omits them from means and distributions";
    CUT_OFF: ["cut_off", "records"], Limits(0.0, f64::INFINITY);
        "the file ends inside a record, or is damaged there",
        "reads it up to that point";
    MALFORMED: ["malformed", "records"], ODD;
        "records that are shorter than they claim",
        "skips them";
    REFUSED_LINES: ["refused_lines", "lines"], ODD;
        "lines that are not branch stacks",
        "skips them, and prints the first";
    OUTSIDE_BINARY: ["outside_binary", "branches"], Limits(f64::INFINITY, 1.0);
        "branches with neither end in the file of --binary, found by build id or name",
        "shows them; a profile of the file does not count them";
    FUNCTIONS_DIFFER: ["functions_differ", "branches"], WRONG;
        "branches in functions that the file of --binary lacks or has in another size: it is another build",
        "names the recorded functions; a profile gives those of the file the counts of other code";
    FUNCTIONS_WITHOUT_SAMPLES: ["functions_without_samples", "function entries"], ODD;
        "functions were entered, but no branch inside them was recorded",
        "shows who entered them; a profile takes their code as cold";
    CODE_NOT_SEEN: ["code_not_seen", "branches"], Limits(0.05, 0.5);
        "branches that were seen once: another recording would have about this share of branches that this one lacks",
        "counts what was seen: record longer, or with every branch";
    TIME_RUNS_BACK: ["time_runs_back", "stacks"], ANY;
        "stacks of a thread that are earlier than its previous one, or of the same time at another address: they are not from one run",
        "uses them in file order";
    STACKS_DO_NOT_JOIN: ["stacks_do_not_join", "stacks"], KNOWN;
        "stacks marked as following the previous one that start where no code leads from there: signals cause a few, two runs in one file cause many",
        "omits the block between them";
    SEVERAL_RUNS: ["several_runs", "processes"], ANY;
        "processes that no recorded process started: a recorder starts one, so several recorders wrote this",
        "counts them together";
}
