//! Reads a recording back: the recorded program may have removed, replaced or overwritten the file.
//!
//! By the figures of docs/evidence/speed.md, counting takes about 14 ns a branch (a plain
//! scan), `lbr lint` 60 and recording in QEMU 50 to 100: lint looks at recordings
//! that take it half a second at most.

use std::path::Path;

use anyhow::{Context, anyhow};
use lbr_msr::text::AsText;
use profile::lint::{DEFAULT_STRIDE, Finding, Lint, Severity};
use profile::symbols::Sources;
use profile::{Item, Recording};

use crate::exit::Result;
use crate::output::recording::Finished;
use crate::present::{counted, grouped};

/// Maximum number of branches of a recording that is linted.
const MOST_LINTED: u64 = 8_000_000;

/// Reads a file back. Returns lint's findings that contradict a complete recording; `None` if lint
/// was not run.
pub(super) fn read_back(
    path: &Path,
    finished: &Finished,
    lint: bool,
) -> Result<Option<Vec<String>>> {
    let file = finished.reopen(path)?;
    let written = finished.written;
    let lint = lint && (1..=MOST_LINTED).contains(&written.branches);
    let read = Recording::of_file(path, file).and_then(|mut recording| match lint {
        true => {
            let lint = Lint::check(&mut recording, DEFAULT_STRIDE, Sources::default(), |_, _| {})?;
            let quality = &lint.flow.quality;
            Ok((quality.samples, quality.entries, Some(doubts(&lint))))
        }
        false => count(&mut recording),
    });
    let name = path.as_text();
    let (samples, branches, doubts) =
        read.with_context(|| format!("the recording is damaged: {name} cannot be read back"))?;
    if (samples, branches) != (written.samples, written.branches) {
        let error = anyhow!(
            "the recording is damaged: {name} has {} in {}, and {} in {} were written: something else \
             wrote to it",
            counted(branches, "branch", "branches"),
            counted(samples, "sample", "samples"),
            grouped(written.branches),
            grouped(written.samples),
        );
        return Err(error.into());
    }
    Ok(doubts)
}

pub(super) fn count(
    recording: &mut Recording,
) -> Result<(u64, u64, Option<Vec<String>>), profile::perf_data::ReadError> {
    let (mut samples, mut branches) = (0, 0);
    while let Some(item) = recording.next_item()? {
        if let Item::Stack(stack) = item {
            samples += 1;
            branches += stack.entries.len() as u64;
        }
    }
    Ok((samples, branches, None))
}

/// Findings that a complete recording never has, and all that are more than notes.
fn doubts(lint: &Lint) -> Vec<String> {
    let is_doubt = |finding: &&Finding| {
        finding.severity > Severity::Note
            || matches!(finding.id, "impossible_fall_through" | "time_runs_back")
    };
    let doubts = lint.findings.iter().filter(is_doubt);
    let shown =
        |f: &Finding| format!("{} ({} of {} {})", f.id, grouped(f.count), grouped(f.of), f.unit);
    doubts.map(shown).collect()
}
