//! The CPUs a command looks at: this machine's, or recorded ones.

use lbr_msr::text::AsText;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, anyhow};
use clap::Args;
use lbr_msr::MsrRead;
use lbr_msr::access::{Device, Root};
use lbr_msr::caps::CpuIdentity;
use lbr_msr::probe::cores::{self, CoreGroup, CoreType, cpu_list};
use lbr_msr::probe::recorded::{self, RecordedCpu};
use lbr_msr::probe::{Assumption, RecordedCpuid, given_perf_capabilities, probe_assuming};
use lbr_msr::soft::SoftCpu;
use sampler::target::Affinity;

use super::{number::hex, soft::CpuParser};
use crate::args::heading;
use crate::cpus::CpuList;
use crate::exit::{NO_LBR, OrExit, Result, USAGE, failure};
use crate::input;
use crate::present::say;

/// The machine whose registers are used.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = heading::MACHINE)]
pub(crate) struct HostArgs {
    /// Take CPUID from this file (of cpuid -r)
    ///
    /// Also a dump of InstLatX64, AIDA64, libcpuid, x86info, cpucontrol or CPU-Z.
    #[arg(long, value_name = "FILE")]
    pub(crate) cpuid: Option<PathBuf>,

    /// For an unknown Intel model: treat it as this one
    ///
    /// A model of the CPU table, or depth=,from=,to=,info=,tos=,select=[,format=] with addresses in
    /// hexadecimal.
    #[arg(long, value_name = "FF_MMH|LIST", hide_short_help = true)]
    pub(crate) assume: Option<Assumption>,

    /// Look for /dev, /sys and /proc below DIR
    ///
    /// The CPUs are then those of DIR/cpuid, text that --cpuid takes, unless --cpuid is given.
    #[arg(long, value_name = "DIR", alias = "root", hide_short_help = true)]
    pub(crate) msr_root: Option<PathBuf>,
}

/// The CPU to examine: of that machine, or of the software LBR.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = heading::MACHINE)]
pub(crate) struct MachineArgs {
    #[command(flatten)]
    pub(crate) host: HostArgs,

    /// Value of IA32_PERF_CAPABILITIES (345H), in hexadecimal
    #[arg(long, value_name = "HEX", value_parser = hex)]
    pub(crate) perf_capabilities: Option<u64>,

    /// A CPU of the software LBR, such as skylake; `list` lists them
    #[arg(long, value_name = "CPU", value_parser = CpuParser, conflicts_with = "cpuid")]
    pub(crate) soft_cpu: Option<SoftCpu>,
}

impl From<HostArgs> for MachineArgs {
    fn from(host: HostArgs) -> MachineArgs {
        MachineArgs { host, perf_capabilities: None, soft_cpu: None }
    }
}

impl MachineArgs {
    /// The root below which device nodes are looked for.
    pub(crate) fn root(&self) -> Root {
        self.host.msr_root.as_ref().map_or_else(Root::default, Root::at)
    }

    /// Whether the CPUs are those of this machine. Another root is another machine, and facts about
    /// this one do not apply.
    pub(crate) fn is_live(&self) -> bool {
        self.host.cpuid.is_none() && self.soft_cpu.is_none() && self.root().is_real()
    }

    /// The CPUID of each CPU.
    pub(crate) fn cpus(&self) -> Result<Vec<RecordedCpu>> {
        let root = self.root();
        match (&self.host.cpuid, &self.soft_cpu) {
            (Some(path), _) => recording(path).or_exit(USAGE),
            (None, Some(soft)) => Ok(vec![RecordedCpu { cpu: 0, cpuid: soft.cpuid.clone() }]),
            (None, None) if root.is_real() => here().or_exit(USAGE),
            (None, None) => recorded_at(&root),
        }
    }

    /// The default CPU: the last allowed one, because CPU 0 serves most interrupts.
    pub(crate) fn usual_cpu(&self) -> Result<u32> {
        let mut allowed: Vec<u32> = Affinity::current()?.cpus().collect();
        if !self.is_live() {
            let cpus = self.cpus()?;
            allowed.retain(|allowed| cpus.iter().any(|found| found.cpu == *allowed));
        }
        let none =
            || anyhow!("this process may run on no CPU of {}", self.root().join("").as_text());
        allowed.last().copied().ok_or_else(none).or_exit(NO_LBR)
    }

    /// Probes every CPU and groups those that are alike.
    pub(crate) fn groups(&self, cpus: &[RecordedCpu]) -> Vec<CoreGroup> {
        cores::group(cpus.iter().map(|RecordedCpu { cpu, cpuid }| {
            let soft = self.soft_cpu.as_ref().and_then(|soft| soft.perf_capabilities);
            let probed = if let Some(value) = self.perf_capabilities.or(soft) {
                let mut given = given_perf_capabilities(value);
                probe_assuming(cpuid, Some(&mut given), self.host.assume.as_ref())
            } else {
                // A recorded CPU has registers only if a root for them is named.
                let has_registers = self.is_live() || self.host.msr_root.is_some();
                let mut device =
                    if has_registers { Device::open(*cpu, &self.root()).ok() } else { None };
                let msr = device.as_mut().map(|device| device as &mut dyn MsrRead);
                probe_assuming(cpuid, msr, self.host.assume.as_ref())
            };
            (*cpu, CoreType::of(cpuid), probed)
        }))
    }
}

/// The CPU's name and its key in the CPU table.
pub(super) fn described(cpu: &CpuIdentity) -> String {
    match &cpu.uarch {
        Some(uarch) => format!("{uarch} ({})", cpu.key()),
        None => cpu.key(),
    }
}

/// Whether its LBR is a model: QEMU has no LBR except ours, whose registers look like a CPU's.
pub(super) fn is_emulated(cpu: &CpuIdentity) -> bool {
    cpu.hypervisor.as_deref() == Some("QEMU")
}

/// The longest recording that is read, bytes: a thousand CPUs take a tenth.
const LONGEST_RECORDING: u64 = 64 << 20;

fn recording(path: &Path) -> anyhow::Result<Vec<RecordedCpu>> {
    let read = || {
        let bytes = input::file::read(path, LONGEST_RECORDING)?;
        anyhow::Ok(recorded::parse(&decoded(&bytes))?)
    };
    read().with_context(|| format!("cannot read CPUID from {}", path.as_text()))
}

/// The CPUs of another root, from its text: those that are online there, if known. A single
/// recorded CPU is used for all.
fn recorded_at(root: &Root) -> Result<Vec<RecordedCpu>> {
    let path = root.join("cpuid");
    if !path.exists() {
        return Err(failure!(
            NO_LBR,
            "the CPUs of {} are unknown: give --cpuid FILE, or put the output of \
             `cpuid -r` into {}",
            root.join("").as_text(),
            path.as_text()
        ));
    }
    let mut cpus = recording(&path).or_exit(USAGE)?;
    if let Ok(online) = root.online().parse::<CpuList>() {
        match &cpus[..] {
            [alone] => {
                let every = |&cpu| RecordedCpu { cpu, cpuid: alone.cpuid.clone() };
                cpus = online.cpus().iter().map(every).collect();
            }
            _ => cpus.retain(|found| online.cpus().contains(&found.cpu)),
        }
    }
    Ok(cpus)
}

/// Asks each CPU that this process may run on, once, by moving a thread there.
fn here() -> anyhow::Result<Vec<RecordedCpu>> {
    static HERE: OnceLock<Vec<RecordedCpu>> = OnceLock::new();
    if let Some(cpus) = HERE.get() {
        return Ok(cpus.clone());
    }
    let allowed = Affinity::current().context("cannot ask for this process's CPUs")?;
    let ask = move || -> Vec<RecordedCpu> {
        let move_to = |cpu: &u32| allowed.only(*cpu).and_then(|one| one.apply(0)).is_ok();
        let here = |cpu| RecordedCpu { cpu, cpuid: RecordedCpuid::here() };
        allowed.cpus().filter(move_to).map(here).collect()
    };
    let thread = std::thread::Builder::new().spawn(ask);
    let thread = thread.context("cannot start a thread that asks each CPU")?;
    let cpus = thread.join().unwrap_or_default();
    anyhow::ensure!(!cpus.is_empty(), "no CPU could be asked for its CPUID");
    let numbers: Vec<u32> = cpus.iter().map(|cpu| cpu.cpu).collect();
    let online = Root::default().online();
    if online != "unknown" && online != cpu_list(&numbers) {
        say!(
            "only CPUs {} are looked at; this process may not run on the others of {online}",
            cpu_list(&numbers)
        );
    }
    Ok(HERE.get_or_init(|| cpus).clone())
}

/// A text; reports made on Windows may have two bytes a character.
fn decoded(bytes: &[u8]) -> String {
    let Some(wide) = bytes.strip_prefix(&[0xFF, 0xFE]) else {
        return String::from_utf8_lossy(bytes).into_owned();
    };
    let (units, _) = wide.as_chunks::<2>();
    let units = units.iter().map(|unit| u16::from_le_bytes(*unit));
    char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}
