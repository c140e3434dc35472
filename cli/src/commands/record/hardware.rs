//! Recording from the registers of this machine's CPUs.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, anyhow};
use lbr_msr::access::Root;
use lbr_msr::arm::{ArmOptions, ArmPlan};
use lbr_msr::filter::{software_filter, to_register_disarmed};
use lbr_msr::record::{Event, Sink, SourceKnowledge};
use lbr_msr::{BranchFilter, LbrCaps};
use profile::note::Source;
use profile::symbols::RunningKernel;
use sampler::config::{Queue, WhenFull};
use sampler::guard::Armed;
use sampler::source::cpu::same_cpu::Control;
use sampler::source::cpu::target::{Process, Program, Target, WholeCpu};
use sampler::source::cpu::{Awake, CpuRing, Cpus, RecordUntil, may_go_first, unrecordable};
use sampler::target::{Affinity, Moved, SourceError, find};
use sampler::{DEFAULT_HZ, RecordConfig, RecordError, Sampling, fresh_seed, keeper};

use super::output::{Recording, meta};
use super::{Placing, Record, Recorder, announce, software};
use crate::commands::backend::{self as registers, Hardware};
use crate::commands::machine::{MachineArgs, described, is_emulated};
use crate::exit::{FAILED, Failure, NO_LBR, NOT_PERMITTED, OrExit, Result, USAGE, failure, usage};
use crate::output::Output;
use crate::present::say;

/// Stacks that wait for the decoder, CPU by CPU: four seconds at the usual rate.
const QUEUE: usize = 4096;

/// Probes the CPUs to record from.
pub(super) fn look(args: &Record) -> Result<Recorder<'_>> {
    let machine = MachineArgs::from(args.host.clone());
    let cpus = match &args.cpu {
        Some(list) => list.cpus().to_vec(),
        None => vec![machine.usual_cpu()?],
    };
    let mut found: Option<LbrCaps> = None;
    for &cpu in &cpus {
        let (caps, ..) = registers::look(args.backend, cpu, &machine, recordable)?;
        let first = found.get_or_insert_with(|| caps.clone());
        if first.registers != caps.registers || first.layout != caps.layout {
            return Err(usage!(
                "the branch records of CPU {cpu} differ from those of CPU {}: record them \
                 separately",
                cpus[0]
            ));
        }
    }
    let caps = found.ok_or_else(|| anyhow!("no CPU was named"))?;
    Ok(Box::new(move |output| record(args, output, caps, &cpus)))
}

/// Records from CPUs with the same capabilities. Everything that can be refused is, before the
/// first write.
fn record(args: &Record, output: Output, caps: LbrCaps, cpus: &[u32]) -> Result {
    let filter: BranchFilter = args.filter.parse().or_exit(USAGE)?;
    let plan = plan(filter, &caps)?;
    let root = MachineArgs::from(args.host.clone()).root();
    let rings = cpus
        .iter()
        .map(|cpu| registers::open_for(&plan, args.backend, *cpu, &root))
        .collect::<Result<Vec<Hardware>>>()?;
    // For the sampler on the CPU itself. It bypasses the wrapper that limits writes, but writes the
    // control register alone.
    let descriptors =
        rings.iter().map(|ring| ring.same_cpu()).collect::<std::io::Result<Vec<_>>>()?;
    let (is_same_cpu, words) = placement(args, &descriptors, cpus)?;
    let first = rings.first().context("no CPU to record")?;
    let desc = description(&caps);
    let allowed = Affinity::current()?;
    let list = allowed.only_these(cpus).or_exit(USAGE)?;
    let through = first.driver().through;
    let name = name(&caps);
    announce(args, &format!("{name}, through {through}, CPU {}, {words}", list.list()));

    let sampling = Sampling::Rate { hz: args.hz().unwrap_or(DEFAULT_HZ), seed: fresh_seed() };
    let knowledge = SourceKnowledge::HARDWARE;
    let meta = meta(&caps, desc, filter, Source::Hardware, knowledge, sampling);
    let mut target = target(args, &list)?;
    let mut recording = Recording::create(args, output, meta)?;
    let awake = (!args.allow_cstates).then(|| Awake::hold(&root));
    if let Some(Err(cause)) = &awake {
        say!(
            "CPUs may go into deep C-states, where some lose their records \
             (/dev/cpu_dma_latency: {cause})"
        );
    }
    // The watchdog process, which arming starts, inherits it.
    let _moved = Moved::off(cpus, &allowed);
    let mut armed = arm(rings, &plan, &root)?;

    let config = RecordConfig {
        call_stack: plan.call_stack(),
        sampling,
        queue: Queue { stacks: QUEUE, when_full: WhenFull::Drop },
        keep: software_filter(filter, caps.filter).map(software::keep),
        ..RecordConfig::new(caps)
    };
    let (control, enable) = plan.control();
    let to_sample = armed.iter_mut().zip(cpus).zip(&descriptors);
    let to_sample = to_sample
        .map(|((armed, cpu), descriptor)| CpuRing {
            registers: armed.registers(),
            same_cpu: descriptor.as_ref().filter(|_| is_same_cpu).map(|descriptor| {
                let descriptor = descriptor.as_fd();
                let control = Control { descriptor, cpu: *cpu, msr: control, enable };
                Box::new(control) as Box<dyn RecordUntil + Send>
            }),
        })
        .collect();
    if filter.contains(BranchFilter::KERNEL) {
        tell_kernel(&mut recording)?;
    }
    let recorded = recording.record(&mut Cpus::new(to_sample, &mut *target, allowed), config);
    let restored = restore(armed);
    drop(awake);
    let recorded = recorded.map_err(|error| match error {
        RecordError::Drain(error) => registers::refused(error),
        error => Failure { code: FAILED, error: error.into() },
    });
    recording.finish(recorded.and_then(|recorded| restored.map(|()| recorded)), knowledge)
}

/// Refuses records that cannot be recorded from.
pub(in crate::commands) fn recordable(caps: &LbrCaps) -> Result<()> {
    if let Some(why) = unrecordable(caps) {
        let name = caps.cpu.uarch.as_deref().map_or_else(|| caps.cpu.key(), str::to_owned);
        return Err(failure!(NO_LBR, "{name} cannot be recorded from: {why}"));
    }
    ArmPlan::new(caps, 0, ArmOptions::default()).map(drop).map_err(registers::no_plan)
}

pub(in crate::commands) fn plan(filter: BranchFilter, caps: &LbrCaps) -> Result<ArmPlan> {
    let value = to_register_disarmed(filter, caps.filter).map_err(registers::not_here)?;
    ArmPlan::new(caps, value, ArmOptions::default()).map_err(registers::no_plan)
}

/// Whether the recorded CPU itself reads its LBR registers, and in words who reads them, and how.
fn placement(
    args: &Record,
    descriptors: &[Option<OwnedFd>],
    cpus: &[u32],
) -> Result<(bool, &'static str)> {
    let in_one_call = descriptors.iter().any(Option::is_none);
    let has_others = Affinity::current()?.without(cpus).is_some();
    let beside = match in_one_call {
        true => "drained from another CPU, in one call",
        false => "drained from another CPU: every stack is cut",
    };
    match args.placement {
        Placing::Same if in_one_call => Err(usage!(
            "--placement same: msr-safe's calls leave lbr's own branches in the LBR stack; with \
             msr-safe, lbr reads from another CPU, and loses nothing"
        )),
        Placing::Beside if !has_others => Err(usage!(
            "--placement beside: lbr needs an allowed CPU besides the recorded ones ({cpus:?})"
        )),
        Placing::Beside => Ok((false, beside)),
        Placing::Auto if in_one_call => Ok((false, beside)),
        Placing::Auto | Placing::Same => Ok(match may_go_first() {
            true => (true, "drained on it with SCHED_FIFO"),
            false if has_others && args.placement == Placing::Auto => (false, beside),
            false => (true, "drained on it without SCHED_FIFO (not permitted): every stack is cut"),
        }),
    }
}

/// Saves the registers, starts the watchdog process, and enables recording.
pub(in crate::commands) fn arm(
    rings: Vec<Hardware>,
    plan: &ArmPlan,
    root: &Root,
) -> Result<Vec<Armed<Hardware>>> {
    let notice = rings.first().and_then(|ring| registers::taint_notice(&**ring, root));
    let ready = rings.into_iter().map(|ring| registers::ready(ring, plan.clone()));
    let mut ready = ready.collect::<Result<Vec<_>>>()?;
    keeper::watch(&mut ready)?;
    if let Some(notice) = notice {
        say!("{notice}");
    }
    // If one fails, those enabled before it are restored when they are dropped.
    ready.into_iter().map(|ring| ring.arm().map_err(registers::not_armed)).collect()
}

pub(in crate::commands) fn restore(armed: Vec<Armed<Hardware>>) -> Result<()> {
    let mut failed = None;
    for ring in armed {
        match ring.restore() {
            Ok(restored) if restored.foreign => {
                say!("something else changed the branch filter meanwhile; it was left as it is")
            }
            Ok(_) => {}
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
    }
    failed.map_or(Ok(()), |error| Err(registers::refused(error)))
}

fn target(args: &Record, cpus: &Affinity) -> Result<Box<dyn Target>> {
    let limit = args.time.map(Duration::from_millis);
    if let Some(pid) = args.pid {
        let process = Process::attach(pid, cpus, limit).map_err(|error| {
            let denied = ErrorKind::PermissionDenied;
            let code = match &error {
                SourceError::Os { cause, .. } if cause.kind() == denied => NOT_PERMITTED,
                _ => USAGE,
            };
            Failure { code, error: error.into() }
        })?;
        return Ok(Box::new(process));
    }
    if args.command.is_empty() {
        return Ok(Box::new(WholeCpu { limit }));
    }
    let command = args.rights.command(&args.command)?;
    let path = find(&command.program).or_exit(USAGE)?;
    let launched = Program::launch(&path, &command, cpus);
    Ok(Box::new(launched.map_err(|error| software::refused(error, args))?))
}

/// Records where the kernel is mapped, so that its branches can be named later. Without it they are
/// still recorded.
pub(super) fn tell_kernel(recording: &mut Recording<'_>) -> Result<()> {
    let mappings = RunningKernel::default().mappings(0);
    let mappings = mappings.unwrap_or_else(|why| {
        say!("branches of the kernel will have no names: {why}");
        Vec::new()
    });
    for mapping in mappings {
        let event = Event::Mmap(Box::new(mapping));
        recording.event(&event).context("cannot write the recording")?;
    }
    Ok(())
}

/// The CPU's name, and whether it is emulated.
pub(super) fn name(caps: &LbrCaps) -> String {
    let name = caps.cpu.uarch.as_ref().map_or_else(|| caps.cpu.key(), |name| name.to_string());
    labelled(name, caps)
}

/// The CPU's name and its key in the CPU table, as the recording has them.
pub(in crate::commands) fn description(caps: &LbrCaps) -> String {
    labelled(described(&caps.cpu), caps)
}

fn labelled(name: String, caps: &LbrCaps) -> String {
    if is_emulated(&caps.cpu) {
        return format!(
            "{name}, emulated CPU (TCG), cycles and predictions modelled, not measured"
        );
    }
    name
}
