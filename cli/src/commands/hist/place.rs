//! Requested blocks in the files of a recording.

use profile::Flow;
use profile::flow::{Block, share_of};
use profile::maps::{Function, Location};
use profile::place::{PlaceError, Span};

use crate::commands::report::BlockSpec;

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
