//! A register's fields as data: bits, the manual's name, the meaning of values, and the source.
//!
//! Each register is described once, by the fields next to its type. The type takes its bits from
//! them, and [`explain`](crate::explain) prints them.

use alloc::{
    format,
    string::{String, ToString},
};

use super::bits;

/// Adjacent bits of a register.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The manual's name, or `reserved`.
    pub name: &'static str,
    /// The highest bit, 0 to 63.
    pub high: u8,
    /// The lowest bit, at most `high`.
    pub low: u8,
    /// The manual and section that describe the field, abbreviated as in the crate's documentation.
    pub source: &'static str,
    meaning: Meaning,
}

/// How a value is described.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    /// One bit.
    Flag {
        set: &'static str,
        clear: &'static str,
        /// The condition under which the bit exists, if not every CPU with the register has it.
        exists: Option<&'static str>,
    },
    /// Each value has its own meaning.
    Codes { about: &'static str, codes: &'static [Code], other: &'static str },
    /// A number, or a value whose meaning depends on other bits.
    Value { about: &'static str, words: Words },
    /// Undocumented bits.
    Reserved,
}

/// Describes a field, given its value and the whole register's.
pub(crate) type Words = fn(&Field, u64, u64) -> String;

/// The meaning of one value of a field, or of adjacent values.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    /// The lowest value.
    pub first: u64,
    /// The highest value.
    pub last: u64,
    /// The manual's name, or empty.
    pub name: &'static str,
    /// The description; empty if the name is enough.
    pub words: &'static str,
}

impl Code {
    /// Name and description together.
    pub fn meaning(&self) -> String {
        match (self.name, self.words) {
            ("", alone) | (alone, "") => alone.to_string(),
            (name, words) => format!("{name}: {words}"),
        }
    }
}

pub(crate) const fn code(value: u64, name: &'static str, words: &'static str) -> Code {
    Code { first: value, last: value, name, words }
}

impl Field {
    /// A one-bit control or status.
    pub(crate) const fn flag(
        name: &'static str,
        bit: u8,
        set: &'static str,
        clear: &'static str,
        source: &'static str,
    ) -> Field {
        let meaning = Meaning::Flag { set, clear, exists: None };
        Field { name, high: bit, low: bit, source, meaning }
    }

    /// A field whose values have separate meanings; unlisted values are reserved.
    pub(crate) const fn codes(
        name: &'static str,
        (high, low): (u8, u8),
        about: &'static str,
        codes: &'static [Code],
        source: &'static str,
    ) -> Field {
        let meaning = Meaning::Codes { about, codes, other: "reserved code" };
        Field { name, high, low, source, meaning }
    }

    /// A number, or a value whose meaning depends on other bits.
    pub(crate) const fn value(
        name: &'static str,
        (high, low): (u8, u8),
        about: &'static str,
        words: Words,
        source: &'static str,
    ) -> Field {
        Field { name, high, low, source, meaning: Meaning::Value { about, words } }
    }

    pub(crate) const fn reserved(high: u8, low: u8, source: &'static str) -> Field {
        Field { name: "reserved", high, low, source, meaning: Meaning::Reserved }
    }

    /// A flag that exists only under `condition`.
    pub(crate) const fn needs(self, condition: &'static str) -> Field {
        match self.meaning {
            Meaning::Flag { set, clear, .. } => {
                Field { meaning: Meaning::Flag { set, clear, exists: Some(condition) }, ..self }
            }
            _ => self,
        }
    }

    /// The same field with another source.
    pub(crate) const fn cited(self, source: &'static str) -> Field {
        Field { source, ..self }
    }

    /// A field with codes; `other` describes the unlisted ones.
    pub(crate) const fn otherwise(self, other: &'static str) -> Field {
        match self.meaning {
            Meaning::Codes { about, codes, .. } => {
                Field { meaning: Meaning::Codes { about, codes, other }, ..self }
            }
            _ => self,
        }
    }

    /// Whether the bits are undocumented.
    pub const fn is_reserved(&self) -> bool {
        matches!(self.meaning, Meaning::Reserved)
    }

    /// Width in bits.
    pub const fn width(&self) -> u32 {
        (self.high - self.low) as u32 + 1
    }

    /// The field's bits as a mask of the register.
    pub const fn mask(&self) -> u64 {
        (u64::MAX >> (64 - self.width())) << self.low
    }

    /// The field's value in the register value `register`.
    #[inline]
    pub const fn of(&self, register: u64) -> u64 {
        bits(register, self.low as u32, self.width())
    }

    /// The values with separate meanings, in ascending order; empty for flags, numbers and reserved
    /// bits.
    pub const fn known_codes(&self) -> &'static [Code] {
        match self.meaning {
            Meaning::Codes { codes, .. } => codes,
            _ => &[],
        }
    }

    /// Describes the field's value in the register value `register`.
    pub fn meaning(&self, register: u64) -> String {
        let value = self.of(register);
        match self.meaning {
            Meaning::Flag { set, .. } if value != 0 => set.to_string(),
            Meaning::Flag { clear, .. } => clear.to_string(),
            Meaning::Codes { codes, other, .. } => codes
                .iter()
                .find(|code| (code.first..=code.last).contains(&value))
                .map_or_else(|| other.to_string(), Code::meaning),
            Meaning::Value { words, .. } => words(self, value, register),
            Meaning::Reserved if value == 0 => "reserved".to_string(),
            Meaning::Reserved => "reserved, but not zero".to_string(),
        }
    }

    /// Describes the field for any value.
    pub fn about(&self) -> String {
        match self.meaning {
            Meaning::Flag { set, clear, exists: None } => format!("1: {set}; 0: {clear}"),
            Meaning::Flag { set, clear, exists: Some(condition) } => {
                format!("1: {set}; 0: {clear}; needs {condition}")
            }
            Meaning::Codes { about, .. } | Meaning::Value { about, .. } => about.to_string(),
            Meaning::Reserved => "reserved".to_string(),
        }
    }
}

/// Sorts the fields by position, bit 0 first.
pub(crate) const fn ascending<const N: usize>(mut fields: [Field; N]) -> [Field; N] {
    let mut i = 1;
    while i < N {
        let mut j = i;
        while j > 0 && fields[j].low < fields[j - 1].low {
            let field = fields[j];
            fields[j] = fields[j - 1];
            fields[j - 1] = field;
            j -= 1;
        }
        i += 1;
    }
    fields
}

/// The fields, with `by` replacing those at the same bits: for CPUs whose register differs
/// slightly.
pub(crate) const fn replacing<const N: usize>(fields: &[Field], by: &[Field]) -> [Field; N] {
    let mut all = [fields[0]; N];
    assert!(fields.len() == N);
    let mut i = 0;
    while i < N {
        all[i] = fields[i];
        let mut j = 0;
        while j < by.len() {
            if by[j].low == fields[i].low {
                all[i] = by[j];
            }
            j += 1;
        }
        i += 1;
    }
    all
}
