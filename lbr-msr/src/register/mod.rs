//! Every register as a type, with one grammar.
//!
//! A control register is a set of flags (`bitflags`) or a newtype with a
//! method for each field, and implements [`Register`]: `MSR`, `NAME`, `read`,
//! `read_raw`, `write`, `write_raw`, `update`. Bits that nobody documents
//! survive a read-modify-write. A register that exists once for each record
//! is a newtype over its value with [`RecordRegister`]'s grammar: the same,
//! with the address told by the [`RegisterMap`], because the same value layout stands at
//! different addresses on different CPUs.
//!
//! [`RegisterMap`]: crate::caps::RegisterMap

use crate::{Msr, MsrError, MsrRead, MsrWrite};

pub mod brbe;
mod control;
mod netburst;
mod perfmon;
pub mod record;

pub use control::{AmdLbrSelect, DbgExtnCfg, DebugCtl, LbrCtl, LbrDepth, LbrSelect, Tos};
pub use netburst::{DebugCtlA, NetBurstTos};
pub use perfmon::{PerfCapabilities, PerfGlobalStatus, PerfGlobalStatusReset, RtitCtl};

/// A register with one address.
pub trait Register: Copy + Sized {
    /// Its address.
    const MSR: Msr;
    /// Its name in the manual.
    const NAME: &'static str;
    /// The bits that have a name here. All others are preserved by
    /// [`write`](Self::write).
    const DOCUMENTED: u64;

    /// The register's value as this type; every bit is kept.
    fn from_raw(value: u64) -> Self;

    /// All 64 bits.
    fn raw(self) -> u64;

    /// Reads the register.
    ///
    /// # Errors
    /// [`MsrError`] of the access.
    fn read(msr: &mut impl MsrRead) -> Result<Self, MsrError> {
        Self::read_raw(msr).map(Self::from_raw)
    }

    /// Reads the 64 bits as they are.
    ///
    /// # Errors
    /// [`MsrError`] of the access.
    fn read_raw(msr: &mut impl MsrRead) -> Result<u64, MsrError> {
        msr.read(Self::MSR)
    }

    /// Writes the documented bits of this value and leaves all others as the
    /// register has them: a read, then a write. Between the two the kernel
    /// may change the register; nothing can prevent that from user space.
    ///
    /// # Errors
    /// [`MsrError`] of either access.
    fn write(self, msr: &mut impl MsrWrite) -> Result<(), MsrError> {
        let kept = Self::read_raw(msr)? & !Self::DOCUMENTED;
        Self::write_raw(msr, kept | (self.raw() & Self::DOCUMENTED))
    }

    /// Writes these 64 bits, reserved ones included.
    ///
    /// # Errors
    /// [`MsrError`] of the access.
    fn write_raw(msr: &mut impl MsrWrite, value: u64) -> Result<(), MsrError> {
        msr.write(Self::MSR, value)
    }

    /// Reads the register, lets `change` work on it, and writes all of it
    /// back. Returns what was written.
    ///
    /// # Errors
    /// [`MsrError`] of either access.
    fn update(msr: &mut impl MsrWrite, change: impl FnOnce(&mut Self)) -> Result<Self, MsrError> {
        let mut value = Self::read(msr)?;
        change(&mut value);
        Self::write_raw(msr, value.raw())?;
        Ok(value)
    }
}

/// A register that exists once for each record. `at` is the address of the
/// one in question, as [`RegisterMap`](crate::caps::RegisterMap) gives it.
pub trait RecordRegister: Copy + Sized {
    /// Its name in the manual, `n` standing for the index.
    const NAME: &'static str;

    /// The register's value as this type; every bit is kept.
    fn from_raw(value: u64) -> Self;

    /// All 64 bits.
    fn raw(self) -> u64;

    /// Reads the register.
    ///
    /// # Errors
    /// [`MsrError`] of the access.
    fn read(msr: &mut impl MsrRead, at: Msr) -> Result<Self, MsrError> {
        msr.read(at).map(Self::from_raw)
    }

    /// Writes all 64 bits. Records have no bits to preserve: the CPU
    /// overwrites the whole register at the next branch.
    ///
    /// # Errors
    /// [`MsrError`] of the access.
    fn write(self, msr: &mut impl MsrWrite, at: Msr) -> Result<(), MsrError> {
        msr.write(at, self.raw())
    }
}

/// Gives a `bitflags` type the grammar of a register.
macro_rules! flag_register {
    ($type:ty, $msr:expr, $name:literal) => {
        impl $crate::register::Register for $type {
            const MSR: $crate::Msr = $msr;
            const NAME: &'static str = $name;
            const DOCUMENTED: u64 = {
                // The unnamed flag that keeps unknown bits is not counted.
                let mut bits = 0;
                let mut i = 0;
                while i < <$type as bitflags::Flags>::FLAGS.len() {
                    let flag = &<$type as bitflags::Flags>::FLAGS[i];
                    if flag.is_named() {
                        bits |= flag.value().bits();
                    }
                    i += 1;
                }
                bits | <$type>::FIELDS
            };
            fn from_raw(value: u64) -> Self {
                Self::from_bits_retain(value)
            }
            fn raw(self) -> u64 {
                self.bits()
            }
        }
    };
}
pub(crate) use flag_register;

/// `count` bits of `value` from bit `low` up. `count` is 1 to 64 and
/// `low + count` at most 64.
#[inline]
pub(crate) const fn bits(value: u64, low: u32, count: u32) -> u64 {
    (value >> low) & (u64::MAX >> (64 - count))
}

/// The low `width` bits of `value`, sign-extended; a width outside 1 to 64
/// counts as the nearest of the two.
#[inline]
pub(crate) const fn sign_extend(value: u64, width: u32) -> u64 {
    let width = if width < 1 {
        1
    } else if width > 64 {
        64
    } else {
        width
    };
    let shift = 64 - width;
    ((value << shift) as i64 >> shift) as u64
}
