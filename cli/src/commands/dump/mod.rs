//! `lbr dump`: the LBR stack of one CPU, as it is or after recording briefly.

mod armed;
mod soft;

use std::io::{self, Write};

use clap::Args;
use lbr_msr::caps::{Facility, Order};
use lbr_msr::record::SourceKnowledge;
use lbr_msr::snapshot::Snapshot;
use lbr_msr::{BranchFilter, LbrCaps, filter};
use serde_json::{Value, json};

use super::backend::{self, Backend, of_registers};
use super::decode::Records;
use super::decode::record::{self, RecordRow};
use super::machine::MachineArgs;
use super::rights::Rights;
use crate::args::heading;
use crate::exit::{DONE, Result, usage};
use crate::present::{Out, json, say};

/// Read the LBR stack of one CPU
///
/// Examples:
///   lbr dump -C 2                    CPU 2, as it is
///   lbr dump --arm any,u -- ls       record ls, then read
///   lbr dump --soft-cpu skylake --arm any,u -- ls   on the software LBR
///
/// Prints each record, newest first, raw and decoded. Without --arm it only
/// reads; if recording is on, the records may be torn, and lbr warns. With --arm
/// it enables recording, waits, disables it, reads, and restores the registers.
/// With --soft-cpu no hardware is needed or touched: the program runs in QEMU,
/// or single-stepped. With --json the first line has the control registers, each
/// other line a record.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct DumpArgs {
    /// Record these branches first, such as any,u
    ///
    /// perf's names separated by commas, and no_far.
    #[arg(long, value_name = "FILTER", help_heading = heading::RECORDING)]
    arm: Option<BranchFilter>,

    /// Record for MS milliseconds [default: 10, or until CMD ends]
    #[arg(long = "for", value_name = "MS", requires = "arm", help_heading = heading::RECORDING,
          value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    time: Option<u64>,

    #[command(flatten)]
    rights: Rights,

    /// The CPU to read
    #[arg(short = 'C', long, value_name = "CPU", default_value_t = 0,
          help_heading = heading::MACHINE)]
    cpu: u32,

    /// How to reach the registers; auto is soft with --soft-cpu
    #[arg(long, value_parser = of_registers(), default_value = "auto",
          help_heading = heading::MACHINE)]
    backend: Backend,

    #[command(flatten)]
    machine: MachineArgs,

    /// Print JSON Lines
    #[arg(long, help_heading = heading::OUTPUT)]
    json: bool,

    /// A program to run on that CPU; it is ended when the time is up
    ///
    /// SIGINT (Ctrl-C) and SIGTERM are passed on to it. It is killed 10 seconds later, or at the
    /// second signal.
    #[arg(last = true, requires = "arm", value_name = "CMD", help_heading = heading::RECORDING)]
    command: Vec<String>,
}

impl DumpArgs {
    /// The knowledge of a software LBR that a program's branches feed.
    const fn knowledge(&self) -> SourceKnowledge {
        match self.machine.soft_cpu {
            Some(_) => SourceKnowledge::USER_BRANCHES,
            None => SourceKnowledge::HARDWARE,
        }
    }
}

pub(crate) fn run(args: DumpArgs) -> Result {
    let soft = match (args.backend, &args.machine.soft_cpu) {
        (Backend::Soft, None) => {
            return Err(usage!("--backend soft needs --soft-cpu, such as --soft-cpu skylake"));
        }
        (Backend::Msr | Backend::MsrSafe, Some(_)) => {
            return Err(usage!("--soft-cpu names a software CPU; omit --backend"));
        }
        (_, soft) => soft,
    };
    let (caps, snapshot) = if let Some(soft) = soft {
        (soft.caps.clone(), soft::snapshot(&args, soft)?)
    } else if let Some(filter) = args.arm {
        armed::snapshot(&args, filter)?
    } else {
        let (caps, mut registers, ()) =
            backend::look(args.backend, args.cpu, &args.machine, |_| Ok(()))?;
        let read = Snapshot::read(&mut registers, &caps);
        (caps, read.map_err(backend::refused)?)
    };
    let mut out = Out::stdout();
    if args.json {
        write_json(&mut out, &args, &caps, &snapshot)?;
    } else {
        write_text(&mut out, &args, &caps, &snapshot)?;
    }
    out.flush()?;
    if snapshot.torn() {
        say!(
            "recording was on while the ring was read: the records are torn, that is, not \
             of one moment"
        );
    }
    Ok(DONE)
}

/// The filter of the filter register (or Architectural LBR's control) in perf's names; `None` if it
/// has no named bits.
fn filter_names(caps: &LbrCaps, snapshot: &Snapshot) -> Option<String> {
    let value = match caps.registers.select? {
        select if select == caps.registers.control => snapshot.control,
        _ => snapshot.select?,
    };
    filter::from_register(value, caps.filter).ok()?.filter().map(|filter| filter.to_string())
}

fn write_json(
    out: &mut Out<'_>,
    args: &DumpArgs,
    caps: &LbrCaps,
    snapshot: &Snapshot,
) -> io::Result<()> {
    let hex = |value: Option<u64>| value.map_or(Value::Null, json::hex);
    json::object!(out, {
        "schema": 1,
        "cpu": args.cpu,
        "facility": caps.facility.name(),
        "depth": snapshot.depth,
        "control": json::hex(snapshot.control),
        "select": hex(snapshot.select),
        "filter": filter_names(caps, snapshot),
        "tos": snapshot.position.filter(|_| caps.order == Order::Tos),
        "msroff": snapshot.position.filter(|_| caps.order == Order::Saturating),
        "recording": snapshot.recording,
        "torn": snapshot.torn(),
        "soft": args.machine.soft_cpu.as_ref().map(|soft| &soft.key),
    })?;
    for (index, raw) in &snapshot.records {
        let to = (!caps.layout.is_packed()).then_some(raw.to);
        let mut fields = vec![
            ("slot", json!(index)),
            ("raw_from", json::hex(raw.from)),
            ("raw_to", hex(to)),
            ("raw_info", hex(raw.info)),
        ];
        fields.extend(RecordRow::of(None, caps.layout, *raw, args.knowledge()).fields);
        json::line(out, &fields)?;
    }
    Ok(())
}

fn write_text(
    out: &mut Out<'_>,
    args: &DumpArgs,
    caps: &LbrCaps,
    snapshot: &Snapshot,
) -> io::Result<()> {
    let soft = if args.machine.soft_cpu.is_some() { " (software LBR)" } else { "" };
    let facility = caps.facility.name();
    let key = match &args.machine.soft_cpu {
        Some(cpu) if caps.facility == Facility::Brbe => cpu.key.clone(),
        _ => caps.cpu.key() + "H",
    };
    out.line(format_args!("CPU {}: {key}{soft}, {facility}, depth {}", args.cpu, snapshot.depth))?;
    let state = if snapshot.recording { "on" } else { "off" };
    let mut line =
        format!("recording {state}, {} = {:#x}", caps.registers.control, snapshot.control);
    if let (Some(msr), Some(value)) = (caps.registers.select, snapshot.select) {
        line += &format!(", {} {msr} = {value:#x}", caps.filter.name());
    }
    if let Some(names) = filter_names(caps, snapshot) {
        line += &format!(" ({names})");
    }
    // The pointer register may have undefined bits, and BRS's points after the newest record; the
    // slot is the decoded position.
    if let (Some(position), Some((newest, _))) = (snapshot.position, snapshot.records.first()) {
        let name = if caps.order == Order::Saturating { "MSROFF" } else { "TOS" };
        line += &format!(", {name} = {position:#x} (newest: slot {newest})");
    }
    out.line(line)?;
    let rows = snapshot.records.iter();
    let rows =
        rows.map(|(slot, raw)| RecordRow::of(Some(*slot), caps.layout, *raw, args.knowledge()));
    record::table(Records::Lbr(caps.layout), true).write_text(out, &mut (), rows)
}
