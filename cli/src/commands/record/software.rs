//! Recording on the software LBR.

use clap::builder::{PossibleValue, PossibleValuesParser};
use lbr_msr::BranchFilter;
use lbr_msr::caps::{FilterRegister, LbrCaps};
use lbr_msr::filter::{BranchClasses, software_filter, to_register_disarmed};
use lbr_msr::insn::Isa;
use lbr_msr::record::{BranchEntry, BranchType};
use lbr_msr::soft::SoftCpu;
use lbr_msr::table::NAMES;
use profile::place::find_code;
use sampler::source::qemu::{self, Qemu};
use sampler::source::{Command, SOFTWARE, Source, SourceError, ptrace};
use sampler::{Keep, RecordConfig, RecordError, Sampling, fresh_seed, target};

use super::output::{Recording, meta};
use super::serve::isa;
use super::{AUTO, Record, SOFT_ARM_CPU, SOFT_CPU, announce};
use crate::commands::backend::not_started;
use crate::commands::soft::runs;
use crate::cpus::CpuList;
use crate::exit::{FAILED, Failure, NO_LBR, OrExit, Result, USAGE, failure, usage};
use crate::output::Output;
use crate::present::say;

/// Runs the program and records it. `why` explains why lbr fell back to the software LBR.
pub(super) fn record(args: &Record, output: Output, why: Option<&str>) -> Result {
    let filter: BranchFilter = args.filter.parse().or_exit(USAGE)?;
    let filter = in_user_mode(filter)?;
    let cpu = match &args.soft_cpu {
        Some(cpu) => cpu.clone(),
        None if isa(args) == Isa::Aarch64 => SoftCpu::preset(SOFT_ARM_CPU).or_exit(USAGE)?,
        None => SoftCpu::preset(SOFT_CPU).or_exit(USAGE)?,
    };
    runs(&cpu, isa(args))?;
    let (select, keep) = ring_filter(filter, &cpu.caps)?;
    // Facilities with one entry and read-only ones are refused before a file is overwritten.
    let caps = cpu.caps.clone();
    let config = RecordConfig::modelled(caps, cpu.perf_capabilities, select).or_exit(NO_LBR)?;
    let sampling = sampling(args, &cpu.caps);
    let command = command(args)?;
    let mut source = tracer(args, &command)?;

    let modelled = if args.model { "predictions and cycles modelled, " } else { "" };
    let name = name(&cpu);
    let desc = format!("software LBR ({name}), {modelled}not measured");
    let through = source.name();
    let known =
        if args.model { "predictions and cycles modelled" } else { "no predictions, no cycles" };
    announce(args, &format!("the software LBR ({name}) through {through}: {known}"));
    if let Some(why) = why.filter(|_| args.verbose) {
        say!("no hardware LBR: {why}");
    }

    let knowledge = source.knowledge();
    let origin = profile::note::Source::Software;
    let mut meta = meta(&cpu.caps, desc.clone(), filter, origin, knowledge, sampling);
    meta.cmdline.push(format!("# {desc}"));
    meta.arguments = args.args.is_some();
    if isa(args) == Isa::Aarch64 {
        meta.arch = "aarch64".to_owned();
        // perf writes MIDR_EL1 there.
        meta.cpuid = None;
    }
    let mut recording = Recording::create(args, output, meta)?;
    let config = RecordConfig { sampling, keep, ..config };
    if through == ptrace::SOFTWARE.name {
        recording.hint = Some(Box::new(|| faster(command)));
    }
    let recorded = recording.record(&mut *source, config);
    recording.finish(recorded.map_err(|error| failure(error, args)), knowledge)
}

/// How to record faster than by single-stepping.
fn faster(command: Command) -> String {
    match (Qemu::find(), (qemu::SOFTWARE.open)(command)) {
        (Ok(_), Ok(_)) => "--source qemu records millions".to_owned(),
        (Ok(_), Err(why)) => format!("QEMU records millions, but not here: {why}"),
        (Err(why), _) => format!("QEMU records millions: {why}; lbr doctor --set-up installs it"),
    }
}

/// The CPU's name; its key in the CPU table if it has none.
fn name(cpu: &SoftCpu) -> &str {
    let of_key = || NAMES.iter().find(|(_, key)| *key == cpu.key).map(|(name, _)| *name);
    cpu.caps.cpu.uarch.as_deref().or_else(of_key).unwrap_or(&cpu.key)
}

/// The filter with its ring named: the sources under the software LBR see no
/// kernel.
pub(crate) fn in_user_mode(filter: BranchFilter) -> Result<BranchFilter> {
    if filter.contains(BranchFilter::KERNEL) {
        return Err(usage!(
            "`{filter}` asks for branches of the kernel, which the software LBR does not see: it is \
             fed by ptrace or user-mode QEMU; ask for `u`, or record on hardware"
        ));
    }
    Ok(filter | BranchFilter::USER)
}

/// A filter, split into what the ring does, the value of its filter register, and what is left to
/// do afterwards.
fn ring_filter(filter: BranchFilter, caps: &LbrCaps) -> Result<(u64, Option<Keep>)> {
    if caps.filter == FilterRegister::None {
        // On hardware the kernel's branches would overwrite the LBR stack; here there are none, and
        // the types follow from the code.
        if filter.contains(BranchFilter::STACK) {
            to_register_disarmed(filter, caps.filter).or_exit(USAGE)?;
        }
        return Ok((0, Some(keep(filter.classes()))));
    }
    let select = to_register_disarmed(filter, caps.filter).or_exit(USAGE)?;
    Ok((select, software_filter(filter, caps.filter).map(keep)))
}

/// Keeps the entries whose type is in `classes`, and those of unknown type.
pub(super) fn keep(classes: BranchClasses) -> Keep {
    Box::new(move |entry: &BranchEntry| {
        entry.branch_type.is_none_or(|branch_type| {
            let class = match branch_type {
                BranchType::COND => BranchClasses::COND,
                BranchType::UNCOND => BranchClasses::REL_JMP,
                BranchType::IND => BranchClasses::IND_JMP,
                BranchType::CALL => BranchClasses::REL_CALL,
                BranchType::IND_CALL => BranchClasses::IND_CALL,
                BranchType::RET => BranchClasses::RET,
                _ => BranchClasses::OTHER,
            };
            classes.contains(class)
        })
    })
}

fn sampling(args: &Record, caps: &LbrCaps) -> Sampling {
    match (args.hz(), args.count) {
        (Some(hz), _) => Sampling::Rate { hz, seed: fresh_seed() },
        (None, Some(count)) => Sampling::Period(count),
        (None, None) => Sampling::Period(u64::from(caps.depth.saturating_sub(1).max(1))),
    }
}

/// The values of `--source`.
pub(crate) fn names() -> PossibleValuesParser {
    let auto = PossibleValue::new(AUTO).help("The first available one");
    let named = SOFTWARE.iter().map(|source| PossibleValue::new(source.name).help(source.about));
    [auto].into_iter().chain(named).collect::<Vec<_>>().into()
}

/// The program that traces.
fn tracer(args: &Record, command: &Command) -> Result<Box<dyn Source<'static>>> {
    let mut why_not = None;
    for software in SOFTWARE {
        if args.source != AUTO && args.source != software.name {
            continue;
        }
        match (software.open)(command.clone()) {
            Ok(source) => return Ok(source),
            Err(SourceError::Unavailable { why }) => {
                why_not.get_or_insert(why);
            }
            Err(error) => return Err(refused(error, args)),
        }
    }
    let why = why_not.unwrap_or_default();
    Err(failure!(FAILED, "--source {}: {why}", args.source))
}

fn command(args: &Record) -> Result<Command> {
    let command = args.rights.command(&args.command)?;
    let address = |symbol: &Option<String>| match symbol {
        None => Ok(None),
        Some(symbol) => {
            let path = target::find(&command.program).map_err(|error| refused(error, args))?;
            find_code(&path, symbol).map(Some).or_exit(USAGE)
        }
    };
    Ok(Command {
        from: address(&args.from)?,
        arguments_of: address(&args.args)?,
        follow_children: args.children,
        model: args.model,
        cpu: one_cpu(args)?,
        ..command
    })
}

/// The CPU that the program is pinned to.
fn one_cpu(args: &Record) -> Result<Option<u32>> {
    match args.cpu.as_ref().map(CpuList::cpus) {
        None => Ok(None),
        Some([cpu]) => Ok(Some(*cpu)),
        Some(_) => Err(usage!("-C: the software LBR pins a program to one CPU")),
    }
}

/// A source that cannot start, most often because of a wrong command line.
pub(super) fn refused(error: SourceError, args: &Record) -> Failure {
    match (error, &args.from) {
        (SourceError::NeverReached { .. }, Some(symbol)) => {
            not_started(SourceError::NeverReached { symbol: symbol.clone() })
        }
        (error, _) => not_started(error),
    }
}

pub(super) fn failure<E>(error: RecordError<E>, args: &Record) -> Failure
where
    E: std::error::Error + Send + Sync + 'static,
{
    match error {
        RecordError::Source(error) => refused(error, args),
        RecordError::Arm(error) => Failure { code: NO_LBR, error: error.into() },
        error => Failure { code: FAILED, error: error.into() },
    }
}
