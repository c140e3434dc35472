//! Time order: which record is the newest, and which came before it.

use crate::{caps::Order, register::Tos};

/// The register indices of the records, **newest first**; reversed, oldest first.
///
/// `tos` locates the newest record: the value of MSR_LASTBRANCH_TOS for [`Order::Tos`] (bits above
/// the index are ignored), MSROFF for [`Order::Saturating`], unused otherwise. `depth` is the
/// number of records; every index is below it. SDM 17.4.8, 17.11.2; Linux `amd/brs.c`.
pub fn ring_order(
    order: Order,
    depth: u32,
    tos: u64,
) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator {
    let position = Tos(tos).index(depth);
    let (newest, count) = match order {
        Order::Tos => (position, depth),
        // MSROFF is the next index to be written; it wraps to 0 when all are used.
        Order::Saturating => {
            let filled = if position == 0 { depth } else { position };
            (filled.saturating_sub(1), filled)
        }
        Order::NewestFirst => (0, depth),
        Order::Single => (0, depth.min(1)),
    };
    let upward = matches!(order, Order::NewestFirst);
    (0..count).map(move |age| {
        if upward {
            age
        } else if age <= newest {
            newest - age
        } else {
            depth - (age - newest)
        }
    })
}
