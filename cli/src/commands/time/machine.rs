//! Chooses what measures the code: the registers of a CPU, its counters, or neither.

use std::cell::RefCell;
use std::fmt::Display;

use anyhow::Context;
use lab::measure::bracket::Body;
use lab::measure::{GuardedRegisters, Options, Session, select};
use lbr_msr::arm::{ArmOptions, ArmPlan, ChangedControl, Restored};
use lbr_msr::text::AsText;
use lbr_msr::{BranchFilter, LbrCaps, MsrError};
use sampler::keeper;
use sampler::source::perf::{Counting, Host, Refused, attempt};
use sampler::target::{Affinity, Moved};

use super::TimeArgs;
use super::figures::Source;
use crate::commands::backend::{self, Backend, Choice};
use crate::commands::machine::{MachineArgs, described, is_emulated};
use crate::exit::{Failure, NO_LBR, OrExit, Result, USAGE, failure, usage};
use crate::present::say;

/// Measures `bodies`, with the registers of the CPU if available; returns the result of `work`, and
/// what measured it.
pub(super) fn measure<T, E: Display>(
    args: &TimeArgs,
    options: Options,
    bodies: &[Body],
    work: impl FnOnce(&mut Session) -> Result<T, E>,
) -> Result<(Result<T, E>, Source)> {
    let allowed = Affinity::current()?;
    let machine = MachineArgs::from(args.host.clone());
    let chosen = args.cpu.map_or_else(|| machine.usual_cpu(), Ok);
    // Stepping needs a CPU too, if only to be counted on one.
    let cpu = chosen.as_ref().ok().copied().or(allowed.cpus().last()).unwrap_or(0);
    let pin = allowed.only(cpu).or_exit(USAGE)?;
    let options = Options { pin: Some(pin), ..options };
    let look = |caps: &LbrCaps| plan(caps, &options, bodies);
    let registers = || {
        let (caps, _, plan) = backend::look(args.backend, chosen?, &machine, look)?;
        Ok(Instrument::Registers(Box::new((caps, plan))))
    };
    let hidden = RefCell::new(None);
    // Counters are of the machine that this runs on.
    let perf = || {
        (args.backend == Backend::Perf || machine.is_live())
            .then(|| counters(cpu, &machine, &mut hidden.borrow_mut()))
    };
    match args.backend.choose(registers, perf)? {
        Choice::Hardware(Instrument::Registers(found)) => {
            let (caps, plan) = *found;
            hardware(args.backend, cpu, &machine, caps, plan, options, work)
        }
        Choice::Hardware(Instrument::Counters(counting, stacks, source)) => {
            // This program is not to run between the readings.
            let _moved = Moved::off(&[cpu], &Affinity::current()?);
            let options = Options { counters: Some(*counting), stacks, ..options };
            Ok((work(&mut Session::new(options, None)), source))
        }
        Choice::Software(why) => {
            let source = stepped(args, why.as_ref(), hidden.into_inner());
            Ok((work(&mut Session::new(options, None)), source))
        }
    }
}

/// The means of measurement.
enum Instrument {
    Registers(Box<(LbrCaps, ArmPlan)>),
    Counters(Box<Counting>, Option<Box<(Host, LbrCaps)>>, Source),
}

/// The counters of a CPU. `hidden` is a short reason why they are hidden.
fn counters(cpu: u32, machine: &MachineArgs, hidden: &mut Option<String>) -> Result<Instrument> {
    if !machine.is_live() {
        return Err(usage!(
            "perf events belong to the running kernel: omit --msr-root and --cpuid"
        ));
    }
    let groups = machine.groups(&machine.cpus()?);
    let group = groups.into_iter().find(|group| group.cpus.contains(&cpu));
    let (identity, caps) = match group.map(|group| group.probed) {
        Some(Ok(caps)) => (caps.cpu.clone(), Some(caps)),
        Some(Err(unsupported)) => (*unsupported.cpu, None),
        None => return Err(usage!("this process may not run on CPU {cpu}")),
    };
    let host = Host::look(&machine.root());
    let counting = Counting::look(&host, cpu).map_err(|refused| {
        if let (Refused::NoCounters | Refused::NoStacks, Some(name)) =
            (&refused, &identity.hypervisor)
        {
            *hidden = Some(format!("{name} hides the performance counters"));
        }
        backend::refused_by_perf(refused, &identity)
    })?;
    let modelled = is_emulated(&identity);
    let any = BranchFilter::ANY | BranchFilter::USER;
    let has_stacks = |caps: &LbrCaps| caps.cycles() && attempt(&host, any).is_ok();
    let stacks = caps.filter(has_stacks).map(|caps| Box::new((host, caps)));
    let source = Source {
        name: "perf",
        words: format!(
            "counters of CPU {cpu}, {}, by the kernel's perf events{}",
            described(&identity),
            if modelled { MODELLED } else { "" }
        ),
        modelled,
        absent: None,
    };
    Ok(Instrument::Counters(Box::new(counting), stacks, source))
}

const MODELLED: &str = "; an emulated CPU: modelled, not measured";

fn plan(caps: &LbrCaps, options: &Options, bodies: &[Body]) -> Result<ArmPlan> {
    if caps.filter == lbr_msr::caps::FilterRegister::None {
        return Err(failure!(
            NO_LBR,
            "{} cannot leave out the kernel's branches, which overwrite the records before they \
             can be read",
            caps.facility.name()
        ));
    }
    // A filter that records the branches around any of them.
    let alike = Body {
        rounds: bodies.iter().find_map(|body| body.rounds),
        call: bodies.iter().find_map(|body| body.call),
        ..Body::default()
    };
    let value = select(options.filter, &alike, caps.filter).map_err(backend::not_here)?;
    ArmPlan::new(caps, value, ArmOptions::default()).map_err(backend::no_plan)
}

fn hardware<T, E: Display>(
    backend: Backend,
    cpu: u32,
    machine: &MachineArgs,
    caps: LbrCaps,
    plan: ArmPlan,
    options: Options,
    work: impl FnOnce(&mut Session) -> Result<T, E>,
) -> Result<(Result<T, E>, Source)> {
    let root = machine.root();
    let registers = backend::open_for(&plan, backend, cpu, &root)?;
    let (name, node) = (registers.driver().name, registers.node(&root));
    // This program is not to run between the brackets.
    let moved = Moved::off(&[cpu], &Affinity::current()?);
    if moved.is_none() {
        say!("lbr may run on no other CPU than {cpu}: more runs than elsewhere are interrupted");
    }
    let notice = backend::taint_notice(&*registers, &root);
    let ready = backend::ready(registers, plan.exclusive())?;
    let ready = ready.with_report(|cpu, restored| match restored {
        Ok(restored) => report(cpu, restored),
        Err(error) => say!("{:#}", not_put_back(cpu, error).error),
    });
    let mut ready = [ready];
    keeper::watch(&mut ready)?;
    let [ready] = ready;
    let modelled = is_emulated(&caps.cpu);
    let source = Source {
        name,
        words: format!(
            "branch records of CPU {cpu}, {}, {} deep{}",
            described(&caps.cpu),
            caps.depth,
            if modelled { MODELLED } else { "" }
        ),
        modelled,
        absent: (!caps.cycles()).then(|| "unknown, this CPU's branch records hold none".to_owned()),
    };
    if let Some(notice) = notice {
        say!("{notice}");
    }
    let node = root
        .open_node(&node, true)
        .with_context(|| format!("{} cannot be used", node.as_text()))?;
    let armed = ready.arm().map_err(backend::not_armed)?;
    let ring = GuardedRegisters::new(armed, caps, node).map_err(backend::refused)?;
    let mut session = Session::new(options, Some(Box::new(ring)));
    let measured = work(&mut session);
    match session.restore() {
        Ok(restored) => report(cpu, restored),
        Err(error) => {
            // The fault of the code comes first.
            if let Err(failed) = &measured {
                say!("{failed}");
            }
            return Err(not_put_back(cpu, error));
        }
    }
    Ok((measured, source))
}

/// Reports changes to registers while code was measured.
fn report(cpu: u32, restored: Restored) {
    if restored.foreign {
        say!("CPU {cpu}: something else changed the branch filter meanwhile; it was left as it is");
    }
    if let Some(ChangedControl { msr, found, before }) = restored.control {
        say!(
            "CPU {cpu}: the control register {msr} was {found:#x} at the end, with bits that lbr \
             did not write; it was put back to {before:#x}"
        );
    }
}

fn not_put_back(cpu: u32, error: MsrError) -> Failure {
    let Failure { code, error } = backend::refused(error);
    let error = error.context(format!(
        "the registers of CPU {cpu} could not be put back (lbr disarm -C {cpu} tries again)"
    ));
    Failure { code, error }
}

fn stepped(args: &TimeArgs, why: Option<&Failure>, hidden: Option<String>) -> Source {
    let reason = why.map(|why| format!("{:#}", why.error));
    if let Some(reason) = reason.as_ref().filter(|_| args.json || args.csv || args.verbose) {
        say!("core cycles are not known: {reason}");
    }
    let reason = reason.map_or_else(
        || "--backend soft counts none".to_owned(),
        |reason| reason.split("; ").next().unwrap_or_default().to_owned(),
    );
    Source {
        absent: Some(format!("unknown, {}", hidden.unwrap_or(reason))),
        name: "stepped",
        words: format!(
            "counted by single-stepping, filters of {}; no branch records, so no core cycles",
            args.soft_cpu.key
        ),
        modelled: false,
    }
}
