//! The head of the page: the recording, its quality, its verdict.

use maud::{Markup, html};
use profile::lint::{Finding, Verdict};
use profile::overview::{Judged, Overview};
use profile::perf_data::FileInfo;

use crate::head::{quality_line, trust};
use crate::input::{Source, selected};
use crate::present::{escaped, grouped, joined, nonzero, percent};
use crate::select::Rows;

/// The recordings of a page.
pub(super) struct Head<'a> {
    /// Metadata of each recording.
    pub(super) sources: &'a [Source],
    /// Each recording's metadata.
    pub(super) recorded: &'a [Option<FileInfo>],
    /// The rows of some files, unless all are shown.
    pub(super) kept: Option<Rows>,
}

impl Head<'_> {
    /// Modelled is not measured.
    fn origin(&self, software: u64, hardware: u64) -> &'static str {
        if software == 0 && self.sources.iter().any(Source::says_modelled) {
            let all = self.sources.iter().all(Source::says_modelled);
            return if all {
                "modelled, not measured: read from the registers of an emulated CPU"
            } else {
                "in part measured, in part modelled by an emulated CPU"
            };
        }
        match (software > 0, hardware > 0) {
            (true, false) => "modelled by a software LBR, not measured",
            (false, true) => "measured: read from the registers of a CPU",
            (true, true) => "in part measured, in part modelled",
            (false, false) => {
                "as its recorder says: the recording does not tell measured from modelled"
            }
        }
    }

    /// The page's name.
    pub(super) fn name(&self) -> String {
        format!("Branches of {}", joined(self.sources.iter().map(|source| &source.name), ", "))
    }

    /// The verdicts, a line each, with their findings folded.
    pub(super) fn verdict(&self, judged: &[Judged]) -> Markup {
        html! {
            @for (source, judged) in self.sources.iter().zip(judged) {
                details class={ "verdict " (judged.verdict.name()) } {
                    summary {
                        strong { "Verdict: " (judged.verdict.name()) } ". "
                        @if self.sources.len() > 1 { (source.name) ": " }
                        (meaning(judged.verdict))
                        @if source.is_partial() { " Partial: its end was not read." }
                    }
                    @if judged.findings.is_empty() { p { "No problems found." } }
                    @for finding in &judged.findings { (self::finding(finding)) }
                }
            }
        }
    }

    /// Facts about the recording, and its quality.
    pub(super) fn facts(&self, overview: &Overview) -> Markup {
        let flow = &overview.flow;
        let quality = &flow.quality;
        let facts: Vec<(&str, String)> =
            self.sources.iter().zip(self.recorded).flat_map(of_recording).collect();
        let counts = format!(
            "{} samples, {} branches, {} distinct",
            grouped(quality.samples),
            grouped(flow.taken),
            grouped(flow.distinct)
        );
        let predictions = match flow.mispredicted {
            Some(missed) => format!(
                "{} of {} known predictions missed ({})",
                grouped(missed),
                grouped(flow.known),
                percent(missed as f64 / flow.known as f64)
            ),
            None => "not recorded".to_owned(),
        };
        html! {
            @if let Some(rows) = &self.kept { p { (rows.line()) } }
            details {
              summary { (counts) "; " (self.origin(quality.software, quality.hardware)) }
              dl class="facts" {
                @for (what, value) in facts { dt { (what) } dd { (value) } }
                @if let Some(line) = selected::of_quality(self.sources, quality) {
                    dt { "Selection" } dd { (line.trim_start_matches("selected: ")) }
                }
                dt { "Predictions" } dd { (predictions) }
                dt { "Lost" } dd { (grouped(quality.lost_total())) " stacks" }
                dt { "Data quality" } dd { (quality_line(quality)) }
                dt { "Counts" } dd { (trust(&overview.flow)) }
              }
            }
        }
    }
}

fn of_recording((source, info): (&Source, &Option<FileInfo>)) -> Vec<(&'static str, String)> {
    let cpu = source.cpu.clone().unwrap_or_else(|| "not recorded".to_owned());
    let mut facts = vec![("Recording", source.name.clone()), ("CPU", cpu)];
    facts.extend(source.by.clone().map(|by| ("Recorded by", by)));
    if let Some(events) = source.events_line() {
        facts.push((if source.events().count() == 1 { "Event" } else { "Events" }, events));
    }
    let limits = source.limits();
    if !limits.is_empty() {
        facts.push(("It has", limits.join("; ")));
    }
    if let Some(info) = info {
        let shown = |text: &str| escaped(text).into_owned();
        let command = shown(&info.cmdline.join(" "));
        facts.extend((!command.is_empty()).then_some(("Command", command)));
        facts.extend(info.hostname.as_deref().map(|host| ("Host", shown(host))));
    }
    facts
}

fn meaning(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Sound => "Nothing speaks against the numbers below.",
        Verdict::Doubtful => "Some of the numbers below are off, or missing.",
        Verdict::Poor => "The numbers below are not to be trusted.",
    }
}

fn finding(finding: &Finding) -> Markup {
    let parts = nonzero(finding.parts.iter().map(|(what, n)| (what, *n)));
    html! {
        details {
            summary {
                span class={ "word " (finding.severity.name()) } { (finding.severity.name()) } " "
                span class="code" { (finding.id) } ": " (grouped(finding.count))
                @if let Some(share) = finding.share() {
                    " of " (grouped(finding.of)) " " (finding.unit) " (" (percent(share)) ")"
                }
            }
            @if !parts.is_empty() { p { "Details: " (parts.join(", ")) } }
            p { "Means: " (finding.meaning) }
            p { "Report: " (finding.report) }
        }
    }
}
