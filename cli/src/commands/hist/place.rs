//! Block specifications of the command line.

use std::str::FromStr;

use profile::Flow;
use profile::flow::{Block, share_of};
use profile::maps::{Function, Location};
use profile::place::{LocationSpec, ParsePlaceError, PlaceError, Span};

/// A requested block: its entry, or both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockSpec {
    /// Its start.
    pub(crate) entry: LocationSpec,
    /// Its end, if it matters.
    pub(crate) exit: Option<LocationSpec>,
}

impl FromStr for BlockSpec {
    type Err = ParsePlaceError;

    fn from_str(text: &str) -> Result<BlockSpec, ParsePlaceError> {
        match text.split_once("..") {
            Some((entry, exit)) => {
                Ok(BlockSpec { entry: begin(entry)?, exit: Some(exit.parse()?) })
            }
            None => Ok(BlockSpec { entry: begin(text)?, exit: None }),
        }
    }
}

/// A block of a function is the one at its first byte.
fn begin(text: &str) -> Result<LocationSpec, ParsePlaceError> {
    Ok(match text.parse()? {
        LocationSpec::Symbol { file, name, offset: None } => {
            LocationSpec::Symbol { file, name, offset: Some(0) }
        }
        place => place,
    })
}

/// Resolved in the files of one recording.
pub(super) struct ResolvedBlock {
    entry: Vec<Span>,
    /// Any of these; `None` if any exit matches.
    exits: Option<Vec<Span>>,
}

impl ResolvedBlock {
    /// Looks the places up.
    pub(super) fn new(flow: &mut Flow, wanted: &BlockSpec) -> Result<ResolvedBlock, PlaceError> {
        let Flow { maps, blocks, .. } = flow;
        let shares = |function: &Function| share_of(blocks, function);
        let entry = maps.resolve(&wanted.entry, &shares)?;
        let exits = wanted.exit.as_ref().map(|exit| maps.resolve(exit, &shares)).transpose()?;
        Ok(ResolvedBlock { entry, exits })
    }

    /// Whether a block starts at the location and ends as requested.
    pub(super) fn begins(&self, block: &Block) -> bool {
        self.entry.iter().any(|span| span.contains(block.entry_location)) && self.ends(block)
    }

    /// Whether a block contains the location and ends as requested.
    pub(super) fn runs_through(&self, block: &Block) -> bool {
        let inside = |span: &Span| match (span.start, block.entry_location, block.exit_location) {
            (Location::Address(at), Location::Address(first), Location::Address(last)) => {
                (first..=last).contains(&at)
            }
            (
                Location::File { file: a, offset: at },
                Location::File { file: b, offset: first },
                Location::File { file: c, offset: last },
            ) => a == b && b == c && (first..=last).contains(&at),
            _ => false,
        };
        self.entry.iter().any(inside) && self.ends(block)
    }

    fn ends(&self, block: &Block) -> bool {
        let at = |spans: &Vec<Span>| spans.iter().any(|span| span.contains(block.exit_location));
        self.exits.as_ref().is_none_or(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_written_by_one_end_or_both() {
        let symbol =
            |name: &str, offset| LocationSpec::Symbol { file: None, name: name.to_owned(), offset };
        let wanted: BlockSpec = "main".parse().expect("a function");
        assert_eq!(wanted, BlockSpec { entry: symbol("main", Some(0)), exit: None });
        let wanted: BlockSpec = "0x40..main+8".parse().expect("both ends");
        let exit = Some(symbol("main", Some(8)));
        assert_eq!(wanted, BlockSpec { entry: LocationSpec::Address(0x40), exit });
        assert!("main..".parse::<BlockSpec>().is_err() && "..main".parse::<BlockSpec>().is_err());
    }
}
