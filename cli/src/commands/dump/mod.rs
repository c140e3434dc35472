//! `lbr dump`: the ring of one CPU, as it stands or armed for a moment.

mod armed;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod soft;

use std::io::{self, Write};

use anyhow::anyhow;
use clap::Args;
use lbr_msr::record::SourceKnowledge;
use lbr_msr::{BranchFilter, LbrCaps, caps::Order, filter, snapshot::Snapshot};
use serde_json::{Value, json};

use super::{
    backend::{self, Backend, of_registers},
    decode::{
        Records,
        record::{self, Row},
    },
    machine::MachineArgs,
    rights::Rights,
};
use crate::present::out::{Out, say};
use crate::{
    exit::{DONE, OrExit, Outcome, USAGE},
    present::json,
};

/// Read the branch records of one CPU
///
/// Prints each record, newest first, raw beside decoded. Without --arm it only
/// reads: where recording is on meanwhile, the records are torn, and it is
/// said. With --arm it switches recording on, waits, switches it off, reads,
/// and puts the registers back as they were. With --soft-cpu the ring is a
/// software LBR's, empty, or with --arm what the single-stepped program left in
/// it: no hardware is needed or touched. With --json the first line holds
/// the control registers, the others a record each.
#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// The CPU to read
    #[arg(short = 'C', long, value_name = "CPU", default_value_t = 0)]
    cpu: u32,

    /// Where the registers are; auto is soft with --soft-cpu
    #[arg(long, value_parser = of_registers(), default_value = "auto")]
    backend: Backend,

    /// Record these branches first, perf's names separated by commas, and
    /// no_far: such as any,u,no_far
    #[arg(long, value_name = "FILTER")]
    arm: Option<BranchFilter>,

    /// Record for so many milliseconds [default: 10, or until CMD ends]
    #[arg(long = "for", value_name = "MS", requires = "arm",
          value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    time: Option<u64>,

    #[command(flatten)]
    machine: MachineArgs,

    /// Print JSON Lines
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    rights: Rights,

    /// A program to run on that CPU meanwhile; it is ended when the time is up
    ///
    /// SIGINT (Ctrl-C) and SIGTERM are passed on to it; it is killed 10 seconds
    /// later, or at the second signal.
    #[arg(last = true, requires = "arm", value_name = "CMD")]
    command: Vec<String>,
}

impl DumpArgs {
    /// What is known of the branches: a software LBR is fed by single-stepping.
    const fn knowledge(&self) -> SourceKnowledge {
        match self.machine.soft_cpu {
            Some(_) => SourceKnowledge::USER_BRANCHES,
            None => SourceKnowledge::HARDWARE,
        }
    }
}

/// Runs `lbr dump`.
pub(crate) fn run(args: DumpArgs) -> Outcome {
    let soft = match (args.backend, &args.machine.soft_cpu) {
        (Backend::Soft, None) => {
            let error = anyhow!("--backend soft needs --soft-cpu, such as --soft-cpu skylake");
            return Err(error).or_exit(USAGE);
        }
        (Backend::Msr | Backend::MsrSafe, Some(_)) => {
            let error = anyhow!("--soft-cpu names a software CPU; leave out --backend");
            return Err(error).or_exit(USAGE);
        }
        (_, soft) => soft,
    };
    let (caps, snapshot) = if let Some(soft) = soft {
        (soft.caps.clone(), soft::snapshot(&args, soft)?)
    } else if let Some(filter) = args.arm {
        armed::snapshot(&args, filter)?
    } else {
        let mut found = backend::look(args.backend, args.cpu, &args.machine, |_| Ok(()))?;
        let read = Snapshot::read(&mut found.registers, &found.caps);
        (found.caps, read.map_err(backend::refused)?)
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

/// What the filter register (or Architectural LBR's control) asks for, in
/// perf's names; `None` where it asks for nothing that has a name.
fn filter_names(caps: &LbrCaps, snapshot: &Snapshot) -> Option<String> {
    let value = match caps.registers.select? {
        select if select == caps.registers.control => snapshot.control,
        _ => snapshot.select?,
    };
    let captured = filter::from_register(value, caps.filter).ok()?;
    captured.filter().map(|filter| filter.to_string())
}

/// What tells where the newest record is.
const fn position_name(caps: &LbrCaps) -> &'static str {
    match caps.order {
        Order::Saturating => "MSROFF",
        Order::Tos | Order::NewestFirst | Order::Single => "TOS",
    }
}

fn write_json(
    out: &mut Out<'_>,
    args: &DumpArgs,
    caps: &LbrCaps,
    snapshot: &Snapshot,
) -> io::Result<()> {
    let hex = |value: Option<u64>| value.map_or(Value::Null, json::hex);
    json::line(
        out,
        &[
            ("schema", json!(1)),
            ("cpu", json!(args.cpu)),
            ("facility", json!(caps.facility.name())),
            ("depth", json!(snapshot.depth)),
            ("control", json::hex(snapshot.control)),
            ("select", hex(snapshot.select)),
            ("filter", json!(filter_names(caps, snapshot))),
            ("tos", json!(snapshot.position.filter(|_| caps.order == Order::Tos))),
            ("msroff", json!(snapshot.position.filter(|_| caps.order == Order::Saturating))),
            ("recording", json!(snapshot.recording)),
            ("torn", json!(snapshot.torn())),
            ("soft", json!(args.machine.soft_cpu.as_ref().map(|soft| &soft.key))),
        ],
    )?;
    for (index, raw) in &snapshot.records {
        let to = (!caps.layout.is_packed()).then_some(raw.to);
        let mut fields = vec![
            ("slot", json!(index)),
            ("raw_from", json::hex(raw.from)),
            ("raw_to", hex(to)),
            ("raw_info", hex(raw.info)),
        ];
        fields.extend(Row::of(None, caps.layout, *raw, args.knowledge()).json());
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
    let (facility, key) = (caps.facility.name(), caps.cpu.key());
    out.line(format_args!("CPU {}: {key}H{soft}, {facility}, depth {}", args.cpu, snapshot.depth))?;
    let state = if snapshot.recording { "on" } else { "off" };
    let mut line =
        format!("recording {state}, {} = {:#x}", caps.registers.control, snapshot.control);
    if let (Some(msr), Some(value)) = (caps.registers.select, snapshot.select) {
        line += &format!(", {} {msr} = {value:#x}", caps.filter.name());
    }
    if let Some(names) = filter_names(caps, snapshot) {
        line += &format!(" ({names})");
    }
    // The ring's own pointer may hold bits that mean nothing, and that of BRS
    // stands behind the newest record: the slot is what was made of it.
    if let (Some(position), Some((newest, _))) = (snapshot.position, snapshot.records.first()) {
        line += &format!(", {} = {position:#x} (newest: slot {newest})", position_name(caps));
    }
    out.line(line)?;
    let rows = snapshot
        .records
        .iter()
        .map(|(slot, raw)| Row::of(Some(*slot), caps.layout, *raw, args.knowledge()));
    record::table(Records::Lbr(caps.layout), true).write_text(out, &mut (), rows)
}
