//! Finds the columns of a text from all of its first lines, because a single line may be ambiguous.

use super::columns::{self, Behind, Columns, Layout, Reading, Widths};
use super::digits;
use super::entry::first_entry;
use super::symbolic;

/// The layout of a text that starts like this; `None` if its lines have no columns, or none in
/// common.
///
/// # Errors
/// The number of an ambiguous line, if all lines are ambiguous.
pub(crate) fn settle(head: &[u8]) -> Result<Option<Layout>, u64> {
    let (mut lines, mut only_frames) = (Vec::new(), true);
    let mut all = head.split(|byte| *byte == b'\n').enumerate().peekable();
    while let Some((index, line)) = all.next() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some((_, next)) = all.peek() else { break };
        let has_frames = next.starts_with(b"\t");
        // Its branches may follow instead, after a line of columns but not of any words.
        let is_first = has_frames
            || first_entry(next.trim_ascii_start()) == Some(0)
                && columns::head(line, None, Behind::Nothing).is_ok_and(|r| !r.columns.is_empty());
        let has_record = memchr::memmem::find(line, b"PERF_RECORD_").is_some();
        if has_record || line.first().is_none_or(|byte| b"\t#/;".contains(byte)) {
            continue;
        }
        let before = first_entry(line).and_then(|at| line.get(..at));
        let line = match (symbolic::head(line), before) {
            (Some(head), before) if before.is_none_or(|b| symbolic::fields(b).is_some()) => head,
            (_, Some(before)) => (before, Behind::Entries),
            // Frames, instructions or branches of the sample follow.
            _ if is_first && digits::decimal(line).is_none() => {
                only_frames &= has_frames;
                (line, Behind::Nothing)
            }
            _ => continue,
        };
        if !line.0.trim_ascii().is_empty() && lines.len() < MOST {
            lines.push((index as u64 + 1, line));
        }
    }
    if let Some(found) = in_common(&lines, Widths::Kept) {
        return found;
    }
    let with_branches = |(_, (_, behind)): &Line<'_>| *behind != Behind::Nothing;
    let moved: Vec<Line<'_>> = lines.iter().copied().filter(with_branches).collect();
    if let Some(found) = in_common(&moved, Widths::Lost) {
        return found;
    }
    // A thread's name can be any text: assume one if all samples have something else before their
    // frames.
    let comm = Layout { columns: Columns::COMM, widths: Widths::Kept };
    let is_comm = |(_, (line, behind)): &Line<'_>| {
        *behind == Behind::Nothing && columns::read(line, comm, *behind).is_some()
    };
    Ok(Some(comm).filter(|_| only_frames && !lines.is_empty() && lines.iter().all(is_comm)))
}

/// Number of lines examined.
const MOST: usize = 1000;

type Line<'a> = (u64, (&'a [u8], Behind));

/// The columns that fit most lines. `None` if there are none.
fn in_common(lines: &[Line<'_>], widths: Widths) -> Option<Result<Option<Layout>, u64>> {
    let mut left: Vec<Columns> = Vec::new();
    let mut fit = 0;
    for (_, (line, behind)) in lines {
        let found = columns::readings(line, widths, *behind);
        let mut has: Vec<Columns> = found.iter().map(|reading| reading.columns).collect();
        if fit > 0 {
            has.retain(|columns| left.contains(columns));
        }
        if !has.is_empty() {
            left = has;
            fit += 1;
        }
    }
    if fit * 4 < lines.len() * 3 || fit == 0 {
        return None;
    }
    // A thread's name or symbol can be any text.
    let explains =
        |columns: &Columns| (score(lines, Layout { columns: *columns, widths }), columns.count());
    let most = left.iter().map(explains).max()?;
    left.retain(|columns| explains(columns) == most);
    let first = Layout { columns: *left.first()?, widths };
    for (number, (line, behind)) in lines {
        let of =
            |columns: &Columns| columns::read(line, Layout { columns: *columns, widths }, *behind);
        let same = |a: Option<Reading<'_>>, b: Option<Reading<'_>>| match (a, b) {
            (Some(a), Some(b)) => a.agrees(&b),
            (a, b) => a.is_none() == b.is_none(),
        };
        if !left.iter().all(|columns| same(of(columns), of(&first.columns))) {
            return Some(Err(*number));
        }
    }
    Some(Ok(Some(first).filter(|layout| !layout.columns.is_empty())))
}

/// Number of bytes that a layout explains.
fn score(lines: &[Line<'_>], layout: Layout) -> usize {
    let read = lines.iter().filter_map(|(_, (line, behind))| columns::read(line, layout, *behind));
    read.map(|reading| reading.end).sum()
}
