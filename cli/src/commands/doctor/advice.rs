//! `lbr` without a command: what can be done here, now, with which command.

use std::io::Write;
use std::path::Path;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
use sampler::source::qemu::Qemu;

use super::{Check, Obstacle, Verdict, checks};
use crate::commands::machine::{HostArgs, MachineArgs};
use crate::exit::{DONE, Outcome};
use crate::present::out::Out;
use crate::present::table::{Cell, Item, write_list};

/// Says it in about ten lines. Nothing is written and nothing started.
pub(crate) fn run() -> Outcome {
    let machine = MachineArgs::from(HostArgs::default());
    let cpus = machine.cpus()?;
    let report = checks::examine(&machine, &cpus);
    let mut out = Out::stdout();
    out.line("Last Branch Records: where each taken branch came from, and where it went.")?;
    let wrong = in_the_way(&report.checks, report.obstacle);
    out.line(match wrong {
        None => format!("Those of this CPU can be used: {}.", records(&report.checks)),
        Some(check) => format!(
            "Those of this CPU cannot be used ({}: {}); a software LBR stands in, and says so.",
            check.check, check.finding
        ),
    })?;
    out.gap()?;

    let mut items: Vec<Item> = Vec::new();
    let mut item = |what: &str, command: &str| {
        items.push((Cell::Empty, what.to_owned(), command.to_owned()));
    };
    if let Some(remedy) = wrong.and_then(|check| check.remedy.as_deref()) {
        let way = report.obstacle != Some(Obstacle::NoLbr);
        item(if way { "use them" } else { "without them" }, remedy);
    }
    item("record a program", "lbr record --report -- ls /usr");
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    if let Some(why) = Qemu::find().err().filter(|_| report.obstacle.is_some()) {
        item("record faster", &format!("lbr doctor --set-up ({why})"));
    }
    item(
        "read a recording",
        match Path::new("perf.data").is_file() {
            true => "lbr report perf.data",
            false => "lbr report FILE (perf.data of perf record -b, or text of perf script)",
        },
    );
    item("time code", "lbr time 'imul rax, rax' --loop 100");
    item("see a register", "lbr explain DEBUGCTL");
    item(
        "verify a CPU",
        if report.registers { "lbr verify" } else { "lbr verify --soft-cpu skylake --write" },
    );
    item("why is it so", "lbr doctor");
    item("all commands", "lbr --help");
    write_list(&mut out, &items)?;
    out.flush()?;
    Ok(DONE)
}

/// The check that says why the records cannot be used.
fn in_the_way(checks: &[Check], obstacle: Option<Obstacle>) -> Option<&Check> {
    obstacle?;
    let blocks = checks.iter().find(|check| check.obstacle == obstacle);
    blocks.or_else(|| checks.iter().find(|check| check.verdict == Verdict::Bad))
}

/// What the CPU has.
fn records(checks: &[Check]) -> &str {
    let found = checks.iter().find(|check| check.check == "branch records");
    found.map_or("", |check| &check.finding)
}
