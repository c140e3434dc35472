//! `lbr probe`: the LBR capabilities of a CPU.

use clap::Args;
use lbr_msr::LbrCaps;
use lbr_msr::caps::{CpuIdentity, Facility, FilterRegister, Layout, Quirks, RegisterMap};
use lbr_msr::probe::Why;
use lbr_msr::probe::cores::{CoreGroup, cpu_list};
use serde_json::{Value, json};

use super::machine::MachineArgs;
use crate::args::heading;
use crate::exit::{OrExit, Result, USAGE, done};
use crate::present::{Cell, Item, Out, applicable, joined, json, write_list};

/// Show what the LBR of this CPU, or of a recorded one, can do
///
/// Examples:
///   lbr probe
///   lbr probe --cpuid cpuid.txt      a CPU recorded with cpuid -r
///   lbr probe --soft-cpu zen4 --json
///
/// Prints one block (with --json one object) for each core type. The exit
/// status is 0 whenever the question could be answered, also if the answer is
/// that there is no LBR.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ProbeArgs {
    #[command(flatten)]
    machine: MachineArgs,

    /// Print JSON Lines
    #[arg(long, help_heading = heading::OUTPUT)]
    json: bool,
}

pub(crate) fn run(args: ProbeArgs) -> Result {
    let cpus = args.machine.cpus()?;
    let groups = args.machine.groups(&cpus);
    // A wrong assumption of the user is an error, not an answer.
    let mut unsupported = groups.iter().filter_map(|group| group.probed.as_ref().err());
    if let Some(wrong) = unsupported.find(|unsupported| is_wrong_assumption(&unsupported.why)) {
        return Err(wrong.clone()).or_exit(USAGE);
    }
    let mut out = Out::stdout();
    for (i, group) in groups.iter().enumerate() {
        if args.json {
            json::line(&mut out, &fields(group))?;
        } else {
            if i > 0 {
                out.gap()?;
            }
            write_list(&mut out, &described(group))?;
        }
    }
    done(&mut out)
}

/// The prober cannot use the value of --assume.
pub(super) const fn is_wrong_assumption(why: &Why) -> bool {
    matches!(
        why,
        Why::CannotAssume(_)
            | Why::AssumedModelUnknown { .. }
            | Why::AssumedFormatMissing
            | Why::AssumedInfoMissing { .. }
    )
}

/// The identity of a CPU, whether or not it has an LBR.
pub(super) fn identity(group: &CoreGroup) -> &CpuIdentity {
    match &group.probed {
        Ok(caps) => &caps.cpu,
        Err(unsupported) => &unsupported.cpu,
    }
}

fn fields(group: &CoreGroup) -> Vec<(&'static str, Value)> {
    let cpu = identity(group);
    let caps = group.probed.as_ref().ok();
    let registers = caps.map(|caps| &caps.registers);
    let address = |pick: fn(&RegisterMap) -> Option<lbr_msr::Msr>| {
        registers.and_then(pick).map_or(Value::Null, |msr| json::hex(msr.0.into()))
    };
    let names = |caps: &LbrCaps| -> Vec<String> {
        caps.quirks.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect()
    };
    let quirks = caps.map(names);
    let flag = |has: fn(&LbrCaps) -> bool| caps.map_or(Value::Null, |caps| json!(has(caps)));
    vec![
        ("cpus", json!(cpu_list(&group.cpus))),
        ("vendor", json!(cpu.vendor.as_str())),
        ("family", json!(cpu.family)),
        ("model", json!(cpu.model)),
        ("stepping", json!(cpu.stepping)),
        ("uarch", json!(cpu.uarch)),
        ("facility", json!(facility(group))),
        ("depth", json!(caps.map(|caps| caps.depth))),
        ("format", json!(caps.and_then(|caps| caps.format).map(|format| format.0))),
        ("from_base", address(|r| Some(r.from))),
        ("to_base", address(|r| r.to)),
        ("info_base", address(|r| r.info)),
        ("tos", address(|r| r.tos)),
        ("select", address(|r| r.select)),
        ("mispredict", flag(LbrCaps::mispredict)),
        ("tsx", flag(LbrCaps::tsx)),
        ("cycles", flag(LbrCaps::cycles)),
        ("call_stack", flag(LbrCaps::call_stack)),
        ("types", flag(LbrCaps::types)),
        ("hypervisor", json!(cpu.hypervisor)),
        ("why", json!(group.probed.as_ref().err().map(|unsupported| unsupported.why.to_string()))),
        ("core_type", json!(group.core_type.and_then(|core| core.name()))),
        ("format_expected", json!(caps.and_then(expected_format))),
        ("quirks", json!(quirks)),
        ("perfmon_version", json!(caps.map(|caps| caps.perfmon_version))),
        ("assumed", json!(caps.map(|caps| caps.assumed))),
    ]
}

/// The facility's name in JSON.
fn facility(group: &CoreGroup) -> &'static str {
    match &group.probed {
        Ok(caps) => caps.facility.name(),
        Err(unsupported) if unsupported.why == Why::BrsUnknown => "unknown",
        Err(_) => "none",
    }
}

/// The format that the table expects, if IA32_PERF_CAPABILITIES was not read and the layout depends
/// on it.
fn expected_format(caps: &LbrCaps) -> Option<u8> {
    match (caps.format, caps.layout) {
        (None, Layout::Legacy { format, .. }) => Some(format.0),
        _ => None,
    }
}

fn described(group: &CoreGroup) -> Vec<Item> {
    let cpu = identity(group);
    let mut items: Vec<Item> = Vec::new();
    let mut row = |name: &str, text: String| items.push((Cell::Empty, name.to_owned(), text));
    let core = group.core_type.and_then(|core| core.name());
    let core = core.map_or_else(String::new, |name| format!(" ({name})"));
    row("CPUs", format!("{}{core}", cpu_list(&group.cpus)));
    let uarch = cpu.uarch.as_deref().map_or_else(String::new, |uarch| format!(", {uarch}"));
    let (vendor, key) = (cpu.vendor.as_str(), cpu.key());
    row("processor", format!("{vendor} {key}H stepping {}{uarch}", cpu.stepping));
    if let Some(hypervisor) = &cpu.hypervisor {
        row("hypervisor", hypervisor.clone());
    }
    let caps = match &group.probed {
        Ok(caps) => caps,
        Err(unsupported) => {
            row("facility", facility(group).to_owned());
            row("why", unsupported.why.to_string());
            return items;
        }
    };
    let assumed = if caps.assumed { " (assumed)" } else { "" };
    row("facility", format!("{}{assumed}", facility_text(caps.facility)));
    row("depth", depth_text(caps));
    row("format", format_text(caps));
    row("registers", register_text(caps));
    row("records", record_text(caps));
    row("filter", filter_text(caps.filter).to_owned());
    row("call stack", if caps.call_stack() { "yes" } else { "no" }.to_owned());
    let quirks = QUIRKS.iter().filter(|(quirk, _)| caps.quirks.contains(*quirk));
    for (at, (_, text)) in quirks.enumerate() {
        row(if at == 0 { "quirks" } else { "" }, (*text).to_owned());
    }
    items
}

const fn facility_text(facility: Facility) -> &'static str {
    match facility {
        Facility::IntelLegacy => "model-specific LBR (intel_legacy)",
        Facility::IntelArch => "Architectural LBR (intel_arch)",
        Facility::AmdLbrV2 => "LbrExtV2 (amd_lbr_v2)",
        Facility::AmdBrs => "Branch Sampling (amd_brs)",
        Facility::AmdSingle => "last branch, one pair (amd_single)",
        Facility::P6 => "last branch, one pair (p6)",
        Facility::Brbe => "Branch Record Buffer Extension (brbe)",
        Facility::NetBurst => "NetBurst's read-only ring (netburst)",
    }
}

fn depth_text(caps: &LbrCaps) -> String {
    let depths = (0..8u32).filter(|n| caps.depth_mask >> n & 1 != 0).map(|n| 8 * (n + 1));
    match caps.depth_mask.count_ones() {
        0 | 1 => caps.depth.to_string(),
        _ => format!("{} (supported: {})", caps.depth, joined(depths, ", ")),
    }
}

fn format_text(caps: &LbrCaps) -> String {
    match (caps.format, expected_format(caps)) {
        (Some(format), _) => format.to_string(),
        (None, Some(code)) => format!(
            "{} expected of this model; IA32_PERF_CAPABILITIES was not read",
            lbr_msr::LbrFormat(code)
        ),
        (None, None) => "-".into(),
    }
}

fn register_text(caps: &LbrCaps) -> String {
    let r = &caps.registers;
    let registers = [
        ("FROM", Some(r.from)),
        ("TO", r.to),
        ("INFO", r.info),
        ("TOS", r.tos),
        ("filter", r.select),
        ("DEPTH", r.depth),
        ("control", Some(r.control)),
    ];
    let named = registers.iter().filter_map(|(name, msr)| Some(format!("{name} {}", (*msr)?)));
    let stride = (r.stride != 1).then(|| format!("a record every {}", r.stride));
    joined(named.chain(stride), ", ")
}

fn record_text(caps: &LbrCaps) -> String {
    let fields = [
        (true, "from, to"),
        (caps.mispredict(), "mispredicted"),
        (caps.tsx(), "transaction"),
        (caps.cycles(), "cycles"),
        (caps.types(), "type"),
        (matches!(caps.layout, Layout::AmdV2 { .. }), "speculation"),
        (matches!(caps.layout, Layout::Arch { counters: 1.., .. }), "counters"),
    ];
    joined(applicable(fields), ", ")
}

const fn filter_text(filter: FilterRegister) -> &'static str {
    match filter {
        FilterRegister::None => "none: every branch of every ring is recorded",
        FilterRegister::LbrSelect { .. } => "MSR_LBR_SELECT: rings and branch types",
        FilterRegister::LbrCtl { cpl: true, branch: true, .. } => {
            "IA32_LBR_CTL: rings and branch types"
        }
        FilterRegister::LbrCtl { cpl: true, branch: false, .. } => "IA32_LBR_CTL: rings",
        FilterRegister::LbrCtl { cpl: false, branch: true, .. } => "IA32_LBR_CTL: branch types",
        FilterRegister::LbrCtl { cpl: false, branch: false, .. } => {
            "IA32_LBR_CTL without filters: every branch of every ring is recorded"
        }
        FilterRegister::AmdSelect => "LBR_SELECT: rings and branch types",
        FilterRegister::Brbfcr => "BRBFCR_EL1: branch types",
    }
}

/// Each departure from the rule, in words.
const QUIRKS: [(Quirks, &str); 13] = [
    (Quirks::TSX_LESS_FORMAT_4, "writing FROM raises #GP unless bits 62:61 repeat bit 47"),
    (Quirks::REPORTS_LIP_HAS_MISPRED, "reports format 1, but FROM[63] is MISPRED"),
    (Quirks::CALL_FILTERS_NEED_JUMPS, "call and return filters let jumps in; software drops them"),
    (Quirks::NO_FREEZE_ON_PMI, "cannot be frozen on a PMI; Linux leaves it unused"),
    (Quirks::DOUBLE_ABORT, "a transaction abort may be recorded twice"),
    (Quirks::DEEP_C_STATE_WIPES, "an idle state deeper than C1 may clear the records"),
    (Quirks::SELECT_SHARED_BY_CORE, "MSR_LBR_SELECT is shared by the hyperthreads of a core"),
    (Quirks::FUSED_FROM, "FROM may be the instruction before the branch (macro-op fusion)"),
    (Quirks::PT_DISABLES, "reads as 0 and drops writes while Intel PT traces"),
    (Quirks::READ_ONLY_RECORDS, "records and TOS cannot be written"),
    (Quirks::TR_CONFLICTS, "undefined while DEBUGCTL.TR (branch trace messages) is set"),
    (Quirks::PT_EXCLUDES, "not used while Intel PT traces: Linux excludes the two"),
    (Quirks::STREAMLINED_FREEZE, "a PMI freezes it by bit 58 of the global status register"),
];
