//! Which backend reaches the registers of a CPU, and what stands in the way.

use std::fs;

use anyhow::anyhow;
use clap::ValueEnum;
use lbr_msr::{
    LbrCaps, MsrError, MsrRead, MsrWrite,
    access::{Device, MsrSafe, Op, Root},
    address::{IA32_PERF_CAPABILITIES, Msr},
    arm::{ArmError, ArmPlan, Need},
    filter::FilterError,
    probe::{GivenPerfCapabilities, Unsupported, Why, probe_assuming},
};
use sampler::guard::GuardError;

use super::machine::MachineArgs;
use super::probe::is_wrong_assumption;
use crate::exit::{FAILED, Failure, NO_LBR, NOT_PERMITTED, OrExit, USAGE};

/// Where the registers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// msr-safe where it allows what is needed, else msr
    Auto,
    /// The msr driver, /dev/cpu/N/msr
    Msr,
    /// msr-safe, /dev/cpu/N/msr_safe and /dev/cpu/msr_batch
    MsrSafe,
    /// A software LBR
    Soft,
}

/// The registers of a CPU of this machine.
#[derive(Debug)]
pub(crate) enum Hardware {
    /// Through the msr driver.
    Msr(Device),
    /// Through msr-safe.
    MsrSafe(MsrSafe),
}

impl Hardware {
    /// What the first write will do to the kernel, to be said on stderr before
    /// it; `None` where it is tainted already. msr-safe leaves it as it is.
    pub(crate) fn taint_notice(&self, root: &Root) -> Option<&'static str> {
        let tainted = || {
            fs::read_to_string(root.join("proc/sys/kernel/tainted"))
                .ok()
                .and_then(|text| text.trim().parse::<u64>().ok())
                .is_some_and(|taint| taint & OUT_OF_SPEC != 0)
        };
        match self {
            Hardware::Msr(_) if !tainted() => {
                Some("writing MSRs taints the kernel (CPU_OUT_OF_SPEC) until it is booted anew")
            }
            Hardware::Msr(_) | Hardware::MsrSafe(_) => None,
        }
    }
}

impl MsrRead for Hardware {
    fn cpu(&self) -> u32 {
        match self {
            Hardware::Msr(registers) => registers.cpu(),
            Hardware::MsrSafe(registers) => registers.cpu(),
        }
    }

    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        match self {
            Hardware::Msr(registers) => registers.read(msr),
            Hardware::MsrSafe(registers) => registers.read(msr),
        }
    }

    fn read_many(&mut self, msrs: &[Msr], out: &mut [u64]) -> Result<(), MsrError> {
        match self {
            Hardware::Msr(registers) => registers.read_many(msrs, out),
            Hardware::MsrSafe(registers) => registers.read_many(msrs, out),
        }
    }

    fn one_call(&self) -> bool {
        match self {
            Hardware::Msr(registers) => registers.one_call(),
            Hardware::MsrSafe(registers) => registers.one_call(),
        }
    }
}

impl MsrWrite for Hardware {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        match self {
            Hardware::Msr(registers) => registers.write(msr, value),
            Hardware::MsrSafe(registers) => registers.write(msr, value),
        }
    }

    fn run(&mut self, batch: &mut [Op]) -> Result<(), MsrError> {
        match self {
            Hardware::Msr(registers) => registers.run(batch),
            Hardware::MsrSafe(registers) => registers.run(batch),
        }
    }
}

/// Opens the registers of a CPU for reading alone, and finds out what they
/// are. Whether there is anything to read is said before what stands in the
/// way.
pub(crate) fn look(
    backend: Backend,
    cpu: u32,
    machine: &MachineArgs,
) -> Result<(LbrCaps, Hardware), Failure> {
    let cpus = machine.cpus()?;
    let root = machine.root();
    let found = cpus
        .iter()
        .find(|found| found.cpu == cpu)
        // A recording of one CPU stands for all.
        .or_else(|| cpus.first().filter(|_| cpus.len() == 1 && !machine.is_live()));
    let Some(found) = found else {
        let folder = root.join(&format!("sys/devices/system/cpu/cpu{cpu}"));
        if fs::read_to_string(folder.join("online")).is_ok_and(|text| text.trim() == "0") {
            return Err(refused(MsrError::Offline { cpu }));
        }
        let error = if folder.is_dir() && machine.is_live() {
            anyhow!("this process may not run on CPU {cpu} (see taskset)")
        } else {
            anyhow!("CPU {cpu} does not exist; online: {}", root.online())
        };
        return Err(error).or_exit(USAGE);
    };
    let assume = machine.assume.as_ref();
    let registers = match probe_assuming(&found.cpuid, None, assume) {
        Ok(caps) => vec![IA32_PERF_CAPABILITIES, caps.registers.control, caps.registers.from],
        // The register may tell what the user left out.
        Err(unsupported) if unsupported.why == Why::AssumedFormatMissing => {
            vec![IA32_PERF_CAPABILITIES]
        }
        Err(unsupported) => return Err(no_records(unsupported)),
    };
    let needs: Vec<Need> = registers.into_iter().map(|msr| Need { msr, write_mask: 0 }).collect();
    let mut hardware = open(backend, cpu, &root, &needs, false).map_err(refused)?;
    let caps = match machine.perf_capabilities.map(GivenPerfCapabilities) {
        Some(mut given) => probe_assuming(&found.cpuid, Some(&mut given), assume),
        None => probe_assuming(&found.cpuid, Some(&mut hardware as &mut dyn MsrRead), assume),
    };
    Ok((caps.map_err(no_records)?, hardware))
}

/// There are no records to read, or the user told wrong of them.
pub(crate) fn no_records(unsupported: Unsupported) -> Failure {
    let code = if is_wrong_assumption(&unsupported.why) { USAGE } else { NO_LBR };
    Failure { code, error: unsupported.into() }
}

/// Opens the registers of a CPU for what a plan does. Nothing is written.
pub(crate) fn open_for(
    plan: &ArmPlan,
    backend: Backend,
    cpu: u32,
    root: &Root,
) -> Result<Hardware, Failure> {
    open(backend, cpu, root, &plan.needs(), true).map_err(refused)
}

/// Opens the registers of a CPU for what a list says.
pub(crate) fn open(
    backend: Backend,
    cpu: u32,
    root: &Root,
    needs: &[Need],
    write: bool,
) -> Result<Hardware, MsrError> {
    let device = || {
        let opened =
            if write { Device::open_for_writing(cpu, root) } else { Device::open(cpu, root) };
        opened.map(Hardware::Msr)
    };
    let msr_safe = || {
        let opened = MsrSafe::open(cpu, root, write)?;
        opened.check(needs)?;
        Ok(Hardware::MsrSafe(opened))
    };
    match backend {
        Backend::Msr => device(),
        Backend::MsrSafe => msr_safe(),
        Backend::Auto | Backend::Soft => {
            if root.join(&format!("dev/cpu/{cpu}/msr_safe")).exists() {
                msr_safe().or_else(|_| device())
            } else {
                device()
            }
        }
    }
}

/// The exit status of a register that could not be read or written.
pub(crate) fn refused(error: MsrError) -> Failure {
    let code = match error {
        MsrError::Permission { .. }
        | MsrError::Capability { .. }
        | MsrError::WriteFiltered { .. }
        | MsrError::NotListed { .. } => NOT_PERMITTED,
        MsrError::NoSuchCpu { .. } => USAGE,
        MsrError::Fault { .. } | MsrError::DriverMissing { .. } | MsrError::Offline { .. } => {
            NO_LBR
        }
        _ => FAILED,
    };
    Failure { code, error: error.into() }
}

/// The exit status of a ring that could not be armed.
pub(crate) fn not_armed(error: GuardError) -> Failure {
    let code = match &error {
        GuardError::Arm(error) => return no_plan(error.clone()),
        GuardError::Failed(error) => refused(error.clone()).code,
        // There is an LBR, and it is another's for now.
        GuardError::InUse { .. } => NO_LBR,
        _ => FAILED,
    };
    Failure { code, error: error.into() }
}

/// The exit status of what a facility cannot do.
pub(crate) fn no_plan(error: ArmError) -> Failure {
    match error {
        ArmError::Register(error) => refused(error),
        error => Failure { code: NO_LBR, error: error.into() },
    }
}

/// Filters that no CPU takes are bad usage; those that this one lacks are not.
pub(crate) fn not_here(error: FilterError) -> Failure {
    let code = match error {
        FilterError::NoFilterRegister { .. }
        | FilterError::NoRingFilter { .. }
        | FilterError::NoTypeFilter { .. }
        | FilterError::NoCallStack { .. } => NO_LBR,
        _ => USAGE,
    };
    Failure { code, error: error.into() }
}

/// TAINT_CPU_OUT_OF_SPEC. Linux panic.h.
const OUT_OF_SPEC: u64 = 1 << 2;
