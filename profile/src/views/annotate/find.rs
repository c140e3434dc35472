//! Finds the code that a name or range stands for.

use lbr_msr::insn::{BranchInsn, Insn};
use lbr_msr::text::AsText;
use std::collections::{BTreeSet, HashMap, HashSet};

use super::FindError;
use crate::code::demangle::Called;
use crate::code::maps::{Function, Location, LocationFilter, Maps};
use crate::code::place::{LocationSpec, PlaceError, ends};
use crate::code::straight;
use crate::read::KERNEL;
use crate::views::flow::{Block, Flow, share_of};

/// Contiguous code in a file: a function, or a requested range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The function's demangled name; for a range, its ends.
    pub name: String,
    /// The file's index in the recording's maps.
    pub file: usize,
    /// Its path.
    pub path: String,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Length, bytes.
    pub len: u64,
    /// Where it was mapped, in the process whose addresses the views print; otherwise its address
    /// in the file.
    pub address: u64,
    /// Its address in the file.
    pub file_address: u64,
}

impl Stretch {
    /// The function at a location.
    pub fn at(flow: &mut Flow, location: Location) -> Option<Stretch> {
        let function = flow.maps.function(location)?;
        Some(Stretch::of(flow, function))
    }

    fn of(flow: &mut Flow, function: Function) -> Stretch {
        let shift = shift(flow, function.file);
        Stretch::moved(flow, function, shift)
    }

    /// As [`of`](Self::of), for a known distance between file and memory addresses: computing it
    /// visits every block.
    fn moved(flow: &Flow, function: Function, shift: u64) -> Stretch {
        let Function { name, file, offsets, address: file_address } = function;
        let address = file_address.wrapping_add(shift);
        let path = flow.maps.path(file).unwrap_or_default().to_owned();
        let len = offsets.end.saturating_sub(offsets.start);
        Stretch { name, file, path, offset: offsets.start, len, address, file_address }
    }

    /// The location of one of its addresses, which are counted from [`address`](Self::address).
    pub fn location(&self, address: u64) -> Location {
        let offset = address.wrapping_sub(self.address).wrapping_add(self.offset);
        Location::File { file: self.file, offset }
    }

    /// The distance of a location from its start, bytes; `None` outside of it.
    pub fn distance(&self, location: Location) -> Option<u64> {
        let distance = location.in_file(self.file)?.checked_sub(self.offset);
        distance.filter(|distance| *distance < self.len)
    }
}

/// A function that ran, and how hot it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hot {
    /// The function.
    pub function: Stretch,
    /// Instructions executed in the blocks that start in it; for a recording without blocks,
    /// branches taken in it.
    pub heat: u64,
}

/// Finds the function of a [location](LocationSpec): its name, an address or a line in it; or the
/// code between two locations (`0x401136..0x401160`, `loop..leaf`).
///
/// Of several functions with one name, the one that ran.
///
/// # Errors
/// [`FindError`].
pub fn find(flow: &mut Flow, what: &str) -> Result<Stretch, FindError> {
    // Names are tried first, because a name may look like an address or a range.
    if let Some(found) = named(flow, what)? {
        return Ok(found);
    }
    if let Some((from, to)) = ends(what).filter(|(a, b)| !a.is_empty() && !b.is_empty()) {
        return range(flow, from, &to);
    }
    match what.parse() {
        Ok(LocationSpec::Symbol { file: None, name, offset }) if name != what => {
            if let Some(found) = named(flow, &name)? {
                return Ok(found);
            }
            let place = LocationSpec::Symbol { file: None, name, offset };
            match around(flow, &place) {
                Err(FindError::Place(PlaceError::NoSymbol { name, .. })) => {
                    Err(missing(flow, &name))
                }
                found => found,
            }
        }
        Ok(LocationSpec::Symbol { file: None, .. }) | Err(_) => Err(missing(flow, what)),
        Ok(place) => around(flow, &place),
    }
}

fn named(flow: &mut Flow, name: &str) -> Result<Option<Stretch>, FindError> {
    let Flow { maps, blocks, .. } = flow;
    let found = match maps.functions_meant(None, name, &|function| share_of(blocks, function)) {
        Ok(found) => found,
        Err(PlaceError::NoSymbol { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(with_code(flow, found))
}

/// One function, recorded in several ways: the entry with code.
fn with_code(flow: &mut Flow, found: Vec<Function>) -> Option<Stretch> {
    let is_named = |function: &Function| flow.maps.is_named_file(function.file);
    let function = found.into_iter().min_by_key(is_named)?;
    Some(Stretch::of(flow, function))
}

/// Why a name has no code.
fn missing(flow: &mut Flow, name: &str) -> FindError {
    let (mut into, mut outside, mut looked) = (BTreeSet::new(), None, HashSet::new());
    let wanted = Called::new(name);
    let called = |function: &str| wanted.fit(function).is_some();
    let name = name.to_owned();
    for block in &flow.blocks {
        let maps = &mut flow.maps;
        match block.entry_location {
            entry @ Location::Address(addr) => {
                if maps.name(entry).is_some_and(|named| called(&named.name)) {
                    outside = Some(addr);
                }
            }
            entry => {
                straight::each_instruction(maps, entry, block.entry, block.exit, |maps, at| {
                    if !looked.insert(at) {
                        return;
                    }
                    let frames = maps.frames(at);
                    let Some((outer, inner)) = frames.split_last() else { return };
                    let inlined = inner.iter().filter_map(|frame| frame.function.as_deref());
                    if let (true, Some(outer)) = (inlined.into_iter().any(called), &outer.function)
                    {
                        into.insert(outer.to_string());
                    }
                });
            }
        }
    }
    if let Some(addr) = outside {
        return FindError::NoCode { what: name, why: whose(addr) };
    }
    if !into.is_empty() {
        return FindError::Inlined { name, into: into.into_iter().collect() };
    }
    let instead = flow.maps.instead_of(&name);
    FindError::Unknown { name, why: nameless(flow), instead }
}

/// The owner of an address outside of files.
fn whose(addr: u64) -> &'static str {
    if addr >= KERNEL { OF_KERNEL } else { OF_NO_FILE }
}

const OF_KERNEL: &str = "it is in the kernel, which changes its code at run time";
const OF_NO_FILE: &str = "it is in no file (compiled at run time, or its mapping was not recorded)";

const OF_NAMES: &str = "the recording has symbols instead of addresses (brstacksym), so the position in the file is unknown";

/// Why a file has no code for a function.
pub(super) fn without_code(maps: &mut Maps, function: &Stretch) -> &'static str {
    if maps.is_named_file(function.file) {
        OF_NAMES
    } else if maps.elf(function.file).is_some() {
        "the file has no code there"
    } else if function.address >= KERNEL || function.path.starts_with("[kernel") {
        OF_KERNEL
    } else {
        OF_NO_FILE
    }
}

/// The executed files without names, and why.
fn nameless(flow: &mut Flow) -> Vec<String> {
    let ran = flow.blocks.iter().filter_map(|block| block.entry_location.file());
    let ran: BTreeSet<usize> =
        ran.chain(flow.sites.iter().filter_map(|site| site.location.file())).collect();
    let mut stripped = Vec::new();
    for file in ran {
        if let Some(module) = flow.maps.elf(file).filter(|module| module.is_stripped()) {
            stripped.push(format!("{} is stripped", module.path().as_text()));
        }
    }
    let mut why: Vec<String> = flow.maps.failures().map(ToString::to_string).collect();
    if flow.maps.has_names() {
        why.push(OF_NAMES.to_owned());
    }
    why.append(&mut stripped);
    if flow.maps.is_without_files() {
        why.push(
            "the recording has no mapping events; perf script --show-mmap-events prints them"
                .to_owned(),
        );
    }
    why
}

/// The function around a location.
fn around(flow: &mut Flow, place: &LocationSpec) -> Result<Stretch, FindError> {
    let Flow { maps, blocks, .. } = flow;
    let shares = |function: &Function| share_of(blocks, function);
    let spans = maps.resolve(place, &shares)?;
    let mut found: Vec<Function> = Vec::new();
    for span in &spans {
        match maps.function(span.start) {
            Some(function) if !found.contains(&function) => found.push(function),
            _ => {}
        }
    }
    let found = if found.is_empty() { found } else { maps.one_of(place, found, &shares)? };
    if let Some(function) = with_code(flow, found) {
        return Ok(function);
    }
    let unknown = |name, why| FindError::Unknown { name, why, instead: String::new() };
    let Some(start) = spans.first().map(|span| span.start) else {
        return Err(unknown(place.to_string(), nameless(flow)));
    };
    Err(match start {
        Location::Address(addr) => {
            let ran = |block: &Block| (block.entry..=block.exit).contains(&addr);
            if addr >= KERNEL || flow.blocks.iter().any(ran) {
                FindError::NoCode { what: place.to_string(), why: whose(addr) }
            } else {
                FindError::Unmapped(addr)
            }
        }
        Location::File { file, offset } => {
            if let Some(blocks) = blocks_at(flow, place, file, offset) {
                return Ok(blocks);
            }
            let path = flow.maps.path(file).unwrap_or_default().to_owned();
            let shift = shift(flow, file);
            match flow.maps.elf(file) {
                Some(module) => {
                    let own = module.address_of_offset(offset).unwrap_or(offset);
                    let stripped = module.is_stripped();
                    FindError::NoSymbol { addr: own.wrapping_add(shift), path, stripped }
                }
                None => unknown(format!("at {place}"), nameless(flow)),
            }
        }
    })
}

/// The executed blocks over an offset that no symbol covers, as one piece of code.
fn blocks_at(flow: &mut Flow, place: &LocationSpec, file: usize, offset: u64) -> Option<Stretch> {
    let executed = flow.blocks.iter().filter_map(|block| {
        let entry = block.entry_location.in_file(file)?;
        let exit = entry.checked_add(block.exit.checked_sub(block.entry)?)?;
        (entry..=exit).contains(&offset).then_some((entry, exit))
    });
    let (start, end) = executed.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
    let module = flow.maps.elf(file)?;
    let address = module.address_of_offset(start)?;
    let exit = module.address_of_offset(end)?;
    let end = match module.code_at(exit).decode(exit) {
        Insn::Straight { len } | Insn::Branch(BranchInsn { len, .. }) => end + u64::from(len),
        Insn::Invalid => end + 1,
    };
    let name = place.to_string();
    Some(Stretch::of(flow, Function { name, file, offsets: start..end, address }))
}

fn range(flow: &mut Flow, from: &str, to: &str) -> Result<Stretch, FindError> {
    let no_range = || FindError::NoRange { from: from.to_owned(), to: to.to_owned() };
    let (start, end) = (end_of_range(flow, from)?, end_of_range(flow, to)?);
    let Location::File { file, offset } = start else { return Err(no_range()) };
    let len = end.in_file(file).and_then(|end| end.checked_sub(offset)).filter(|len| *len > 0);
    let len = len.ok_or_else(no_range)?;
    let name = format!("{from}..{to}");
    let by_name = |what| FindError::NoCode { what, why: OF_NAMES };
    if flow.maps.is_named_file(file) {
        return Err(by_name(name));
    }
    let module = flow.maps.elf(file).ok_or_else(no_range)?;
    let address = module.address_of_offset(offset).ok_or_else(no_range)?;
    let offsets = offset..offset.saturating_add(len);
    let found = Function { name, file, offsets, address };
    let ran = share_of(&flow.blocks, &found) > 0.0;
    let found = Stretch::of(flow, found);
    // For a mapped file, if nothing is known to have run at its addresses.
    if flow.maps.has_names() && !ran {
        return Err(by_name(found.name));
    }
    Ok(found)
}

fn end_of_range(flow: &mut Flow, end: &str) -> Result<Location, FindError> {
    if let Some(function) = named(flow, end)? {
        return Ok(Location::File { file: function.file, offset: function.offset });
    }
    let Ok(place) = end.parse::<LocationSpec>() else { return Err(missing(flow, end)) };
    let Flow { maps, blocks, .. } = flow;
    let spans = maps.resolve(&place, &|function| share_of(blocks, function))?;
    let start = spans.first().map(|span| span.start);
    match (start, &place) {
        (Some(Location::Address(_)) | None, LocationSpec::Address(addr)) => {
            Err(FindError::Unmapped(*addr))
        }
        (Some(start), _) => Ok(start),
        (None, _) => Err(missing(flow, end)),
    }
}

/// The difference between the views' addresses of a file and the file's own.
fn shift(flow: &mut Flow, file: usize) -> u64 {
    let Flow { blocks, sites, maps, .. } = flow;
    let Some(module) = maps.elf(file) else { return 0 };
    let all = blocks.iter().map(|block| (block.entry, block.entry_location));
    let mut all = all.chain(sites.iter().map(|site| (site.from, site.location)));
    let shift = all.find_map(|(addr, location)| {
        Some(addr.wrapping_sub(module.address_of_offset(location.in_file(file)?)?))
    });
    shift.unwrap_or(0)
}

/// The functions that ran and have code, hottest first.
pub fn hottest(flow: &mut Flow) -> Vec<Hot> {
    let mut heats: HashMap<(usize, u64), (Function, u64)> = HashMap::new();
    let mut add = |maps: &mut Maps, location: Location, heat: u64| {
        let Location::File { file, .. } = location else { return };
        if maps.elf(file).is_none() {
            return;
        }
        let Some(function) = maps.function(location) else { return };
        let sum = heats.entry((file, function.offsets.start)).or_insert((function, 0));
        sum.1 = sum.1.saturating_add(heat);
    };
    for block in &flow.blocks {
        let (location, maps) = (block.entry_location, &mut flow.maps);
        let length = straight::instructions(maps, location, block.entry, block.exit);
        add(maps, location, length.unwrap_or(1).saturating_mul(block.count));
    }
    if flow.blocks.is_empty() {
        for site in &flow.sites {
            add(&mut flow.maps, site.location, site.taken);
        }
    }
    let mut found: Vec<Hot> = Vec::new();
    let mut shifts: HashMap<usize, u64> = HashMap::new();
    for (function, heat) in heats.into_values() {
        let file = function.file;
        let shift = *shifts.entry(file).or_insert_with(|| shift(flow, file));
        found.push(Hot { function: Stretch::moved(flow, function, shift), heat });
    }
    found.sort_by(|a, b| b.heat.cmp(&a.heat).then(a.function.address.cmp(&b.function.address)));
    found
}

/// The hottest function in some files, or of all if these have none.
///
/// # Errors
/// [`FindError::Nothing`].
pub fn hottest_one(flow: &mut Flow, files: &LocationFilter) -> Result<Stretch, FindError> {
    let mut all = hottest(flow);
    let in_files = all.iter().position(|hot| files.has_file(hot.function.file));
    match all.is_empty() {
        false => Ok(all.swap_remove(in_files.unwrap_or(0)).function),
        true => Err(nothing(flow)),
    }
}

/// Why a recording has no [`hottest`] function: [`FindError::Nothing`].
pub fn nothing(flow: &mut Flow) -> FindError {
    FindError::Nothing(nameless(flow))
}
