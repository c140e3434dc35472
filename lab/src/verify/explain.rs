//! Explains checks without making them.

use lbr_msr::soft::{Faults, SoftCpu};

use super::bench::Facts;
use super::check::{Documented, Spec};
use super::{SoftSubject, checks};

/// The description of a check, before it is made.
#[derive(Clone, Copy)]
pub struct Explanation(&'static Spec);

impl Explanation {
    /// Every check, in the order in which they are made.
    pub fn all() -> impl Iterator<Item = Explanation> {
        checks::all().map(Explanation)
    }

    /// Its stable name.
    #[must_use]
    pub const fn id(&self) -> &'static str {
        self.0.id
    }

    /// The question that it asks.
    #[must_use]
    pub const fn what(&self) -> &'static str {
        self.0.what
    }

    /// The code that it executes.
    #[must_use]
    pub const fn run(&self) -> &'static str {
        self.0.run
    }

    /// Why the answer matters.
    #[must_use]
    pub const fn why(&self) -> &'static str {
        self.0.why
    }

    /// The outcome that proves the CPU to differ.
    #[must_use]
    pub const fn falsified(&self) -> &'static str {
        self.0.falsified
    }

    /// The checks that it depends on.
    #[must_use]
    pub const fn needs(&self) -> &'static [&'static str] {
        self.0.needs
    }

    /// Whether it writes registers.
    #[must_use]
    pub const fn writes(&self) -> bool {
        self.0.writes
    }

    /// The documented answer for a CPU and its source.
    ///
    /// # Errors
    /// Why the check does not apply to the CPU.
    pub fn documented(&self, cpu: &SoftCpu) -> Result<(String, String), String> {
        let subject = SoftSubject::new(cpu, Faults::NONE);
        match (self.0.documented)(&Facts::new(&subject, cpu.caps.clone(), None)) {
            Documented::Here { expected, source } => Ok((expected, source)),
            Documented::Nowhere(why) => Err(why),
        }
    }
}

impl std::fmt::Debug for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Explanation").field(&self.id()).finish()
    }
}
