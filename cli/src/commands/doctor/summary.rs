//! The verdict on this machine: whether its hardware LBR works, why not, the fix, and what works
//! instead. `lbr doctor` opens with it; `lbr` alone adds the first commands to try.

use std::io;
use std::path::Path;

use sampler::source::qemu::Qemu;

use super::checks::{self, Report};
use super::{Check, Obstacle, Verdict};
use crate::commands::machine::{HostArgs, MachineArgs};
use crate::exit::{Result, done};
use crate::present::{Cell, Out, write_list};

/// Runs `lbr` without a command.
pub(crate) fn run() -> Result {
    let machine = MachineArgs::from(HostArgs::default());
    let report = checks::examine(&machine, &machine.cpus()?);
    let mut out = Out::stdout();
    write(&mut out, &report)?;
    out.gap()?;
    let recording = match Path::new("perf.data").is_file() {
        true => "lbr report perf.data",
        false => "lbr report FILE",
    };
    let verify = match report.registers {
        true => "lbr verify",
        false => "lbr verify --soft-cpu skylake --write",
    };
    let commands = [
        ("record a program", "lbr record --report -- ls /usr"),
        ("read a recording", recording),
        ("time code", "lbr time 'imul rax, rax' --loop 100"),
        ("explain a register", "lbr explain DEBUGCTL"),
        ("verify a CPU", verify),
        ("all checks", "lbr doctor -v"),
        ("all commands", "lbr --help"),
    ];
    let items = commands.map(|(what, command)| (Cell::Empty, what.to_owned(), command.to_owned()));
    write_list(&mut out, &items)?;
    done(&mut out)
}

/// Writes the verdict: at most five lines.
pub(super) fn write(out: &mut Out, report: &Report) -> io::Result<()> {
    let Report { checks, obstacle, lbr, .. } = report;
    let blocking = blocking(checks, *obstacle);
    out.line(match (obstacle, blocking) {
        (None, _) => {
            format!("Hardware LBR: yes. {}", capitalized(lbr.as_deref().unwrap_or_default()))
        }
        (Some(obstacle), check) => {
            let verdict = match obstacle {
                Obstacle::NoLbr => "no",
                Obstacle::Driver => "not reachable",
                Obstacle::Permission => "not permitted",
            };
            let blocked = check.filter(|check| check.obstacle.is_some());
            let cause = blocked.map(|check| &*check.finding).or(lbr.as_deref());
            format!("Hardware LBR: {verdict}. {}", capitalized(cause.unwrap_or_default()))
        }
    })?;
    if let Some(fix) = blocking.and_then(|check| check.remedy.as_deref()) {
        out.line(format!("  fix: {fix}"))?;
    }
    for check in checks.iter().filter(|check| check.check == "other users") {
        if check.verdict == Verdict::Bad {
            let fix = check.remedy.as_deref().unwrap_or_default();
            out.line(format!("warning: {}: {fix}", check.finding))?;
        }
    }
    let backends = checks.iter().find(|check| check.check == "backends");
    out.line(match (obstacle, backends) {
        (None, Some(backends)) => format!("Recording: through {}", backends.finding),
        _ => "Recording: software LBR (no cycles, no mispredicts)".to_owned(),
    })?;
    if let Some(why) = Qemu::find().err().filter(|_| obstacle.is_some()) {
        out.line(format!("  faster: lbr doctor --set-up ({why})"))?;
    }
    out.line("Reading perf.data from elsewhere: yes")
}

/// The check that keeps `lbr` from the hardware.
fn blocking(checks: &[Check], obstacle: Option<Obstacle>) -> Option<&Check> {
    obstacle?;
    let blocks = checks.iter().find(|check| check.obstacle == obstacle);
    blocks.or_else(|| checks.iter().find(|check| check.verdict == Verdict::Bad))
}

/// The text as a sentence: a capital letter and a full stop.
fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).chain(std::iter::once('.')).collect()
}
