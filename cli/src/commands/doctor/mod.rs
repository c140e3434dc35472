//! `lbr doctor`: why branch records can or cannot be used here.

pub(crate) mod advice;
mod checks;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod perf;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod set_up;

use std::io::Write;

use clap::Args;
use serde_json::json;

use super::machine::MachineArgs;
use crate::{
    exit::{DONE, NO_LBR, NOT_PERMITTED, Outcome},
    present::{
        json,
        out::{BAD, DOUBTFUL, GOOD, Out},
        table::{Cell, Item, write_list},
    },
};

/// Tell why branch records can or cannot be used here
///
/// Looks at the CPU, the hypervisor, the msr driver, the kernel's perf events,
/// permissions, and at who else uses the LBR; writes nothing. Each line is a
/// check, what was found, a verdict (ok, bad, or ? where it could not be found
/// out) and, where there is one, a remedy. The exit status is 0 where the
/// hardware can be used, be it through perf events alone, 3 where there is no
/// usable LBR, 4 where only permission is missing.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    machine: MachineArgs,

    /// Print JSON Lines
    #[arg(long)]
    json: bool,

    /// Set up what the faster recorder of the software LBR lacks here: QEMU's emulator through
    /// apt-get (as root), its plugin from the source that lbr was built in
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[arg(long, exclusive = true)]
    set_up: bool,
}

/// What a check comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// In order.
    Ok,
    /// In the way.
    Bad,
    /// It could not be found out.
    Unknown,
}

impl Verdict {
    const fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Bad => "bad",
            Verdict::Unknown => "unknown",
        }
    }
}

/// What a bad verdict takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    /// There is no LBR to use.
    NoLbr,
    /// The driver does not give access.
    Driver,
    /// The driver would give access to somebody with more rights.
    Permission,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Check {
    check: &'static str,
    finding: String,
    verdict: Verdict,
    remedy: Option<String>,
    /// What stands in the way, where this is why the hardware cannot be used.
    obstacle: Option<Obstacle>,
}

impl Check {
    fn new(check: &'static str, verdict: Verdict, finding: impl Into<String>) -> Check {
        Check { check, finding: finding.into(), verdict, remedy: None, obstacle: None }
    }

    fn ok(check: &'static str, finding: impl Into<String>) -> Check {
        Check::new(check, Verdict::Ok, finding)
    }

    fn unknown(check: &'static str, finding: impl Into<String>) -> Check {
        Check::new(check, Verdict::Unknown, finding)
    }

    fn bad(check: &'static str, finding: impl Into<String>) -> Check {
        Check::new(check, Verdict::Bad, finding)
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Check {
        self.remedy = Some(remedy.into());
        self
    }

    fn blocks(mut self, obstacle: Obstacle) -> Check {
        self.obstacle = Some(obstacle);
        self
    }
}

/// Runs `lbr doctor`.
pub(crate) fn run(args: DoctorArgs) -> Outcome {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    if args.set_up {
        return set_up::run();
    }
    let cpus = args.machine.cpus()?;
    let report = checks::examine(&args.machine, &cpus);
    let mut out = Out::stdout();
    if args.json {
        for check in &report.checks {
            let fields = [
                ("check", json!(check.check)),
                ("finding", json!(check.finding)),
                ("verdict", json!(check.verdict.name())),
                ("remedy", json!(check.remedy)),
            ];
            json::line(&mut out, &fields)?;
        }
    } else {
        let items: Vec<Item> = report.checks.iter().flat_map(items).collect();
        write_list(&mut out, &items)?;
    }
    out.flush()?;
    Ok(match report.obstacle {
        None => DONE,
        // A missing driver is no question of permission: nothing is here to use.
        Some(Obstacle::NoLbr | Obstacle::Driver) => NO_LBR,
        Some(Obstacle::Permission) => NOT_PERMITTED,
    })
}

/// A check, and below it its remedy.
fn items(check: &Check) -> impl Iterator<Item = Item> {
    let mark = match check.verdict {
        Verdict::Ok => Cell::Mark("ok", GOOD),
        Verdict::Bad => Cell::Mark("bad", BAD),
        Verdict::Unknown => Cell::Mark("?", DOUBTFUL),
    };
    let finding = (mark, check.check.to_owned(), check.finding.clone());
    let remedy = check.remedy.as_ref();
    let remedy = remedy.map(|remedy| (Cell::Empty, String::new(), format!("-> {remedy}")));
    std::iter::once(finding).chain(remedy)
}
