//! Code locations as users write them: an address, a function, or a line.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use lbr_msr::text::hex;

/// A code location as written.
///
/// | text | meaning |
/// |---|---|
/// | `0x401136`, `1149`, `c0de5` | an address of the recording |
/// | `main` | a function, all of it |
/// | `main+1a`, `main+0x1a` | the byte at that hexadecimal offset |
/// | `libc.so.6:malloc`, `libc.so.6:malloc+4` | the same in the given file |
/// | `foo.c:12`, `src/foo.c:12` | all code of a source line |
///
/// Without 0x, an address has at least three hexadecimal digits, the first a decimal one, or at
/// least five with a decimal one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LocationSpec {
    /// An address of the recording.
    Address(u64),
    /// A function, or a byte of it.
    Symbol {
        /// Name, or end of the path, of its file; `None` for any.
        file: Option<String>,
        /// Its name, mangled or demangled.
        name: String,
        /// Bytes from its start; `None` for all of it.
        offset: Option<u64>,
    },
    /// A line of source.
    Line {
        /// The end of the file's path.
        file: String,
        /// The line, counted from 1.
        line: u32,
    },
}

/// A text that is not a code location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a location: expected an address (0x401136), a function (main, main+0x1a, libc.so.6:malloc) or a line (foo.c:12)"
)]
pub struct ParsePlaceError(pub String);

impl FromStr for LocationSpec {
    type Err = ParsePlaceError;

    fn from_str(text: &str) -> Result<LocationSpec, ParsePlaceError> {
        let text = without_remark(text.trim());
        let wrong = || ParsePlaceError(text.to_owned());
        if text.starts_with("0x") || text.starts_with("0X") {
            return hex(text).map(LocationSpec::Address).ok_or_else(wrong);
        }
        let is_number = text.starts_with(|first: char| first.is_ascii_digit()) && text.len() >= 3;
        let is_mixed = text.len() >= 5 && text.bytes().any(|digit| digit.is_ascii_digit());
        if (is_number || is_mixed)
            && let Some(addr) = hex(text)
        {
            return Ok(LocationSpec::Address(addr));
        }
        if let Some((file, line)) = text.rsplit_once(':')
            && !file.is_empty()
            && !file.ends_with(':')
            && line.bytes().all(|digit| digit.is_ascii_digit())
        {
            let line = line.parse().ok().filter(|line| *line > 0).ok_or_else(wrong)?;
            return Ok(LocationSpec::Line { file: file.to_owned(), line });
        }
        let (file, name) = match file_colon(text) {
            Some((file, name)) => (Some(file.to_owned()), name),
            None => (None, text),
        };
        let file_len = file.as_ref().map_or(0, |file| file.len() + 1);
        let (name, offset) = match name.rsplit_once('+') {
            // `operator+` and `operator++` have no digits after the sign.
            Some((name, digits)) if !name.is_empty() => match hex(digits) {
                Some(offset) => (name, Some(offset)),
                None => (text.get(file_len..).unwrap_or(text), None),
            },
            _ => (name, None),
        };
        // Plain digits are neither an address nor a name.
        let begins = |c: char| c.is_alphabetic() || "_.$~<({?@".contains(c);
        // A file may have any name.
        let is_name = name.starts_with(begins) || offset.is_some();
        if !is_name || name.ends_with(':') {
            return Err(wrong());
        }
        Ok(LocationSpec::Symbol { file, name: name.to_owned(), offset })
    }
}

/// The two ends of `FIRST..LAST`, as written. `+0x1c` as the last is in the function of the first,
/// as views print it.
pub fn ends(text: &str) -> Option<(&str, Cow<'_, str>)> {
    let (first, last) = text.split_once("..")?;
    let (first, last) = (first.trim(), last.trim());
    let function = last.starts_with('+').then(|| first.parse());
    let last = match function {
        Some(Ok(LocationSpec::Symbol { file, name, .. })) => {
            format!("{}{last}", LocationSpec::Symbol { file, name, offset: None }).into()
        }
        _ => last.into(),
    };
    Some((first, last))
}

/// An address or an offset in something, without what a view adds in parentheses.
fn without_remark(text: &str) -> &str {
    let is_place = |place: &&str| {
        let number = place.rsplit_once('+').map_or(*place, |(_, offset)| offset);
        number.starts_with("0x") && hex(number).is_some()
    };
    let remarks = text.match_indices(" (").filter_map(|(at, _)| text.get(..at));
    remarks.into_iter().find(is_place).filter(|_| text.ends_with(')')).unwrap_or(text)
}

/// `FILE:NAME`: the first single colon, before any bracket.
fn file_colon(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let end = text.find(['(', '<', '{']).unwrap_or(text.len());
    let at = (1..end).find(|&at| {
        let colon = |at: usize| bytes.get(at) == Some(&b':');
        colon(at) && !colon(at + 1) && !colon(at - 1)
    })?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

impl fmt::Display for LocationSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocationSpec::Address(addr) => write!(f, "{addr:#x}"),
            LocationSpec::Symbol { file, name, offset } => {
                if let Some(file) = file {
                    write!(f, "{file}:")?;
                }
                write!(f, "{name}")?;
                offset.map_or(Ok(()), |offset| write!(f, "+{offset:#x}"))
            }
            LocationSpec::Line { file, line } => write!(f, "{file}:{line}"),
        }
    }
}
