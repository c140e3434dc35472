//! Every register as a type, and its [fields](Field).
//!
//! A control register is a set of flags (`bitflags`) or a newtype with a method for each field.
//! Undocumented bits survive a conversion. The registers of a record ([`record`], [`amd`],
//! [`brbe`]) are newtypes. [`RegisterMap`](crate::caps::RegisterMap) holds the addresses, which
//! depend on the CPU.
//!
//! Decoding, arming and the filters take their bits from here, and [`explain`](crate::explain)
//! prints every field.

pub mod amd;
pub mod brbe;
pub(crate) mod debugctl;
pub(crate) mod field;
pub(crate) mod perfmon;
pub(crate) mod pmu;
pub mod record;
pub(crate) mod select;
mod words;

pub use amd::{AmdLbrSelect, DbgExtnCfg};
pub use debugctl::{DebugCtl, DebugCtlA};
pub use field::{Code, Field};
pub use perfmon::{PerfCapabilities, PerfGlobalStatus, PerfGlobalStatusReset, RtitCtl};
pub use select::{LbrCtl, LbrDepth, LbrSelect, NetBurstTos, Tos};

/// A register of flags. Each line
///
/// ```text
/// NAME "name in the manual" [bit] "what 1 means" / "what 0 means" needs "condition" in "source";
/// ```
///
/// (second name, condition and source are optional) defines a constant of the `bitflags` type and
/// an entry of its `FIELDS`. `and` adds multi-bit fields, which methods read; `besides` adds bits of
/// other facilities, which are printed but never written.
macro_rules! flags {
    (
        $(#[$doc:meta])*
        $type:ident, $source:literal {
            $($flag:ident $($shown:literal)? [$bit:literal] $set:literal / $clear:literal
                $(needs $exists:literal)? $(in $from:literal)?;)*
        }
        $(and [$($field:expr),* $(,)?])?
        $(besides [$($other:expr),* $(,)?])?
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
            /// The bits that are described here and belong to branch records.
            pub const DOCUMENTED: u64 = $(1 << $bit)|* $($(| $field.mask())*)?;
            /// The fields, from bit 0 up; bits in between are reserved.
            pub const FIELDS: &'static [$crate::register::Field] =
                &$crate::register::table! {
                    $source {
                        $($flag $($shown)? [$bit] $set / $clear
                            $(needs $exists)? $(in $from)?;)*
                    }
                    and [$($($field,)*)? $($($other,)*)?]
                };
        }
    };
}

/// A register whose value is read by methods: a newtype with its `FIELDS`. Each line
///
/// ```text
/// method NAME [bit] "what 1 means" / "what 0 means";
/// ```
///
/// defines a method and an entry; `and` adds multi-bit fields.
macro_rules! fields {
    (
        $(#[$doc:meta])*
        $type:ident, $source:literal {
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
                &$crate::register::table! {
                    $source { $($flag [$bit] $set / $clear;)* }
                    and [$($($field,)*)?]
                };
            $(
                #[doc = concat!("Bit ", $bit, ", ", stringify!($flag), ": ", $set, ".")]
                #[inline]
                pub const fn $method(self) -> bool {
                    self.0 >> $bit & 1 != 0
                }
            )*
        }
    };
}

/// The fields of a register, from bit 0 up, in the notation of [`flags`].
macro_rules! table {
    (
        $source:literal {
            $($flag:ident $($shown:literal)? [$bit:literal] $set:literal / $clear:literal
                $(needs $exists:literal)? $(in $from:literal)?;)*
        }
        $(and [$($field:expr),* $(,)?])?
    ) => {
        $crate::register::field::ascending([
            $($crate::register::Field::flag(
                $crate::register::first!($($shown,)? stringify!($flag)),
                $bit,
                $set,
                $clear,
                $crate::register::first!($($from,)? $source),
            )$(.needs($exists))?,)*
            $($($field,)*)?
        ])
    };
}

/// The first of one or two arguments: a line's own source, or else its table's.
macro_rules! first {
    ($first:expr $(, $second:expr)?) => {
        $first
    };
}

pub(crate) use {fields, first, flags, table};

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
