//! Decides whether the numbers of a text's branches are addresses or file offsets (`-F
//! brstackoff`): perf prints both alike.
//!
//! Code is near sampled addresses and in mappings. Linux maps no program as low as most offsets,
//! and libraries much higher; a process that calls the kernel has code above 4 GiB, unless it is a
//! single program at a fixed address. perf itself mixes them: code outside of files, the kernel,
//! and programs at a fixed address may keep their addresses.

use std::collections::BTreeSet;

use super::entry;
use super::error::EntryError;
use super::line::{self, Context, Line};
use crate::read::address::{KERNEL, LONGEST_BLOCK};
use crate::read::names::{self, Names};

/// The kind of numbers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    /// Addresses, as far as the text shows.
    Addresses,
    /// Offsets in the files next to them.
    InFiles(Files),
    /// Probably offsets, or undecidable.
    Offsets {
        /// A line that shows it, from 1.
        line: u64,
    },
}

/// The lowest address of a linked program.
const LOWEST: u64 = 0x20_0000;
/// The lowest address of a mapped library.
const LOWEST_LIBRARY: u64 = 0x800_0000;
/// Number of samples, or of addresses in libraries, that is enough evidence for offsets.
const FEW: usize = 4;
/// Number of addresses that is enough without other evidence.
const MANY: usize = 16;
const FOUR_GIB: u64 = 1 << 32;

/// The files for which a text has offsets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    /// Programs that are position-independent.
    movable: BTreeSet<Box<[u8]>>,
    /// Whether all programs are.
    all: bool,
}

impl Files {
    /// The number for a byte of a file; addresses are kept.
    pub(super) fn number(
        &self,
        path: &[u8],
        number: u64,
        names: &mut Names,
    ) -> Result<u64, EntryError> {
        if number == 0 || number >= KERNEL || path == b"[unknown]" {
            return Ok(number);
        }
        let is_program = !path.starts_with(b"[") && !is_library(path);
        if is_program && number >= LOWEST && !self.all && !self.movable.contains(path) {
            return Err(EntryError::AddressOrOffset);
        }
        names.in_file(path, number).ok_or(EntryError::Impossible)
    }
}

fn is_library(path: &[u8]) -> bool {
    memchr::memmem::find(path, b".so").is_some()
}

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
        let head = match line::parse(line, line.len(), 0, &mut entries, context) {
            Ok(Line::Sample(head)) => head,
            Ok(Line::Mmap(map)) => {
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
            let Ok((number, path, _)) = entry::address(text) else { continue };
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

    fn numbers(self) -> Numbers {
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
        let Some(line) = self.first.filter(|_| are_offsets) else { return Numbers::Addresses };
        if self.without_file {
            return Numbers::Offsets { line };
        }
        // Sampled addresses are never offsets: none is in a program at a fixed address.
        let mut stood = self.ips.range(..KERNEL).peekable();
        let all = stood.peek().is_some_and(|lowest| **lowest >= FOUR_GIB);
        Numbers::InFiles(Files { all, ..self.files })
    }
}

/// Decides the kind of numbers of a text that starts like this.
pub(super) fn find(head: &[u8], context: &mut Context) -> Numbers {
    let mut evidence = Evidence::default();
    for (line, number) in head.split_inclusive(|byte| *byte == b'\n').zip(1u64..) {
        evidence.line(number, line, context);
    }
    evidence.numbers()
}
