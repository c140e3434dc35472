//! `lbr dump`: the ring of one CPU as it stands.

use std::io::{self, BufWriter, Write};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use lbr_msr::{
    LbrCaps, MsrError, MsrRead,
    access::Device,
    filter,
    probe::{probe_assuming, recorded::RecordedCpu},
    snapshot::Snapshot,
    soft::SoftLbr,
};
use serde_json::{Value, json};

use super::{decode, machine::MachineArgs};
use crate::{
    exit::{DONE, FAILED, Failure, NO_LBR, NOT_PERMITTED, OrExit, Outcome, USAGE},
    present::json,
};

/// Read the branch records of one CPU as they stand
///
/// Prints each record, newest first, raw beside decoded. Only reads: where
/// recording is on meanwhile, the records are torn, and it is said. With
/// --json the first line holds the control registers, the others a record
/// each.
#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// The CPU to read
    #[arg(short = 'C', long, value_name = "CPU", default_value_t = 0)]
    cpu: u32,

    /// Where the registers are; auto is msr, and soft with --soft-cpu
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,

    #[command(flatten)]
    machine: MachineArgs,

    /// Print JSON Lines
    #[arg(long)]
    json: bool,
}

/// Where the registers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Backend {
    /// msr, or soft where --soft-cpu names a CPU
    Auto,
    /// The msr driver's device
    Msr,
    /// A software LBR: what its registers hold before anything was recorded
    Soft,
}

/// Runs `lbr dump`.
pub(crate) fn run(args: DumpArgs) -> Outcome {
    let soft = match (args.backend, &args.machine.soft_cpu) {
        (Backend::Soft, None) => {
            let error = anyhow!("--backend soft needs --soft-cpu, such as --soft-cpu skylake");
            return Err(error).or_exit(USAGE);
        }
        (Backend::Msr, Some(_)) => {
            let error = anyhow!("--soft-cpu names a software CPU; leave out --backend msr");
            return Err(error).or_exit(USAGE);
        }
        (_, soft) => soft,
    };
    let (caps, snapshot) = if let Some(soft) = soft {
        let mut ring = SoftLbr::new(&soft.caps, soft.perf_capabilities).on_cpu(args.cpu);
        let snapshot = Snapshot::read(&mut ring, &soft.caps).map_err(no_access)?;
        (soft.caps.clone(), snapshot)
    } else {
        hardware(&args)?
    };
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        write_json(&mut out, &args, &caps, &snapshot)?;
    } else {
        write_text(&mut out, &args, &caps, &snapshot)?;
    }
    out.flush()?;
    if snapshot.torn() {
        anstream::eprintln!(
            "lbr: recording was on while the ring was read: the records are torn, that is, not \
             of one moment"
        );
    }
    Ok(DONE)
}

fn hardware(args: &DumpArgs) -> Result<(LbrCaps, Snapshot), Failure> {
    let cpus = args.machine.cpus().or_exit(USAGE)?;
    let root = args.machine.root();
    let found = cpus
        .iter()
        .find(|cpu| cpu.cpu == args.cpu)
        // A recording of one CPU stands for all.
        .or_else(|| cpus.first().filter(|_| cpus.len() == 1 && !args.machine.is_live()));
    let Some(RecordedCpu { cpuid, .. }) = found else {
        let cpu = args.cpu;
        let exists = root.join(&format!("sys/devices/system/cpu/cpu{cpu}")).is_dir();
        let error = if exists {
            anyhow!("CPU {cpu} is offline, or this process may not run on it (see taskset)")
        } else {
            anyhow!("CPU {cpu} does not exist; online: {}", root.online())
        };
        return Err(error).or_exit(USAGE);
    };
    // Whether there is anything to read is said before what stands in the way.
    let assume = args.machine.assume.as_ref();
    let probed = probe_assuming(cpuid, None, assume).map(|_| ());
    probed.or_exit(NO_LBR)?;
    let mut device = Device::open(args.cpu, &root).map_err(no_access)?;
    let given = args.machine.perf_capabilities.map(lbr_msr::probe::GivenPerfCapabilities);
    let caps = match given {
        Some(mut given) => probe_assuming(cpuid, Some(&mut given), assume),
        None => probe_assuming(cpuid, Some(&mut device as &mut dyn MsrRead), assume),
    };
    let caps = caps.or_exit(NO_LBR)?;
    let snapshot = Snapshot::read(&mut device, &caps).map_err(no_access)?;
    Ok((caps, snapshot))
}

/// The exit status of a register that could not be read.
fn no_access(error: MsrError) -> Failure {
    let code = match error {
        MsrError::Permission { .. } | MsrError::Capability { .. } | MsrError::NotListed { .. } => {
            NOT_PERMITTED
        }
        MsrError::NoSuchCpu { .. } => USAGE,
        MsrError::Fault { .. } | MsrError::DriverMissing { .. } | MsrError::Offline { .. } => {
            NO_LBR
        }
        _ => FAILED,
    };
    Failure { code, error: error.into() }
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

fn write_json(
    out: &mut impl Write,
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
            ("tos", json!(snapshot.position)),
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
        fields.extend(decode::fields_of(caps.layout, *raw));
        json::line(out, &fields)?;
    }
    Ok(())
}

fn write_text(
    out: &mut impl Write,
    args: &DumpArgs,
    caps: &LbrCaps,
    snapshot: &Snapshot,
) -> io::Result<()> {
    let soft = if args.machine.soft_cpu.is_some() { " (software LBR)" } else { "" };
    let (facility, key) = (caps.facility.name(), caps.cpu.key());
    writeln!(out, "CPU {}: {key}H{soft}, {facility}, depth {}", args.cpu, snapshot.depth)?;
    let state = if snapshot.recording { "on" } else { "off" };
    write!(out, "recording {state}, {} = {:#x}", caps.registers.control, snapshot.control)?;
    if let (Some(msr), Some(value)) = (caps.registers.select, snapshot.select) {
        write!(out, ", {} {msr} = {value:#x}", caps.filter.name())?;
    }
    if let Some(names) = filter_names(caps, snapshot) {
        write!(out, " ({names})")?;
    }
    if let Some(position) = snapshot.position {
        write!(out, ", newest by index {position}")?;
    }
    writeln!(out)?;
    let slots = |out: &mut dyn Write, slot: &dyn std::fmt::Display| write!(out, "{slot:>4}  ");
    slots(out, &"slot")?;
    decode::heading_of(out, caps.layout)?;
    for (index, raw) in &snapshot.records {
        slots(out, index)?;
        decode::row_of(out, caps.layout, *raw)?;
    }
    Ok(())
}
