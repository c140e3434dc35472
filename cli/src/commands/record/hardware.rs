//! Recording from the registers of this machine's CPUs.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, anyhow};
use lbr_msr::arm::{ArmOptions, ArmPlan};
use lbr_msr::filter::{software_filter, to_register_disarmed};
use lbr_msr::record::{Event, Sink, SourceKnowledge};
use lbr_msr::{BranchFilter, LbrCaps};
use profile::note::Source;
use profile::perf_data::{Meta, Rate, Writer};
use profile::symbols::RunningKernel;
use sampler::guard::{Armed, Ready};
use sampler::hardware::same_cpu::Control;
use sampler::hardware::target::{Process, Program, Target, WholeCpu};
use sampler::hardware::{self, Awake, CpuRing, Elsewhere, HardwareConfig, RecordUntil};
use sampler::source::Command;
use sampler::target::{Affinity, find};
use sampler::thread::{Queue, WhenFull};
use sampler::{DEFAULT_HZ, fresh_seed, keeper};

use super::backend::Chosen;
use super::sink::Watched;
use super::{Placing, Record, software, summary};
use crate::commands::backend::{self as registers, Hardware};
use crate::exit::{FAILED, Failure, NO_LBR, NOT_PERMITTED, OrExit, Outcome, USAGE};
use crate::present::out::say;

/// Stacks that wait for the decoder, CPU by CPU: four seconds at the usual rate.
const QUEUE: usize = 4096;

/// Records. Everything that can be refused is, before the first write.
pub(super) fn record(args: &Record, chosen: Chosen) -> Outcome {
    let Chosen { caps, cpus, backend, .. } = chosen;
    refuse_what_needs_software(args)?;
    let filter: BranchFilter = args.filter.parse().or_exit(USAGE)?;
    let plan = plan(filter, &caps)?;
    let root = args.machine().root();
    let rings = cpus
        .iter()
        .map(|cpu| registers::open_for(&plan, backend, *cpu, &root))
        .collect::<Result<Vec<Hardware>, Failure>>()?;
    let placing = placing(args, &rings, &cpus)?;
    // For the sampler on the CPU itself, which passes by the wrapper that
    // limits writes: it writes the control register alone.
    let descriptors = rings.iter().map(descriptor).collect::<std::io::Result<Vec<_>>>()?;
    let notice = rings.first().and_then(|ring| ring.taint_notice(&root));
    let through = match rings.first() {
        Some(Hardware::MsrSafe(_)) => "msr-safe",
        _ => "/dev/cpu/N/msr",
    };
    let desc = description(&caps);
    let allowed = Affinity::current()?;
    let list = allowed.only_these(&cpus).or_exit(USAGE)?;
    say!("recording on {desc} through {through}, CPU {}, {}", list.list(), placing.words());

    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("signals cannot be listened for")?;
    }
    let mut target = target(args, &list)?;
    let writer = Writer::create(&args.output, meta(args, filter, &caps, desc))
        .with_context(|| format!("cannot write {}", args.output.display()))?;
    let awake = (!args.allow_cstates).then(|| Awake::hold(&root));
    if let Some(Err(cause)) = &awake {
        say!(
            "CPUs may go into deep C-states, where some lose their records \
             (/dev/cpu_dma_latency: {cause})"
        );
    }
    // The keeper, which arming starts, inherits it.
    let _elsewhere = Elsewhere::go(allowed, &cpus);
    let mut armed = arm(rings, &plan, notice)?;

    let config = HardwareConfig {
        caps: caps.clone(),
        call_stack: plan.call_stack(),
        allowed,
        hz: args.freq.unwrap_or(DEFAULT_HZ),
        seed: args.seed.unwrap_or_else(fresh_seed),
        queue: Queue { stacks: QUEUE, when_full: WhenFull::Drop },
        keep: software_filter(filter, caps.filter).map(software::keep),
        stop: Arc::clone(&stop),
    };
    let (control, enable) = plan.control();
    let to_sample = armed.iter_mut().zip(&cpus).zip(&descriptors);
    let to_sample = to_sample
        .map(|((armed, cpu), descriptor)| CpuRing {
            registers: armed.registers(),
            same_cpu: descriptor.as_ref().filter(|_| placing.is_same_cpu()).map(|descriptor| {
                let descriptor = descriptor.as_fd();
                let control = Control { descriptor, cpu: *cpu, msr: control, enable };
                Box::new(control) as Box<dyn RecordUntil + Send>
            }),
        })
        .collect();
    let mut sink = Watched::new(writer);
    if filter.contains(BranchFilter::KERNEL) {
        tell_kernel(&mut sink)?;
    }
    let recorded = hardware::record(to_sample, &mut *target, config, &mut sink);
    let restored = restore(armed);
    // What was recorded before a failure is worth keeping: the file is finished either way.
    let finished = sink.finish().finish_file();
    drop(awake);
    let recorded = recorded.map_err(|error| match error {
        sampler::RecordError::Drain(error) => registers::refused(error),
        error => Failure { code: FAILED, error: error.into() },
    })?;
    restored?;
    finished.with_context(|| format!("cannot finish {}", args.output.display()))?;
    summary::print(&recorded.summary, SourceKnowledge::HARDWARE, &args.output, &stop);
    summary::print_cpus(&recorded.cpus);
    if args.report {
        crate::commands::report::hot(&args.output)?;
    }
    // A status is 0 to 255, or 128 + a signal's number.
    Ok(u8::try_from(recorded.summary.exit.status()).unwrap_or(FAILED))
}

fn refuse_what_needs_software(args: &Record) -> Result<(), Failure> {
    let why = if args.count.is_some() {
        "-c: hardware cannot be drained after a number of branches, because it raises no interrupt \
         that a program could wait for; give a rate (-F)"
    } else if args.from.is_some() {
        "--from: hardware records from the program's start"
    } else if args.children {
        "--children: hardware records a CPU, and cannot tell a program's children from others; \
         record the whole CPU (-C without a program)"
    } else {
        return Ok(());
    };
    Err(anyhow!("{why}, or record on the software LBR (--backend soft)")).or_exit(USAGE)
}

fn plan(filter: BranchFilter, caps: &LbrCaps) -> Result<ArmPlan, Failure> {
    if let Some(why) = hardware::unrecordable(caps) {
        let name = caps.cpu.uarch.as_deref().map_or_else(|| caps.cpu.key(), str::to_owned);
        let error = anyhow!("{name} cannot be recorded from: {why}; --backend soft works");
        return Err(Failure { code: NO_LBR, error });
    }
    // One-entry and read-only facilities say so before their filter does.
    ArmPlan::new(caps, 0, ArmOptions::default()).map_err(registers::no_plan)?;
    let value = to_register_disarmed(filter, caps.filter).map_err(registers::not_here)?;
    ArmPlan::new(caps, value, ArmOptions::default()).map_err(registers::no_plan)
}

/// Where drains run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    SameCpu { first: bool },
    Beside { in_one_call: bool },
}

impl Place {
    const fn is_same_cpu(self) -> bool {
        matches!(self, Place::SameCpu { .. })
    }

    const fn words(self) -> &'static str {
        match self {
            Place::SameCpu { first: true } => "drained on it with SCHED_FIFO",
            Place::SameCpu { first: false } => {
                "drained on it without SCHED_FIFO (not permitted): every stack is cut"
            }
            Place::Beside { in_one_call: true } => "drained from beside it, in one call",
            Place::Beside { in_one_call: false } => "drained from beside it: every stack is cut",
        }
    }
}

fn placing(args: &Record, rings: &[Hardware], cpus: &[u32]) -> Result<Place, Failure> {
    let in_one_call = rings.iter().any(|ring| matches!(ring, Hardware::MsrSafe(_)));
    let has_others = Affinity::current()?.without(cpus).is_some();
    let beside = Place::Beside { in_one_call };
    match args.placement {
        Placing::Same if in_one_call => Err(anyhow!(
            "--placement same: msr-safe's calls leave branches of lbr itself in the ring; it \
             drains from beside, which cuts nothing with it"
        ))
        .or_exit(USAGE),
        Placing::Beside if !has_others => Err(anyhow!(
            "--placement beside: lbr may run on no CPU beside those it records ({cpus:?})"
        ))
        .or_exit(USAGE),
        Placing::Beside => Ok(beside),
        Placing::Auto if in_one_call => Ok(beside),
        Placing::Auto | Placing::Same => {
            let first = hardware::may_go_first();
            if !first && has_others && args.placement == Placing::Auto {
                Ok(beside)
            } else {
                Ok(Place::SameCpu { first })
            }
        }
    }
}

fn descriptor(registers: &Hardware) -> std::io::Result<Option<OwnedFd>> {
    match registers {
        Hardware::Msr(device) => device.as_fd().try_clone_to_owned().map(Some),
        Hardware::MsrSafe(_) => Ok(None),
    }
}

/// Reads what will be put back, has a keeper watch over it, and switches
/// recording on.
fn arm(
    rings: Vec<Hardware>,
    plan: &ArmPlan,
    notice: Option<&str>,
) -> Result<Vec<Armed<Hardware>>, Failure> {
    let mut ready = Vec::new();
    for ring in rings {
        let ring = Ready::new(ring, plan.clone()).map_err(registers::not_armed)?;
        if ring.saved().in_use() {
            say!(
                "CPU {}: a branch filter or a freeze on PMI was set before: something such as \
                 perf has recorded here, and may take the records away again",
                ring.cpu()
            );
        }
        ready.push(ring);
    }
    keeper::watch(&mut ready)?;
    if let Some(notice) = notice {
        say!("{notice}");
    }
    // Those armed before one that fails are put back as they are dropped.
    ready.into_iter().map(|ring| ring.arm().map_err(registers::not_armed)).collect()
}

fn restore(armed: Vec<Armed<Hardware>>) -> Result<(), Failure> {
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

fn target(args: &Record, cpus: &Affinity) -> Result<Box<dyn Target>, Failure> {
    let limit = args.time.map(Duration::from_millis);
    if let Some(pid) = args.pid {
        let process = Process::attach(pid, cpus, limit).map_err(|error| {
            let code = match &error {
                sampler::source::SourceError::Os { cause, .. }
                    if cause.kind() == std::io::ErrorKind::PermissionDenied =>
                {
                    NOT_PERMITTED
                }
                _ => USAGE,
            };
            Failure { code, error: error.into() }
        })?;
        return Ok(Box::new(process));
    }
    let Some((program, arguments)) = args.command.split_first() else {
        return Ok(Box::new(WholeCpu { limit }));
    };
    let path = find(program).or_exit(USAGE)?;
    let command = Command {
        program: program.clone(),
        args: arguments.to_vec(),
        from: None,
        follow_children: false,
        cpu: None,
    };
    let launched = Program::launch(&path, &command, cpus);
    Ok(Box::new(launched.map_err(|error| software::refused(error, args))?))
}

fn meta(args: &Record, filter: BranchFilter, caps: &LbrCaps, desc: String) -> Meta {
    let mut meta = Meta::of_this_machine();
    let cpu = &caps.cpu;
    let vendor = cpu.vendor.as_str();
    meta.cpuid = Some(format!("{vendor},{},{},{}", cpu.family, cpu.model, cpu.stepping));
    meta.cpudesc = Some(desc);
    meta.filter = filter;
    meta.event = match (filter.contains(BranchFilter::USER), filter.contains(BranchFilter::KERNEL))
    {
        (true, false) => "branches:u",
        (false, true) => "branches:k",
        _ => "branches",
    }
    .to_owned();
    meta.knowledge = SourceKnowledge::HARDWARE;
    meta.source = Source::Hardware;
    meta.rate = Rate::Frequency(u64::from(args.freq.unwrap_or(DEFAULT_HZ)));
    meta
}

/// Where the kernel lies, so that its branches can be named later. They are
/// recorded all the same where it does not say.
fn tell_kernel(sink: &mut Watched<Writer<std::fs::File>>) -> Result<(), Failure> {
    let mappings = RunningKernel::default().mappings(0);
    let mappings = mappings.unwrap_or_else(|why| {
        say!("branches of the kernel will have no names: {why}");
        Vec::new()
    });
    for mapping in mappings {
        sink.event(&Event::Mmap(Box::new(mapping))).context("cannot write the recording")?;
    }
    Ok(())
}

/// The CPU in words. Registers cannot tell a modelled LBR from a real one; QEMU
/// has none of its own, so that what answers there is a model.
fn description(caps: &LbrCaps) -> String {
    let key = caps.cpu.key();
    let name = match &caps.cpu.uarch {
        Some(uarch) => format!("{uarch} ({key})"),
        None => key,
    };
    if caps.cpu.hypervisor.as_deref() == Some("QEMU") {
        return format!(
            "{name}, emulated CPU (TCG), cycles and predictions modelled, not measured"
        );
    }
    name
}
