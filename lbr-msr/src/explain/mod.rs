//! What the bits of every register mean, as data.
//!
//! [`find`] looks a register up by the name that a manual gives it, or by its
//! address. Where one name or address means different things on different
//! CPUs, the CPU decides; without one, the layout of current CPUs is taken
//! and [`Register::variant`] says which.
//!
//! The fields of a register cover all of its 64 bits, each once: what no
//! manual describes is a field called `reserved`.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use crate::{Msr, address, caps::FilterRegister};

mod amd;
mod arm;
mod control;
mod cpu;
mod debugctl;
mod find;
mod near;
mod perfmon;
mod records;
mod words;

use cpu::Group;
pub use cpu::{BadCpuKey, CpuKey};
pub use find::{FindError, find};

/// Some adjacent bits of a register.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The manual's name; `reserved` where it has none.
    pub name: &'static str,
    /// The highest bit, 0 to 63.
    pub high: u8,
    /// The lowest bit, at most `high`.
    pub low: u8,
    /// The manual and place that describe the field, as the crate's
    /// documentation abbreviates them.
    pub source: &'static str,
    meaning: Meaning,
}

/// How a field's value turns into words.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    /// One bit.
    Flag {
        set: &'static str,
        clear: &'static str,
        /// What tells that the bit exists, where not every CPU of the entry
        /// has it.
        exists: Option<&'static str>,
    },
    /// Anything wider.
    Value {
        about: &'static str,
        /// From the field's value and that of the register.
        words: fn(&Field, u64, u64) -> String,
    },
    /// Bits without a meaning.
    Reserved,
}

/// A control or state of one bit.
const fn flag(
    name: &'static str,
    bit: u8,
    set: &'static str,
    clear: &'static str,
    source: &'static str,
) -> Field {
    Field { name, high: bit, low: bit, source, meaning: Meaning::Flag { set, clear, exists: None } }
}

impl Field {
    /// A field of several bits.
    const fn value(
        name: &'static str,
        high: u8,
        low: u8,
        about: &'static str,
        words: fn(&Field, u64, u64) -> String,
        source: &'static str,
    ) -> Field {
        Field { name, high, low, source, meaning: Meaning::Value { about, words } }
    }

    /// A flag that exists only where there is what `condition` names.
    const fn needs(self, condition: &'static str) -> Field {
        match self.meaning {
            Meaning::Flag { set, clear, .. } => {
                Field { meaning: Meaning::Flag { set, clear, exists: Some(condition) }, ..self }
            }
            Meaning::Value { .. } | Meaning::Reserved => self,
        }
    }

    const fn reserved(high: u8, low: u8, source: &'static str) -> Field {
        Field { name: "reserved", high, low, source, meaning: Meaning::Reserved }
    }

    /// Whether no manual describes these bits.
    #[must_use]
    pub const fn is_reserved(&self) -> bool {
        matches!(self.meaning, Meaning::Reserved)
    }

    /// How many bits it has.
    #[must_use]
    pub const fn width(&self) -> u32 {
        (self.high - self.low) as u32 + 1
    }

    /// The bits in their place.
    #[must_use]
    pub const fn mask(&self) -> u64 {
        (u64::MAX >> (64 - self.width())) << self.low
    }

    /// The field's value in a register that holds `register`.
    #[must_use]
    pub const fn of(&self, register: u64) -> u64 {
        (register & self.mask()) >> self.low
    }

    /// What the field's value in a register that holds `register` means.
    #[must_use]
    pub fn meaning(&self, register: u64) -> String {
        let value = self.of(register);
        match self.meaning {
            Meaning::Flag { set, .. } if value != 0 => set.to_string(),
            Meaning::Flag { clear, .. } => clear.to_string(),
            Meaning::Value { words, .. } => words(self, value, register),
            Meaning::Reserved if value == 0 => "reserved".to_string(),
            Meaning::Reserved => "reserved, and not zero".to_string(),
        }
    }

    /// What the field means, whatever its value.
    #[must_use]
    pub fn about(&self) -> String {
        match self.meaning {
            Meaning::Flag { set, clear, exists: None } => format!("1: {set}; 0: {clear}"),
            Meaning::Flag { set, clear, exists: Some(condition) } => {
                format!("1: {set}; 0: {clear}; needs {condition}")
            }
            Meaning::Value { about, .. } => about.to_string(),
            Meaning::Reserved => "reserved".to_string(),
        }
    }
}

/// A register of the catalogue.
#[derive(Debug)]
struct Entry {
    /// The manual's name, with `{n}` where an index stands.
    name: &'static str,
    /// Other names. `MSR_` and `IA32_` in front are never needed.
    aliases: &'static [&'static str],
    place: Place,
    /// Which CPUs, none for Arm's registers; the first entry that fits a name
    /// is taken without a CPU.
    on: &'static [Group],
    /// What tells this entry from others of the same name or address.
    variant: Option<&'static str>,
    summary: &'static str,
    source: &'static str,
    /// Ascending; gaps are reserved.
    fields: &'static [Field],
}

/// Where a register is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// One MSR.
    At(Msr),
    /// `count` MSRs, each `stride` above the one before.
    Each { first: Msr, stride: u32, count: u32 },
    /// One of Arm's system registers: op0 is 2 and CRn 9.
    System { op1: u8, crm: u8, op2: u8 },
    /// `count` of Arm's system registers: op0 is 2, op1 1, CRn 8, CRm the low
    /// four bits of the index, and its fifth goes above the two of `op2`.
    SystemEach { count: u32, op2: u8 },
}

impl Entry {
    /// A register that exists once on each of its CPUs.
    const fn one(
        name: &'static str,
        aliases: &'static [&'static str],
        msr: Msr,
        (on, variant): (&'static [Group], &'static str),
        summary: &'static str,
        source: &'static str,
        fields: &'static [Field],
    ) -> Entry {
        Entry {
            name,
            aliases,
            place: Place::At(msr),
            on,
            variant: Some(variant),
            summary,
            source,
            fields,
        }
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        [self.name].into_iter().chain(self.aliases.iter().copied())
    }

    /// How many there are; `None` for a register without an index.
    const fn count(&self) -> Option<u32> {
        match self.place {
            Place::At(_) | Place::System { .. } => None,
            Place::Each { count, .. } | Place::SystemEach { count, .. } => Some(count),
        }
    }
}

fn catalogue() -> impl Iterator<Item = &'static Entry> {
    perfmon::ENTRIES
        .iter()
        .chain(debugctl::ENTRIES)
        .chain(control::ENTRIES)
        .chain(records::ENTRIES)
        .chain(amd::ENTRIES)
        .chain(arm::ENTRIES)
}

/// A register of one CPU, or of current CPUs.
#[derive(Clone, Copy, Debug)]
pub struct Register {
    entry: &'static Entry,
    index: Option<u32>,
    chosen: bool,
}

impl Register {
    /// The manual's name.
    #[must_use]
    pub fn name(&self) -> String {
        match self.index {
            Some(index) => self.entry.name.replace("{n}", &index.to_string()),
            None => self.entry.name.to_string(),
        }
    }

    /// Its address; `None` for a system register of Arm.
    #[must_use]
    pub fn msr(&self) -> Option<Msr> {
        match self.entry.place {
            Place::At(msr) => Some(msr),
            Place::Each { first, stride, .. } => {
                Some(Msr(first.0.wrapping_add(stride.wrapping_mul(self.index.unwrap_or(0)))))
            }
            Place::System { .. } | Place::SystemEach { .. } => None,
        }
    }

    /// A system register of Arm as assemblers take it, `S<op0>_<op1>_C<CRn>_C<CRm>_<op2>`;
    /// `None` for a register with an MSR address. BRBE; the op2 of the
    /// registers that exist once for each record is from one source.
    #[must_use]
    pub fn encoding(&self) -> Option<String> {
        match self.entry.place {
            Place::At(_) | Place::Each { .. } => None,
            Place::System { op1, crm, op2 } => Some(format!("S2_{op1}_C9_C{crm}_{op2}")),
            Place::SystemEach { op2, .. } => {
                let index = self.index.unwrap_or(0);
                let (crm, bank) = (index & 0xF, index >> 4 & 1);
                Some(format!("S2_1_C8_C{crm}_{}", bank << 2 | u32::from(op2)))
            }
        }
    }

    /// What it is for, in a sentence.
    #[must_use]
    pub fn summary(&self) -> &'static str {
        self.entry.summary
    }

    /// The manual and place that describe it.
    #[must_use]
    pub fn source(&self) -> &'static str {
        self.entry.source
    }

    /// Where the name or address means several things: which of them this is.
    #[must_use]
    pub fn variant(&self) -> Option<&'static str> {
        self.entry.variant
    }

    /// Whether the variant follows from the name, the address or the CPU;
    /// otherwise it is the one of current CPUs, for want of a better.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.chosen
    }

    /// How intent turns into a value of this register, where it is a filter:
    /// what `filter` needs to know to convert.
    #[must_use]
    pub fn filter(&self) -> Option<FilterRegister> {
        let has = |name| self.entry.fields.iter().any(|field| field.name == name);
        match self.msr()? {
            address::MSR_LBR_SELECT => Some(FilterRegister::LbrSelect {
                jumps_swallow_calls: self.entry.on.contains(&Group::Nehalem),
                call_stack: has("EN_CALLSTACK"),
            }),
            address::IA32_LBR_CTL => {
                Some(FilterRegister::LbrCtl { cpl: true, branch: true, call_stack: true })
            }
            address::AMD_LBR_SELECT => Some(FilterRegister::AmdSelect),
            _ => None,
        }
    }

    /// All fields, from bit 0 up, reserved ones included: every bit belongs
    /// to one.
    #[must_use]
    pub fn fields(&self) -> Vec<Field> {
        let mut fields = Vec::new();
        let mut next = 0;
        for field in self.entry.fields {
            if field.low > next {
                fields.push(Field::reserved(field.low - 1, next, self.entry.source));
            }
            fields.push(*field);
            next = field.high + 1;
        }
        if next < 64 {
            fields.push(Field::reserved(63, next, self.entry.source));
        }
        fields
    }

    /// The value with the named fields set: `name` sets a field of one bit,
    /// `name=value` gives any field a value (hexadecimal, `0x` optional).
    /// Case does not matter. All other bits are 0.
    ///
    /// # Errors
    /// [`BuildError`] for a word that is not a field of this register or a
    /// value that does not fit.
    pub fn build<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Result<u64, BuildError> {
        let mut register = 0;
        for word in words {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name.trim(), Some(value.trim())),
                None => (word.trim(), None),
            };
            let field = self
                .entry
                .fields
                .iter()
                .find(|field| field.name.eq_ignore_ascii_case(name))
                .ok_or_else(|| BuildError::NoSuchField {
                    register: self.name(),
                    word: name.to_string(),
                    fields: self.field_names(),
                })?;
            let value = match value {
                None if field.width() == 1 => 1,
                None => {
                    return Err(BuildError::NeedsValue { field: field.name, width: field.width() });
                }
                Some(text) => near::hex(text)
                    .filter(|value| *value <= field.of(u64::MAX))
                    .ok_or_else(|| BuildError::BadValue {
                        field: field.name,
                        value: text.to_string(),
                        width: field.width(),
                    })?,
            };
            register = register & !field.mask() | value << field.low;
        }
        Ok(register)
    }

    fn field_names(&self) -> String {
        let names: Vec<&str> = self.entry.fields.iter().map(|field| field.name).collect();
        names.join(", ")
    }
}

/// Why a value could not be built from words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The register has no field of that name.
    #[error("{register} has no field {word}; its fields: {fields}")]
    NoSuchField {
        /// The register.
        register: String,
        /// The word.
        word: String,
        /// The names that it has.
        fields: String,
    },
    /// A field of several bits was named without a value.
    #[error("{field} has {width} bits: give it a value, {field}=HEX")]
    NeedsValue {
        /// The field.
        field: &'static str,
        /// Its width in bits.
        width: u32,
    },
    /// The value is not hexadecimal, or too large.
    #[error("{value:?} is not a hexadecimal value of {width} bits, which {field} needs")]
    BadValue {
        /// The field.
        field: &'static str,
        /// The text.
        value: String,
        /// The field's width in bits.
        width: u32,
    },
}

/// Every register, for tests and for lists: the name of each entry of the
/// catalogue with index 0, and the register.
pub fn all() -> impl Iterator<Item = Register> {
    catalogue().map(|entry| Register {
        entry,
        index: entry.name.contains("{n}").then_some(0),
        chosen: true,
    })
}
