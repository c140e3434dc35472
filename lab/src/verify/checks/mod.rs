//! The checks, a file for each subject.

pub(super) mod bits;
pub(super) mod call_stack;
pub(super) mod events;
pub(super) mod fields;
pub(super) mod filters;
pub(super) mod identity;
pub(super) mod records;

use super::check::Spec;

/// Every check, in an order in which what a check needs comes before it.
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
