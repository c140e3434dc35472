//! TSX, as far as branch records are concerned.
//!
//! QEMU has none: XBEGIN raises #UD. Where the chosen CPU announces it, XBEGIN
//! starts a transaction here, in which branches are marked, XEND ends it, and
//! XABORT puts the general registers back and goes on where XBEGIN said, which
//! is recorded as an abort. What the transaction wrote to memory stays, and so
//! do the flags. An interrupt or an exception ends a transaction as if it had
//! been committed; XEND and XABORT outside one do nothing.

/// RAX after an abort: XABORT was executed, with this operand. SDM Vol. 1 16.3.5.
pub(super) const fn abort_status(operand: u8) -> u64 {
    1 | (operand as u64) << 24
}

/// A transaction under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transaction {
    /// Where an abort goes on.
    pub(super) fallback: u64,
    /// The general registers at XBEGIN.
    pub(super) general: [u64; 16],
}
