//! TSX, as far as it affects branch records.
//!
//! QEMU lacks TSX: XBEGIN raises #UD. If the chosen CPU announces it, XBEGIN starts a transaction
//! here, in which branches are marked; XEND ends it; XABORT restores the general registers and
//! continues at XBEGIN's fallback address, which is recorded as an abort. Memory writes of the
//! transaction and the flags are kept. An interrupt or exception ends a transaction as if it had
//! been committed; XEND and XABORT outside of one do nothing.

/// RAX after XABORT with this operand. SDM Vol. 1 16.3.5.
pub(super) const fn abort_status(operand: u8) -> u64 {
    1 | (operand as u64) << 24
}

/// An open transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transaction {
    /// The address to continue at after an abort.
    pub(super) fallback: u64,
    /// The general registers at XBEGIN.
    pub(super) general: [u64; 16],
}
