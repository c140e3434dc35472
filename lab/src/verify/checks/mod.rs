//! The checks, one file per topic.

pub(super) mod bits;
pub(super) mod call_stack;
pub(super) mod events;
pub(super) mod fields;
pub(super) mod filters;
pub(super) mod identity;
pub(super) mod records;
mod written;

use super::check::Spec;

/// Every check, after the checks that it needs.
pub(super) fn all() -> impl Iterator<Item = &'static Spec> {
    identity::CHECKS
        .iter()
        .chain(bits::CHECKS)
        .chain(records::CHECKS)
        .chain(filters::CHECKS)
        .chain(call_stack::CHECKS)
        .chain(fields::CHECKS)
        .chain(events::CHECKS)
}
