//! The checks of `lbr doctor`.

use lbr_msr::text::AsText;
use std::{fs, os::unix::fs::MetadataExt};

use lbr_msr::access::msr_safe::{self, Allowlist};
use lbr_msr::access::{Device, Root};
use lbr_msr::address::{IA32_DEBUGCTL, IA32_RTIT_CTL};
use lbr_msr::arm::Need;
use lbr_msr::caps::{Facility, FilterRegister, Quirks, Vendor};
use lbr_msr::environment::capabilities;
use lbr_msr::probe::Why;
use lbr_msr::probe::cores::{CoreGroup, cpu_list};
use lbr_msr::probe::recorded::RecordedCpu;
use lbr_msr::{LbrCaps, MsrError, MsrRead};

use super::{Check, Obstacle, Verdict};
use crate::commands::{machine::MachineArgs, probe::identity};
use crate::present::{applicable, joined};

/// CAP_SYS_RAWIO. capabilities(7).
const CAP_SYS_RAWIO: u32 = 17;
/// CPUID.07H:EBX\[25\]: Intel Processor Trace.
const LEAF_7_EBX_PT: u32 = 1 << 25;
/// IA32_RTIT_CTL\[0\], TraceEn.
const RTIT_CTL_TRACE_EN: u64 = 1 << 0;
/// DEBUGCTL\[11\], which perf sets with every LBR event.
const DEBUGCTL_FREEZE_LBRS_ON_PMI: u64 = 1 << 11;

/// The checks and their verdict.
pub(super) struct Report {
    pub(super) checks: Vec<Check>,
    /// Why the hardware LBR does not work; `None` if it works.
    pub(super) obstacle: Option<Obstacle>,
    /// The CPU's LBR, or why it has none.
    pub(super) lbr: Option<String>,
    /// Whether the LBR registers can be used, not only perf events.
    pub(super) registers: bool,
}

/// Runs every check. Writes nothing.
pub(super) fn examine(machine: &MachineArgs, cpus: &[RecordedCpu]) -> Report {
    let root = machine.root();
    let groups = machine.groups(cpus);
    let mut checks = Vec::new();
    groups.iter().for_each(|group| processor(&mut checks, group, cpus));
    // The first core type that has records stands for the machine.
    let usable = groups.iter().find_map(|g| Some((g, g.probed.as_ref().ok()?)));
    let first = usable.map(|(group, _)| group).or(groups.first());
    let cpu = first.and_then(|group| group.cpus.first().copied()).unwrap_or(0);

    let recording = usable.map(|(_, caps)| recording(caps));
    let recordable = recording.as_ref().is_some_and(|check| check.obstacle.is_none());
    let node = driver(&mut checks, &root, cpu);
    let writes = writes(&mut checks, &root);
    let mut device = reading(&mut checks, &root, cpu, node);
    if let (Some(device), Some((_, caps))) = (&mut device, usable) {
        let recorded = cpus.iter().find(|recorded| recorded.cpu == cpu);
        let has_pt = recorded
            .and_then(|recorded| recorded.cpuid.get(7, 0))
            .is_some_and(|leaf| leaf.ebx & LEAF_7_EBX_PT != 0);
        if has_pt {
            checks.push(intel_pt(device, caps));
        }
        checks.push(other_users(&root, caps, &groups));
    }
    if usable.is_some_and(|(_, caps)| caps.quirks.contains(Quirks::DEEP_C_STATE_WIPES)) {
        checks.push(idle_states(&root, cpu));
    }
    checks.extend(recording);
    let msr_safe = usable.is_some_and(|(_, caps)| msr_safe(&mut checks, &root, cpu, caps));
    let msr = device.is_some() && writes;
    if !recordable {
        // Access to the registers would not help.
        let ways = [Some(Obstacle::Driver), Some(Obstacle::Permission)];
        for check in checks.iter_mut().filter(|check| ways.contains(&check.obstacle)) {
            check.remedy = None;
        }
    }
    let perf = perf(&mut checks, &root, machine.is_live()) && usable.is_some();

    // A missing LBR comes before a missing permission. msr-safe replaces the driver, and perf
    // events replace access to the registers.
    let obstacles = |wanted| checks.iter().any(|check| check.obstacle == Some(wanted));
    let obstacle = if usable.is_none() || obstacles(Obstacle::NoLbr) {
        Some(Obstacle::NoLbr)
    } else if msr_safe {
        None
    } else if obstacles(Obstacle::Driver) {
        Some(Obstacle::Driver)
    } else {
        obstacles(Obstacle::Permission).then_some(Obstacle::Permission)
    };
    let lbr = !matches!(obstacle, Some(Obstacle::NoLbr));
    let backends =
        [(msr_safe && lbr, "msr-safe"), (msr && lbr, "msr"), (perf, "perf"), (true, "soft")];
    checks.push(Check::ok("backends", joined(applicable(backends), ", ")));
    checks.push(
        Check::ok(
            "software LBR",
            "works on any x86-64 Linux, without rights; its numbers are modelled, not measured",
        )
        .remedy("lbr record --backend soft -- PROGRAM"),
    );
    let lbr = match (usable, groups.first().map(|group| &group.probed)) {
        (Some((group, caps)), _) => {
            let cpu = identity(group);
            let name = cpu.uarch.clone().unwrap_or_else(|| cpu.key().into());
            Some(format!("{name}, {} records", caps.depth))
        }
        (None, Some(Err(unsupported))) => Some(cause(&unsupported.why)),
        _ => None,
    };
    Report { checks, obstacle: obstacle.filter(|_| !perf), lbr, registers: obstacle.is_none() }
}

/// A short form of the reason: `-v` prints the CPUID bits.
fn cause(why: &Why) -> String {
    let hides = |who: &str, uarch: &str| format!("{who} hides the LBR of this CPU ({uarch})");
    match why {
        Why::HiddenArch { uarch, hypervisor, .. } => hides(hypervisor, uarch),
        Why::HiddenLegacy { uarch, hypervisor } => hides(hypervisor, uarch),
        Why::HiddenFormatZero { hypervisor } => format!("{hypervisor} gives this guest no LBR"),
        other => other.to_string(),
    }
}

/// Whether perf events give branch stacks.
fn perf(checks: &mut Vec<Check>, root: &Root, is_live: bool) -> bool {
    let check = super::perf::check(root, is_live);
    let gives = check.verdict == Verdict::Ok;
    if let Some(recording) = checks.iter_mut().find(|check| gives && check.check == "recording")
        && recording.verdict == Verdict::Bad
    {
        recording.remedy = Some("lbr record --backend perf".to_owned());
    }
    checks.push(check);
    gives
}

/// Vendor, model, hypervisor, PDCM, and the LBR that follows from them.
fn processor(checks: &mut Vec<Check>, group: &CoreGroup, cpus: &[RecordedCpu]) {
    let cpu = identity(group);
    let core = group.core_type.and_then(|core| core.name());
    let core = core.map_or_else(String::new, |name| format!(" ({name})"));
    checks.push(Check::ok("CPUs", format!("{}{core}", cpu_list(&group.cpus))));
    let vendor = cpu.vendor.as_str();
    checks.push(match cpu.vendor {
        Vendor::Intel | Vendor::Amd => Check::ok("vendor", vendor),
        Vendor::Other(_) => Check::bad("vendor", vendor),
    });
    let model = format!("{}H stepping {}", cpu.key(), cpu.stepping);
    checks.push(match &cpu.uarch {
        Some(uarch) => Check::ok("model", format!("{model}, {uarch}")),
        None => Check::ok("model", model),
    });
    checks.push(match &cpu.hypervisor {
        None => Check::ok("hypervisor", "none"),
        Some(name) if group.probed.as_ref().is_ok_and(is_announced) => {
            Check::ok("hypervisor", format!("{name}; it shows branch records to this guest"))
        }
        Some(name) if group.probed.is_ok() => Check::unknown(
            "hypervisor",
            format!(
                "{name}; this CPU model has branch records, but nothing says that this guest has"
            ),
        ),
        Some(name) => Check::bad("hypervisor", name.clone())
            .remedy("bare metal, or a guest with vPMU and LBR (QEMU: -cpu host,lbr-fmt=...)"),
    });
    if cpu.vendor == Vendor::Intel {
        let recorded = cpus.iter().find(|c| group.cpus.first() == Some(&c.cpu));
        let pdcm = recorded
            .and_then(|recorded| recorded.cpuid.get(1, 0))
            .is_some_and(|leaf| leaf.ecx >> 15 & 1 != 0);
        checks.push(match (pdcm, group.probed.is_ok()) {
            (true, _) => Check::ok("PDCM", "1: IA32_PERF_CAPABILITIES exists"),
            (false, true) => Check::ok("PDCM", "0: not needed by this CPU"),
            (false, false) => Check::bad("PDCM", "0: IA32_PERF_CAPABILITIES does not exist"),
        });
    }
    checks.push(match &group.probed {
        Ok(caps) => {
            Check::ok("branch records", format!("{}, depth {}", caps.facility.name(), caps.depth))
        }
        Err(unsupported) => Check::bad("branch records", unsupported.why.to_string()),
    });
}

/// Whether CPUID or IA32_PERF_CAPABILITIES announces the LBR; otherwise it follows from the model,
/// which a hypervisor shows to any guest.
const fn is_announced(caps: &LbrCaps) -> bool {
    match caps.facility {
        Facility::IntelArch | Facility::AmdLbrV2 | Facility::AmdBrs => true,
        Facility::IntelLegacy => caps.format.is_some(),
        Facility::AmdSingle | Facility::P6 | Facility::NetBurst | Facility::Brbe => false,
    }
}

/// The msr module and its node; whether the node is there.
fn driver(checks: &mut Vec<Check>, root: &Root, cpu: u32) -> bool {
    let path = root.msr_node(cpu);
    let meta = fs::metadata(&path);
    let loaded = root.join("sys/module/msr").is_dir();
    checks.push(match (loaded, &meta) {
        (true, _) => Check::ok("msr module", "loaded"),
        (false, Ok(_)) => Check::ok("msr module", "built in, or another provider of its nodes"),
        (false, Err(_)) => Check::bad("msr module", "the msr module is not loaded")
            .remedy("modprobe msr")
            .blocks(Obstacle::Driver),
    });
    let shown = path.as_text();
    let other = meta.as_ref().ok().and_then(|meta| root.not_a_node(meta));
    checks.push(match (&meta, other) {
        (Ok(_), Some(other)) => {
            Check::bad("msr node", format!("{shown} is {other}, not a character device"))
                .blocks(Obstacle::Driver)
        }
        (Ok(meta), None) => {
            let (mode, uid, gid) = (meta.mode() & 0o7777, meta.uid(), meta.gid());
            Check::ok("msr node", format!("{shown}, mode {mode:04o}, owner {uid}:{gid}"))
        }
        (Err(error), _) => {
            Check::bad("msr node", format!("{shown}: {error}")).blocks(Obstacle::Driver)
        }
    });
    meta.is_ok() && other.is_none()
}

/// Whether registers can be written.
fn writes(checks: &mut Vec<Check>, root: &Root) -> bool {
    let before = checks.len();
    checks.push(match capabilities(root) {
        None => Check::unknown("CAP_SYS_RAWIO", "/proc/self/status does not say"),
        Some(mask) if mask >> CAP_SYS_RAWIO & 1 != 0 => Check::ok("CAP_SYS_RAWIO", "held"),
        Some(_) => Check::bad("CAP_SYS_RAWIO", "not held: the msr driver refuses to open")
            .remedy("run as root, or: setcap cap_sys_rawio+ep on the program")
            .blocks(Obstacle::Permission),
    });
    // The current mode is in brackets: `none [integrity] confidentiality`.
    let lockdown = fs::read_to_string(root.join("sys/kernel/security/lockdown")).ok();
    let mode = lockdown.as_deref().and_then(|text| text.split_once('[')?.1.split_once(']'));
    checks.push(match mode {
        Some(("none", _)) => Check::ok("lockdown", "none"),
        Some((mode, _)) => {
            Check::bad("lockdown", format!("{mode}: registers can be read, but not written"))
                .remedy("boot without Secure Boot's lockdown, or use msr-safe")
                .blocks(Obstacle::Permission)
        }
        None => Check::unknown("lockdown", "the kernel does not say"),
    });
    let parameter = "sys/module/msr/parameters/allow_writes";
    checks.push(match fs::read_to_string(root.join(parameter)).as_deref().map(str::trim) {
        Ok("off") => Check::bad("allow_writes", "off: the driver refuses writes")
            .remedy(format!("echo on > /{parameter}"))
            .blocks(Obstacle::Permission),
        Ok("on") => Check::ok("allow_writes", "on; each write taints the kernel"),
        Ok(other) => Check::ok(
            "allow_writes",
            format!("{other}: allowed, with a kernel message and a taint"),
        ),
        Err(_) => Check::unknown("allow_writes", "the driver does not say (not loaded, or old)"),
    });
    checks.iter().skip(before).all(|check| check.obstacle.is_none())
}

/// Opens the node for reading.
fn reading(checks: &mut Vec<Check>, root: &Root, cpu: u32, node: bool) -> Option<Device> {
    // A node that is missing was reported.
    if !node {
        return None;
    }
    match Device::open(cpu, root) {
        Ok(device) => {
            checks.push(Check::ok("opening", format!("CPU {cpu} can be read")));
            Some(device)
        }
        Err(error) => {
            let obstacle = match error {
                MsrError::Permission { .. } | MsrError::Capability { .. } => Obstacle::Permission,
                _ => Obstacle::Driver,
            };
            checks.push(Check::bad("opening", error.to_string()).blocks(obstacle));
            None
        }
    }
}

fn intel_pt(device: &mut Device, caps: &LbrCaps) -> Check {
    let tracing = device.read(IA32_RTIT_CTL).map(|value| value & RTIT_CTL_TRACE_EN != 0);
    let conflict = match tracing {
        Ok(false) => return Check::ok("Intel PT", "not tracing"),
        Ok(true) if caps.quirks.contains(Quirks::PT_DISABLES) => {
            "tracing: the LBR reads as 0 and drops writes meanwhile"
        }
        Ok(true) if caps.quirks.contains(Quirks::PT_EXCLUDES) => {
            "tracing: Linux does not use the LBR meanwhile, and nothing documents what it records"
        }
        Ok(true) => {
            return Check::ok("Intel PT", "tracing; this CPU records branches all the same");
        }
        Err(error) => return Check::unknown("Intel PT", error.to_string()),
    };
    Check::bad("Intel PT", conflict)
        .remedy("stop the trace (perf record -e intel_pt//, a hypervisor, a debugger)")
        .blocks(Obstacle::NoLbr)
}

/// Whether perf or another program has the LBR enabled. The kernel has no file for it, so this
/// reads the control registers of each CPU.
fn other_users(root: &Root, caps: &LbrCaps, groups: &[CoreGroup]) -> Check {
    let mut busy = Vec::new();
    let mut asked = 0u32;
    let cpus = groups.iter().filter(|group| group.probed.is_ok()).flat_map(|group| &group.cpus);
    for cpu in cpus {
        let Ok(mut device) = Device::open(*cpu, root) else { continue };
        let Ok(control) = device.read(caps.registers.control) else { continue };
        asked += 1;
        let freezes = caps.cpu.vendor == Vendor::Intel
            && device.read(IA32_DEBUGCTL).is_ok_and(|v| v & DEBUGCTL_FREEZE_LBRS_ON_PMI != 0);
        let filters = caps
            .registers
            .select
            .filter(|select| *select != caps.registers.control)
            .is_some_and(|select| device.read(select).is_ok_and(|value| value != 0));
        if control & caps.registers.enable != 0 || freezes || filters {
            busy.push(*cpu);
        }
    }
    match (busy.is_empty(), asked) {
        (_, 0) => Check::unknown("other users", "the control registers cannot be read"),
        (true, _) => Check::ok("other users", "none: recording is off and no filter is set"),
        (false, _) => Check::bad(
            "other users",
            format!("another tool uses the LBR (CPUs {})", cpu_list(&busy)),
        )
        .remedy(format!(
            "end perf sessions with branch stacks; if the tool is gone: lbr disarm -C {}",
            cpu_list(&busy)
        )),
    }
}

fn idle_states(root: &Root, cpu: u32) -> Check {
    let states = root.join(&format!("sys/devices/system/cpu/cpu{cpu}/cpuidle"));
    let Ok(states) = fs::read_dir(states) else {
        return Check::unknown("idle states", "the kernel does not list them");
    };
    let mut deep: Vec<String> = states
        .flatten()
        .filter_map(|state| fs::read_to_string(state.path().join("name")).ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !matches!(name.as_str(), "POLL" | "C1" | "C1E" | "C1_ACPI" | "C1E_ACPI"))
        .collect();
    deep.sort();
    if deep.is_empty() {
        return Check::ok("idle states", "none is deeper than C1");
    }
    let finding = format!("{} may clear the records", deep.join(", "));
    if root.join("dev/cpu_dma_latency").exists() {
        Check::ok("idle states", format!("{finding}; recording keeps the CPU out of them"))
    } else {
        Check::bad("idle states", format!("{finding}, and /dev/cpu_dma_latency is missing"))
    }
}

/// Whether `record` can use these records.
fn recording(caps: &LbrCaps) -> Check {
    let why = match caps.facility {
        Facility::IntelLegacy | Facility::IntelArch | Facility::AmdLbrV2 | Facility::Brbe => {
            match caps.filter {
                FilterRegister::None => {
                    "this LBR has no filter: the kernel's own branches overwrite it before it is read"
                }
                FilterRegister::LbrCtl { cpl: false, .. } => {
                    "this LBR has no privilege filter: the kernel's own branches overwrite it"
                }
                _ => return Check::ok("recording", "possible with this LBR"),
            }
        }
        Facility::AmdBrs => {
            "Branch Sampling (BRS) records only together with a counter's interrupt"
        }
        Facility::AmdSingle | Facility::P6 => {
            "this CPU keeps a single branch record; recording needs a stack of them"
        }
        Facility::NetBurst => {
            "this LBR is read-only and holds four to sixteen branches, the kernel's included"
        }
    };
    let finding = format!("{why} (lbr probe, decode and dump work)");
    Check::bad("recording", finding).blocks(Obstacle::NoLbr)
}

/// msr-safe: its nodes, and whether its list allows what arming writes.
fn msr_safe(checks: &mut Vec<Check>, root: &Root, cpu: u32, caps: &LbrCaps) -> bool {
    let node = root.join(&format!("dev/cpu/{cpu}/msr_safe"));
    if !node.exists() {
        checks.push(Check::ok("msr-safe", "not loaded (optional)"));
        return false;
    }
    let Ok(list) = fs::read_to_string(root.join("dev/cpu/msr_allowlist")) else {
        checks.push(Check::unknown("msr-safe", "loaded; its allowlist cannot be read"));
        return false;
    };
    let registers = &caps.registers;
    let control = Need { msr: registers.control, write_mask: registers.enable };
    let record = Need { msr: registers.from, write_mask: 0 };
    let allowed = Allowlist::parse(&list).missing(&[control, record]).is_empty();
    checks.push(if allowed {
        Check::ok("msr-safe", "loaded; its allowlist lets recording be switched on")
    } else {
        Check::bad("msr-safe", "loaded, but its allowlist lacks the LBR registers").remedy(format!(
            "add to /dev/cpu/msr_allowlist: {} and the record registers",
            msr_safe::line(&control)
        ))
    });
    allowed
}
