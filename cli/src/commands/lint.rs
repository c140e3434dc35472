//! `lbr lint`: whether to trust a recording.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use anstyle::Style;
use clap::Args;
use lbr_msr::text::AsText;
use profile::lint::{BinaryCoverage, DEFAULT_STRIDE, Finding, Lint, Severity, Verdict};
use profile::quality::Quality;
use profile::symbols::{Module, Sources};
use serde_json::{Value, json};

use crate::args::heading;
use crate::exit::{DONE, OrExit, POOR, Result, USAGE};
use crate::input::{self, Inputs, Recordings, Source, selected};
use crate::present::{
    BAD, Cell, DOUBTFUL, GOOD, Out, Printer, Table, counted, dash, grouped, joined, json, nonzero,
    percent, share,
};
use crate::select::SelectArgs;
use crate::symbols::SymbolArgs;

/// Check whether the numbers of a recording can be trusted
///
/// Examples:
///   lbr lint                         one verdict, and what was found
///   lbr lint --strict                status 5 unless sound, for scripts
///   lbr lint perf.data old.data      a verdict each, and the worst
///   lbr lint --binary ./prog         does it cover this program?
///
/// The verdict is sound (notes at most), doubtful (warnings: some numbers are
/// off) or poor (errors). Each finding has its count, what it means, and what
/// `lbr report` does about it.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_long_help = STRIDE)]
pub(crate) struct LintArgs {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    symbols: SymbolArgs,
    /// Also check whether the recording suits this program file, for a profile
    ///
    /// Prints the share of branches in it, the functions that match (by build id, or by name and
    /// size), and how much of the executed code was seen. Warns below 95%, and of functions that
    /// differ or were entered without a sample inside.
    #[arg(long, value_name = "FILE", help_heading = heading::SYMBOLS)]
    binary: Option<PathBuf>,
    /// Exit with status 5 unless the verdict is sound
    #[arg(long, help_heading = heading::OUTPUT)]
    strict: bool,
    /// Print JSON Lines
    ///
    /// One object a finding (`"view":"lint"`), after those of a recording its verdict
    /// (`"view":"verdict"`), after several recordings the worst (`"view":"overall"`).
    #[arg(long, help_heading = heading::OUTPUT)]
    json: bool,
    /// Print comma-separated values, with the keys of --json
    #[arg(long, conflicts_with = "json", help_heading = heading::OUTPUT)]
    csv: bool,
}

const STRIDE: &str = "Duplicated newest entries:
  Skylake writes the newest record twice now and then; a loop that is one block does the same. The
  stride, FROM - TO of the repeated branch, distinguishes them: loops of one long block are rare,
  and a forward branch cannot be repeated at all. The rule is AutoFDO's: count a stack whose two
  newest entries have the same FROM and TO if the stride is larger than the limit. Like AutoFDO,
  which reads one program, lint counts branches of the program that each process runs, and lists
  those in its libraries separately. Above 0x50 bytes it is a suspicion; above 0x1000, AutoFDO's
  own limit, `lbr report` drops one of the two.";

/// The printed result, without the flow, which takes memory for each distinct branch.
struct Judged {
    verdict: Verdict,
    findings: Vec<Finding>,
    quality: Quality,
    binary: Option<BinaryCoverage>,
}

pub(crate) fn run(args: &LintArgs) -> Result {
    let mut out = Out::stdout();
    let mut lints: Vec<Judged> = Vec::new();
    let files = args.symbols.sources(&Sources::default());
    let mut binary = args.binary.as_deref().map(Module::open).transpose().or_exit(USAGE)?;
    let reading = args.select.reading(&args.symbols);
    let sources = Recordings::once(args.inputs.paths(), reading)?.read(&mut |recording, at| {
        let mut lint = Lint::check(recording, DEFAULT_STRIDE, files.clone(), at)?;
        let binary = binary.as_mut().map(|binary| lint.check_binary(binary));
        let verdict = lint.verdict();
        let (findings, quality) = (lint.findings, lint.flow.quality);
        lints.push(Judged { verdict, findings, quality, binary });
        Ok(())
    })?;
    let overall = lints.iter().map(|lint| lint.verdict).max().unwrap_or(Verdict::Sound);
    let judged = || sources.iter().zip(&lints);
    match Printer::of(args.json, args.csv) {
        Printer::Csv => {
            let rows = judged().flat_map(|(of, lint)| lint.findings.iter().map(move |f| (of, f)));
            table().write_csv(&mut out, &mut (), rows)?;
        }
        Printer::Json => {
            judged().try_for_each(|(source, lint)| print_json(&mut out, lint, source))?;
            if sources.len() > 1 {
                json::value(&mut out, &all_json(overall, &lints, &sources))?;
            }
        }
        Printer::Text => {
            for (at, (source, lint)) in judged().enumerate() {
                if at > 0 {
                    out.gap()?;
                }
                print_text(&mut out, args, lint, source)?;
            }
            if sources.len() > 1 {
                let name = overall.name();
                let counts = VERDICTS.map(|verdict| (verdict.name(), count(&lints, verdict)));
                let (all, counts) = (lints.len(), nonzero(counts).join(", "));
                out.gap()?;
                out.styled(look(overall), format_args!("{all} recordings: {name} ({counts})"))?;
            }
        }
    }
    out.flush()?;
    sources.iter().for_each(input::warn);
    Ok(if args.strict && overall > Verdict::Sound { POOR } else { DONE })
}

const VERDICTS: [Verdict; 3] = [Verdict::Sound, Verdict::Doubtful, Verdict::Poor];

fn count(lints: &[Judged], verdict: Verdict) -> u64 {
    lints.iter().filter(|lint| lint.verdict == verdict).count() as u64
}

/// The worst verdict of several recordings, and how many have each.
fn all_json(overall: Verdict, lints: &[Judged], sources: &[Source]) -> Value {
    let mut json = json!({
        "view": "overall",
        "verdict": overall.name(),
        "inputs": lints.len(),
        "partial": sources.iter().any(Source::is_partial),
    });
    for verdict in VERDICTS {
        json[verdict.name()] = json!(count(lints, verdict));
    }
    json
}

/// One recording, for people.
fn print_text(
    out: &mut Out<'_>,
    args: &LintArgs,
    lint: &Judged,
    source: &Source,
) -> io::Result<()> {
    out.styled(
        look(lint.verdict),
        format_args!(
            "{}: {} ({}, {}{}{})",
            source.name,
            lint.verdict.name(),
            counted(lint.quality.samples, "sample", "samples"),
            counted(lint.quality.entries, "entry", "entries"),
            source.partial().map_or_else(String::new, |partial| format!(", {partial}")),
            source.events_line().map_or_else(String::new, |events| format!("; {events}")),
        ),
    )?;
    let (recorder, limits) = (source.recorder(), source.limits());
    let source = std::slice::from_ref(source);
    let modelled = Source::modelled(source, lint.quality.software);
    let parts = recorder.iter().map(String::as_str).chain(modelled).chain(limits);
    out.line(joined(parts, "; "))?;
    if let Some(line) = selected::of_quality(source, &lint.quality) {
        out.line(line)?;
    }
    if let (Some(path), Some(binary)) = (&args.binary, &lint.binary) {
        out.line(format_args!("{}: {}", path.as_text(), coverage(binary)))?;
    }
    if lint.findings.is_empty() {
        out.line("no problems found")?;
    }
    lint.findings.iter().try_for_each(|finding| print(out, finding))
}

/// How far a recording covers a program's file, in a line.
fn coverage(binary: &BinaryCoverage) -> String {
    let BinaryCoverage { inside, taken, same_build, functions, matching, seen } = *binary;
    if inside == 0 {
        return "no branch is in it".to_owned();
    }
    let share = share(inside, taken).map_or_else(dash, percent);
    let build = match same_build {
        Some(true) => "same build id",
        Some(false) => "another build id",
        None => "no build id",
    };
    let matching = match matching {
        None => "the recorded file is not there to compare functions".to_owned(),
        Some(matching) => {
            let functions = counted(functions, "function", "functions");
            format!("{} of {functions} match", grouped(matching))
        }
    };
    let seen = seen.map_or_else(dash, percent);
    format!("{share} of the branches; {build}, {matching}; {seen} of its executed branches seen")
}

/// The findings of one recording and its verdict.
fn print_json(out: &mut Out<'_>, lint: &Judged, source: &Source) -> io::Result<()> {
    table().write_json(out, &mut (), lint.findings.iter().map(|finding| (source, finding)))?;
    let mut summary = json!({
        "view": "verdict",
        "input": source.name,
        "verdict": lint.verdict.name(),
        "findings": lint.findings.len(),
        "samples": lint.quality.samples,
        "entries": lint.quality.entries,
        "software": lint.quality.software,
        "partial": source.is_partial(),
    });
    if let Some(binary) = &lint.binary {
        summary["binary"] = json!({
            "branches": binary.inside,
            "share": share(binary.inside, binary.taken),
            "same_build_id": binary.same_build,
            "functions": binary.functions,
            "matching_functions": binary.matching,
            "seen_share": binary.seen,
        });
    }
    selected::put_json(&mut summary, std::slice::from_ref(source), &lint.quality.left_out);
    json::value(out, &summary)
}

/// A verdict in colour.
pub(crate) const fn look(verdict: Verdict) -> Style {
    match verdict {
        Verdict::Sound => GOOD,
        Verdict::Doubtful => DOUBTFUL,
        Verdict::Poor => BAD,
    }
}

/// Prints a finding for people.
pub(crate) fn print(out: &mut Out<'_>, finding: &Finding) -> io::Result<()> {
    let Finding { id, severity, count, of, unit, meaning, report, parts } = finding;
    let of = match finding.share() {
        Some(share) => format!(" of {} {unit} ({})", grouped(*of), percent(share)),
        None => String::new(),
    };
    let style = match severity {
        Severity::Note => Style::new(),
        Severity::Warning => DOUBTFUL,
        Severity::Error => BAD,
    };
    out.gap()?;
    out.styled(style, format_args!("{}: {id}: {}{of}", severity.name(), grouped(*count)))?;
    let parts = nonzero(parts.iter().map(|(what, n)| (what, *n)));
    if !parts.is_empty() {
        out.line(format_args!("  details: {}", parts.join(", ")))?;
    }
    out.line(format_args!("  means: {meaning}"))?;
    out.line(format_args!("  report: {report}"))
}

/// A recording and one of its findings.
type FindingRow<'a> = (&'a Source, &'a Finding);

/// A table for programs; people get sentences.
pub(crate) fn table<'a>() -> Table<'a, (), FindingRow<'a>> {
    Table::<(), FindingRow<'_>>::new()
        .constant("view", "lint")
        .only("input", |(), (source, _)| Cell::Name(source.name.clone()))
        .only("id", |(), (_, finding)| Cell::Word(finding.id.into()))
        .only("severity", |(), (_, finding)| Cell::Word(finding.severity.name().into()))
        .only("count", |(), (_, finding)| Cell::Count(finding.count))
        .only("of", |(), (_, finding)| Cell::Count(finding.of))
        .only("unit", |(), (_, finding)| Cell::Word(finding.unit.into()))
        .only("share", |(), (_, finding)| Cell::share(finding.share()))
        .nested("parts", |(), (_, finding)| {
            let parts = finding.parts.iter().map(|(what, n)| (what.replace(' ', "_"), *n));
            parts.collect::<BTreeMap<String, u64>>()
        })
        .only("meaning", |(), (_, finding)| Cell::Word(finding.meaning.into()))
        .only("report", |(), (_, finding)| Cell::Word(finding.report.into()))
}
