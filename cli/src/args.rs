//! Shared by the arguments of all commands; those of a command are defined next to it.

use anstream::ColorChoice;
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Headings of options, in the order of every help.
pub(crate) mod heading {
    pub(crate) const RECORDING: &str = "Recording";
    pub(crate) const MACHINE: &str = "Machine";
    pub(crate) const INPUT: &str = "Input files";
    pub(crate) const SELECTION: &str = "Selection";
    pub(crate) const SYMBOLS: &str = "Symbols";
    pub(crate) const VIEW: &str = "View";
    pub(crate) const OUTPUT: &str = "Output";
    pub(crate) const GLOBAL: &str = "Global options";
}

pub(crate) fn color() -> impl TypedValueParser<Value = ColorChoice> {
    PossibleValuesParser::new(["auto", "always", "never"]).map(|when| match &*when {
        "always" => ColorChoice::Always,
        "never" => ColorChoice::Never,
        _ => ColorChoice::Auto,
    })
}

/// The number of rows to print; 0 is all.
pub(crate) fn rows(text: &str) -> Result<usize, std::num::ParseIntError> {
    let rows = text.parse()?;
    Ok(if rows == 0 { usize::MAX } else { rows })
}

/// Release, commit (if known) and target.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("LBR_BUILT"), ")");

pub(crate) const EXIT_CODES: &str = "Exit status:
  0  done
  1  failed
  2  bad usage or input
  3  no usable LBR here
  4  not permitted
  5  data of too poor quality (--strict)
  6  something grew by more than is allowed (diff --fail-above)";
