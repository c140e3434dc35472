//! `lbr disarm`: disables recording that something left enabled.

use lbr_msr::text::AsText;
use std::io::{self, Write};

use anyhow::Context;
use clap::Args;
use lbr_msr::arm::{ArmError, ArmOptions, ArmPlan};
use lbr_msr::{LbrCaps, MsrRead};
use serde_json::Value;

use super::backend::{self, Backend, of_registers};
use super::machine::MachineArgs;
use crate::args::heading;
use crate::cpus::CpuList;
use crate::exit::{DONE, NO_LBR, OrExit, Result, failure, usage};
use crate::present::{Out, json, say};

/// Disable branch recording that something left enabled
///
/// Examples:
///   lbr disarm                       every CPU
///   lbr disarm -C 0-3,6
///   lbr disarm --json
///
/// On each CPU with recording or a filter enabled, lbr disables recording, sets
/// the filter to 0 and clears the records. It writes nothing else. A perf that
/// is recording branches loses them.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct DisarmArgs {
    /// The CPUs, such as 0-3,6 [default: all that are online]
    #[arg(short = 'C', long, value_name = "LIST", help_heading = heading::MACHINE)]
    cpu: Option<CpuList>,

    /// How to reach the registers
    #[arg(long, value_parser = of_registers(), default_value = "auto",
          help_heading = heading::MACHINE)]
    backend: Backend,

    #[command(flatten)]
    machine: MachineArgs,

    /// Print JSON Lines
    #[arg(long, help_heading = heading::OUTPUT)]
    json: bool,
}

/// The state of a CPU, and what was done.
struct DisarmedCpu {
    recording: bool,
    control: (String, u64),
    filter: Option<(String, u64)>,
    cleared: bool,
}

pub(crate) fn run(args: DisarmArgs) -> Result {
    if args.backend == Backend::Soft || args.machine.soft_cpu.is_some() {
        return Err(usage!(
            "a software LBR ends with the command that uses it: there is nothing to disable"
        ));
    }
    let list = match &args.cpu {
        Some(list) => list.clone(),
        None => {
            let root = args.machine.root();
            let list = root.join("sys/devices/system/cpu/online");
            let unknown =
                format!("which CPUs are online? name them with -C ({} lists them)", list.as_text());
            root.online().parse().context(unknown).or_exit(NO_LBR)?
        }
    };
    let mut out = Out::stdout();
    let mut failures = Vec::new();
    let mut announced = false;
    for &cpu in list.cpus() {
        match disarm(cpu, &args, &mut announced) {
            Ok(found) if args.json => write_json(&mut out, cpu, &found)?,
            Ok(found) => write_text(&mut out, cpu, &found)?,
            Err(failure) => failures.push((cpu, failure)),
        }
    }
    out.flush()?;
    let alike = |code| failures.iter().all(|(_, failure)| failure.code == code);
    let many = failures.len() > 1;
    let code = failures.first().map(|(_, first)| if alike(first.code) { first.code } else { 1 });
    for (cpu, failure) in failures {
        // The other CPUs are done; this one sets the exit status.
        if !many {
            return Err(failure);
        }
        say!("CPU {cpu}: {:#}", failure.error);
    }
    Ok(code.unwrap_or(DONE))
}

fn disarm(cpu: u32, args: &DisarmArgs, announced: &mut bool) -> Result<DisarmedCpu> {
    let (caps, mut registers, plan) = backend::look(args.backend, cpu, &args.machine, plan)?;
    let (control, enable) = plan.control();
    let value = registers.read(control).map_err(backend::refused)?;
    let mut filter = None;
    if let Some(select) = caps.registers.select.filter(|select| *select != control) {
        let value = registers.read(select).map_err(backend::refused)?;
        filter = Some((select.to_string(), value));
    }
    let whole = caps.registers.select == Some(control);
    let left = value & enable != 0 || whole && value != 0 || matches!(filter, Some((_, 1..)));
    if left {
        let root = args.machine.root();
        let registers = backend::open_for(&plan, args.backend, cpu, &root)?;
        if !std::mem::replace(announced, true)
            && let Some(notice) = backend::taint_notice(&*registers, &root)
        {
            say!("{notice}");
        }
        let mut registers = lbr_msr::arm::Allowlisted::new(registers, &plan);
        plan.disarm(&mut registers).map_err(backend::refused)?;
    }
    Ok(DisarmedCpu {
        recording: value & enable != 0,
        control: (control.to_string(), value),
        filter,
        cleared: left,
    })
}

/// How recording is switched off on such a CPU.
fn plan(caps: &LbrCaps) -> Result<ArmPlan> {
    ArmPlan::new(caps, 0, ArmOptions::default()).map_err(|error| match error {
        ArmError::NoRing { facility, .. } => {
            let name = facility.name();
            failure!(NO_LBR, "nothing to switch off: lbr never records with {name}")
        }
        error => backend::no_plan(error),
    })
}

fn write_text(out: &mut Out<'_>, cpu: u32, found: &DisarmedCpu) -> io::Result<()> {
    let (control, value) = &found.control;
    let state = if found.recording { "on" } else { "off" };
    let filter = found.filter.as_ref();
    let filter = filter.map(|(filter, value)| format!(", filter {filter} = {value:#x}"));
    let done = match (found.recording, found.cleared) {
        (true, _) => "switched off, filter and records cleared",
        (false, true) => "filter and records cleared",
        (false, false) => "nothing to do",
    };
    out.line(format_args!(
        "CPU {cpu}: recording was {state} ({control} = {value:#x}{}): {done}",
        filter.unwrap_or_default()
    ))
}

fn write_json(out: &mut impl Write, cpu: u32, found: &DisarmedCpu) -> io::Result<()> {
    let filter = found.filter.as_ref();
    json::object!(out, {
        "cpu": cpu,
        "recording": found.recording,
        "control": json::hex(found.control.1),
        "select": filter.map_or(Value::Null, |(_, value)| json::hex(*value)),
        "disarmed": found.cleared,
    })
}
