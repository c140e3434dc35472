//! The checks, one file per topic.

mod bits;
mod call_stack;
mod events;
mod fields;
mod filters;
mod identity;
mod records;
mod written;

use super::check::Spec;

impl Spec {
    /// Whether it writes registers. The checks of CPUID and of which registers exist only read.
    pub fn writes(&self) -> bool {
        !identity::CHECKS.iter().any(|reading| reading.id == self.id)
    }

    /// Every check, after the checks that it needs.
    pub fn all() -> impl Iterator<Item = &'static Spec> {
        identity::CHECKS
            .iter()
            .chain(bits::CHECKS)
            .chain(records::CHECKS)
            .chain(filters::CHECKS)
            .chain(call_stack::CHECKS)
            .chain(fields::CHECKS)
            .chain(events::CHECKS)
    }
}
