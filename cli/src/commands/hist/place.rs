//! Requested blocks in the files of a recording.

use profile::Flow;
use profile::flow::{Block, share_of};
use profile::maps::Function;
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
        let len = block.exit.wrapping_sub(block.entry).wrapping_add(1);
        let code = Span { start: block.entry_location, len };
        self.entry.iter().any(|span| code.contains(span.start)) && self.ends(block)
    }

    fn ends(&self, block: &Block) -> bool {
        let at = |spans: &Vec<Span>| spans.iter().any(|span| span.contains(block.exit_location));
        self.exits.as_ref().is_none_or(at)
    }
}
