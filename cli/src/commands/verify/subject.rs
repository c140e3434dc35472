//! Opens the CPU under test: software, with the faults that are injected into it, or one of this
//! machine.

use std::slice;
use std::str::FromStr;

use anyhow::Context;
use lab::verify::real::RealSubject;
use lab::verify::{
    Config, Preserved, Ready, Report, SoftSubject, SubjectKind, VerifyError, documented,
};
use lbr_msr::MsrRead;
use lbr_msr::access::Device;
use lbr_msr::address::IA32_PERF_CAPABILITIES;
use lbr_msr::arm::Need;
use lbr_msr::probe::recorded::RecordedCpu;
use lbr_msr::soft::{Fault, Faults, SoftCpu};
use lbr_msr::text::AsText;
use sampler::keeper;

use super::VerifyArgs;
use crate::commands::backend::{self, Hardware};
use crate::commands::soft::LIST;
use crate::exit::{FAILED, Failure, OrExit, Result, USAGE, done};
use crate::present::{Cell, Out, Table, say};

/// Verifies one CPU. `notice`: whether the warning about the first write is still due.
pub(super) fn verify(
    args: &VerifyArgs,
    found: &RecordedCpu,
    config: &Config,
    notice: &mut bool,
) -> Result<Report> {
    if let Some(soft) = &args.machine.soft_cpu {
        return verify_soft(soft, args.lies().unwrap_or_default(), config);
    }
    let subject = open(args, found, config)?;
    let mut ready = Ready::new(subject, config).map_err(failed)?;
    if ready.writes() {
        if std::mem::take(notice)
            && let Some(notice) =
                backend::taint_notice(&**ready.subject().registers(), &args.machine.root())
        {
            say!("{notice}");
        }
        keeper::watch(slice::from_mut(&mut ready))?;
    }
    ready.verify().map_err(failed)
}

fn verify_soft(soft: &SoftCpu, faults: Faults, config: &Config) -> Result<Report> {
    let mut ready = Ready::new(SoftSubject::new(soft, faults), config).map_err(failed)?;
    ready.verify().map_err(failed)
}

/// The faults without effect on a software CPU: with each alone, all checks find the same as
/// without.
pub(super) fn without_effect(
    soft: &SoftCpu,
    faults: impl Iterator<Item = Fault>,
) -> Result<Vec<Fault>> {
    let config = Config { write: true, ..Config::default() };
    let sound = verify_soft(soft, Faults::NONE, &config)?.checks;
    let mut none = Vec::new();
    for fault in faults {
        if verify_soft(soft, fault.into(), &config)?.checks == sound {
            none.push(fault);
        }
    }
    Ok(none)
}

/// Opens the registers of a CPU of this machine, for writing if requested.
fn open(args: &VerifyArgs, found: &RecordedCpu, config: &Config) -> Result<RealSubject<Hardware>> {
    let (cpu, root) = (found.cpu, args.machine.root());
    let needs = [Need { msr: IA32_PERF_CAPABILITIES, write_mask: 0 }];
    // A CPU without an LBR is reported before a missing driver or permission.
    let mut nothing = lbr_msr::access::FakeMsrs::new(cpu);
    if config.assume.is_none() {
        documented(&found.cpuid, None, &mut nothing).map_err(backend::no_records)?;
    }
    let mut registers = backend::open(args.backend, cpu, &root, &needs, false)?;
    let caps = documented(&found.cpuid, config.assume.as_ref(), &mut registers)
        .map_err(backend::no_records)?;
    if config.write
        && let Ok(preserved) = Preserved::read(&mut registers, &caps, SubjectKind::Hardware)
    {
        registers = backend::open(args.backend, cpu, &root, &preserved.needs(), true)?;
    }
    let path = registers.node(&root);
    let descriptor = root
        .open_node(&path, config.write)
        .with_context(|| format!("opening {}", path.as_text()))?;
    let sibling = sibling(&root, cpu)
        .and_then(|sibling| Device::open(sibling, &root).ok())
        .map(|sibling| Box::new(sibling) as Box<dyn MsrRead>);
    RealSubject::new(registers, descriptor.into(), sibling, found.cpuid.clone(), root)
        .or_exit(USAGE)
}

/// Another hyperthread of the CPU's core.
fn sibling(root: &lbr_msr::access::Root, cpu: u32) -> Option<u32> {
    let list = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let text = std::fs::read_to_string(root.join(&list)).ok()?;
    let list: crate::cpus::CpuList = text.parse().ok()?;
    list.cpus().iter().copied().find(|other| *other != cpu)
}

fn failed(error: VerifyError) -> Failure {
    match error {
        VerifyError::Unsupported(why) => backend::no_records(why),
        VerifyError::Register(error) => backend::refused(error),
        error => Failure { code: FAILED, error: error.into() },
    }
}

/// Names of faults; `None` for `list`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lies(pub(crate) Option<Faults>);

impl FromStr for Lies {
    type Err = String;

    fn from_str(text: &str) -> Result<Lies, String> {
        if text == LIST {
            return Ok(Lies(None));
        }
        let faults = text.parse::<Faults>().map(|faults| Lies(Some(faults)));
        faults.map_err(|error| format!("{error}; --soft-lie list lists them"))
    }
}

/// Lists the injected faults; only those with an effect on `cpu`, if given.
pub(super) fn list_lies(cpu: Option<&SoftCpu>) -> Result {
    let mut faults: Vec<Fault> = Fault::all().collect();
    if let Some(cpu) = cpu {
        let none = without_effect(cpu, Fault::all())?;
        faults.retain(|fault| !none.contains(fault));
    }
    let mut out = Out::stdout();
    Table::<(), Fault>::new()
        .word("", "name", |(), fault| Cell::Word(fault.name().into()))
        .word("", "kind", |(), fault| {
            Cell::Word(if fault.source().is_empty() { "lie" } else { "erratum" }.into())
        })
        .prose("", "source", |(), fault| Cell::Word(fault.source().into()))
        .write_text(&mut out, &mut (), faults.into_iter())?;
    done(&mut out)
}
