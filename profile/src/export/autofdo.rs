//! AutoFDO's text profile (`TextSampleReaderWriter`): ranges, an empty list of addresses, and
//! branches. Addresses are file offsets.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Losses;
use super::ranges::sum;
use super::traces::{NOT_KNOWN, Traced};
use crate::clean::add;
use crate::code::maps::Location;

/// Maximum length of a fall-through range in bytes (`PerfDataSampleReader::Append`).
const LONGEST: u64 = 1 << 20;

/// Counts as `PerfDataSampleReader::Append` does: a range belongs to the file that contains its
/// start, even if its end is elsewhere.
pub(super) fn text(traced: &Traced, file: usize) -> (String, Losses) {
    let (mut ranges, mut branches) = (BTreeMap::new(), BTreeMap::new());
    let mut losses = Losses::default();
    for trace in &traced.traces {
        add(&mut losses.recorded, trace.taken);
        let offset = |addr| match traced.maps.locate(trace.space as usize, addr) {
            Location::File { file: of, offset } if of == file => Some(offset),
            _ => None,
        };
        let (from, to) = (offset(trace.from), offset(trace.to));
        match (from, to) {
            (Some(from), Some(to)) if trace.taken > 0 => {
                add(branches.entry((from, to)).or_default(), trace.taken);
            }
            (Some(_), None) => add(&mut losses.leaving, trace.taken),
            (None, None) => add(&mut losses.outside, trace.taken),
            _ => {}
        }
        let Some(start) = to.filter(|_| trace.next != NOT_KNOWN && trace.ran > 0) else { continue };
        match trace.next.checked_sub(trace.to).filter(|length| *length <= LONGEST) {
            Some(length) => {
                let range = (start, start.saturating_add(length));
                add(ranges.entry(range).or_default(), trace.ran);
            }
            None => add(&mut losses.bogus, trace.ran),
        }
    }
    losses.ranges = sum(&ranges);
    losses.branches = sum(&branches);
    let mut text = format!("{}\n", ranges.len());
    for ((start, end), count) in ranges {
        let _ = writeln!(text, "{start:x}-{end:x}:{count}");
    }
    let _ = writeln!(text, "0\n{}", branches.len());
    for ((from, to), count) in branches {
        let _ = writeln!(text, "{from:x}->{to:x}:{count}");
    }
    (text, losses)
}
