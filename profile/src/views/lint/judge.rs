//! Derives findings from counts: which are problems, and how severe.

use std::collections::BTreeMap;

use super::rules::*;
use super::{CodeCheck, Finding, Position, ReaderNotes, Scan, Severity};
use crate::code::maps::Location;
use crate::read::add;
use crate::views::flow::Flow;

/// Minimum number of entries for a never-set bit to be suspicious.
const ENOUGH: u64 = 1000;
/// Minimum number of entries with code bytes to draw conclusions from them.
const ENOUGH_CODE: u64 = 100;
/// Factor by which a branch is newest more often than expected.
const BIAS_FACTOR: u64 = 2;
/// Minimum count of a newest branch for this not to be chance.
const BIAS_COUNT: u64 = 30;

/// Minimum number of stacks that do not join for this not to be chance, and its ratio to the rate
/// within stacks.
const FEW: u64 = 3;
const UNUSUAL: f64 = 4.0;

/// Collects the findings.
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    /// Adds a finding if its count is not 0.
    pub(super) fn add(&mut self, rule: Rule, count: u64, of: u64, parts: &[(&str, u64)]) {
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

/// All findings.
pub(super) fn findings(
    scan: &Scan,
    flow: &Flow,
    code: &CodeCheck,
    notes: &ReaderNotes,
) -> Vec<Finding> {
    let mut found = Findings(Vec::new());
    stacks(&mut found, scan, flow);
    runs(&mut found, scan, flow);
    duplicates(&mut found, scan, flow);
    straightness(&mut found, scan, flow, code);
    fields(&mut found, scan, flow);
    reading(&mut found, flow, notes);
    found.0
}

fn stacks(found: &mut Findings, scan: &Scan, flow: &Flow) {
    let quality = &flow.quality;
    found.add(NO_BRANCHES, u64::from(flow.taken == 0), 1, &[]);
    found.add(EMPTY_STACKS, quality.missing_stacks(), quality.samples, &[]);
    found.add(ZERO_ENTRIES, quality.zero_entries, quality.entries, &[]);
    let lost = quality.lost_total();
    let parts: Vec<(&str, u64)> = quality
        .lost
        .iter()
        .map(|(label, n)| (label.map_or("dropped", |label| label.name()), *n))
        .collect();
    found.add(LOST, lost, quality.samples.saturating_add(lost), &parts);
    let excluded: Vec<(&str, u64)> = quality
        .labels
        .iter()
        .filter(|(label, _)| label.is_excluded())
        .map(|(label, n)| (label.name(), *n))
        .collect();
    found.add(EXCLUDED, quality.excluded, quality.samples, &excluded);
    found.add(NO_ADDRESSES, scan.named, scan.counted, &[("from or to unknown", scan.unknown)]);
    let known = quality.software.saturating_add(quality.hardware);
    found.add(JOINS_UNKNOWN, quality.samples.saturating_sub(known), quality.samples, &[]);
    found.add(NOT_EXACT, known.saturating_sub(quality.exact), known, &[]);
    found.add(FILTERED, flow.block_quality.filtered, quality.samples, &[]);
    if !flow.is_complete() {
        bias(found, scan);
    }
}

/// Signs of several runs: streams of two recorders in one file.
fn runs(found: &mut Findings, scan: &Scan, flow: &Flow) {
    let (runs, quality) = (&scan.runs, &flow.quality);
    found.add(
        // Separately drained CPUs may differ widely.
        Rule { limits: if quality.hardware > 0 { WRONG } else { ANY }, ..TIME_RUNS_BACK },
        runs.earlier.saturating_add(runs.at_once),
        runs.followed,
        &[("earlier", runs.earlier), ("two places at once", runs.at_once)],
    );
    // At an arriving signal, the preceding code stops: equally often between stacks and within
    // them.
    let blocks = &flow.block_quality;
    let within = blocks.impossible().saturating_sub(runs.apart) as f64;
    let pairs = blocks.blocks.saturating_add(blocks.impossible()).saturating_sub(runs.joined);
    let usual = within / pairs.max(1) as f64;
    let share = runs.apart as f64 / runs.joined.max(1) as f64;
    let is_odd = runs.apart >= FEW && share >= 0.01 && share > usual * UNUSUAL;
    found.add(
        Rule { limits: if is_odd { ANY } else { KNOWN }, ..STACKS_DO_NOT_JOIN },
        runs.apart,
        runs.joined,
        &[],
    );
    let begun = runs.begun();
    // In a selection, the fork events may be missing.
    let more = begun.saturating_sub(1) * u64::from(quality.left_out.samples == 0);
    found.add(SEVERAL_RUNS, more, begun, &[]);
}

/// A branch that is newest far more often than its other positions in stacks suggest.
fn bias(found: &mut Findings, scan: &Scan) {
    let (newest, counted) = (u128::from(scan.newest), u128::from(scan.counted));
    let biased = |place: &&Position| {
        let (at_top, all) = (u128::from(place.at_top), u128::from(place.all));
        place.at_top >= BIAS_COUNT
            && at_top * counted >= (all * newest).saturating_mul(u128::from(BIAS_FACTOR))
    };
    let stacks = scan.places.values().filter(biased);
    let stacks = stacks.fold(0u64, |sum, place| sum.saturating_add(place.at_top));
    found.add(TOP_OF_STACK_BIAS, stacks, scan.newest, &[]);
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
    found.add(Rule { limits, ..DUPLICATED_NEWEST }, suspected, scan.pairs, &parts);
    found.add(REPEATED_LAST_PAIR, scan.repeated_oldest, scan.pairs, &[]);
    found.add(DOUBLE_ABORTS, flow.quality.double_aborts, flow.quality.entries, &[]);
}

fn straightness(found: &mut Findings, scan: &Scan, flow: &Flow, code: &CodeCheck) {
    let blocks = &flow.block_quality;
    found.add(
        IMPOSSIBLE_FALL_THROUGH,
        blocks.impossible(),
        blocks.blocks.saturating_add(blocks.impossible()),
        &[("backwards", blocks.backwards), ("too long", blocks.too_long)],
    );
    found.add(
        Rule {
            limits: if code.checked < ENOUGH_CODE { KNOWN } else { Limits(0.01, 0.1) },
            ..CONTRADICTED_BLOCKS
        },
        blocks.contradicted,
        blocks.blocks.saturating_sub(blocks.without_code).saturating_add(blocks.contradicted),
        &[],
    );
    found.add(
        Rule { limits: if code.checked < ENOUGH_CODE { KNOWN } else { WRONG }, ..FROM_NO_BRANCH },
        code.no_branch.saturating_add(code.elsewhere),
        code.checked,
        &[("no branch", code.no_branch), ("other target", code.elsewhere)],
    );
    let mut others: BTreeMap<&str, u64> = BTreeMap::new();
    for site in flow.sites.iter().filter(|site| flow.maps.is_of_other_file(site.location)) {
        let Location::File { file, .. } = site.location else { continue };
        add(others.entry(flow.maps.path(file).unwrap_or_default()).or_default(), site.taken);
    }
    let parts: Vec<(&str, u64)> = others.into_iter().collect();
    found.add(
        OTHER_FILE,
        parts.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count)),
        flow.taken,
        &parts,
    );
    let kernel = scan.from_kernel.saturating_add(scan.to_kernel);
    found.add(
        KERNEL_ENTRIES,
        kernel,
        scan.user_only,
        &[("from", scan.from_kernel), ("to", scan.to_kernel)],
    );
}

fn fields(found: &mut Findings, scan: &Scan, flow: &Flow) {
    let known = flow.known;
    let never = if flow.mispredicted == Some(0) && known >= ENOUGH { known } else { 0 };
    found.add(MISPREDICT_NEVER_SET, never, known, &[]);
    found.add(PREDICTIONS_UNKNOWN, flow.taken.saturating_sub(known), flow.taken, &[]);
    let constant = if scan.varied || scan.with_cycles < ENOUGH { 0 } else { scan.with_cycles };
    found.add(CYCLES_CONSTANT, constant, scan.with_cycles, &[]);
    found.add(CYCLES_SATURATED, scan.saturated, scan.with_cycles, &[]);
    found.add(
        Rule { limits: if scan.with_cycles == 0 { KNOWN } else { ODD }, ..CYCLES_ZERO },
        scan.inner.saturating_sub(scan.with_cycles),
        scan.inner,
        &[],
    );
}

fn reading(found: &mut Findings, flow: &Flow, notes: &ReaderNotes) {
    found.add(CUT_OFF, u64::from(notes.cut_off), 0, &[]);
    found.add(
        MALFORMED,
        notes.malformed,
        flow.quality.samples.saturating_add(notes.malformed),
        &[],
    );
    found.add(
        REFUSED_LINES,
        notes.refused,
        flow.quality.samples.saturating_add(notes.refused),
        &[],
    );
}
