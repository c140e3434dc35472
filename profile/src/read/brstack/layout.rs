//! Finds the layout of a text from its first lines, because a single line may be ambiguous.
//!
//! perf prints addresses and file offsets (`-F brstackoff`) alike. Code is near sampled addresses and
//! in mappings. Linux maps no program as low as most offsets, and libraries much higher; a process
//! that calls the kernel has code above 4 GiB, unless it is a single program at a fixed address. perf
//! itself mixes them: code outside of files, the kernel, and programs at a fixed address may keep
//! their addresses.

use std::collections::BTreeSet;

use lbr_msr::record::Event;

use super::columns::{self, AfterColumns, Columns, Layout, Reading, Widths};
use super::entry::{End, end, first_entry};
use super::line::{Line, LineError};
use super::parse::{self, Context, Files, LOWEST, Split, is_library};
use super::{aggregated, records, split, symbolic, words};
use crate::read::names;
use crate::read::{KERNEL, LONGEST_BLOCK};

impl Context {
    /// Finds the properties of a text that starts like this.
    ///
    /// # Errors
    /// The number, from 1, of a line that shows that the text is unreadable, and why.
    #[cold]
    pub(crate) fn settle(&mut self, head: &[u8]) -> Result<(), (u64, LineError)> {
        self.aggregated = aggregated::settle(head);
        if self.aggregated.is_some() {
            return Ok(());
        }
        let mut apart = Context { split: Some(Split::HEADS), ..Context::default() };
        let split = split::find(head, &mut apart);
        self.split = split.map_err(|line| (line, LineError::Split))?;
        self.has_counts = records::have_counts(head);
        self.layout = columns_of(head).map_err(|line| (line, LineError::Ambiguous))?;
        let mut apart = Context { layout: self.layout, ..Context::default() };
        let mut evidence = Evidence::default();
        for (line, number) in head.split_inclusive(|byte| *byte == b'\n').zip(1u64..) {
            evidence.line(number, line, &mut apart);
        }
        self.files = evidence.numbers().map_err(|line| (line, LineError::Offsets))?;
        Ok(())
    }
}

/// The layout of a text that starts like this; `None` if its lines have no columns, or none in
/// common.
///
/// # Errors
/// The number of an ambiguous line, if all lines are ambiguous.
fn columns_of(head: &[u8]) -> Result<Option<Layout>, u64> {
    let (mut lines, mut only_frames) = (Vec::new(), true);
    let mut all = head.split(|byte| *byte == b'\n').enumerate().peekable();
    while let Some((index, line)) = all.next() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some((_, next)) = all.peek() else { break };
        let has_frames = next.starts_with(b"\t");
        // Its branches may follow instead, after a line of columns but not of any words.
        let is_first = has_frames
            || first_entry(next.trim_ascii_start()) == Some(0)
                && columns::head(line, None, AfterColumns::Nothing)
                    .is_ok_and(|r| !r.columns.is_empty());
        let has_record = memchr::memmem::find(line, b"PERF_RECORD_").is_some();
        if has_record || line.first().is_none_or(|byte| b"\t#/;".contains(byte)) {
            continue;
        }
        let before = first_entry(line).and_then(|at| line.get(..at));
        let line = match (symbolic::head(line), before) {
            (Some(head), before) if before.is_none_or(|b| symbolic::fields(b).is_some()) => head,
            (_, Some(before)) => (before, AfterColumns::Entries),
            // Frames, instructions or branches of the sample follow.
            _ if is_first && words::decimal(line).is_none() => {
                only_frames &= has_frames;
                (line, AfterColumns::Nothing)
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
    let with_branches = |(_, (_, after)): &Numbered<'_>| *after != AfterColumns::Nothing;
    let moved: Vec<Numbered<'_>> = lines.iter().copied().filter(with_branches).collect();
    if let Some(found) = in_common(&moved, Widths::Lost) {
        return found;
    }
    // A thread's name can be any text: assume one if all samples have something else before their
    // frames.
    let comm = Layout { columns: Columns::COMM, widths: Widths::Kept };
    let is_comm = |(_, (line, after)): &Numbered<'_>| {
        *after == AfterColumns::Nothing && columns::read(line, comm, *after).is_some()
    };
    Ok(Some(comm).filter(|_| only_frames && !lines.is_empty() && lines.iter().all(is_comm)))
}

/// Number of lines examined.
const MOST: usize = 1000;

/// The number of a line and the text before its branches.
type Numbered<'a> = (u64, (&'a [u8], AfterColumns));

/// The columns that fit most lines. `None` if there are none.
fn in_common(lines: &[Numbered<'_>], widths: Widths) -> Option<Result<Option<Layout>, u64>> {
    let mut left: Vec<Columns> = Vec::new();
    let mut fit = 0;
    for (_, (line, after)) in lines {
        let found = columns::readings(line, widths, *after);
        let mut has: Vec<Columns> = found.iter().map(|reading| reading.columns).collect();
        if fit > 0 {
            has.retain(|columns| left.contains(columns));
        }
        if !has.is_empty() {
            left = has;
            fit += 1;
        }
    }
    if fit * 4 < lines.len() * 3 {
        return None;
    }
    // A thread's name or symbol can be any text.
    let explains =
        |columns: &Columns| (score(lines, Layout { columns: *columns, widths }), columns.count());
    let most = left.iter().map(explains).max()?;
    left.retain(|columns| explains(columns) == most);
    let first = Layout { columns: *left.first()?, widths };
    for (number, (line, after)) in lines {
        let of =
            |columns: &Columns| columns::read(line, Layout { columns: *columns, widths }, *after);
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
fn score(lines: &[Numbered<'_>], layout: Layout) -> usize {
    let read = lines.iter().filter_map(|(_, (line, after))| columns::read(line, layout, *after));
    read.map(|reading| reading.end).sum()
}

/// The lowest address of a mapped library.
const LOWEST_LIBRARY: u64 = 0x800_0000;
/// Number of samples, or of addresses in libraries, that is enough evidence for offsets.
const FEW: usize = 4;
/// Number of addresses that is enough without other evidence.
const MANY: usize = 16;
const FOUR_GIB: u64 = 1 << 32;

/// The evidence in the first lines of a text.
#[derive(Debug, Default)]
struct Evidence {
    /// User addresses and kernel addresses.
    user: BTreeSet<u64>,
    kernel: BTreeSet<u64>,
    /// Addresses in libraries, below any mapping.
    libraries: BTreeSet<u64>,
    files: Files,
    /// Whether an address has no file.
    without_file: bool,
    /// Sampled instruction addresses.
    ips: BTreeSet<u64>,
    /// Mapped code: start and end.
    maps: Vec<(u64, u64)>,
    /// Samples near one of their branches, and far from all.
    near: usize,
    far: usize,
    /// The first line that suggests offsets.
    first: Option<u64>,
}

impl Evidence {
    fn line(&mut self, number: u64, line: &[u8], context: &mut Context) {
        let mut entries = Vec::new();
        let head = match parse::parse(line, line.len(), 0, &mut entries, context) {
            Ok(Line::Sample(head)) => head,
            Ok(Line::Event(Event::Mmap(map))) => {
                return self.maps.push((map.addr, map.addr.saturating_add(map.len)));
            }
            _ => return,
        };
        let ends = entries.iter().flat_map(|branch| [branch.from, branch.to]);
        let ends = ends.filter(|end| *end != 0 && !names::is_name(*end));
        let (above, below): (Vec<u64>, Vec<u64>) = ends.partition(|end| *end >= KERNEL);
        self.ips.extend(head.ip);
        if let Some(ip) = head.ip.filter(|ip| *ip < KERNEL && !below.is_empty()) {
            let is_near = |end: &u64| end.abs_diff(ip) <= LONGEST_BLOCK;
            let is_far = ip >= FOUR_GIB && below.iter().all(|end| *end < FOUR_GIB);
            self.near += usize::from(below.iter().any(is_near));
            self.far += usize::from(is_far);
        }
        let low = self.libraries.len();
        self.in_files(line);
        let shows = self.libraries.len() > low || below.iter().any(|end| *end < FOUR_GIB);
        self.first = self.first.or(shows.then_some(number));
        self.user.extend(below);
        self.kernel.extend(above);
    }

    /// Adds the files next to the addresses of a line.
    fn in_files(&mut self, line: &[u8]) {
        for at in memchr::memmem::find_iter(line, b"0x") {
            let is_start = line.get(..at).and_then(<[u8]>::last).is_none_or(|b| b" /".contains(b));
            let text = line.get(at..).filter(|_| is_start).unwrap_or_default();
            let Ok((End { address: number, path, .. }, _)) = end(text) else { continue };
            match path {
                None => self.without_file = true,
                Some(path) if is_library(path) && (1..LOWEST_LIBRARY).contains(&number) => {
                    self.libraries.insert(number);
                }
                Some(path) if (1..LOWEST).contains(&number) => {
                    self.files.movable.insert(path.into());
                }
                Some(_) => {}
            }
        }
    }

    /// Whether there is known code at an address.
    fn is_known(&self, place: u64) -> bool {
        let around = place.saturating_sub(LONGEST_BLOCK)..=place.saturating_add(LONGEST_BLOCK);
        self.ips.range(around).next().is_some()
            || self.maps.iter().any(|(start, end)| (*start..*end).contains(&place))
    }

    /// The files whose offsets the numbers are; `None` if the numbers are addresses, as far as the
    /// text shows.
    ///
    /// # Errors
    /// A line, from 1, which shows that they are probably offsets, without files, or undecidable.
    fn numbers(self) -> Result<Option<Files>, u64> {
        let low = self.user.range(..LOWEST);
        let low = low.filter(|place| !self.is_known(**place)).take(MANY).count();
        let none_is_known =
            self.user.len() >= MANY && self.user.iter().all(|place| !self.is_known(*place));
        let has_no_library = none_is_known
            && self.kernel.len() >= MANY
            && self.user.last().is_some_and(|highest| *highest < FOUR_GIB);
        let stood_elsewhere = self.far >= FEW && self.far > self.near || self.far > 0 && low >= FEW;
        let are_offsets = self.libraries.len() >= FEW
            || low >= MANY
            || has_no_library
            || stood_elsewhere
            || none_is_known && !self.maps.is_empty();
        let Some(line) = self.first.filter(|_| are_offsets) else { return Ok(None) };
        if self.without_file {
            return Err(line);
        }
        // Sampled addresses are never offsets: none is in a program at a fixed address.
        let mut stood = self.ips.range(..KERNEL).peekable();
        let all = stood.peek().is_some_and(|lowest| **lowest >= FOUR_GIB);
        Ok(Some(Files { all, ..self.files }))
    }
}
