//! Which backend reaches the registers of a CPU, and what stands in the way.

use std::fs;

use anyhow::anyhow;
use clap::ValueEnum;
use lbr_msr::{
    LbrCaps, MsrError, MsrRead,
    access::Root,
    address::IA32_PERF_CAPABILITIES,
    arm::{ArmError, ArmPlan, Need},
    filter::FilterError,
    probe::{GivenPerfCapabilities, Unsupported, Why, probe_assuming},
};
use sampler::guard::GuardError;
use sampler::source::SourceError;
use sampler::source::cpu::registers::{self, Registers};

use super::machine::MachineArgs;
use super::probe::is_wrong_assumption;
use crate::exit::{FAILED, Failure, NO_LBR, NOT_PERMITTED, OrExit, USAGE};

/// What records branches: every command's `--backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// The CPU's registers where they can be used (msr-safe before msr), else what stands in for them
    Auto,
    /// The CPU's registers through the msr driver, /dev/cpu/N/msr
    Msr,
    /// The CPU's registers through msr-safe, /dev/cpu/N/msr_safe and /dev/cpu/msr_batch
    MsrSafe,
    /// No registers of the CPU: the software LBR (`lbr time`: single-stepping alone)
    Soft,
}

impl Backend {
    /// The driver that was asked for by name.
    fn driver(self) -> Option<&'static str> {
        match self {
            Backend::Auto | Backend::Soft => None,
            Backend::Msr => Some("msr"),
            Backend::MsrSafe => Some("msr-safe"),
        }
    }

    /// Takes the registers where they can be had. A backend that was asked for
    /// by name is refused where it cannot be had; left to us, software stands in.
    pub(crate) fn choose<T>(
        self,
        registers: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<Choice<T>, Failure> {
        if self == Backend::Soft {
            return Ok(Choice::Software(None));
        }
        match (registers(), self.driver()) {
            (Ok(registers), _) => Ok(Choice::Registers(registers)),
            // What was typed is wrong for any backend.
            (Err(failure), _) if failure.code == USAGE => Err(failure),
            (Err(failure), None) => Ok(Choice::Software(Some(failure))),
            (Err(Failure { code, error }), Some(name)) => Err(Failure {
                code,
                error: anyhow!("--backend {name}: {error:#}; --backend soft works"),
            }),
        }
    }
}

/// What records.
pub(crate) enum Choice<T> {
    /// The registers of this machine's CPUs.
    Registers(T),
    /// Software, with the refusal of the registers where nobody asked for it.
    Software(Option<Failure>),
}

/// The registers of a CPU of this machine.
pub(crate) type Hardware = Box<dyn Registers>;

/// What the first write will do to the kernel, to be said on stderr before it;
/// `None` where it is tainted already, or the driver leaves it as it is.
pub(crate) fn taint_notice(registers: &dyn Registers, root: &Root) -> Option<&'static str> {
    let tainted = || {
        fs::read_to_string(root.join("proc/sys/kernel/tainted"))
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
            .is_some_and(|taint| taint & OUT_OF_SPEC != 0)
    };
    (registers.taints() && !tainted())
        .then_some("writing MSRs taints the kernel (CPU_OUT_OF_SPEC) until it is booted anew")
}

/// What was found on a CPU.
pub(crate) struct Looked<T> {
    /// Its branch records.
    pub(crate) caps: LbrCaps,
    /// Its registers, open for reading alone.
    pub(crate) registers: Hardware,
    /// What a command is going to do with them.
    pub(crate) usable: T,
}

/// Opens the registers of a CPU for reading alone, and finds out what they
/// are. Whether there is anything that a command can use is said before what
/// stands in the way: `usable` refuses records that it cannot.
pub(crate) fn look<T>(
    backend: Backend,
    cpu: u32,
    machine: &MachineArgs,
    usable: impl Fn(&LbrCaps) -> Result<T, Failure>,
) -> Result<Looked<T>, Failure> {
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
    let assume = machine.host.assume.as_ref();
    let registers = match probe_assuming(&found.cpuid, None, assume) {
        Ok(caps) => {
            usable(&caps)?;
            vec![IA32_PERF_CAPABILITIES, caps.registers.control, caps.registers.from]
        }
        // The register may tell what the user left out.
        Err(unsupported) if unsupported.why == Why::AssumedFormatMissing => {
            vec![IA32_PERF_CAPABILITIES]
        }
        Err(unsupported) => return Err(no_records(unsupported)),
    };
    let needs: Vec<Need> = registers.into_iter().map(|msr| Need { msr, write_mask: 0 }).collect();
    let mut registers = open(backend, cpu, &root, &needs, false).map_err(refused)?;
    let caps = match machine.perf_capabilities.map(GivenPerfCapabilities) {
        Some(mut given) => probe_assuming(&found.cpuid, Some(&mut given), assume),
        None => probe_assuming(&found.cpuid, Some(&mut registers as &mut dyn MsrRead), assume),
    };
    let caps = caps.map_err(no_records)?;
    Ok(Looked { usable: usable(&caps)?, caps, registers })
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
    registers::open(backend.driver(), cpu, root, needs, write)
}

/// The exit status of a register that could not be read or written.
pub(crate) fn refused(error: MsrError) -> Failure {
    let code = match error {
        MsrError::Permission { .. }
        | MsrError::Capability { .. }
        | MsrError::WriteFiltered { .. }
        | MsrError::NotListed { .. } => NOT_PERMITTED,
        MsrError::NoSuchCpu { .. } => USAGE,
        MsrError::Fault { .. }
        | MsrError::DriverMissing { .. }
        | MsrError::Offline { .. }
        // There is an LBR, and it is another's for now.
        | MsrError::InUse { .. } => NO_LBR,
        _ => FAILED,
    };
    Failure { code, error: error.into() }
}

/// The exit status of a program that could not be started or seen.
pub(crate) fn not_started(error: SourceError) -> Failure {
    let code = match &error {
        SourceError::NotFound { .. }
        | SourceError::NotExecutable { .. }
        | SourceError::NotX86_64 { .. }
        | SourceError::NoSuchCpu { .. } => USAGE,
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
        // Only the command line can have named it.
        ArmError::Unlisted { .. } => Failure { code: USAGE, error: error.into() },
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
