//! Which backend records, and why not the others.

use anyhow::anyhow;
use lbr_msr::LbrCaps;

use super::{Backend, Record};
use crate::commands::backend::{Backend as Registers, look};
use crate::exit::{Failure, OrExit, USAGE};

/// What records.
pub(super) enum Choice {
    /// The registers of this machine's CPUs.
    Hardware(Chosen),
    /// The software LBR, with the reason where nobody asked for it: the refusal
    /// of hardware.
    Software(Option<Failure>),
}

/// The registers that are recorded from.
pub(super) struct Chosen {
    /// What they are, alike on all CPUs.
    pub(super) caps: LbrCaps,
    /// Of which CPUs.
    pub(super) cpus: Vec<u32>,
    /// How they are reached.
    pub(super) backend: Registers,
}

/// Finds out. A backend that was asked for by name is refused where it cannot
/// be had; left to us, the software LBR stands in.
pub(super) fn choose(args: &Record) -> Result<Choice, Failure> {
    let (backend, name) = match args.backend {
        Backend::Soft => return Ok(Choice::Software(None)),
        Backend::Auto => (Registers::Auto, None),
        Backend::Msr => (Registers::Msr, Some("msr")),
        Backend::MsrSafe => (Registers::MsrSafe, Some("msr-safe")),
    };
    match (hardware(args, backend), name) {
        (Ok(chosen), _) => Ok(Choice::Hardware(chosen)),
        // What was typed is wrong for any backend.
        (Err(failure), _) if failure.code == USAGE => Err(failure),
        (Err(failure), None) => Ok(Choice::Software(Some(failure))),
        (Err(Failure { code, error }), Some(name)) => Err(Failure {
            code,
            error: anyhow!("--backend {name}: {error:#}; --backend soft works"),
        }),
    }
}

fn hardware(args: &Record, backend: Registers) -> Result<Chosen, Failure> {
    let machine = args.machine();
    let cpus = match &args.cpu {
        Some(list) => list.cpus().to_vec(),
        None => vec![machine.usual_cpu()?],
    };
    let mut found: Option<LbrCaps> = None;
    for &cpu in &cpus {
        let (caps, _) = look(backend, cpu, &machine)?;
        match &found {
            Some(first) if first.registers != caps.registers || first.layout != caps.layout => {
                return Err(anyhow!(
                    "the branch records of CPU {cpu} are not like those of CPU {}: record them \
                     apart from each other",
                    cpus.first().copied().unwrap_or(0)
                ))
                .or_exit(USAGE);
            }
            Some(_) => {}
            None => found = Some(caps),
        }
    }
    let caps = found.ok_or_else(|| anyhow!("no CPU was named"))?;
    Ok(Chosen { caps, cpus, backend })
}
