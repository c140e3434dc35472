//! Why code cannot be shown.

use crate::code::place::PlaceError;

/// Why no code is found.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// The recording knows no such name.
    #[error("no function {name} in the files of this recording{instead}{}", because(why))]
    Unknown {
        /// The name.
        name: String,
        /// Files that give no names, and why.
        why: Vec<String>,
        /// The nearest names that there are, in words.
        instead: String,
    },
    /// It has no code of its own.
    #[error(
        "{name} has no code of its own: it is inlined into {}; annotate {}",
        into.join(", "),
        if into.len() == 1 { "that" } else { "one of these" }
    )]
    Inlined {
        /// The name.
        name: String,
        /// The functions that hold it, as far as they ran.
        into: Vec<String>,
    },
    /// Its code is in no file.
    #[error("the code bytes of {what} are not to be had: {why}")]
    NoCode {
        /// What was asked for.
        what: String,
        /// Why not.
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
        /// The file it lies in.
        path: String,
        /// The file has no symbols at all.
        stripped: bool,
    },
    /// The address lies in no file that was mapped.
    #[error("{addr:#x} lies in no file that the recording has mapped")]
    Unmapped {
        /// The address.
        addr: u64,
    },
    /// The ends of a range are not in one file, or in the wrong order.
    #[error("{from} .. {to} is no range: both ends must lie in one file, the lower first")]
    NoRange {
        /// The lower end.
        from: String,
        /// The upper end.
        to: String,
    },
    /// It is too long to be shown.
    #[error("{name} is {len} bytes long: give a range of at most 4 MiB of it")]
    TooLong {
        /// What.
        name: String,
        /// Its length, bytes.
        len: u64,
    },
    /// Nothing that ran has a name.
    #[error("no function of this recording has a name and code{}", because(why))]
    Nothing {
        /// Files that give no names, and why.
        why: Vec<String>,
    },
    /// The place is not to be found, or it may mean several things.
    #[error(transparent)]
    Place(#[from] PlaceError),
}

fn because(why: &[String]) -> String {
    if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) }
}
