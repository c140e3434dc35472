//! Capabilities that the user supplies for a CPU that the table does not know (`--assume`).

use alloc::string::String;
use core::{fmt, str::FromStr};

use crate::{address::Msr, format::LbrFormat, table, text::hex};

/// The largest depth that may be assumed: the register blocks of FROM, TO and INFO are at most 64
/// apart.
const MAX_DEPTH: u32 = 64;

/// The replacement for the CPU table's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assumption {
    /// The table's row for another model.
    Model {
        /// Display family.
        family: u32,
        /// Display model.
        model: u32,
    },
    /// A list of registers.
    Geometry(Geometry),
}

/// The registers of a model-specific LBR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Records, 1 to 64, a power of two.
    pub depth: u32,
    /// FROM of record 0.
    pub from: Msr,
    /// TO of record 0; `None` for packed records.
    pub to: Option<Msr>,
    /// INFO of record 0.
    pub info: Option<Msr>,
    /// Top of stack.
    pub tos: Option<Msr>,
    /// MSR_LBR_SELECT.
    pub select: Option<Msr>,
    /// LBR_FMT, used if IA32_PERF_CAPABILITIES is unreadable.
    pub format: Option<LbrFormat>,
}

/// Why an assumption could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssumptionError {
    /// Neither a model nor a list.
    #[error(
        "`{text}` is neither a model (FF_MMH, or a name such as skylake) nor a list such as \
         depth=32,from=680,to=6C0,info=DC0,tos=1C9,select=1C8"
    )]
    Shape {
        /// As typed.
        text: String,
    },
    /// An unknown key.
    #[error("`{key}` is unknown; known are depth, from, to, info, tos, select and format")]
    Key {
        /// As typed.
        key: String,
    },
    /// A value that is not a number, or is out of range.
    #[error("{key}={value}: {expected}")]
    Value {
        /// The key.
        key: String,
        /// As typed.
        value: String,
        /// The accepted values.
        expected: &'static str,
    },
    /// A required key is missing.
    #[error("{key}= is missing; depth= and from= are always needed")]
    Missing {
        /// The key.
        key: &'static str,
    },
}

impl FromStr for Assumption {
    type Err = AssumptionError;

    fn from_str(text: &str) -> Result<Assumption, AssumptionError> {
        if let Some((family, model)) = table::parse_cpu(text) {
            return Ok(Assumption::Model { family, model });
        }
        if !text.contains('=') {
            return Err(AssumptionError::Shape { text: text.into() });
        }
        let (mut depth, mut from, mut to) = (None, None, None);
        let (mut info, mut tos, mut select, mut format) = (None, None, None, None);
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| AssumptionError::Shape { text: part.into() })?;
            if matches!(value, "" | "-") {
                continue;
            }
            match key {
                "depth" => depth = Some(parse_depth(value)?),
                "from" => from = Some(address(key, value)?),
                "to" => to = Some(address(key, value)?),
                "info" => info = Some(address(key, value)?),
                "tos" => tos = Some(address(key, value)?),
                "select" => select = Some(address(key, value)?),
                "format" => format = Some(parse_format(value)?),
                _ => return Err(AssumptionError::Key { key: key.into() }),
            }
        }
        Ok(Assumption::Geometry(Geometry {
            depth: depth.ok_or(AssumptionError::Missing { key: "depth" })?,
            from: from.ok_or(AssumptionError::Missing { key: "from" })?,
            to,
            info,
            tos,
            select,
            format,
        }))
    }
}

fn wrong(key: &str, value: &str, expected: &'static str) -> AssumptionError {
    AssumptionError::Value { key: key.into(), value: value.into(), expected }
}

fn parse_depth(value: &str) -> Result<u32, AssumptionError> {
    value
        .parse()
        .ok()
        .filter(|depth: &u32| depth.is_power_of_two() && *depth <= MAX_DEPTH)
        .ok_or_else(|| wrong("depth", value, "a power of two from 1 to 64, in decimal"))
}

fn parse_format(value: &str) -> Result<LbrFormat, AssumptionError> {
    value
        .parse()
        .ok()
        .map(LbrFormat)
        .filter(|format| format.is_known())
        .ok_or_else(|| wrong("format", value, "a record format, 0 to 7"))
}

fn address(key: &str, value: &str) -> Result<Msr, AssumptionError> {
    hex(value)
        .and_then(|msr| u32::try_from(msr).ok())
        // Leaves space for the last record's register.
        .filter(|msr| msr.checked_add(MAX_DEPTH).is_some())
        .map(Msr)
        .ok_or_else(|| wrong(key, value, "a register address in hexadecimal"))
}

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Assumption::Model { family, model } => write!(f, "{family:02X}_{model:02X}"),
            Assumption::Geometry(g) => {
                write!(f, "depth={},from={:X}", g.depth, g.from.0)?;
                let registers =
                    [("to", g.to), ("info", g.info), ("tos", g.tos), ("select", g.select)];
                for (key, msr) in registers {
                    if let Some(msr) = msr {
                        write!(f, ",{key}={:X}", msr.0)?;
                    }
                }
                match g.format {
                    Some(format) => write!(f, ",format={}", format.0),
                    None => Ok(()),
                }
            }
        }
    }
}
