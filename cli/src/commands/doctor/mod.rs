//! `lbr doctor`: why branch records can or cannot be used here.

mod checks;
mod perf;
mod set_up;
pub(crate) mod summary;

use std::io::Write;

use clap::Args;
use serde::Serialize;

use super::machine::MachineArgs;
use crate::args::heading;
use crate::exit::{DONE, NO_LBR, NOT_PERMITTED, Result};
use crate::present::{BAD, Cell, DOUBTFUL, GOOD, Item, Out, json, write_list};

/// Check whether LBR works here, and how to fix it
///
/// Examples:
///   lbr doctor                       the verdict, the cause, the fix
///   lbr doctor -v                    every check too
///   lbr doctor --json                every check, for scripts
///
/// The checks are of the CPU, hypervisor, msr driver, perf events, permissions
/// and other users of the LBR. Each is ok, bad, or ? (unknown). No register is
/// written.
///
/// Exit status: 0 if hardware LBR works (perf events alone suffice), 3 if not,
/// 4 if only permission is missing.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    machine: MachineArgs,

    /// Install qemu-user, the emulator of the faster software LBR
    ///
    /// Uses apt-get, as root.
    #[arg(long, exclusive = true, help_heading = heading::MACHINE)]
    set_up: bool,

    /// Print every check
    #[arg(short, long, help_heading = heading::OUTPUT)]
    verbose: bool,

    /// Print the checks as JSON Lines
    #[arg(long, help_heading = heading::OUTPUT)]
    json: bool,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Bad,
    Unknown,
}

/// Why a failed check keeps `lbr` from the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    /// No usable LBR.
    NoLbr,
    /// The driver is missing.
    Driver,
    /// The driver gives access only with more rights.
    Permission,
}

/// One line of the report; as JSON with its keys in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    check: &'static str,
    finding: String,
    verdict: Verdict,
    remedy: Option<String>,
    #[serde(skip)]
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

pub(crate) fn run(args: DoctorArgs) -> Result {
    if args.set_up {
        return set_up::run();
    }
    let report = checks::examine(&args.machine, &args.machine.cpus()?);
    let mut out = Out::stdout();
    if args.json {
        for check in &report.checks {
            json::value(&mut out, check)?;
        }
    } else {
        summary::write(&mut out, &report)?;
        if args.verbose {
            out.gap()?;
            let items: Vec<Item> = report.checks.iter().flat_map(items).collect();
            write_list(&mut out, &items)?;
        }
    }
    out.flush()?;
    Ok(match report.obstacle {
        None => DONE,
        // Without the driver, more rights do not help.
        Some(Obstacle::NoLbr | Obstacle::Driver) => NO_LBR,
        Some(Obstacle::Permission) => NOT_PERMITTED,
    })
}

/// A check, and its remedy in a second line.
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
