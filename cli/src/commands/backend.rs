//! Chooses the backend that reads the registers of a CPU, and explains refusals.

use std::fs;

use anyhow::anyhow;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lbr_msr::access::Root;
use lbr_msr::address::IA32_PERF_CAPABILITIES;
use lbr_msr::arm::{ArmError, ArmPlan, Need};
use lbr_msr::caps::CpuIdentity;
use lbr_msr::filter::FilterError;
use lbr_msr::probe::{Unsupported, Why, given_perf_capabilities, probe_assuming};
use lbr_msr::{LbrCaps, MsrError, MsrRead};
use sampler::guard::{GuardError, Ready};
use sampler::source::SourceError;
use sampler::source::cpu::registers::{self, Registers};
use sampler::source::perf::Refused;

use super::machine::MachineArgs;
use super::probe::is_wrong_assumption;
use crate::exit::{FAILED, Failure, NO_LBR, NOT_PERMITTED, OrExit, Result, USAGE, usage};
use crate::present::say;

/// `--backend` of every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// The CPU's registers if available (msr-safe before msr), otherwise the kernel's perf events
    /// (record, time), otherwise software
    Auto,
    /// The CPU's registers through the msr driver, /dev/cpu/N/msr
    Msr,
    /// The CPU's registers through msr-safe, /dev/cpu/N/msr_safe and /dev/cpu/msr_batch
    MsrSafe,
    /// The kernel's perf events: with branch stacks (record), as counters (time)
    Perf,
    /// No registers of the CPU: the software LBR (`lbr time`: single-stepping alone)
    Soft,
}

impl Backend {
    /// The driver, if one was named.
    fn driver(self) -> Option<&'static str> {
        match self {
            Backend::Auto | Backend::Perf | Backend::Soft => None,
            Backend::Msr => Some("msr"),
            Backend::MsrSafe => Some("msr-safe"),
        }
    }

    /// Chooses the registers if they are available, otherwise the kernel's perf events (`None`: not
    /// for these options), otherwise software. A backend that was named is refused if it is
    /// unavailable.
    pub(crate) fn choose<T>(
        self,
        registers: impl FnOnce() -> Result<T>,
        perf: impl FnOnce() -> Option<Result<T>>,
    ) -> Result<Choice<T>> {
        let (name, found) = match self {
            Backend::Soft => return Ok(Choice::Software(None)),
            Backend::Msr => ("msr", registers()),
            Backend::MsrSafe => ("msr-safe", registers()),
            Backend::Perf => {
                let none = || Err(usage!("--backend perf is for lbr record and lbr time"));
                ("perf", perf().unwrap_or_else(none))
            }
            Backend::Auto => {
                return Ok(match registers() {
                    Err(failure) if failure.code != USAGE => match perf() {
                        None => Choice::Software(Some(failure)),
                        Some(Err(other)) if other.code != USAGE => {
                            let (why, other) =
                                (format!("{:#}", failure.error), format!("{:#}", other.error));
                            // A hypervisor that hides the registers hides perf's branch stacks too.
                            let error = if why == other {
                                anyhow!("{why}; the same holds for perf events")
                            } else {
                                anyhow!("{why}; as perf events: {other}")
                            };
                            Choice::Software(Some(Failure { code: failure.code, error }))
                        }
                        Some(found) => Choice::Hardware(found?),
                    },
                    found => Choice::Hardware(found?),
                });
            }
        };
        match found {
            // A usage error holds for any backend.
            Err(Failure { code, error }) if code != USAGE => Err(Failure {
                code,
                error: anyhow!("--backend {name}: {error:#}; --backend soft works"),
            }),
            found => Ok(Choice::Hardware(found?)),
        }
    }
}

/// `--backend` of commands that need registers.
pub(crate) fn of_registers() -> impl TypedValueParser<Value = Backend> {
    let named = |backend: &Backend| backend.to_possible_value();
    let all = Backend::value_variants().iter().filter(|backend| **backend != Backend::Perf);
    PossibleValuesParser::new(all.filter_map(named))
        .map(|name| Backend::from_str(&name, false).unwrap_or(Backend::Auto))
}

/// The chosen backend.
pub(crate) enum Choice<T> {
    /// The branch records of this machine's CPUs.
    Hardware(T),
    /// Software, and why not hardware, unless software was requested.
    Software(Option<Failure>),
}

/// The registers of a CPU of this machine.
pub(crate) type Hardware = Box<dyn Registers>;

/// The warning about tainting the kernel, before the first write; `None` if it is tainted already
/// or the driver does not taint it.
pub(crate) fn taint_notice(registers: &dyn Registers, root: &Root) -> Option<&'static str> {
    let tainted = || {
        fs::read_to_string(root.join("proc/sys/kernel/tainted"))
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
            .is_some_and(|taint| taint & OUT_OF_SPEC != 0)
    };
    (registers.driver().taints && !tainted())
        .then_some("writing MSRs taints the kernel (CPU_OUT_OF_SPEC) until it is booted anew")
}

/// Opens the registers of a CPU read-only and probes them. `usable` runs before the registers are
/// opened, so that an unusable facility is reported before a missing permission. Returns the CPU's
/// LBR capabilities, its registers, and the result of `usable`.
pub(crate) fn look<T>(
    backend: Backend,
    cpu: u32,
    machine: &MachineArgs,
    usable: impl Fn(&LbrCaps) -> Result<T>,
) -> Result<(LbrCaps, Hardware, T)> {
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
        // The register may supply the missing format.
        Err(unsupported) if unsupported.why == Why::AssumedFormatMissing => {
            vec![IA32_PERF_CAPABILITIES]
        }
        Err(unsupported) => return Err(no_records(unsupported)),
    };
    let needs: Vec<Need> = registers.into_iter().map(|msr| Need { msr, write_mask: 0 }).collect();
    let mut registers = open(backend, cpu, &root, &needs, false)?;
    let caps = match machine.perf_capabilities.map(given_perf_capabilities) {
        Some(mut given) => probe_assuming(&found.cpuid, Some(&mut given), assume),
        None => probe_assuming(&found.cpuid, Some(&mut registers as &mut dyn MsrRead), assume),
    };
    let caps = caps.map_err(no_records)?;
    let usable = usable(&caps)?;
    Ok((caps, registers, usable))
}

/// The CPU has no LBR, or the user's assumption is wrong.
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
) -> Result<Hardware> {
    open(backend, cpu, root, &plan.needs(), true)
}

/// Saves the registers, and warns if something else uses them.
pub(crate) fn ready(registers: Hardware, plan: ArmPlan) -> Result<Ready<Hardware>> {
    let ready = Ready::new(registers, plan).map_err(not_armed)?;
    if ready.saved().in_use {
        say!(
            "CPU {}: a branch filter or a freeze on PMI was set before: something such as \
             perf has recorded here, and may take the records away again",
            ready.cpu()
        );
    }
    Ok(ready)
}

/// Opens the registers of a CPU for a list of needs.
pub(crate) fn open(
    backend: Backend,
    cpu: u32,
    root: &Root,
    needs: &[Need],
    write: bool,
) -> Result<Hardware> {
    registers::open(backend.driver(), cpu, root, needs, write).map_err(refused)
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
        // There is an LBR, but another program uses it.
        | MsrError::InUse { .. } => NO_LBR,
        _ => FAILED,
    };
    Failure { code, error: error.into() }
}

/// Exit status and advice for a refusal of perf events.
pub(crate) fn refused_by_perf(refused: Refused, cpu: &CpuIdentity) -> Failure {
    let code = match refused {
        Refused::Level { .. } | Refused::Rate { .. } | Refused::Forbidden | Refused::NoRdpmc => {
            NOT_PERMITTED
        }
        Refused::NoProcess { .. } => USAGE,
        Refused::NoEvents
        | Refused::NoCounters
        | Refused::NoStacks
        | Refused::NoCpu
        | Refused::Filter { .. }
        | Refused::Busy => NO_LBR,
        _ => FAILED,
    };
    let hides = matches!(refused, Refused::NoCounters | Refused::NoStacks);
    let error = match (&cpu.hypervisor, refused.remedy()) {
        (Some(hypervisor), _) if hides => {
            anyhow!(
                "{refused}: {hypervisor} hides them; run on the host, or give them to the guest"
            )
        }
        (_, Some(remedy)) => anyhow!("{refused}; {remedy}"),
        _ => refused.into(),
    };
    Failure { code, error }
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
        // There is an LBR, but another program uses it.
        GuardError::InUse { .. } => NO_LBR,
        _ => FAILED,
    };
    Failure { code, error: error.into() }
}

/// Exit status for an operation that the facility does not support.
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

#[cfg(test)]
#[path = "../../../tests/cli/unit/commands/backend.rs"]
mod tests;
