//! The head of every view: the recordings, their counts and their quality.

use profile::Flow;
use profile::hot::HotTable;
use profile::interval::Interval;
use profile::maps::Maps;
use profile::quality::Quality;
use serde_json::{Value, json};

use crate::input::{self, Source, selected};
use crate::present::{counted, counted_nonzero, grouped, joined, percent};
use crate::symbols;

/// Totals of any view.
pub(crate) struct Totals {
    pub(crate) branches: u64,
    pub(crate) distinct: u64,
    /// Known predictions, and the wrong ones among them; `None` in views without predictions.
    pub(crate) predictions: Option<(u64, Option<u64>)>,
}

impl Totals {
    /// Totals of a view without predictions.
    pub(crate) const fn of(branches: u64, distinct: u64) -> Totals {
        Totals { branches, distinct, predictions: None }
    }

    pub(crate) fn of_hot(hot: &HotTable, distinct: usize) -> Totals {
        let predictions = Some((hot.known, hot.mispredicted));
        Totals { branches: hot.total, distinct: distinct as u64, predictions }
    }
}

impl From<&Flow> for Totals {
    fn from(flow: &Flow) -> Totals {
        let predictions = Some((flow.known, flow.mispredicted));
        Totals { branches: flow.taken, distinct: flow.distinct, predictions }
    }
}

/// A view's additions to the head.
#[derive(Default)]
pub(crate) struct Notes {
    /// How far its numbers can be trusted: `complete`, or an interval.
    pub(crate) trust: Option<String>,
    /// Nonzero counts of unusual events.
    pub(crate) unusual: Vec<String>,
}

/// The head: the recordings, the counts, and only what is unusual in them; with `verbose` also
/// how the data was cleaned.
pub(crate) fn lines(
    sources: &[Source],
    quality: &Quality,
    totals: &Totals,
    notes: Notes,
    verbose: bool,
) -> Vec<String> {
    let mut lines: Vec<String> = sources.iter().map(|source| source.origin(verbose)).collect();
    let modelled = Source::modelled(sources, quality.software).map(str::to_owned);
    for note in modelled.into_iter().chain(selected::of_quality(sources, quality)) {
        match lines.last_mut().filter(|_| sources.len() == 1) {
            Some(line) => *line += &format!("; {note}"),
            None => lines.push(note),
        }
    }
    let mut counts = counted(totals.branches, "branch", "branches");
    if quality.not_taken > 0 {
        counts += &format!(" ({} more not taken: --view outcomes)", grouped(quality.not_taken));
    }
    counts += &format!(", {}", counted(quality.samples, "sample", "samples"));
    if verbose {
        counts += &format!(", {} distinct", grouped(totals.distinct));
    }
    let predictions = match totals.predictions {
        None => None,
        Some((_, None)) => Some("predictions not recorded".to_owned()),
        Some((known, Some(missed))) if known == totals.branches => {
            Some(format!("{} mispredicted", grouped(missed)))
        }
        Some((known, Some(missed))) => {
            Some(format!("{} of {} known predictions wrong", grouped(missed), grouped(known)))
        }
    };
    let all = std::iter::once(counts).chain(predictions).chain(notes.trust);
    lines.push(joined(all, "; "));
    let unusual: Vec<String> = unusual(quality).into_iter().chain(notes.unusual).collect();
    if !unusual.is_empty() {
        lines.push(format!("warning: {} (see lbr lint)", unusual.join(", ")));
    }
    if verbose {
        lines.push(format!("data quality: {}", quality_line(quality)));
    }
    lines
}

/// Counts of losses and drops.
fn unusual(quality: &Quality) -> Vec<String> {
    let lost = quality.lost.iter().map(|(label, count)| {
        format!("{} lost ({})", grouped(*count), label.map_or("dropped", |label| label.name()))
    });
    lost.chain(dropped(quality)).collect()
}

/// Counts of dropped entries.
fn dropped(quality: &Quality) -> Vec<String> {
    counted_nonzero([
        (quality.missing_stacks(), "empty stack", "empty stacks", ""),
        (quality.zero_entries, "entry", "entries", "0x0 -> 0x0 dropped"),
        (
            quality.duplicated_newest,
            "duplicate newest entry",
            "duplicate newest entries",
            "dropped",
        ),
        (quality.double_aborts, "second record of an abort", "second records of aborts", "dropped"),
        (quality.excluded, "unusable stack", "unusable stacks", "dropped"),
        (quality.unkept.mappings, "mapping", "mappings", "not kept in memory"),
        (quality.unkept.processes, "process", "processes", "not kept in memory"),
    ])
    .collect()
}

/// Counts the stacks that give no blocks, loops or paths, because not every branch was recorded.
pub(crate) fn without(filtered: u64, what: &str) -> Vec<String> {
    let stacks = counted(filtered, "stack", "stacks");
    let words = (filtered > 0).then(|| format!("{stacks} without {what} (filtered recording)"));
    words.into_iter().collect()
}

/// The quality in words.
pub(crate) fn quality_line(quality: &Quality) -> String {
    let mut parts = Vec::new();
    match quality.exact_share() {
        Some(share) => parts.push(format!("exact {} of stacks", percent(share))),
        None => parts.push("stack continuity not recorded".to_owned()),
    }
    for (label, count) in &quality.labels {
        parts.push(format!("{} {}", label.name(), grouped(*count)));
    }
    for (label, count) in &quality.lost {
        let why = label.map_or("dropped", |label| label.name());
        parts.push(format!("lost {} ({why})", grouped(*count)));
    }
    if quality.lost.is_empty() {
        parts.push("lost 0".to_owned());
    }
    parts.extend(dropped(quality));
    parts.join(", ")
}

/// How far the shares of a sample can be trusted: the widest of their intervals.
pub(crate) fn share_trust(quality: &Quality, shares: impl Iterator<Item = f64>) -> Option<String> {
    if quality.is_complete() {
        return Some("complete".to_owned());
    }
    if quality.samples == 0 {
        return None;
    }
    let off = |share| {
        let Interval { low, high } = quality.share_interval(share)?;
        Some((high - share).max(share - low))
    };
    Some(match shares.filter_map(off).reduce(f64::max) {
        Some(most) => {
            let points = most * 100.0;
            // Two significant digits.
            let digits = (1.0 - points.log10().floor()).clamp(1.0, 9.0) as usize;
            format!("shares ±{points:.digits$} points (95%)")
        }
        None => "too few stacks for intervals of shares".to_owned(),
    })
}

/// Totals and data quality, as one JSON object.
pub(crate) fn quality_json(sources: &[Source], quality: &Quality, totals: &Totals) -> Value {
    let labels: Value = quality.labels.iter().map(|(label, n)| (label.name(), *n)).collect();
    let lost = quality.lost.iter();
    let lost: Value = lost.map(|(label, n)| (label.map_or("dropped", |l| l.name()), *n)).collect();
    let mut json = json!({
        "view": "quality",
        "inputs": sources.iter().map(|source| source.name.as_str()).collect::<Vec<_>>(),
        "partial": sources.iter().any(Source::is_partial),
        "symbols_only": sources.iter().any(|source| source.has_names),
        "samples": quality.samples,
        "empty_stacks": quality.empty_stacks,
        "entries": quality.entries,
        "zero_entries": quality.zero_entries,
        "not_taken": quality.not_taken,
        "duplicated_newest": quality.duplicated_newest,
        "double_aborts": quality.double_aborts,
        "branches": totals.branches,
        "distinct": totals.distinct,
        "exact": quality.exact_share().map(|_| quality.exact),
        "labels": labels,
        "lost": quality.lost_total(),
        "lost_by_reason": lost,
        "excluded": quality.excluded,
        "software": quality.software,
        "hardware": quality.hardware,
        "modelled": quality.software > 0 || sources.iter().any(Source::says_modelled),
        "mappings_not_kept": quality.unkept.mappings,
        "processes_not_kept": quality.unkept.processes,
    });
    if let Some((known, mispredicted)) = totals.predictions {
        json["mispredicted"] = json!(mispredicted);
        json["predictions_known"] = json!(known);
    }
    selected::put_json(&mut json, sources, &quality.left_out);
    json
}

/// The same for a flow, with counts of unusable blocks.
pub(crate) fn flow_json(sources: &[Source], flow: &Flow, totals: &Totals) -> Value {
    let mut json = quality_json(sources, &flow.quality, totals);
    let blocks = &flow.block_quality;
    json["complete"] = json!(flow.is_complete());
    json["open_ends"] = json!(flow.block_quality.open);
    json["blocks"] = json!(blocks.blocks);
    json["blocks_without_code"] = json!(blocks.without_code);
    json["blocks_contradicted"] = json!(blocks.contradicted);
    json["blocks_impossible"] = json!(blocks.impossible());
    json["blocks_crossing"] = json!(blocks.crossing);
    json["neighbours_apart"] = json!(blocks.apart);
    json["stacks_filtered"] = json!(blocks.filtered);
    json
}

/// How far rates and counts can be trusted.
pub(crate) fn trust(flow: &Flow) -> &'static str {
    if flow.is_complete() { "complete: every taken branch" } else { "95% intervals, by stack" }
}

/// Prints the warnings about the recordings and their files.
pub(crate) fn finish(sources: &[Source], maps: &Maps) {
    sources.iter().for_each(input::warn);
    symbols::warn(&[maps]);
}
