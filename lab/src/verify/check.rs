//! Checks as data.

use lbr_msr::soft::{Faults, SoftCpu};

use super::bench::{Bench, Facts};
use super::{RunError, SoftSubject};

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The CPU behaves as documented.
    AsDocumented,
    /// It behaves differently.
    Differs,
    /// It could not be determined; the reason.
    CannotTell(String),
    /// This CPU lacks the feature; the reason.
    NotApplicable(String),
}

impl Verdict {
    /// Its name in a report.
    pub const fn name(&self) -> &'static str {
        match self {
            Verdict::AsDocumented => "as documented",
            Verdict::Differs => "differs",
            Verdict::CannotTell(_) => "cannot tell here",
            Verdict::NotApplicable(_) => "not applicable",
        }
    }

    /// The reason for `CannotTell` and `NotApplicable`.
    pub fn why(&self) -> Option<&str> {
        match self {
            Verdict::CannotTell(why) | Verdict::NotApplicable(why) => Some(why),
            Verdict::AsDocumented | Verdict::Differs => None,
        }
    }
}

/// A question to a CPU, with its answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    /// Its stable identifier.
    pub id: &'static str,
    /// The property that it checks.
    pub what: &'static str,
    /// The checks that have to pass before it.
    pub needs: &'static [&'static str],
    /// The documented behaviour; `None` if not applicable.
    pub expected: Option<String>,
    /// The document.
    pub source: Option<String>,
    /// The observed behaviour; `None` if nothing was tried.
    pub found: Option<String>,
    /// Its result.
    pub verdict: Verdict,
}

/// The documented behaviour and its document, or why the check is not applicable.
pub(super) type Documented = Result<(String, String), String>;

/// The behaviour that a document describes.
pub(super) fn answer(expected: impl Into<String>, source: impl Into<String>) -> Documented {
    Ok((expected.into(), source.into()))
}

/// Continues only if the check applies.
pub(super) fn applies_if(condition: bool, otherwise: &str) -> Result<(), String> {
    if condition { Ok(()) } else { Err(otherwise.into()) }
}

/// The CPU lacks the feature; the reason.
pub(super) fn not_applicable(why: impl Into<String>) -> Documented {
    Err(why.into())
}

/// A check's outcome.
pub(super) struct Finding {
    pub(super) same: bool,
    pub(super) found: String,
}

impl Finding {
    pub(super) fn same(found: impl Into<String>) -> Finding {
        Finding { same: true, found: found.into() }
    }

    pub(super) fn differs(found: impl Into<String>) -> Finding {
        Finding { same: false, found: found.into() }
    }

    pub(super) fn either(same: bool, documented: &str, other: impl Into<String>) -> Finding {
        if same { Finding::same(documented) } else { Finding::differs(other) }
    }

    pub(super) fn of(same: bool, found: impl Into<String>) -> Finding {
        Finding { same, found: found.into() }
    }
}

/// The definition of a check.
#[derive(Debug)]
pub struct Spec {
    /// Its stable identifier.
    pub id: &'static str,
    /// The property that it checks.
    pub what: &'static str,
    /// The code that it executes.
    pub run: &'static str,
    /// Why the answer matters.
    pub why: &'static str,
    /// The outcome that proves the CPU to differ.
    pub falsified: &'static str,
    /// The checks that have to pass before it.
    pub needs: &'static [&'static str],
    pub(super) documented: fn(&Facts) -> Documented,
    pub(super) look: fn(&mut Bench<'_>) -> Result<Finding, RunError>,
}

impl Spec {
    /// The documented answer for a CPU and its source.
    ///
    /// # Errors
    /// Why the check does not apply to the CPU.
    pub fn documented(&self, cpu: &SoftCpu) -> Result<(String, String), String> {
        let subject = SoftSubject::new(cpu, Faults::NONE);
        (self.documented)(&Facts::new(&subject, cpu.caps.clone(), None))
    }
}
