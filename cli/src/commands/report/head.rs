//! What stands above a table: whose branches, how many, how good.

use std::io::Write;

use profile::interval::Interval;
use profile::quality::Quality;
use serde_json::{Value, json};

use super::percent;
use crate::input::Source;
use crate::present::number::{counted, grouped};
use crate::select;

/// What all views count.
pub(crate) struct Totals {
    pub(super) branches: u64,
    pub(super) distinct: u64,
    pub(super) known: u64,
    pub(super) mispredicted: Option<u64>,
}

/// The lines above the table: whose branches, how many, how good.
pub(super) fn print_head(
    out: &mut impl Write,
    sources: &[Source],
    quality: &Quality,
    totals: &Totals,
) -> std::io::Result<()> {
    print_recordings(out, sources, quality)?;
    write_counts(out, quality, totals)?;
    match totals.mispredicted {
        Some(missed) => writeln!(
            out,
            "; {} of {} known predictions missed ({})",
            grouped(missed),
            grouped(totals.known),
            percent(missed as f64 / totals.known as f64)
        )?,
        None => writeln!(out, "; predictions not recorded")?,
    }
    writeln!(out, "data quality: {}", quality_line(quality))
}

/// Whose branches these are.
pub(super) fn print_recordings(
    out: &mut impl Write,
    sources: &[Source],
    quality: &Quality,
) -> std::io::Result<()> {
    for source in sources {
        writeln!(out, "{}", source.origin())?;
    }
    if quality.software > 0 && !sources.iter().any(Source::says_modelled) {
        writeln!(out, "software LBR, not measured")?;
    }
    if let Some(line) = select::of_quality(sources, quality) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn write_counts(out: &mut impl Write, quality: &Quality, totals: &Totals) -> std::io::Result<()> {
    write!(
        out,
        "{}, {}, {} distinct",
        counted(quality.samples, "sample", "samples"),
        counted(totals.branches, "branch", "branches"),
        grouped(totals.distinct)
    )
}

/// How many branches, and how good: for views that do not look at predictions.
pub(super) fn print_counts(
    out: &mut impl Write,
    quality: &Quality,
    totals: &Totals,
) -> std::io::Result<()> {
    write_counts(out, quality, totals)?;
    writeln!(out, "\ndata quality: {}", quality_line(quality))
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
    ];
    for (what, count) in odd.into_iter().filter(|(_, count)| *count > 0) {
        parts.push(format!("{} {what}", grouped(count)));
    }
    parts.join(", ")
}

/// The line that says how sure the shares of a sample are; `None` where counts
/// are the truth.
pub(super) fn share_line(quality: &Quality, shares: impl Iterator<Item = f64>) -> Option<String> {
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

pub(super) fn quality_json(sources: &[Source], quality: &Quality, totals: &Totals) -> Value {
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
        "mispredicted": totals.mispredicted,
        "predictions_known": totals.known,
        "exact": quality.exact_share().map(|_| quality.exact),
        "labels": labels,
        "lost": quality.lost_total(),
        "lost_by_reason": lost,
        "excluded": quality.excluded,
        "software": quality.software,
        "hardware": quality.hardware,
    });
    select::put_json(&mut json, sources, &quality.left_out);
    json
}
