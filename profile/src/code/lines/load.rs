//! Opens debug information, which may be in several files.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::SplitDwarfLoad;
use gimli::{Dwarf, DwarfPackage, EndianReader, Reader as _, RunTimeEndian, SectionId, UnitHeader};
use object::{CompressionFormat, Object, ObjectSection};

use super::bytes::Bytes;
use super::path_of;
use crate::code::debug_file::{DebugContent, DebugDirs, alternate, debug_file, open_regular};

/// The reader type for debug information.
pub(crate) type Reader = EndianReader<RunTimeEndian, Bytes>;

/// Larger sections are not valid debug information.
const MAX_SECTION: u64 = 4 << 30;
/// Maximum compression ratio beyond [`ANY_RATIO`] bytes: debug information compresses to a fifth, a
/// crafted archive to a thousandth.
const MAX_RATIO: u64 = 64;
/// Decompressed size that is always accepted.
const ANY_RATIO: u64 = 16 << 20;

/// Maximum depth of inlined calls and other nesting: parsing is recursive, and compilers reach some
/// dozens.
pub(crate) const DEEPEST: isize = 500;

/// Split DWARF: units in separate files, or packed together.
pub(crate) struct Pieces {
    /// The files with everything else.
    pub(super) files: Vec<Bytes>,
    package: Option<DwarfPackage<Reader>>,
    /// The program's folder: a unit may be there if it is no longer where it was built.
    folder: Option<PathBuf>,
}

/// Finds the debug information of a program.
pub(super) fn load(program: &Path, dirs: &DebugDirs) -> Option<(Dwarf<Reader>, Pieces)> {
    let own = map(program)?;
    let own_object = object::File::parse(&*own).ok()?;
    let elsewhere;
    let (path, bytes) = if DebugContent::Lines.is_in(&own_object) {
        (program.to_owned(), own.clone())
    } else {
        elsewhere = debug_file(program, &own_object, dirs, DebugContent::Lines)?;
        (elsewhere.clone(), map(&elsewhere)?)
    };
    let object = object::File::parse(&*bytes).ok()?;
    let mut files = vec![own.clone(), bytes.clone()];
    let mut dwarf =
        Dwarf::load(|id| Ok::<_, gimli::Error>(section(&bytes, &object, Some(id.name())))).ok()?;
    if let Some(shared) = alternate(&path, &object, dirs).and_then(|path| map(&path))
        && let Ok(object) = object::File::parse(&*shared)
    {
        files.push(shared.clone());
        let _ =
            dwarf.load_sup(|id| Ok::<_, gimli::Error>(section(&shared, &object, Some(id.name()))));
    }
    let package = [program, &path].into_iter().find_map(package);
    let folder = program.parent().map(Path::to_owned);
    Some((dwarf, Pieces { files, package, folder }))
}

fn map(path: &Path) -> Option<Bytes> {
    Bytes::map(&open_regular(path).ok()?, path).ok()
}

fn endian(object: &object::File<'_>) -> RunTimeEndian {
    if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big }
}

/// A section; empty if the file lacks it, or it cannot be decompressed.
fn section(file: &Bytes, object: &object::File<'_>, name: Option<&str>) -> Reader {
    let found = name.and_then(|name| object.section_by_name(name));
    let endian = endian(object);
    found
        .and_then(|section| unpacked(file, &section, endian))
        .unwrap_or_else(|| Reader::new(Bytes::owned(Vec::new()), endian))
}

fn unpacked(
    file: &Bytes,
    section: &object::Section<'_, '_>,
    endian: RunTimeEndian,
) -> Option<Reader> {
    let range = section.compressed_file_range().ok()?;
    let start = usize::try_from(range.offset).ok()?;
    let end = start.checked_add(usize::try_from(range.compressed_size).ok()?)?;
    let packed = file.get(start..end)?;
    if range.format == CompressionFormat::None {
        return Some(Reader::new(file.clone(), endian).range(start..end));
    }
    // Limited, because the announced size is not trusted.
    let plausible = range.compressed_size.saturating_mul(MAX_RATIO).max(ANY_RATIO);
    if range.uncompressed_size > plausible.min(MAX_SECTION) {
        return None;
    }
    let limit = range.uncompressed_size;
    let mut bytes = Vec::new();
    match range.format {
        CompressionFormat::Zlib => {
            flate2::read::ZlibDecoder::new(packed).take(limit).read_to_end(&mut bytes).ok()?
        }
        CompressionFormat::Zstandard => {
            let decoder = zstd::stream::read::Decoder::new(packed).ok()?;
            decoder.take(limit).read_to_end(&mut bytes).ok()?
        }
        _ => return None,
    };
    Some(Reader::new(Bytes::owned(bytes), endian))
}

/// `PROGRAM.dwp`, where `dwp` packs the units of split DWARF.
fn package(program: &Path) -> Option<DwarfPackage<Reader>> {
    let mut path: OsString = program.into();
    path.push(".dwp");
    let bytes = map(Path::new(&path))?;
    let object = object::File::parse(&*bytes).ok()?;
    let empty = Reader::new(Bytes::owned(Vec::new()), endian(&object));
    let load = |id: SectionId| Ok::<_, gimli::Error>(section(&bytes, &object, id.dwo_name()));
    DwarfPackage::load(load, empty).ok()
}

/// The units of a program by address, and whether functions in them can be parsed.
pub(super) struct Units {
    units: Vec<(UnitHeader<Reader>, OnceCell<bool>)>,
    /// First address, the one after the last, the farthest of these so far, and the unit. A unit
    /// without addresses has them all.
    ranges: Vec<(u64, u64, u64, usize)>,
}

impl Units {
    /// Finds the addresses of each unit in both lists of them: readers prefer either.
    pub(super) fn new(dwarf: &Dwarf<Reader>) -> Units {
        let mut listed: HashMap<usize, Vec<gimli::Range>> = HashMap::new();
        let mut headers = dwarf.debug_aranges.headers();
        while let Ok(Some(header)) = headers.next() {
            let ranges = listed.entry(header.debug_info_offset().0).or_default();
            let mut entries = header.entries();
            while let Some(entry) = entries.next().transpose() {
                ranges.extend(entry.map(|entry| entry.range()));
            }
        }
        let mut found = Units { units: Vec::new(), ranges: Vec::new() };
        let mut headers = dwarf.units();
        // Readers stop at an invalid entry or unit.
        while let Ok(Some(header)) = headers.next() {
            let Ok(unit) = dwarf.unit(header.clone()) else { continue };
            let offset = header.debug_info_offset().map(|offset| offset.0);
            let mut ranges = offset.and_then(|at| listed.remove(&at)).unwrap_or_default();
            if let Ok(mut own) = dwarf.unit_ranges(&unit) {
                ranges.extend(std::iter::from_fn(|| own.next().ok()?));
            }
            if ranges.iter().all(|range| range.begin >= range.end) {
                ranges.push(gimli::Range { begin: 0, end: u64::MAX });
            }
            let number = found.units.len();
            found.ranges.extend(ranges.iter().map(|range| (range.begin, range.end, 0, number)));
            found.units.push((header, OnceCell::new()));
        }
        found.ranges.sort_unstable();
        let mut farthest = 0;
        for (_, end, so_far, _) in &mut found.ranges {
            farthest = farthest.max(*end);
            *so_far = farthest;
        }
        found
    }

    /// Whether no nesting is deep enough to overflow the stack, in any unit with this address.
    pub(super) fn are_shallow_at(&self, dwarf: &Dwarf<Reader>, addr: u64) -> bool {
        let after = self.ranges.partition_point(|(begin, ..)| *begin <= addr);
        let before = self.ranges.get(..after).unwrap_or_default().iter().rev();
        let mut near = before.take_while(|(_, _, so_far, _)| addr < *so_far);
        near.all(|(_, end, _, unit)| {
            let shallow = |(header, known): &(UnitHeader<Reader>, OnceCell<bool>)| {
                *known.get_or_init(|| !is_deep(dwarf, header.clone()))
            };
            addr >= *end || self.units.get(*unit).is_none_or(shallow)
        })
    }
}

/// Whether nesting in a unit is deep enough to overflow the stack.
fn is_deep(dwarf: &Dwarf<Reader>, header: UnitHeader<Reader>) -> bool {
    let deep = |unit: &gimli::Unit<Reader>| -> gimli::Result<bool> {
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            if let Some(entry) = entries.read_abbreviation()? {
                entries.skip_attributes(entry.attributes())?;
            }
            if entries.next_depth() > DEEPEST {
                return Ok(true);
            }
        }
        Ok(false)
    };
    // Readers stop at an invalid entry.
    dwarf.unit(header).is_ok_and(|unit| deep(&unit).unwrap_or(false))
}

/// Whether no unit in a piece of split DWARF is deep.
fn is_shallow(dwarf: &Dwarf<Reader>) -> bool {
    let mut units = dwarf.units();
    std::iter::from_fn(|| units.next().ok()?).all(|header| !is_deep(dwarf, header))
}

impl Pieces {
    /// The unit of split DWARF that an address needs.
    pub(crate) fn find(&self, wanted: &SplitDwarfLoad<Reader>) -> Option<Arc<Dwarf<Reader>>> {
        let packed = self.package.as_ref();
        if let Some(unit) =
            packed.and_then(|package| package.find_cu(wanted.dwo_id, &wanted.parent).ok()?)
        {
            return Some(unit).filter(is_shallow).map(Arc::new);
        }
        let name = path_of(&wanted.path.as_ref()?.to_slice().ok()?);
        let mut built = PathBuf::new();
        if let Some(folder) = &wanted.comp_dir {
            built.push(path_of(&folder.to_slice().ok()?));
        }
        built.push(&name);
        let next_to_it =
            self.folder.as_ref().zip(name.file_name()).map(|(dir, name)| dir.join(name));
        std::iter::once(built)
            .chain(next_to_it)
            .find_map(|path| unit(&path, wanted))
            .filter(is_shallow)
            .map(Arc::new)
    }
}

/// The unit in a `.dwo` file, if it is the wanted one.
fn unit(path: &Path, wanted: &SplitDwarfLoad<Reader>) -> Option<Dwarf<Reader>> {
    let bytes = map(path)?;
    let object = object::File::parse(&*bytes).ok()?;
    let mut dwarf =
        Dwarf::load(|id| Ok::<_, gimli::Error>(section(&bytes, &object, id.dwo_name()))).ok()?;
    let header = dwarf.units().next().ok()??;
    let unit = dwarf.unit(header).ok()?;
    if unit.dwo_id != Some(wanted.dwo_id) {
        return None;
    }
    dwarf.make_dwo(&wanted.parent);
    Some(dwarf)
}
