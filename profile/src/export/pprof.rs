//! pprof's format (`proto/profile.proto` of google/pprof), gzip-compressed as its tools expect: a
//! sample per branch, located at the branch instruction.
//!
//! `go build -pgo` (cmd/internal/pgo, Go 1.21 and later) needs other samples: the type `samples`,
//! a function's start line, and calls, as a location of the callee followed by that of the call.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use lbr_msr::record::BranchType;

use super::debug::{Frame, Functions};
use crate::code::hex;
use crate::code::maps::{Location, Maps};
use crate::texts::Texts;
use crate::varint;
use crate::views::hot::HotTable;

/// A protocol buffers message, or a part of one.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, value: u64) {
        varint::push(&mut self.0, value);
    }

    fn number(mut self, field: u32, value: u64) -> Message {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn numbers(mut self, field: u32, values: &[u64]) -> Message {
        let mut packed = Message::default();
        values.iter().for_each(|value| packed.varint(*value));
        self.bytes(field, &packed.0);
        self
    }
}

/// Deduplicated items of a message, numbered from 1.
type Once<K> = HashMap<K, u64>;

/// The item's number, and whether it is new.
fn number<K: Hash + Eq>(once: &mut Once<K>, of: K) -> (u64, bool) {
    let next = once.len() as u64 + 1;
    let number = *once.entry(of).or_insert(next);
    (number, number == next)
}

/// A profile under construction.
#[derive(Default)]
struct Writer {
    profile: Message,
    /// The first is empty.
    strings: Texts,
    files: Once<Option<usize>>,
    /// By name, file and first line.
    functions: Once<(u64, u64, u32)>,
    locations: Once<Location>,
    for_go: bool,
    /// The functions of each file, for Go.
    declared: HashMap<usize, Option<Functions>>,
}

/// A function at a location, and its line there.
#[derive(Debug, Default)]
struct Line {
    name: String,
    file: String,
    line: u32,
    /// The function's first line; 0 if it is not needed.
    start: u32,
}

/// The functions at a location, innermost first.
fn lines(maps: &mut Maps, at: Location) -> Vec<Line> {
    let line = |frame: crate::code::lines::Frame| Line {
        name: frame.function.as_deref().unwrap_or_default().to_owned(),
        line: frame.source.as_ref().map_or(0, |source| source.line),
        file: frame.source.map(|source| source.file.to_string()).unwrap_or_default(),
        start: 0,
    };
    maps.frames(at).into_iter().map(line).collect()
}

/// Converts a table of branches. Tools display the first value of a sample. With `for_go`, only
/// calls and branches in inlined functions, as samples for `go build -pgo`.
///
/// # Errors
/// Errors of writing to memory, which do not occur.
pub fn pprof(table: &mut HotTable, for_go: bool) -> std::io::Result<Vec<u8>> {
    let mut writer = Writer { for_go, ..Writer::default() };
    writer.string("");
    let first = if for_go { "samples" } else { "branches" };
    let mut types = vec![(first, "count")];
    if table.known > 0 && !for_go {
        types.extend([("mispredicted", "count"), ("predictions_known", "count")]);
    }
    for (name, unit) in &types {
        let of = Message::default().number(1, writer.string(name)).number(2, writer.string(unit));
        writer.profile.bytes(1, &of.0);
    }
    let HotTable { branches, maps, .. } = table;
    for branch in branches.iter() {
        let mut locations = vec![writer.location(maps, branch.from_location, branch.from)];
        if for_go && branch.type_in(maps).is_some_and(is_call) {
            locations.insert(0, writer.location(maps, branch.to_location, branch.to));
        }
        let values = [branch.count, branch.mispredicted.unwrap_or(0), branch.known];
        let values = values.get(..types.len()).unwrap_or_default();
        let sample = Message::default().numbers(1, &locations).numbers(2, values);
        writer.profile.bytes(2, &sample.0);
    }
    let default = writer.string(first);
    let mut profile = std::mem::take(&mut writer.profile).number(14, default);
    for text in writer.strings.iter() {
        profile.bytes(6, text.as_bytes());
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&profile.0)?;
    packed.finish()
}

impl Writer {
    fn string(&mut self, text: &str) -> u64 {
        self.strings.number(text).unwrap_or(0).into()
    }

    fn location(&mut self, maps: &mut Maps, at: Location, addr: u64) -> u64 {
        let (number, new) = number(&mut self.locations, at);
        if !new {
            return number;
        }
        let mapping = self.mapping(maps, at);
        let address = maps.file_offset(at).unwrap_or(addr);
        let mut location =
            Message::default().number(1, number).number(2, mapping).number(3, address);
        let mut lines = if self.for_go { self.declared(maps, at) } else { lines(maps, at) };
        if lines.is_empty()
            && let Some(named) = maps.name(at)
        {
            lines.push(Line { name: named.name, ..Line::default() });
        }
        for line in lines {
            let function = self.function(&line);
            let line = Message::default().number(1, function).number(2, line.line.into());
            location.bytes(4, &line.0);
        }
        self.profile.bytes(4, &location.0);
        number
    }

    /// The functions at a location with their first lines, innermost first.
    fn declared(&mut self, maps: &mut Maps, at: Location) -> Vec<Line> {
        let Location::File { file, offset } = at else { return Vec::new() };
        let dirs = maps.sources().debug.clone();
        let Some(module) = maps.elf(file) else { return Vec::new() };
        let Some(addr) = module.address_of_offset(offset) else { return Vec::new() };
        let known = self.declared.entry(file);
        let known = known.or_insert_with(|| Functions::of(module.path(), &dirs, 0));
        let frames = known.as_mut().and_then(|known| known.frames(addr)).unwrap_or_default();
        let line = |frame: Frame| Line {
            name: frame.function.to_string(),
            line: frame.start.wrapping_add(frame.line),
            start: frame.start,
            ..Line::default()
        };
        frames.into_iter().rev().map(line).collect()
    }

    fn function(&mut self, of: &Line) -> u64 {
        let names = (self.string(&of.name), self.string(&of.file), of.start);
        let (number, new) = number(&mut self.functions, names);
        if new {
            let (name, file, start) = names;
            let function = Message::default().number(1, number).number(2, name);
            let function = function.number(3, name).number(4, file).number(5, start.into());
            self.profile.bytes(5, &function.0);
        }
        number
    }

    /// Adds a mapping for a whole file, with file offsets as addresses. It is marked as symbolized,
    /// so that readers do not look for the file.
    fn mapping(&mut self, maps: &Maps, at: Location) -> u64 {
        let file = at.file();
        let (number, new) = number(&mut self.files, file);
        if new {
            let name = maps.path_of(at).unwrap_or("[unknown]").to_owned();
            let build_id = file.and_then(|file| maps.build_id(file)).unwrap_or_default();
            let (name, build_id) = (self.string(&name), self.string(&hex(build_id)));
            let mapping = Message::default().number(1, number).number(3, u64::MAX >> 1);
            let mapping = mapping.number(5, name).number(6, build_id);
            let mapping = mapping.number(7, 1).number(8, 1).number(9, 1).number(10, 1);
            self.profile.bytes(3, &mapping.0);
        }
        number
    }
}

fn is_call(branch_type: BranchType) -> bool {
    matches!(branch_type, BranchType::CALL | BranchType::IND_CALL | BranchType::COND_CALL)
}
