//! Checks as data.

use lbr_msr::MsrError;

use super::RunError;
use super::bench::{Bench, Facts};

/// What a check comes to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The CPU does what is documented of it.
    AsDocumented,
    /// It does something else.
    Differs,
    /// That could not be found out; why.
    CannotTell(String),
    /// This CPU has nothing of the kind; why.
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

    /// Why it is no more than that.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        match self {
            Verdict::CannotTell(why) | Verdict::NotApplicable(why) => Some(why),
            Verdict::AsDocumented | Verdict::Differs => None,
        }
    }
}

/// A question that was asked of a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    /// Its stable name.
    pub id: &'static str,
    /// What is asked.
    pub what: &'static str,
    /// The checks that it rests on.
    pub needs: &'static [&'static str],
    /// What is documented; `None` where it is not applicable.
    pub expected: Option<String>,
    /// Where that is written.
    pub source: Option<String>,
    /// What was found; `None` where nothing was looked at.
    pub found: Option<String>,
    /// What it comes to.
    pub verdict: Verdict,
    /// The records that it rests on, as they were read: these hold addresses.
    pub records: Vec<String>,
}

/// What is documented of a CPU.
pub(super) enum Documented {
    /// This.
    Here {
        /// In words.
        expected: String,
        /// Where it is written.
        source: String,
    },
    /// The CPU has nothing of the kind.
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

/// What was found.
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

/// Why a check was not brought to its end.
#[derive(Debug)]
pub(super) enum Halt {
    /// The user has enough.
    Interrupted,
    /// It cannot be found out here.
    CannotTell(String),
    /// A register could not be reached.
    Register(MsrError),
}

impl From<MsrError> for Halt {
    fn from(error: MsrError) -> Halt {
        Halt::Register(error)
    }
}

impl From<RunError> for Halt {
    fn from(error: RunError) -> Halt {
        match error {
            RunError::Register(error) => Halt::Register(error),
            RunError::Unavailable(why) | RunError::Failed(why) => Halt::CannotTell(why),
        }
    }
}

/// A check before it is made.
pub(super) struct Spec {
    pub(super) id: &'static str,
    pub(super) what: &'static str,
    pub(super) needs: &'static [&'static str],
    /// Registers are written.
    pub(super) writes: bool,
    pub(super) documented: fn(&Facts) -> Documented,
    pub(super) look: fn(&mut Bench<'_>) -> Result<Finding, Halt>,
}
