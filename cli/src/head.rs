//! What stands above what is printed of a recording: whose branches, how many,
//! how good.

use std::io;

use profile::Flow;
use profile::interval::Interval;
use profile::maps::Maps;
use profile::quality::Quality;
use serde_json::{Value, json};

use crate::input::{self, Source, selected};
use crate::present::number::{counted, grouped, nonzero, percent};
use crate::present::out::Out;
use crate::symbols;

/// What all views count.
pub(crate) struct Totals {
    pub(crate) branches: u64,
    pub(crate) distinct: u64,
    /// Predictions: how many are known, and how many of these were wrong; `None`
    /// in views that do not look at them.
    pub(crate) predictions: Option<(u64, Option<u64>)>,
}

impl Totals {
    /// Of a view that does not look at predictions.
    pub(crate) const fn of(branches: u64, distinct: u64) -> Totals {
        Totals { branches, distinct, predictions: None }
    }
}

/// What the flow counted.
impl From<&Flow> for Totals {
    fn from(flow: &Flow) -> Totals {
        let predictions = Some((flow.known, flow.mispredicted));
        Totals { branches: flow.taken, distinct: flow.distinct, predictions }
    }
}

/// The lines above a table: whose branches, how many, how good.
pub(crate) fn print(
    out: &mut Out<'_>,
    sources: &[Source],
    quality: &Quality,
    totals: &Totals,
) -> io::Result<()> {
    for source in sources {
        out.line(source.origin())?;
    }
    if let Some(modelled) = Source::modelled(sources, quality.software) {
        out.line(modelled)?;
    }
    if let Some(line) = selected::of_quality(sources, quality) {
        out.line(line)?;
    }
    let predictions = match totals.predictions {
        None => String::new(),
        Some((_, None)) => "; predictions not recorded".to_owned(),
        Some((known, Some(missed))) => format!(
            "; {} of {} known predictions missed ({})",
            grouped(missed),
            grouped(known),
            percent(missed as f64 / known as f64)
        ),
    };
    out.line(format_args!(
        "{}, {}, {} distinct{predictions}",
        counted(quality.samples, "sample", "samples"),
        counted(totals.branches, "branch", "branches"),
        grouped(totals.distinct)
    ))?;
    out.line(format_args!("data quality: {}", quality_line(quality)))
}

/// The quality in words.
pub(crate) fn quality_line(quality: &Quality) -> String {
    let mut parts = Vec::new();
    match quality.exact_share() {
        Some(share) => parts.push(format!("exact {} of stacks", percent(share))),
        None => parts.push("exact - (the recording does not say how stacks join)".to_owned()),
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
    let odd = [
        ("empty stacks", quality.empty_stacks),
        ("entries 0x0 -> 0x0 left out", quality.zero_entries),
        ("branches not taken left out", quality.not_taken),
        ("duplicated newest entries left out", quality.duplicated_newest),
        ("second records of aborts left out", quality.double_aborts),
        ("stacks kept out", quality.excluded),
        ("mappings not kept in memory", quality.unkept.mappings),
        ("processes not kept in memory", quality.unkept.processes),
    ];
    parts.extend(nonzero(odd));
    parts.join(", ")
}

/// The line that says how sure the shares of a sample are; `None` where counts
/// are the truth.
pub(crate) fn share_line(quality: &Quality, shares: impl Iterator<Item = f64>) -> Option<String> {
    if quality.is_complete() || quality.samples == 0 {
        return None;
    }
    let off = |share| {
        let Interval { low, high } = quality.share_interval(share)?;
        Some((high - share).max(share - low))
    };
    Some(match shares.filter_map(off).reduce(f64::max) {
        Some(most) => {
            let points = most * 100.0;
            // Two digits that say something, whatever the size.
            let digits = (1.0 - points.log10().floor()).clamp(2.0, 9.0) as usize;
            format!(
                "a sample: shares are within {points:.digits$} points at most \
                 (95 %, as if a stack were one draw)"
            )
        }
        None => "a sample of too few stacks to say how sure shares are".to_owned(),
    })
}

/// What was counted and how good it is, as one JSON object.
pub(crate) fn quality_json(sources: &[Source], quality: &Quality, totals: &Totals) -> Value {
    let labels: serde_json::Map<String, Value> =
        quality.labels.iter().map(|(label, n)| (label.name().to_owned(), json!(n))).collect();
    let lost: serde_json::Map<String, Value> = quality
        .lost
        .iter()
        .map(|(label, n)| (label.map_or("dropped", |l| l.name()).to_owned(), json!(n)))
        .collect();
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

/// The same of a flow, with what kept blocks out.
pub(crate) fn flow_json(sources: &[Source], flow: &Flow, totals: &Totals) -> Value {
    let mut json = quality_json(sources, &flow.quality, totals);
    let blocks = &flow.block_quality;
    json["complete"] = json!(flow.is_complete());
    json["blocks"] = json!(blocks.blocks);
    json["blocks_without_code"] = json!(blocks.without_code);
    json["blocks_contradicted"] = json!(blocks.contradicted);
    json["blocks_impossible"] = json!(blocks.impossible());
    json["blocks_crossing"] = json!(blocks.crossing);
    json["neighbours_apart"] = json!(blocks.apart);
    json["stacks_filtered"] = json!(blocks.filtered);
    json
}

/// What rates and counts are worth.
pub(crate) fn sureness(flow: &Flow) -> &'static str {
    if flow.is_complete() {
        "every taken branch is here: counts are the truth and need no interval"
    } else {
        "a sample: intervals are 95 %, by stack"
    }
}

/// What was odd about the recordings and their files.
pub(crate) fn finish(sources: &[Source], maps: &Maps) {
    sources.iter().for_each(input::warn);
    symbols::warn(&[maps]);
}
