//! From counts to findings: what is how bad from where on.

use std::collections::BTreeMap;

use super::positions::Position;
use super::{CodeCheck, Finding, ReaderNotes, Scan, Severity};
use crate::code::maps::Location;
use crate::views::flow::Flow;

/// Entries from which a bit that is never set is remarkable.
const ENOUGH: u64 = 1000;
/// Entries with code bytes from which their verdict counts.
const ENOUGH_CODE: u64 = 100;
/// A branch that is newest more often than it should be, so many times over.
const BIAS_FACTOR: u64 = 2;
/// Times newest from which that is no chance.
const BIAS_COUNT: u64 = 30;

/// Thresholds as shares: from where on a finding is a warning, an error.
#[derive(Clone, Copy)]
struct Limits(f64, f64);

/// Nothing of it should be there; it is left out.
const DROPPED: Limits = Limits(0.01, 0.5);
/// It makes numbers wrong wherever it is.
const WRONG: Limits = Limits(0.001, 0.1);
/// It never is more than a warning.
const ODD: Limits = Limits(0.01, f64::INFINITY);
/// It never is more than a note.
const KNOWN: Limits = Limits(f64::INFINITY, f64::INFINITY);

/// What is written of a kind of finding.
struct Rule {
    id: &'static str,
    unit: &'static str,
    limits: Limits,
    meaning: &'static str,
    report: &'static str,
}

/// Collects what was found.
struct Findings(Vec<Finding>);

impl Findings {
    /// Adds a finding, unless it was not found.
    fn add(&mut self, rule: Rule, count: u64, of: u64, parts: &[(&str, u64)]) {
        if count == 0 {
            return;
        }
        let share = if of == 0 { 1.0 } else { count as f64 / of as f64 };
        let severity = if share >= rule.limits.1 {
            Severity::Error
        } else if share >= rule.limits.0 {
            Severity::Warning
        } else {
            Severity::Note
        };
        let parts = parts.iter().map(|(what, n)| ((*what).to_owned(), *n)).collect();
        let Rule { id, unit, meaning, report, .. } = rule;
        self.0.push(Finding { id, severity, count, of, unit, meaning, report, parts });
    }
}

/// Everything that was found.
pub(super) fn findings(
    scan: &Scan,
    flow: &Flow,
    code: &CodeCheck,
    notes: &ReaderNotes,
) -> Vec<Finding> {
    let mut found = Findings(Vec::new());
    stacks(&mut found, scan, flow);
    duplicates(&mut found, scan, flow);
    straightness(&mut found, scan, flow, code);
    fields(&mut found, scan, flow);
    reading(&mut found, flow, notes);
    found.0
}

fn stacks(found: &mut Findings, scan: &Scan, flow: &Flow) {
    let quality = &flow.quality;
    found.add(
        Rule {
            id: "no_branches",
            unit: "recordings",
            limits: Limits(0.0, 0.0),
            meaning: "there is not one branch in it that counts",
            report: "prints an empty table",
        },
        u64::from(flow.taken == 0),
        1,
        &[],
    );
    found.add(
        Rule {
            id: "empty_stacks",
            unit: "stacks",
            limits: DROPPED,
            meaning: "samples without a branch: nothing was recorded before them, or the records were wiped",
            report: "counts them as samples and nothing else",
        },
        quality.empty_stacks,
        quality.samples,
        &[],
    );
    found.add(
        Rule {
            id: "zero_entries",
            unit: "entries",
            limits: DROPPED,
            meaning: "entries 0x0 -> 0x0: slots that were empty, or that a filter emptied",
            report: "leaves them out, and joins no block across them",
        },
        quality.zero_entries,
        quality.entries,
        &[],
    );
    let lost = quality.lost_total();
    let parts: Vec<(&str, u64)> = quality
        .lost
        .iter()
        .map(|(label, n)| (label.map_or("dropped", |label| label.name()), *n))
        .collect();
    found.add(
        Rule {
            id: "lost",
            unit: "stacks",
            limits: WRONG,
            meaning: "stacks that the recorder lost or kept out: what ran then is not here",
            report: "says how many, and joins no block across them",
        },
        lost,
        quality.samples.saturating_add(lost),
        &parts,
    );
    let excluded: Vec<(&str, u64)> = quality
        .labels
        .iter()
        .filter(|(label, _)| label.is_excluded())
        .map(|(label, n)| (label.name(), *n))
        .collect();
    found.add(
        Rule {
            id: "excluded",
            unit: "stacks",
            limits: DROPPED,
            meaning: "stacks torn while they were read, wiped, or of somebody else",
            report: "keeps them out of every count",
        },
        quality.excluded,
        quality.samples,
        &excluded,
    );
    found.add(
        Rule {
            id: "no_addresses",
            unit: "entries",
            limits: KNOWN,
            meaning: "symbols in place of addresses: no code bytes and no source lines, and functions of one \
                      printed name (and file, where printed) look like one; what has no symbol is any place",
            report: "joins no block between functions; of what has no symbol none at all",
        },
        scan.named,
        scan.counted,
        &[("from or to unknown", scan.unknown)],
    );
    let told = quality.software.saturating_add(quality.hardware);
    found.add(
        Rule {
            id: "joins_unknown",
            unit: "stacks",
            limits: KNOWN,
            meaning: "the recording does not say how its stacks join: each stands for itself",
            report: "counts no block from one stack to the next",
        },
        quality.samples.saturating_sub(told),
        quality.samples,
        &[],
    );
    found.add(
        Rule {
            id: "not_exact",
            unit: "stacks",
            limits: KNOWN,
            meaning: "stacks with branches missing before or after them: counts are a sample, not the truth",
            report: "gives intervals",
        },
        told.saturating_sub(quality.exact),
        told,
        &[],
    );
    found.add(
        Rule {
            id: "filtered",
            unit: "stacks",
            limits: KNOWN,
            meaning: "not every branch was recorded (filter, call-stack mode): neighbours are not joined by straight code",
            report: "counts no blocks and no branches that were not taken",
        },
        flow.block_quality.filtered,
        quality.samples,
        &[],
    );
    if !flow.is_complete() {
        bias(found, scan);
    }
}

/// A branch that is newest far more often than at other places of the stack.
fn bias(found: &mut Findings, scan: &Scan) {
    let (newest, counted) = (u128::from(scan.newest), u128::from(scan.counted));
    let biased = |place: &&Position| {
        let (at_top, all) = (u128::from(place.at_top), u128::from(place.all));
        place.at_top >= BIAS_COUNT
            && at_top * counted > (all * newest).saturating_mul(u128::from(BIAS_FACTOR))
    };
    let stacks = scan.places.iter().filter(biased);
    let stacks = stacks.fold(0u64, |sum, place| sum.saturating_add(place.at_top));
    found.add(
        Rule {
            id: "top_of_stack_bias",
            unit: "stacks",
            limits: Limits(0.1, f64::INFINITY),
            meaning: "stacks whose newest branch is newest at least twice as often as its place in other entries lets expect: the moment of sampling depends on the code",
            report: "counts them; the newest entries are not a fair sample",
        },
        stacks,
        scan.newest,
        &[],
    );
}

fn duplicates(found: &mut Findings, scan: &Scan, flow: &Flow) {
    let elsewhere = scan.suspected_elsewhere;
    let (suspected, outside) = match scan.suspected {
        0 => (elsewhere, "outside the program"),
        suspected => (suspected, "more outside the program"),
    };
    let parts = [(outside, elsewhere), ("dropped by report", flow.quality.duplicated_newest)];
    let dropped = flow.quality.duplicated_newest as f64 / scan.pairs.max(1) as f64;
    // A suspicion alone is a note: such loops exist.
    let limits = if dropped >= DROPPED.0 { Limits(0.0, DROPPED.1) } else { KNOWN };
    found.add(
        Rule {
            id: "duplicated_newest",
            unit: "stacks",
            limits,
            meaning: "the newest entry stands there twice, and the block between would be longer than the stride (Skylake does this; a loop of one long block as well)",
            report: "drops one of the two where the block would be longer than 0x1000 bytes or run backwards",
        },
        suspected,
        scan.pairs,
        &parts,
    );
    found.add(
        Rule {
            id: "repeated_last_pair",
            unit: "stacks",
            limits: ODD,
            meaning: "the oldest entry stands there twice although no loop of one block can do that",
            report: "counts both, but no block between them if it would run backwards",
        },
        scan.repeated_oldest,
        scan.pairs,
        &[],
    );
    found.add(
        Rule {
            id: "double_aborts",
            unit: "entries",
            limits: ODD,
            meaning: "transaction aborts logged twice, with and without the abort bit (Haswell)",
            report: "drops the one without the bit",
        },
        flow.quality.double_aborts,
        flow.quality.entries,
        &[],
    );
}

fn straightness(found: &mut Findings, scan: &Scan, flow: &Flow, code: &CodeCheck) {
    let blocks = &flow.block_quality;
    found.add(
        Rule {
            id: "impossible_fall_through",
            unit: "blocks",
            limits: Limits(0.01, 0.1),
            meaning: "neighbours between which code would have run backwards or further than 1 MiB: a branch between them is missing, or one is not what it says",
            report: "leaves these blocks out",
        },
        blocks.impossible(),
        blocks.blocks.saturating_add(blocks.impossible()),
        &[("backwards", blocks.backwards), ("too long", blocks.too_long)],
    );
    found.add(
        Rule {
            id: "contradicted_blocks",
            unit: "blocks",
            limits: if code.checked < ENOUGH_CODE { KNOWN } else { Limits(0.01, 0.1) },
            meaning: "the code bytes cannot run from this entry to this exit: the file is not what ran, code was rewritten, or a branch is missing",
            report: "leaves these blocks out, and concludes nothing about the branches inside",
        },
        blocks.contradicted,
        blocks.blocks.saturating_sub(blocks.without_code).saturating_add(blocks.contradicted),
        &[],
    );
    found.add(
        Rule {
            id: "from_no_branch",
            unit: "entries",
            limits: if code.checked < ENOUGH_CODE { KNOWN } else { WRONG },
            meaning: "FROM is no branch instruction, or a direct one to another target: the file is not what ran, or the entry is of an interrupt or a fault",
            report: "counts them; their type is unknown",
        },
        code.no_branch.saturating_add(code.elsewhere),
        code.checked,
        &[("no branch", code.no_branch), ("other target", code.elsewhere)],
    );
    let mut others: BTreeMap<&str, u64> = BTreeMap::new();
    for site in flow.sites.iter().filter(|site| flow.maps.is_of_other_file(site.location)) {
        let Location::File { file, .. } = site.location else { continue };
        let count = others.entry(flow.maps.path(file).unwrap_or_default()).or_default();
        *count = count.saturating_add(site.taken);
    }
    let parts: Vec<(&str, u64)> = others.into_iter().collect();
    found.add(
        Rule {
            id: "other_file",
            unit: "entries",
            limits: Limits(0.0, 0.5),
            meaning: "what lies where these branches were recorded is another file: its build id differs, its code \
                      contradicts the branches, or it is another machine's",
            report: "counts them, with neither names nor code; --symfs or --debug-dir can give the recorded file",
        },
        parts.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count)),
        flow.taken,
        &parts,
    );
    let kernel = scan.from_kernel.saturating_add(scan.to_kernel);
    found.add(
        Rule {
            id: "kernel_entries",
            unit: "entries",
            limits: Limits(0.05, 0.5),
            meaning: "kernel addresses although only branches that end in user mode were asked for (returns from the kernel have its address as FROM)",
            report: "counts them as branches, but no block across the boundary",
        },
        kernel,
        scan.user_only,
        &[("from", scan.from_kernel), ("to", scan.to_kernel)],
    );
}

fn fields(found: &mut Findings, scan: &Scan, flow: &Flow) {
    let known = flow.sites.iter().fold(0u64, |sum, site| sum.saturating_add(site.known));
    let missed =
        flow.sites.iter().fold(0u64, |sum, s| sum.saturating_add(s.mispredicted.unwrap_or(0)));
    let never = if missed == 0 && known >= ENOUGH { known } else { 0 };
    found.add(
        Rule {
            id: "mispredict_never_set",
            unit: "entries",
            limits: Limits(0.0, f64::INFINITY),
            meaning: "no branch at all was mispredicted: this CPU, hypervisor or recorder does not say",
            report: "says \"never seen\", with an upper limit that is not to be trusted here",
        },
        never,
        known,
        &[],
    );
    found.add(
        Rule {
            id: "predictions_unknown",
            unit: "entries",
            limits: KNOWN,
            meaning: "nobody knows whether these branches were predicted",
            report: "prints - for their rate",
        },
        flow.taken.saturating_sub(known),
        flow.taken,
        &[],
    );
    let constant = if scan.varied || scan.with_cycles < ENOUGH { 0 } else { scan.with_cycles };
    found.add(
        Rule {
            id: "cycles_constant",
            unit: "entries",
            limits: Limits(0.0, f64::INFINITY),
            meaning: "every cycle count is the same: nobody counted",
            report: "shows them as they are",
        },
        constant,
        scan.with_cycles,
        &[],
    );
    found.add(
        Rule {
            id: "cycles_saturated",
            unit: "entries",
            limits: ODD,
            meaning: "cycle counts at the highest value that a record holds: the truth may be larger",
            report: "counts them by block, as saturated",
        },
        scan.saturated,
        scan.with_cycles,
        &[],
    );
    found.add(
        Rule {
            id: "cycles_zero",
            unit: "entries",
            limits: if scan.with_cycles == 0 { KNOWN } else { ODD },
            meaning: "entries without a cycle count (0 stands for unknown); the oldest of each stack are not looked at",
            report: "leaves them out of means and distributions",
        },
        scan.inner.saturating_sub(scan.with_cycles),
        scan.inner,
        &[],
    );
}

fn reading(found: &mut Findings, flow: &Flow, notes: &ReaderNotes) {
    found.add(
        Rule {
            id: "cut_off",
            unit: "records",
            limits: Limits(0.0, f64::INFINITY),
            meaning: "the file ends in the middle of a record, or is damaged there",
            report: "reads it up to there",
        },
        u64::from(notes.cut_off),
        0,
        &[],
    );
    found.add(
        Rule {
            id: "malformed",
            unit: "records",
            limits: ODD,
            meaning: "records that announce more than they hold",
            report: "skips them",
        },
        notes.malformed,
        flow.quality.samples.saturating_add(notes.malformed),
        &[],
    );
    found.add(
        Rule {
            id: "refused_lines",
            unit: "lines",
            limits: ODD,
            meaning: "lines that are no branch stacks",
            report: "skips them, and says the first",
        },
        notes.refused,
        flow.quality.samples.saturating_add(notes.refused),
        &[],
    );
}
