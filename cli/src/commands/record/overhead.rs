//! `lbr record --overhead`: the time that recording adds to a program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use lab::measure::{Ratio, TurnRatio, median};
use lbr_msr::text::AsText as _;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use profile::Recording;
use sampler::target::find;

use super::{Record, check};
use crate::commands::backend::not_started;
use crate::exit::{Result, done};
use crate::present::{Out, counted, joined};

/// Turns without `--overhead=PAIRS`.
pub(super) const PAIRS: &str = "12";
/// Fewer turns give no interval.
pub(super) const FEWEST: u32 = 8;

/// The times of one run.
#[derive(Clone, Copy, Debug)]
struct Times {
    wall: Duration,
    /// User mode, of the program and of a recorder.
    user: Duration,
}

/// Runs the program in turns, alone and recorded. Its input and output are /dev/null.
pub(super) fn run(args: &Record, pairs: u32) -> Result {
    let mut program = program(args)?;
    let folder = tempfile::tempdir().context("no folder for the recordings")?;
    let file = folder.path().join("perf.data");
    let mut recorder = recorder(args, &file)?;
    let (mut alone, mut recorded) = (Vec::new(), Vec::new());
    let mut said = String::new();
    // The first turn fills the caches, and is not counted.
    for turn in 0..=pairs {
        let mut plain = None;
        for is_recorded in [turn % 2 == 0, turn % 2 != 0] {
            let command = if is_recorded { &mut recorder } else { &mut program };
            let (times, status, stderr) = timed(command)?;
            let other = *plain.get_or_insert(status);
            if other != status {
                let why = stderr.lines().last().map_or("", |line| line.trim_start_matches("lbr: "));
                let error = anyhow!("one run ended with {other}, the next with {status}: {why}");
                return Err(error.into());
            }
            if is_recorded {
                said = stderr;
            }
            if turn > 0 {
                if is_recorded { &mut recorded } else { &mut alone }.push(times);
            }
        }
    }
    let mut recording = Recording::open(&file).context("reading the recording again")?;
    let (_, branches, _) = check::count(&mut recording)?;
    let through = said.lines().find_map(|line| line.strip_prefix("lbr: recording on "));
    let mut out = Out::stdout();
    out.lines(&lines(&alone, &recorded, branches, through.unwrap_or_default()))?;
    done(&mut out)
}

/// This command without `--overhead`, writing to `file`.
fn recorder(args: &Record, file: &Path) -> anyhow::Result<Command> {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let program = words.split_off(words.len().saturating_sub(args.command.len()));
    let is_overhead = |word: &OsString| word.to_string_lossy().starts_with("--overhead");
    let at = words.iter().position(is_overhead).context("--overhead must be written in full")?;
    words.splice(at..=at, ["-o".into(), file.as_os_str().to_owned()]);
    let mut command = Command::new("/proc/self/exe");
    command.args(words).args(program);
    Ok(command)
}

/// The program alone, with the rights that it has when it is recorded.
fn program(args: &Record) -> Result<Command> {
    let target = args.rights.command(&args.command)?;
    let mut command = Command::new(find(&target.program).map_err(not_started)?);
    command.arg0(&target.program).args(&target.args);
    if let Some(user) = target.rights() {
        command.uid(user.uid).gid(user.gid);
    }
    Ok(command)
}

/// Runs a command to its end. Returns its standard error too.
fn timed(command: &mut Command) -> anyhow::Result<(Times, ExitStatus, String)> {
    let user = || -> anyhow::Result<Duration> {
        let time = getrusage(UsageWho::RUSAGE_CHILDREN)?.user_time();
        Ok(Duration::from_micros(u64::try_from(time.num_microseconds())?))
    };
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let (before, start) = (user()?, Instant::now());
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("starting {name}"))?;
    let times = Times { wall: start.elapsed(), user: user()?.saturating_sub(before) };
    Ok((times, output.status, output.stderr.as_text().into_owned()))
}

fn lines(alone: &[Times], recorded: &[Times], branches: u64, through: &str) -> Vec<String> {
    let wall = |times: &Times| times.wall;
    let user = |times: &Times| times.user;
    let (source, _) = through.split_once("; ").unwrap_or((through, ""));
    let emulated =
        if source.contains("software LBR") { "; this is not the cost of hardware" } else { "" };
    let kinds = [("wall", ratio(alone, recorded, wall)), ("user", ratio(alone, recorded, user))];
    let ratios = kinds.iter().map(|(kind, ratio)| match (ratio.median(), ratio.interval()) {
        (Some(median), Some((low, high))) => {
            let [median, low, high] = [median, low, high].map(times);
            format!("{median} times the {kind} time ({low} to {high})")
        }
        _ => format!("{kind} time too short to compare"),
    });
    vec![
        format!("recorded: {}; 99%, {} pairs", joined(ratios, ", "), alone.len()),
        format!("  alone     {}", medians(alone)),
        format!("  recorded  {}, {}", medians(recorded), counted(branches, "branch", "branches")),
        format!("on {source}{emulated}"),
    ]
}

/// A ratio, to 0.1% if it is near 1.
fn times(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.3}") } else { format!("{ratio:.0}") }
}

/// The ratio of the times of each turn.
fn ratio(alone: &[Times], recorded: &[Times], of: impl Fn(&Times) -> Duration) -> Ratio {
    let pairs = alone.iter().zip(recorded);
    let ratios = pairs.map(|(a, b)| of(b).as_secs_f64() / of(a).as_secs_f64());
    let finite = ratios.filter(|ratio| ratio.is_finite());
    Ratio::new(finite.map(|ratio| TurnRatio { ratio, error: 0.0 }))
}

fn medians(times: &[Times]) -> String {
    let of = |seconds: fn(&Times) -> Duration| {
        median(times.iter().map(|times| seconds(times).as_secs_f64())).unwrap_or_default()
    };
    format!("{:.3} s, {:.3} s user", of(|times| times.wall), of(|times| times.user))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#[path = "../../../../tests/cli/unit/commands/record/overhead.rs"]
mod tests;
