//! The one chart of this program: how often each cycle count occurred, as bars
//! of text or as SVG.
//!
//! Whatever the form, it says how many runs it is about, how many of them hit
//! the highest count that a record holds, how many have no count, and marks
//! the modes. See [`binning`] for the rule of the bins.

mod binning;
mod draw;
mod text;

pub(crate) use binning::{Bin, Bins, Gaps};
pub(crate) use draw::{figure, small_svg, svg_sheet};
pub(crate) use text::Terminal;

use profile::flow::Block;

use super::number::grouped;

/// Default maximum of bins in text.
pub(crate) const TEXT_BINS: usize = 40;
/// Default maximum of bins in pictures.
pub(crate) const PICTURE_BINS: usize = 100;

/// One distribution, or several drawn over each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    /// Its title, one line.
    pub(crate) title: String,
    /// A note on how to read it, such as that nothing was measured.
    pub(crate) note: Option<String>,
    /// The distributions: a single one is drawn as runs, several as shares, so that they can be
    /// compared.
    pub(crate) series: Vec<Series>,
}

/// One distribution of cycle counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    /// Its block, in words.
    pub(crate) label: String,
    /// Cycle counts with their runs, from low to high.
    pub(crate) bins: Vec<(u32, u64)>,
    /// Runs that have a count: the sum over `bins`.
    pub(crate) n: u64,
    /// How many of them have the highest count that a record holds: they took
    /// as long or longer. They are the last of `bins`.
    pub(crate) saturated: u64,
    /// Runs that are not in the picture, because they have no count.
    pub(crate) dropped: u64,
    /// Counts around which the runs gather, the most frequent first.
    pub(crate) modes: Vec<u32>,
    /// The counts are rounded down to five significant bits.
    pub(crate) rounded: bool,
}

impl Series {
    /// The distribution of a block.
    pub(crate) fn of(label: String, block: &Block) -> Series {
        let cycles = &block.cycles;
        Series {
            label,
            bins: cycles.iter().collect(),
            n: cycles.n(),
            saturated: cycles.saturated(),
            dropped: block.count.saturating_sub(cycles.n()),
            modes: cycles.modes(),
            rounded: cycles.is_rounded(),
        }
    }

    /// Its facts, printed next to its label.
    fn facts(&self) -> String {
        let [n, saturated, dropped] = [self.n, self.saturated, self.dropped].map(grouped);
        let modes: Vec<String> = self.modes.iter().map(u32::to_string).collect();
        let modes = match &modes[..] {
            [] => "no mode".to_owned(),
            [one] => format!("mode {one}"),
            several => format!("modes {}", several.join(", ")),
        };
        let rounded = if self.rounded { ", counts rounded to five bits" } else { "" };
        format!("n {n}, saturated {saturated}, dropped {dropped}, {modes}{rounded}")
    }
}
