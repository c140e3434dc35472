//! Every register as a type with a common interface, and its [fields](Field).
//!
//! A control register is a set of flags (`bitflags`) or a newtype with a method for each field, and
//! implements [`Register`]: `MSR`, `NAME`, `read`, `read_raw`, `write`, `write_raw`, `update`.
//! Undocumented bits survive a read-modify-write. The registers of a record ([`record`], [`amd`],
//! [`brbe`]) are newtypes without an address: [`RegisterMap`](crate::caps::RegisterMap) holds the
//! addresses, which depend on the CPU.
//!
//! Decoding, arming and the filters take their bits from here, and [`explain`](crate::explain)
//! prints every field. The interface also serves other programs and kernels that access a single
//! register.

use crate::{Msr, MsrError, MsrRead, MsrWrite};

pub mod amd;
pub mod brbe;
pub(crate) mod debugctl;
pub(crate) mod field;
pub(crate) mod perfmon;
pub mod record;
pub(crate) mod select;
mod words;

pub use amd::{AmdLbrSelect, DbgExtnCfg};
pub use debugctl::{DebugCtl, DebugCtlA};
pub use field::{Code, Field};
pub use perfmon::{PerfCapabilities, PerfGlobalStatus, PerfGlobalStatusReset, RtitCtl};
pub use select::{LbrCtl, LbrDepth, LbrSelect, NetBurstTos, Tos};

/// A register with one address.
pub trait Register: Copy + Sized {
    /// Its address.
    const MSR: Msr;
    /// Its name in the manual.
    const NAME: &'static str;
    /// The bits that are described here and belong to branch records. [`write`](Self::write)
    /// preserves all others.
    const DOCUMENTED: u64;

    /// Wraps the register's value; keeps every bit.
    fn from_raw(value: u64) -> Self;

    /// The 64-bit value.
    fn raw(self) -> u64;

    /// Reads the register.
    ///
    /// # Errors
    /// [`MsrError`] of the access.
    fn read(msr: &mut impl MsrRead) -> Result<Self, MsrError> {
        Self::read_raw(msr).map(Self::from_raw)
    }

    /// Reads the raw 64 bits.
    ///
    /// # Errors
    /// [`MsrError`] of the access.
    fn read_raw(msr: &mut impl MsrRead) -> Result<u64, MsrError> {
        msr.read(Self::MSR)
    }

    /// Writes the documented bits of this value and preserves all others, by a read and a write.
    /// The kernel may change the register in between; user space cannot prevent that.
    ///
    /// # Errors
    /// [`MsrError`] of either access.
    fn write(self, msr: &mut impl MsrWrite) -> Result<(), MsrError> {
        let others = Self::read_raw(msr)? & !Self::DOCUMENTED;
        Self::write_raw(msr, others | (self.raw() & Self::DOCUMENTED))
    }

    /// Writes these 64 bits, including reserved ones.
    ///
    /// # Errors
    /// [`MsrError`] of the access.
    fn write_raw(msr: &mut impl MsrWrite, value: u64) -> Result<(), MsrError> {
        msr.write(Self::MSR, value)
    }

    /// Reads the register, applies `change`, and writes all bits back. Returns the value written.
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

/// A register of flags. Each line
///
/// ```text
/// NAME "name in the manual" [bit] "what 1 means" / "what 0 means" needs "condition" in "source";
/// ```
///
/// (second name, condition and source are optional) defines a constant of the `bitflags` type and
/// an entry of its `FIELDS`. `and` adds multi-bit fields, which methods read; `beside` adds bits of
/// other facilities, which are printed but never written.
macro_rules! flags {
    (
        $(#[$doc:meta])*
        $type:ident = $name:literal at $msr:path, $source:literal {
            $($flag:ident $($shown:literal)? [$bit:literal] $set:literal / $clear:literal
                $(needs $exists:literal)? $(in $from:literal)?;)*
        }
        $(and [$($field:expr),* $(,)?])?
        $(beside [$($other:expr),* $(,)?])?
    ) => {
        bitflags::bitflags! {
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            pub struct $type: u64 {
                $(
                    #[doc = concat!("Bit ", $bit, ": ", $set, ".")]
                    const $flag = 1 << $bit;
                )*
                // Other bits belong to someone else and must be kept.
                const _ = !0;
            }
        }
        impl $type {
            /// The fields, from bit 0 up; bits in between are reserved.
            pub const FIELDS: &'static [$crate::register::Field] =
                &$crate::register::field::ascending([
                    $($crate::register::Field::flag(
                        $crate::register::first!($($shown,)? stringify!($flag)),
                        $bit,
                        $set,
                        $clear,
                        $crate::register::first!($($from,)? $source),
                    )$(.needs($exists))?,)*
                    $($($field,)*)?
                    $($($other,)*)?
                ]);
        }
        impl $crate::register::Register for $type {
            const MSR: $crate::Msr = $msr;
            const NAME: &'static str = $name;
            const DOCUMENTED: u64 = $(1 << $bit)|* $($(| $field.mask())*)?;
            fn from_raw(value: u64) -> Self {
                Self::from_bits_retain(value)
            }
            fn raw(self) -> u64 {
                self.bits()
            }
        }
    };
}

/// A register whose value is read by methods: a newtype with its `FIELDS`. Each line
///
/// ```text
/// method NAME [bit] "what 1 means" / "what 0 means";
/// ```
///
/// defines a method and an entry; `and` adds multi-bit fields. With `= "name" at ADDRESS` it is a
/// [`Register`].
macro_rules! fields {
    (
        $(#[$doc:meta])*
        $type:ident $(= $name:literal at $msr:path)?, $source:literal {
            $($method:ident $flag:ident [$bit:literal] $set:literal / $clear:literal;)*
        }
        $(and [$($field:expr),* $(,)?])?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $type(pub u64);

        impl $type {
            /// The fields, from bit 0 up; bits in between are reserved.
            pub const FIELDS: &'static [$crate::register::Field] =
                &$crate::register::field::ascending([
                    $($crate::register::Field::flag(
                        stringify!($flag), $bit, $set, $clear, $source,
                    ),)*
                    $($($field,)*)?
                ]);
            $(
                #[doc = concat!("Bit ", $bit, ", ", stringify!($flag), ": ", $set, ".")]
                #[must_use]
                #[inline]
                pub const fn $method(self) -> bool {
                    self.0 >> $bit & 1 != 0
                }
            )*
        }
        $(
            impl $crate::register::Register for $type {
                const MSR: $crate::Msr = $msr;
                const NAME: &'static str = $name;
                const DOCUMENTED: u64 = $crate::register::field::mask_of(Self::FIELDS);
                fn from_raw(value: u64) -> Self {
                    $type(value)
                }
                fn raw(self) -> u64 {
                    self.0
                }
            }
        )?
    };
}

/// The first of one or two arguments: a line's own source, or else its table's.
macro_rules! first {
    ($first:expr $(, $second:expr)?) => {
        $first
    };
}

pub(crate) use {fields, first, flags};

/// Bits `low` to `low + count - 1` of `value`. `count` is 1 to 64 and `low + count` at most 64.
#[inline]
pub(crate) const fn bits(value: u64, low: u32, count: u32) -> u64 {
    (value >> low) & (u64::MAX >> (64 - count))
}

/// The low `width` bits of `value`, sign-extended; `width` is limited to 1 to 64.
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
