//! Builds a register value from field names.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};

use super::Register;
use crate::text::hex;

impl Register {
    /// The value with the named fields set: `name` sets a one-bit field, `name=value` any field
    /// (hexadecimal, `0x` optional). Case does not matter. All other bits are 0.
    ///
    /// # Errors
    /// [`BuildError`] for an unknown field or a value that does not fit.
    pub fn build<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Result<u64, BuildError> {
        let mut register = 0;
        for word in words {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name.trim(), Some(value.trim())),
                None => (word.trim(), None),
            };
            let field = self
                .described()
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
                Some(text) => {
                    hex(text).filter(|value| *value <= field.of(u64::MAX)).ok_or_else(|| {
                        BuildError::BadValue {
                            field: field.name,
                            value: text.to_string(),
                            width: field.width(),
                        }
                    })?
                }
            };
            register = register & !field.mask() | value << field.low;
        }
        Ok(register)
    }

    fn field_names(&self) -> String {
        let names: Vec<&str> = self.described().map(|field| field.name).collect();
        names.join(", ")
    }
}

/// Why a value could not be built from words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The register lacks the field.
    #[error("{register} has no field {word}; its fields: {fields}")]
    NoSuchField {
        /// The register.
        register: String,
        /// The word as typed.
        word: String,
        /// The register's field names.
        fields: String,
    },
    /// A field wider than one bit was named without a value.
    #[error("{field} has {width} bits: give it a value, {field}=HEX")]
    NeedsValue {
        /// The field.
        field: &'static str,
        /// Its width in bits.
        width: u32,
    },
    /// The value is not hexadecimal, or is too large.
    #[error("{value:?} is not a hexadecimal value of at most {width} bits, as {field} needs")]
    BadValue {
        /// The field.
        field: &'static str,
        /// The value as typed.
        value: String,
        /// The field's width in bits.
        width: u32,
    },
}
