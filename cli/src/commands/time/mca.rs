//! The prediction of LLVM's machine code analyzer, next to the measurement.

use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use lab::measure::run_tool;
use lbr_msr::disasm::{Disassembler, Syntax};
use lbr_msr::text::AsText;

use super::TimeArgs;
use super::code::{Prediction, TimedCode};
use super::figures::{Figures, number};
use crate::exit::{FAILED, OrExit, Result, USAGE};
use crate::present::{Out, grouped};

/// Maximum time to simulate a piece of code.
const SIMULATING: Duration = Duration::from_secs(20);
/// Instructions to simulate: enough that the first iterations do not count, and a second's work.
const INSTRUCTIONS: usize = 200_000;
/// The program's name, for the newest version.
pub(super) const ANY: &str = "llvm-mca";
/// The newest version of LLVM to look for by its number.
const NEWEST: u32 = 40;

/// Predicts each piece of code, if the arguments ask for it.
pub(super) fn predict(args: &TimeArgs, codes: &mut [TimedCode]) -> Result<()> {
    let Some(path) = &args.mca else { return Ok(()) };
    let tool = find(path).or_exit(if path == Path::new(ANY) { FAILED } else { USAGE })?;
    let about = run_tool(Command::new(&tool).arg("--version").stdin(Stdio::null()), SIMULATING);
    let about = about.with_context(|| tool.as_text().into_owned()).or_exit(USAGE)?;
    let about = about.stdout.as_text().into_owned();
    let after = |key: &str| about.split_once(key).and_then(|(_, rest)| rest.lines().next());
    let host = after("Host CPU: ").filter(|name| *name != "(unknown)");
    let version = after("LLVM version ").unwrap_or("of unknown version").to_owned();
    let cpu = args.mcpu.as_deref().or(host).unwrap_or("generic").to_owned();
    for code in codes {
        let simulated = simulate(&tool, &cpu, &code.body.code)
            .with_context(|| format!("llvm-mca {version} cannot predict `{}`", code.source));
        let (version, cpu) = (version.clone(), cpu.clone());
        code.prediction = Some(Prediction { version, cpu, ..simulated.or_exit(USAGE)? });
    }
    Ok(())
}

/// The given program, or the newest one in PATH.
fn find(given: &Path) -> anyhow::Result<PathBuf> {
    if given != Path::new(ANY) {
        return Ok(sampler::target::find(&given.to_string_lossy())?);
    }
    let names = (1..=NEWEST).rev().map(|version| format!("llvm-mca-{version}"));
    names
        .chain([ANY.to_owned()])
        .find_map(|name| sampler::target::find(&name).ok())
        .context("--mca needs llvm-mca: install the package llvm, or give its path (--mca=PATH)")
}

fn simulate(tool: &Path, cpu: &str, code: &[u8]) -> anyhow::Result<Prediction> {
    let (source, instructions) = disassembled(code)?;
    let mut input = tempfile::tempfile().context("no temporary file")?;
    input.write_all(source.as_bytes())?;
    input.rewind()?;
    let rounds = (INSTRUCTIONS / instructions.max(1)).clamp(100, 10_000);
    let mut command = Command::new(tool);
    command.arg("-mtriple=x86_64").arg(format!("-mcpu={cpu}"));
    command.arg(format!("-iterations={rounds}"));
    command.args(["-bottleneck-analysis", "-instruction-info=0", "-resource-pressure=0", "-"]);
    let output = run_tool(command.stdin(input), SIMULATING)?;
    let said = output.stderr.as_text();
    if !output.status.success() || said.contains("is not a recognized processor") {
        bail!("{}", said.lines().next().unwrap_or("it failed"));
    }
    read(&output.stdout.as_text()).context("its output is not understood")
}

/// The code in AT&T syntax, which needs no directive, and the number of its instructions.
fn disassembled(code: &[u8]) -> anyhow::Result<(String, usize)> {
    let mut disassembler = Disassembler::new(Syntax::Att);
    let (mut source, mut at, mut count) = (String::new(), 0, 0);
    while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
        let text = disassembler.text(rest, at as u64);
        let text = text.with_context(|| format!("there is no instruction at +{at:#x}"))?;
        source += &format!("{} {}\n", text.mnemonic, text.operands);
        at += usize::from(text.len);
        count += 1;
    }
    Ok((source, count))
}

/// Reads the summary and the bottlenecks: `Total Cycles: 3005`, `- Register Dependencies [ 98.04% ]`.
fn read(text: &str) -> Option<Prediction> {
    let value = |key: &str| -> Option<f64> {
        let (_, rest) = text.split_once(key)?;
        rest.lines().next()?.trim().parse().ok()
    };
    let rounds = value("Iterations:").filter(|rounds| *rounds > 0.0)?;
    let limits = text.lines().filter_map(|line| {
        let (name, share) = line.trim().strip_prefix("- ")?.split_once('[')?;
        let share: f64 = share.trim_end_matches(']').trim().strip_suffix('%')?.parse().ok()?;
        Some((name.trim(), share))
    });
    let limit = limits.filter(|(_, share)| *share > 0.0).max_by(|a, b| a.1.total_cmp(&b.1));
    Some(Prediction {
        instructions: (value("Instructions:")? / rounds) as u64,
        cycles: value("Total Cycles:")? / rounds,
        throughput_bound: value("Block RThroughput:")?,
        bottleneck: limit.map(|(name, _)| match name.strip_suffix(" Dependencies") {
            Some(kind) => format!("{} dependencies", kind.to_lowercase()),
            None => format!("pressure on {name}"),
        }),
        ..Prediction::default()
    })
}

/// Core cycles per iteration, estimated from the ticks of dependent ADDs, and a remark on that.
fn estimated(all: &Figures<'_>) -> Option<(f64, String)> {
    let ticks = all.ticks_per_cycle.filter(|_| !all.is_below_overhead())?;
    let remark = format!(
        ", estimated: an ADD that waits for the one before it takes {} TSC ticks",
        number(ticks)
    );
    Some((all.ticks?.median / ticks, remark))
}

/// Prints the prediction, and how far the measurement is from it.
pub(super) fn print(out: &mut Out<'_>, all: &Figures<'_>) -> io::Result<()> {
    let Some(predicted) = &all.code.prediction else { return Ok(()) };
    let Prediction { version, cpu, instructions, cycles, throughput_bound, bottleneck } = predicted;
    let bottleneck = bottleneck.as_deref().unwrap_or("none found");
    out.line(format_args!(
        "llvm-mca {version} for {cpu}: {} cycles, throughput bound {}, bottleneck: {bottleneck}",
        number(*cycles),
        number(*throughput_bound),
    ))?;
    let counted = all.rounds.or(all.cycles).map(|spread| (spread.median, String::new()));
    match counted.or_else(|| estimated(all)) {
        None => out.line("no comparison: core cycles are neither counted nor can be estimated")?,
        Some((measured, remark)) => {
            let (ratio, apart) = (measured / cycles, number((measured - cycles).abs()));
            let differs = match ratio {
                0.95..=1.05 => "as predicted, within 5%".to_owned(),
                ratio if ratio < 1.0 => format!("{apart} fewer than predicted ({ratio:.2}\u{d7})"),
                ratio => format!("{apart} more than predicted ({ratio:.2}\u{d7})"),
            };
            out.line(format_args!("measured: {} cycles, {differs}{remark}", number(measured)))?;
        }
    }
    let executed = all.measured.counts.map(|counts| all.per_iteration(counts.instructions));
    let apart = executed.filter(|executed| (executed - *instructions as f64).abs() >= 1.0);
    if all.code.body.sets_up_again() {
        out.line(
            "not the same work: LFENCE separates measured iterations, llvm-mca overlaps them",
        )?;
    } else if let Some(executed) = apart {
        out.line(format_args!(
            "not the same work: llvm-mca ignores branches and took {} instructions once, {} were \
             executed",
            grouped(*instructions),
            number(executed),
        ))?;
    }
    if cpu == "generic" {
        out.line("this LLVM does not know the CPU: give a newer one, or --mcpu NAME")?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/commands/time/mca.rs"]
mod tests;
