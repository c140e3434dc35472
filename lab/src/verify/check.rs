//! Checks as data.

use super::bench::{Bench, Facts, Halt};

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
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Verdict::AsDocumented => "as documented",
            Verdict::Differs => "differs",
            Verdict::CannotTell(_) => "cannot tell here",
            Verdict::NotApplicable(_) => "not applicable",
        }
    }

    /// The reason for `CannotTell` and `NotApplicable`.
    #[must_use]
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
    /// The raw records that it is based on. These contain addresses.
    pub records: Vec<String>,
}

/// The documentation of a check's property.
pub(super) enum Documented {
    /// Documented.
    Here {
        /// The documented behaviour.
        expected: String,
        /// The document.
        source: String,
    },
    /// The CPU lacks the feature; the reason.
    Nowhere(String),
}

impl Documented {
    pub(super) fn here(expected: impl Into<String>, source: impl Into<String>) -> Documented {
        Documented::Here { expected: expected.into(), source: source.into() }
    }

    pub(super) fn nowhere(why: impl Into<String>) -> Documented {
        Documented::Nowhere(why.into())
    }
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

    pub(super) fn of(same: bool, found: impl Into<String>) -> Finding {
        Finding { same, found: found.into() }
    }
}

/// The definition of a check.
pub(super) struct Spec {
    pub(super) id: &'static str,
    pub(super) what: &'static str,
    /// The code that the check executes.
    pub(super) run: &'static str,
    /// Why the answer matters.
    pub(super) why: &'static str,
    /// The outcome that proves the CPU to differ.
    pub(super) falsified: &'static str,
    pub(super) needs: &'static [&'static str],
    /// It writes registers.
    pub(super) writes: bool,
    pub(super) documented: fn(&Facts) -> Documented,
    pub(super) look: fn(&mut Bench<'_>) -> Result<Finding, Halt>,
}
