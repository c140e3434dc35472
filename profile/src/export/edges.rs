//! Branches with their host, date, event and build: rows for a database.

use serde::Serialize;

use crate::clean::{Cleaned, CommonResult, View};
use crate::code::hex;
use crate::code::maps::{Location, Maps};
use crate::views::hot::{BranchCounts, HotBranch};

/// The count of one branch (source and target) for one host and event. Unknown fields are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "parquet", derive(parquet_derive::ParquetRecordWriter))]
pub struct EdgeRow {
    /// The recording host.
    pub host: Option<String>,
    /// The date: `2026-01-31`.
    pub date: Option<String>,
    /// perf's name of the sampled event.
    pub event: Option<String>,
    /// Hexadecimal build id of the file that contains the branch.
    pub from_build_id: Option<String>,
    /// The file's name in the recording.
    pub from_file: Option<String>,
    /// The offset in the file; the address without a file.
    pub from_offset: Option<u64>,
    /// The symbol.
    pub from_symbol: Option<String>,
    /// The source line: `path:12`.
    pub from_line: Option<String>,
    /// Build id of the file that contains the target.
    pub to_build_id: Option<String>,
    /// The target's file.
    pub to_file: Option<String>,
    /// The target's offset in it.
    pub to_offset: Option<u64>,
    /// The target's symbol.
    pub to_symbol: Option<String>,
    /// The target's source line.
    pub to_line: Option<String>,
    /// Number of records.
    pub count: u64,
    /// Number of mispredicted ones.
    pub mispredicted: Option<u64>,
    /// Number of records with a known prediction outcome.
    pub predictions_known: u64,
    /// Sum of core cycles since the previous branch.
    pub cycles_sum: Option<u64>,
    /// Number of records in this sum.
    pub cycles_count: u64,
    /// Sums of the events that were counted with the records, by counter. A record counts to 3.
    pub events_a: Option<u64>,
    /// The second counter.
    pub events_b: Option<u64>,
    /// The third counter.
    pub events_c: Option<u64>,
    /// The fourth counter.
    pub events_d: Option<u64>,
}

/// Counts branches by event.
#[derive(Debug, Default)]
pub struct EdgeCounts {
    by_event: Vec<BranchCounts>,
}

/// Counted branches.
#[derive(Debug)]
pub struct EdgeRows {
    /// By event, numbered as in the recording.
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

    fn finish(self, CommonResult { maps, .. }: CommonResult) -> EdgeRows {
        let by_event = self.by_event.into_iter().map(|counts| counts.branches(&maps)).collect();
        EdgeRows { by_event, maps }
    }
}

impl EdgeRows {
    /// Visits the rows by event, hottest first. `of` returns the fields that all rows of an event
    /// share, by the event's number.
    pub fn each<E>(
        self,
        of: impl Fn(usize) -> EdgeRow,
        mut row: impl FnMut(EdgeRow) -> Result<(), E>,
    ) -> Result<Maps, E> {
        let EdgeRows { by_event, mut maps } = self;
        for (event, branches) in by_event.into_iter().enumerate() {
            let common = of(event);
            for branch in branches {
                let from = End::of(&mut maps, branch.from_location, branch.from);
                let to = End::of(&mut maps, branch.to_location, branch.to);
                let [events_a, events_b, events_c, events_d] =
                    branch.counters.map(|sums| *sums).unwrap_or_default();
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
                    events_a,
                    events_b,
                    events_c,
                    events_d,
                    ..common.clone()
                })?;
            }
        }
        Ok(maps)
    }
}

/// The source or target of a branch.
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
