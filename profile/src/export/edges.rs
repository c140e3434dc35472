//! Branches with all that tells them from those of other hosts, days, events and
//! builds: rows for a database.

use serde::Serialize;

use crate::clean::{Cleaned, View, Whole};
use crate::code::debug_file::hex;
use crate::code::maps::{Location, Maps};
use crate::views::hot::{BranchCounts, HotBranch};

/// A row: how often one place went to another, in what one host recorded of one
/// event. What is not known is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "parquet", derive(parquet_derive::ParquetRecordWriter))]
pub struct EdgeRow {
    /// Who recorded it.
    pub host: Option<String>,
    /// On which day: `2026-01-31`.
    pub date: Option<String>,
    /// The event whose samples these are, by perf's name.
    pub event: Option<String>,
    /// Build id of the file that the branch stands in, hexadecimal.
    pub from_build_id: Option<String>,
    /// The file, as the recording calls it.
    pub from_file: Option<String>,
    /// The byte of the file; the address where there is no file.
    pub from_offset: Option<u64>,
    /// The symbol there.
    pub from_symbol: Option<String>,
    /// The source line: `path:12`.
    pub from_line: Option<String>,
    /// The same of where the branch went.
    pub to_build_id: Option<String>,
    /// The file.
    pub to_file: Option<String>,
    /// The byte of it.
    pub to_offset: Option<u64>,
    /// The symbol.
    pub to_symbol: Option<String>,
    /// The source line.
    pub to_line: Option<String>,
    /// Times recorded.
    pub count: u64,
    /// How many of these were mispredicted.
    pub mispredicted: Option<u64>,
    /// How many of them are known to be predicted or mispredicted.
    pub predictions_known: u64,
    /// Core cycles since the branch before, all together.
    pub cycles_sum: Option<u64>,
    /// Of how many of them.
    pub cycles_count: u64,
}

/// Counts branches by event.
#[derive(Debug, Default)]
pub struct EdgeCounts {
    by_event: Vec<BranchCounts>,
}

/// What was counted.
#[derive(Debug)]
pub struct EdgeRows {
    /// By event, as the recording numbers them.
    by_event: Vec<Vec<HotBranch>>,
    /// Mappings and files.
    pub maps: Maps,
}

impl View for EdgeCounts {
    type Table = EdgeRows;

    const ORDERED: bool = false;

    fn stack(&mut self, stack: &Cleaned<'_>, maps: &mut Maps) {
        let event = stack.head.event;
        if self.by_event.len() <= event {
            self.by_event.resize_with(event + 1, BranchCounts::default);
        }
        self.by_event.get_mut(event).into_iter().for_each(|counts| counts.stack(stack, maps));
    }

    fn finish(self, Whole { maps, .. }: Whole) -> EdgeRows {
        let by_event = self.by_event.into_iter().map(|counts| counts.branches(&maps)).collect();
        EdgeRows { by_event, maps }
    }
}

impl EdgeRows {
    /// The rows, by event and the hottest first. `of` says what all rows of an
    /// event have in common, by its number.
    pub fn each<E>(
        self,
        of: impl Fn(usize) -> EdgeRow,
        mut row: impl FnMut(EdgeRow) -> Result<(), E>,
    ) -> Result<Maps, E> {
        let EdgeRows { by_event, mut maps } = self;
        let ends = |branch: &HotBranch| [branch.from_location, branch.to_location];
        maps.look_up_lines(by_event.iter().flatten().flat_map(ends));
        for (event, branches) in by_event.into_iter().enumerate() {
            let common = of(event);
            for branch in branches {
                let from = End::of(&mut maps, branch.from_location, branch.from);
                let to = End::of(&mut maps, branch.to_location, branch.to);
                row(EdgeRow {
                    from_build_id: from.build_id,
                    from_file: from.file,
                    from_offset: from.offset,
                    from_symbol: from.symbol,
                    from_line: from.line,
                    to_build_id: to.build_id,
                    to_file: to.file,
                    to_offset: to.offset,
                    to_symbol: to.symbol,
                    to_line: to.line,
                    count: branch.count,
                    mispredicted: branch.mispredicted,
                    predictions_known: branch.known,
                    cycles_sum: (branch.with_cycles > 0).then_some(branch.cycles_sum),
                    cycles_count: branch.with_cycles,
                    ..common.clone()
                })?;
            }
        }
        Ok(maps)
    }
}

/// Where a branch comes from or goes to.
struct End {
    build_id: Option<String>,
    file: Option<String>,
    offset: Option<u64>,
    symbol: Option<String>,
    line: Option<String>,
}

impl End {
    fn of(maps: &mut Maps, at: Location, addr: u64) -> End {
        let file = at.file();
        End {
            build_id: file.and_then(|file| maps.build_id(file)).map(hex),
            file: maps.path_of(at).map(str::to_owned),
            offset: if file.is_some() { maps.file_offset(at) } else { Some(addr) },
            symbol: maps.name(at).map(|named| named.name),
            line: maps.source(at).map(|line| line.to_string()),
        }
    }
}
