//! Verifies that a CPU's branch records work as documented.
//!
//! A [`Subject`] is the CPU under test: its registers, its CPUID, and known pieces of code
//! ([`Kernel`]) that it runs while it records. It can be a software LBR ([`SoftSubject`]) or a real
//! CPU.
//!
//! [`Ready`] saves everything that will change. [`Ready::verify`] makes the [checks](Check) and
//! restores everything, TOS and records included, even if it is dropped early. Checks depend on
//! each other: if one differs, those that depend on it are undetermined, so only the root cause is
//! reported.

mod bench;
mod check;
mod checks;
pub mod kernel;
mod preserve;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod real;
mod soft;
mod subject;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lbr_msr::probe::{Assumption, RecordedCpuid, Unsupported, probe_assuming};
use lbr_msr::table::{unlisted, unlisted_tos};
use lbr_msr::{LbrCaps, MsrError, MsrRead};

pub use check::{Check, Spec, Verdict};
pub use kernel::{Kernel, Known, Ran};
pub use preserve::Preserved;
pub use soft::SoftSubject;
pub use subject::{RunError, Subject, SubjectKind, Switch};

use bench::{Bench, Facts};
use check::Finding;
use sampler::keeper::{KeeperError, Restorable, Ticket};

/// How to verify.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Registers may be written; they are restored.
    pub write: bool,
    /// An assumption that replaces the CPU table.
    pub assume: Option<Assumption>,
    /// Set by the caller to end the checks and restore everything.
    pub stop: Option<Arc<AtomicBool>>,
}

/// Why verification failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The CPU has no branch records to verify.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A register access failed; everything is restored.
    #[error(transparent)]
    Register(MsrError),
    /// The caller stopped it; everything is restored.
    #[error("interrupted; the registers are as they were before")]
    Interrupted,
    /// Not everything could be restored.
    #[error("the registers could not be restored: {0}; run: lbr disarm")]
    NotRestored(MsrError),
    /// The watchdog process died; nothing was written.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
}

/// The result of verifying a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Logical CPU.
    pub cpu: u32,
    /// The documented capabilities.
    pub caps: LbrCaps,
    /// The kind of subject.
    pub kind: SubjectKind,
    /// Registers were written.
    pub written: bool,
    /// The checks, in the order in which they were made.
    pub checks: Vec<Check>,
}

impl Report {
    /// The checks that differ.
    pub fn differing(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.verdict == Verdict::Differs)
    }
}

/// The documented capabilities of a CPU, from its CPUID, the CPU table and the user's assumption;
/// not from IA32_PERF_CAPABILITIES, which is verified against them.
///
/// # Errors
/// [`Unsupported`] if there is nothing to verify.
pub fn documented(
    cpuid: &RecordedCpuid,
    assume: Option<&Assumption>,
    msr: &mut dyn MsrRead,
) -> Result<LbrCaps, Unsupported> {
    match probe_assuming(cpuid, None, assume) {
        // The register supplies what the assumption does not specify.
        Err(_) if assume.is_some() => probe_assuming(cpuid, Some(msr), assume),
        caps => caps,
    }
}

/// A CPU whose registers were saved and not yet changed.
#[derive(Debug)]
pub struct Ready<S: Subject> {
    cpu: S,
    caps: LbrCaps,
    preserved: Option<Preserved>,
    why_not: Option<String>,
    assume: Option<Assumption>,
    stop: Option<Arc<AtomicBool>>,
    ticket: Option<Ticket>,
    owed: bool,
}

impl<S: Subject> Ready<S> {
    /// Saves the registers. Writes nothing.
    ///
    /// # Errors
    /// [`VerifyError::Unsupported`], [`VerifyError::Register`].
    pub fn new(mut cpu: S, config: &Config) -> Result<Ready<S>, VerifyError> {
        let cpuid = cpu.cpuid().clone();
        let caps = documented(&cpuid, config.assume.as_ref(), &mut cpu)?;
        let kind = cpu.kind();
        let mut why_not = (!config.write).then(|| "needs --write".to_owned());
        let mut preserved = None;
        let unlisted = unlisted(&caps).or(unlisted_tos(&caps));
        if let Some(msr) = unlisted.filter(|_| config.write) {
            why_not = Some(format!(
                "{msr} is not a known branch-record register of any CPU: lbr never writes it"
            ));
        } else if config.write {
            match Preserved::read(&mut cpu, &caps, kind) {
                Ok(read) if read.recording() => {
                    why_not = Some("recording is on: perf or another lbr uses the records".into());
                }
                Ok(read) => preserved = Some(read),
                Err(MsrError::Fault { msr, .. }) => {
                    why_not = Some(format!("{msr} does not exist, and nothing is written then"));
                }
                Err(error) => return Err(VerifyError::Register(error)),
            }
        }
        Ok(Ready {
            cpu,
            caps,
            preserved,
            why_not,
            assume: config.assume,
            stop: config.stop.clone(),
            ticket: None,
            owed: false,
        })
    }

    /// Whether registers will be written.
    pub const fn writes(&self) -> bool {
        self.preserved.is_some()
    }

    /// The CPU.
    pub fn subject(&mut self) -> &mut S {
        &mut self.cpu
    }

    /// Makes every check and restores everything.
    ///
    /// # Errors
    /// [`VerifyError`]. Unless it is [`VerifyError::NotRestored`], everything is restored.
    pub fn verify(&mut self) -> Result<Report, VerifyError> {
        if self.writes() {
            if let Some(ticket) = &self.ticket {
                ticket.arming()?;
            }
            self.owed = true;
        }
        let kind = self.cpu.kind();
        let written = self.writes();
        let checks = self.check();
        let restored = self.restore();
        let checks = checks.map_err(|error| match error {
            RunError::Register(error) => VerifyError::Register(error),
            RunError::Interrupted | RunError::Unavailable(_) => VerifyError::Interrupted,
        });
        match (checks, restored) {
            (_, Err(error)) => Err(VerifyError::NotRestored(error)),
            (Err(error), Ok(())) => Err(error),
            (Ok(checks), Ok(())) => {
                Ok(Report { cpu: self.cpu.cpu(), caps: self.caps.clone(), kind, written, checks })
            }
        }
    }

    fn check(&mut self) -> Result<Vec<Check>, RunError> {
        let why_not = self.why_not.clone();
        let stop = self.stop.clone();
        let facts = Facts::new(&self.cpu, self.caps.clone(), self.assume.as_ref());
        let allowed = self.preserved.as_ref().map(Preserved::registers).unwrap_or_default();
        let mut bench = Bench { cpu: &mut self.cpu, facts, stop: stop.as_deref(), allowed };
        let mut checks: Vec<Check> = Vec::new();
        for spec in Spec::all() {
            let check = make(&mut bench, spec, &checks, why_not.as_deref())?;
            checks.push(check);
        }
        Ok(checks)
    }

    fn restore(&mut self) -> Result<(), MsrError> {
        if !self.owed {
            return Ok(());
        }
        // `owed` stays set if this panics: the drop that follows tries again.
        let preserved = self.preserved.as_ref();
        let put_back = preserved.map_or(Ok(()), |preserved| preserved.put_back(&mut self.cpu));
        // One attempt; the watchdog process retries what fails.
        self.owed = false;
        put_back?;
        if let Some(ticket) = self.ticket.take() {
            ticket.settle();
        }
        Ok(())
    }
}

impl<S: Subject> Drop for Ready<S> {
    fn drop(&mut self) {
        // Only the watchdog process can react: on failure it is not told to quit.
        let _ = self.restore();
    }
}

impl<S: Subject> Restorable for Ready<S> {
    fn give(&mut self, ticket: Ticket) {
        self.ticket = Some(ticket);
    }

    fn put_back(&mut self) -> bool {
        let preserved = self.preserved.as_ref();
        preserved.is_none_or(|preserved| preserved.put_back(&mut self.cpu).is_ok())
    }
}

/// Makes one check, provided that the checks it needs were made.
fn make(
    bench: &mut Bench<'_>,
    spec: &Spec,
    before: &[Check],
    why_not: Option<&str>,
) -> Result<Check, RunError> {
    let (documented, (found, verdict)) = match (spec.documented)(&bench.facts) {
        Err(why) => (None, (None, Verdict::NotApplicable(why))),
        Ok(documented) => (Some(documented), look(bench, spec, before, why_not)?),
    };
    let (expected, source) = documented.unzip();
    let Spec { id, what, needs, .. } = *spec;
    Ok(Check { id, what, needs, expected, source, found, verdict })
}

/// What is found on the CPU, and whether it is as documented.
fn look(
    bench: &mut Bench<'_>,
    spec: &Spec,
    before: &[Check],
    why_not: Option<&str>,
) -> Result<(Option<String>, Verdict), RunError> {
    let cannot_tell = |why| Ok((None, Verdict::CannotTell(why)));
    if let (true, Some(why)) = (spec.writes(), why_not) {
        return cannot_tell(why.into());
    }
    let stands = |id: &&&str| {
        let needed = before.iter().find(|check| check.id == **id);
        needed.is_some_and(|check| {
            matches!(check.verdict, Verdict::AsDocumented | Verdict::NotApplicable(_))
        })
    };
    if let Some(needed) = spec.needs.iter().find(|id| !stands(id)) {
        return cannot_tell(format!("depends on {needed}"));
    }
    match (spec.look)(bench) {
        Ok(Finding { same: true, found }) => Ok((Some(found), Verdict::AsDocumented)),
        Ok(Finding { same: false, found }) => Ok((Some(found), Verdict::Differs)),
        Err(RunError::Unavailable(why)) => cannot_tell(why),
        Err(RunError::Register(error @ (MsrError::Fault { .. } | MsrError::NotAllowed { .. }))) => {
            cannot_tell(error.to_string())
        }
        Err(error) => Err(error),
    }
}
