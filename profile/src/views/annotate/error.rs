//! Errors of finding the code to show.

use crate::code::place::PlaceError;

/// Why no code was found.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// No function has this name.
    #[error("no function {name} in the files of this recording{instead}{}", because(why))]
    Unknown {
        /// The name.
        name: String,
        /// Files that give no names, and why.
        why: Vec<String>,
        /// The most similar names, as text for the message.
        instead: String,
    },
    /// The function exists only as inlined copies.
    #[error(
        "{name} exists only inlined into {}; annotate {}",
        into.join(", "),
        if into.len() == 1 { "that" } else { "one of these" }
    )]
    Inlined {
        /// The name.
        name: String,
        /// The functions it was inlined into, if they ran.
        into: Vec<String>,
    },
    /// No file contains its code.
    #[error("the code bytes of {what} are not available: {why}")]
    NoCode {
        /// The requested code.
        what: String,
        /// The reason.
        why: &'static str,
    },
    /// No symbol covers the address.
    #[error(
        "no symbol of {path} covers {addr:#x}{}: give a range, such as {:#x}..{:#x}",
        if *stripped { " (it is stripped)" } else { "" },
        addr & !0x3F,
        (addr & !0x3F) + 0x80
    )]
    NoSymbol {
        /// The address.
        addr: u64,
        /// Path of its file.
        path: String,
        /// Whether the file has no symbols at all.
        stripped: bool,
    },
    /// The address is outside of all mapped files.
    #[error("{0:#x} is outside of all files that the recording mapped")]
    Unmapped(u64),
    /// The ends of a range are in different files, or in the wrong order.
    #[error("{from} .. {to} is not a range: both ends must be in one file, the lower first")]
    NoRange {
        /// The lower end.
        from: String,
        /// The upper end.
        to: String,
    },
    /// The range is too long.
    #[error("{name} is {len} bytes long: give a range of at most 4 MiB of it")]
    TooLong {
        /// The range.
        name: String,
        /// Its length, bytes.
        len: u64,
    },
    /// No executed code has a name; files that give no names, and why.
    #[error("no function of this recording has a name and code{}", because(.0))]
    Nothing(Vec<String>),
    /// The location was not found or is ambiguous.
    #[error(transparent)]
    Place(#[from] PlaceError),
}

fn because(why: &[String]) -> String {
    if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) }
}
