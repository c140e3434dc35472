//! `lbr verify`: checks whether a CPU does what its LBR format documents.

mod diff;
mod explain;
mod markdown;
mod report;
mod subject;
mod text;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use anyhow::Context;
use clap::Args;
use lab::verify::Config;
use lbr_msr::soft::Faults;
use sampler::target::Affinity;

use super::backend::{Backend, of_registers};
use super::export::day;
use super::machine::MachineArgs;
use crate::args::heading;
use crate::cpus::CpuList;
use crate::exit::{DONE, FAILED, NO_LBR, OrExit, Result, USAGE, failure, usage};
use crate::input;
use crate::output::Output;
use crate::present::{Out, joined, say};
use report::{Machine, Verified};
use subject::Lies;

/// Check whether CPUs do what their LBR format documents
///
/// Examples:
///   lbr verify                       reads only: what CPUID announces
///   lbr verify --write -v            every check, with its source
///   lbr verify --soft-cpu skylake --write    on the software LBR
///
/// Compares CPUID and IA32_PERF_CAPABILITIES with the CPU table, and checks
/// that each register exists. With --write it also checks which bits the
/// registers accept, fills the LBR with known branches, and compares: depth,
/// order, filters, call-stack mode, flags, cycles, freeze and more. Registers,
/// records and TOS are restored afterwards, also after Ctrl-C. If recording is
/// already on, nothing is written.
///
/// Each check prints what is expected, with its source, what was found, and the
/// verdict: as documented, differs, cannot be judged here, or not applicable. A
/// check that rests on a differing one is not judged. Reports contain neither
/// addresses nor serial numbers.
///
/// Exit status: 0 if nothing differs, 1 if something does (or verifying
/// failed), 3 without an LBR, 4 if permission is missing.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct VerifyArgs {
    /// The CPUs, such as 0-3,6 [default: all that are allowed]
    #[arg(short = 'C', long, value_name = "LIST", help_heading = heading::MACHINE)]
    cpu: Option<CpuList>,

    /// Write registers too, and restore them: most checks need it
    #[arg(long, help_heading = heading::MACHINE)]
    write: bool,

    /// How to reach the registers; auto is soft with --soft-cpu
    #[arg(long, value_parser = of_registers(), default_value = "auto",
          help_heading = heading::MACHINE)]
    backend: Backend,

    #[command(flatten)]
    machine: MachineArgs,

    /// Inject faults into the software LBR; `list` lists them
    ///
    /// Names such as tos-off-by-one, separated by commas.
    #[arg(long, value_name = "NAME", help_heading = heading::MACHINE)]
    soft_lie: Option<Lies>,

    /// Compare two reports of --json instead
    #[arg(long, num_args = 2, value_names = ["A", "B"], help_heading = heading::INPUT,
          conflicts_with_all = [
        "cpu", "write", "backend", "cpuid", "perf_capabilities", "soft_cpu", "assume", "msr_root",
        "soft_lie", "markdown", "verbose",
    ])]
    diff: Option<Vec<PathBuf>>,

    /// Explain CHECK, or `list` all checks
    ///
    /// Prints what the check executes, why, what would falsify it, and the source of the documented
    /// answer (with --soft-cpu, for that CPU).
    #[arg(long, value_name = "CHECK", help_heading = heading::OUTPUT, conflicts_with_all = [
        "cpu", "write", "backend", "cpuid", "perf_capabilities", "assume", "soft_lie", "markdown",
        "diff",
    ])]
    explain: Option<String>,

    /// Print every check, with its source
    #[arg(short, long, help_heading = heading::OUTPUT)]
    verbose: bool,

    /// Print JSON Lines, or write them to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-",
          help_heading = heading::OUTPUT)]
    json: Option<PathBuf>,

    /// Write a Markdown report; `-` is standard output
    #[arg(long, value_name = "FILE", help_heading = heading::OUTPUT)]
    markdown: Option<PathBuf>,
}

impl VerifyArgs {
    /// The faults to inject.
    fn lies(&self) -> Option<Faults> {
        self.soft_lie.and_then(|Lies(faults)| faults)
    }
}

pub(crate) fn run(args: &VerifyArgs) -> Result {
    if let Some([one, other]) = args.diff.as_deref() {
        return diff::run(one, other, args.json.as_deref());
    }
    if let Some(id) = &args.explain {
        return explain::run(id, args.machine.soft_cpu.as_ref(), args.json.as_deref());
    }
    let machine = &args.machine;
    if let Some(Lies(None)) = args.soft_lie {
        return subject::list_lies(machine.soft_cpu.as_ref());
    }
    if machine.host.cpuid.is_some() && machine.host.msr_root.is_none()
        || machine.perf_capabilities.is_some()
    {
        return Err(usage!(
            "recorded values have no registers to verify: omit --perf-capabilities, and \
             --cpuid without --msr-root (lbr probe shows what they say)"
        ));
    }
    if args.backend == Backend::Soft && args.machine.soft_cpu.is_none() {
        return Err(usage!("which software CPU? give --soft-cpu, such as --soft-cpu skylake"));
    }
    if args.machine.soft_cpu.is_some() && !matches!(args.backend, Backend::Auto | Backend::Soft) {
        return Err(usage!("--soft-cpu names a software CPU; omit --backend"));
    }
    let is_stdout = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
    if is_stdout(&args.json) && is_stdout(&args.markdown) {
        return Err(usage!("--json and --markdown cannot both go to standard output"));
    }
    check_lies(args)?;
    let output = |path: &PathBuf| Output::new(path, args.machine.host.cpuid.iter());
    let json = args.json.as_ref().map(output).transpose()?;
    let markdown = args.markdown.as_ref().map(output).transpose()?;
    let machine = verify_all(args)?;
    if !is_stdout(&args.json) && !is_stdout(&args.markdown) {
        let mut out = Out::stdout();
        text::write(&mut out, &machine, args.verbose)?;
        out.flush()?;
    }
    if let Some(output) = json {
        output.stream(|out| report::write_json(out, &machine).map(Ok))?;
    }
    if let Some(output) = markdown {
        output.stream(|out| markdown::write(out, &machine).map(Ok))?;
    }
    Ok(if machine.verified.iter().any(Verified::differs) { FAILED } else { DONE })
}

/// Refuses faults that no check could detect.
fn check_lies(args: &VerifyArgs) -> Result<()> {
    let Some(lies) = args.lies() else { return Ok(()) };
    let cpu = args.machine.soft_cpu.as_ref();
    let soft = cpu.context("--soft-lie needs --soft-cpu, the CPU to change").or_exit(USAGE)?;
    let none = subject::without_effect(soft, lies.iter())?;
    if none.is_empty() {
        return Ok(());
    }
    let names = joined(none.iter().map(|fault| fault.name()), ",");
    let (faults, have) =
        if none.len() == 1 { ("this fault", "has") } else { ("these faults", "have") };
    Err(usage!(
        "--soft-lie {names}: {faults} {have} no effect on this CPU; lbr verify --soft-cpu {} \
         --soft-lie list lists those that have one",
        soft.key
    ))
}

/// Verifies each CPU in turn; those with one outcome become one.
fn verify_all(args: &VerifyArgs) -> Result<Machine> {
    // A signal ends the checks; the registers are then restored.
    let stop = if args.write { input::stop_flag()? } else { Arc::default() };
    let config = Config {
        write: args.write,
        assume: args.machine.host.assume,
        stop: Some(Arc::clone(&stop)),
    };
    let cpus = args.machine.cpus()?;
    let chosen: Vec<u32> = match &args.cpu {
        Some(list) => list.cpus().to_vec(),
        None => cpus.iter().map(|cpu| cpu.cpu).collect(),
    };
    let mut machine = Machine {
        verified: Vec::new(),
        soft_lies: args.lies().map(|lies| lies.iter().map(|lie| lie.name()).collect()),
        kernel: report::kernel(&args.machine.root()),
        date: day(SystemTime::now()),
    };
    // Each CPU is verified by a thread pinned to it; afterwards all CPUs must be allowed again.
    let everywhere = Affinity::current()?;
    let mut refused = Vec::new();
    let mut notice = args.write;
    for cpu in chosen {
        let Some(found) = cpus.iter().find(|found| found.cpu == cpu) else {
            return Err(usage!(
                "CPU {cpu} does not exist, is offline, or this process may not run on it (see \
                 taskset); online: {}",
                args.machine.root().online()
            ));
        };
        let verified = subject::verify(args, found, &config, &mut notice);
        everywhere.apply(0)?;
        match verified {
            Ok(report) => {
                let hardware = args.machine.soft_cpu.is_none();
                let microcode = report::microcode(&args.machine.root(), cpu);
                machine.add(report, found, microcode.filter(|_| hardware));
            }
            // CPUs without an LBR are reported only if others have one.
            Err(failure) if failure.code == NO_LBR => refused.push((cpu, failure)),
            Err(failure) => return Err(failure),
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    if machine.verified.is_empty() {
        let first = refused.into_iter().next();
        return Err(first.map_or_else(|| failure!(FAILED, "interrupted"), |(_, failure)| failure));
    }
    for (cpu, failure) in refused {
        say!("CPU {cpu}: {:#}", failure.error);
    }
    Ok(machine)
}
