//! Recording through the kernel's perf events.

use std::time::Duration;

use anyhow::anyhow;
use lbr_msr::filter::{BranchClasses, FilterError, to_register_disarmed};
use lbr_msr::record::SourceKnowledge;
use lbr_msr::{BranchFilter, LbrCaps};
use profile::note::Source;
use sampler::source::perf::{Host, Perf, Refused, Subject};
use sampler::target::{Affinity, Command, find};
use sampler::{DEFAULT_HZ, RecordConfig, Sampling};

use super::hardware::{description, name, tell_kernel};
use super::output::{Recording, meta};
use super::{Record, Recorder, announce, software};
use crate::commands::backend::{self, Backend};
use crate::commands::machine::MachineArgs;
use crate::cpus::CpuList;
use crate::exit::{Failure, OrExit, Result, USAGE};
use crate::output::Output;

/// Asks the kernel. `None` under auto if the period asks for every branch, of which
/// interrupts miss most.
pub(super) fn look(args: &Record) -> Result<Option<Recorder<'_>>> {
    let caps = caps(args)?;
    let asks_for_all = args.count.is_some_and(|count| count < caps.depth.into());
    if args.backend != Backend::Perf && asks_for_all {
        return Ok(None);
    }
    open(args, caps).map(Some)
}

/// The branch records of the first CPUs that have any.
fn caps(args: &Record) -> Result<LbrCaps> {
    let machine = MachineArgs::from(args.host.clone());
    let mut why = None;
    for group in machine.groups(&machine.cpus()?) {
        match group.probed {
            Ok(caps) => return Ok(caps),
            Err(unsupported) => why = why.or(Some(unsupported)),
        }
    }
    Err(why.map_or_else(|| anyhow!("no CPU was found").into(), backend::no_records))
}

/// Checks the configuration: the kernel accepts it, and nothing runs yet.
fn open(args: &Record, caps: LbrCaps) -> Result<Recorder<'_>> {
    let filter = args.filter.parse::<BranchFilter>().or_exit(USAGE)?.normalized();
    if let Err(error @ FilterError::StackAlone { .. }) = to_register_disarmed(filter, caps.filter) {
        return Err(error).or_exit(USAGE);
    }
    let root = MachineArgs::from(args.host.clone()).root();
    let host = Host::look(&root);
    let sampling = match args.count {
        Some(count) => Sampling::Period(count),
        None => {
            // The kernel lowers its limit if its interrupts take long.
            let usual = host.most_hz.map_or(DEFAULT_HZ, |most| most.min(DEFAULT_HZ));
            Sampling::Rate { hz: args.hz().unwrap_or(usual), seed: 0 }
        }
    };
    let allowed = Affinity::current()?;
    let cpus: Vec<u32> = match (&args.cpu, root.online().parse::<CpuList>()) {
        (Some(list), _) => list.cpus().to_vec(),
        (None, Ok(online)) => online.cpus().to_vec(),
        (None, Err(_)) => allowed.cpus().collect(),
    };
    let limit = args.time.map(Duration::from_millis);
    let (subject, whose) = match (args.pid, args.command.is_empty()) {
        (Some(pid), _) => (Subject::Process { pid, limit }, format!("process {pid}")),
        (None, true) => (Subject::Everything { limit }, "all that runs".to_owned()),
        (None, false) => {
            let command = args.rights.command(&args.command)?;
            let path = find(&command.program).or_exit(USAGE)?;
            let command = Box::new(Command { follow_children: args.children, ..command });
            let pin = args.cpu.as_ref().map(|list| allowed.only_these(list.cpus()));
            let pin = pin.transpose().or_exit(USAGE)?;
            let whose = if args.children { "the program and its children" } else { "the program" };
            (Subject::Program { path, command, pin }, whose.to_owned())
        }
    };
    let mut source = Perf::open(subject, &host, &caps, &cpus, filter, sampling)
        .map_err(|refused| failure(refused, &caps, args))?;
    let whose = match &args.cpu {
        Some(list) => {
            let list = lbr_msr::probe::cores::cpu_list(list.cpus());
            format!("{whose} on CPU {list}")
        }
        None => whose,
    };
    Ok(Box::new(move |output| {
        announce(args, &format!("{}, through perf_event_open, {whose}", name(&caps)));
        record(args, output, caps, &mut source, filter, sampling)
    }))
}

fn failure(refused: Refused, caps: &LbrCaps, args: &Record) -> Failure {
    match refused {
        Refused::Target(error) => software::refused(error, args),
        refused => backend::refused_by_perf(refused, &caps.cpu),
    }
}

fn record(
    args: &Record,
    output: Output,
    caps: LbrCaps,
    source: &mut Perf,
    filter: BranchFilter,
    sampling: Sampling,
) -> Result {
    let desc = description(&caps);
    let knowledge = SourceKnowledge::HARDWARE;
    let meta = meta(&caps, desc, filter, Source::Hardware, knowledge, sampling);
    let mut recording = Recording::create(args, output, meta)?;
    if filter.kernel() {
        tell_kernel(&mut recording)?;
    }
    let classes = filter.classes();
    let config = RecordConfig {
        call_stack: filter.contains(BranchFilter::STACK),
        sampling,
        // The kernel's filter may be wider than the requested one.
        keep: (classes != BranchClasses::all()).then(|| software::keep(classes)),
        ..RecordConfig::new(caps)
    };
    let recorded = recording.record(source, config);
    recording.finish(recorded.map_err(|error| software::failure(error, args)), knowledge)
}
