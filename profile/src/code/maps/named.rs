//! Locations that were recorded by name, without addresses.

use std::collections::HashMap;

use super::common::Common;
use super::files::{FileKind, MappedFile};
use super::{Function, Location, Maps, Space};
use crate::read::names::{self, REACH, STRIDE, Symbol, Symbols};

/// The symbols of all recordings. Symbols with the same name and file are merged; without files,
/// those with the same name.
#[derive(Debug, Default)]
pub(super) struct NamedPlaces {
    symbols: Symbols,
    /// The file of each symbol.
    file_of: Vec<u32>,
    /// Files by printed name; empty without one.
    files: HashMap<Box<str>, usize>,
    /// For each recording with symbols, its symbols in order.
    tables: Vec<Vec<u32>>,
    /// Whether the current recording has symbols.
    pub(super) has_some: bool,
}

impl NamedPlaces {
    /// The table of the current recording.
    pub(super) fn current(&self) -> Option<usize> {
        self.tables.len().checked_sub(1).filter(|_| self.has_some)
    }

    /// The location for a number, in a space with this table.
    pub(super) fn locate(&self, table: usize, number: u64) -> Option<Location> {
        if !names::is_name(number) {
            return None;
        }
        let symbol = *self.tables.get(table)?.get(names::slot(number))?;
        let file = *self.file_of.get(symbol as usize)? as usize;
        let known = self.symbols.get(symbol as usize)?;
        let first = if known.is_file { known.start } else { u64::from(symbol) * STRIDE };
        Some(Location::File { file, offset: first.saturating_add(number % STRIDE) })
    }

    /// The symbol at a location's offset, and the offset of its first byte.
    pub(super) fn at(&self, offset: u64) -> Option<(Symbol<'_>, u64)> {
        let symbol = self.symbols.get(usize::try_from(offset / STRIDE).ok()?)?;
        Some((symbol, offset - offset % STRIDE))
    }

    /// The symbols of a file, and the offsets of their first bytes.
    pub(super) fn of_file(&self, file: usize) -> impl Iterator<Item = (&str, u64)> {
        let symbols = self.file_of.iter().enumerate();
        let of = symbols.filter(move |(_, of)| **of as usize == file);
        of.filter_map(|(at, _)| {
            let symbol = self.symbols.get(at).filter(|symbol| symbol.start == 0)?;
            Some((symbol.name?, at as u64 * STRIDE))
        })
    }
}

impl Maps {
    /// Adds the symbol for numbers in later samples. Earlier numbers keep their meaning.
    pub fn symbol(&mut self, symbol: Symbol<'_>) {
        if !self.named.has_some {
            self.named.has_some = true;
            self.named.tables.push(Vec::new());
            self.part_spaces();
            self.common = Common::default();
        }
        let NamedPlaces { symbols, tables, .. } = &mut self.named;
        // Those of one recording differ.
        let known = if tables.len() == 1 { symbols.push(symbol) } else { symbols.number(symbol) };
        let Some(known) = known else { return };
        if known == self.named.file_of.len() {
            let file = match symbol.file.filter(|_| symbol.is_file) {
                Some(path) => self.file(path, None, FileKind::of_path(path, self.recording)),
                None => None,
            };
            let file = file.unwrap_or_else(|| self.named_file(symbol.file));
            self.named.file_of.push(file as u32);
        }
        // Symbols arrive in order of their numbers.
        if let Some(table) = self.named.tables.last_mut().filter(|t| t.len() == symbol.slot()) {
            table.push(known as u32);
        }
    }

    fn named_file(&mut self, path: Option<&str>) -> usize {
        let path = path.unwrap_or_default();
        if let Some(file) = self.named.files.get(path) {
            return *file;
        }
        let file = self.files.len();
        self.files.push(MappedFile::new(path.to_owned(), None, FileKind::Named));
        self.named.files.insert(path.into(), file);
        file
    }

    /// Gives every process a space that knows the symbols of this recording.
    fn part_spaces(&mut self) {
        let named = self.named.current();
        for at in self.current.values_mut() {
            let next = self.spaces.len();
            let Some(space) = self.spaces.get_mut(*at) else { continue };
            if !space.used {
                space.named = named;
                continue;
            }
            let mappings = space.mappings.clone();
            let Space { owner, generated, .. } = *space;
            self.spaces.push(Space { owner, mappings, generated, named, ..Space::default() });
            *at = next;
        }
    }

    /// Whether any recording has symbols instead of addresses.
    pub fn has_names(&self) -> bool {
        self.named.symbols.len() > 0
    }

    /// Whether a location was recorded by symbol, and has no address.
    pub fn is_named(&self, location: Location) -> bool {
        matches!(location, Location::File { file, .. } if self.is_named_file(file))
    }

    pub(crate) fn is_named_file(&self, file: usize) -> bool {
        self.files.get(file).is_some_and(|file| file.kind == FileKind::Named)
    }

    /// The address of a location, given as `addr` by an analysis: `None` if it was recorded by
    /// symbol or file offset.
    pub fn address_of(&self, location: Location, addr: u64) -> Option<u64> {
        let is_offset = matches!(location, Location::File { .. }) && names::is_name(addr);
        (!is_offset && !self.is_named(location)).then_some(addr)
    }

    /// The identity of a location across recordings: the file, the symbol if recorded by symbol,
    /// and the offset.
    pub fn key(&self, location: Location) -> Option<(&str, Option<&str>, u64)> {
        let Location::File { file, offset } = location else { return None };
        let path = self.files.get(file)?;
        if path.kind != FileKind::Named {
            return Some((&path.path, None, offset));
        }
        let (known, start) = self.named.at(offset)?;
        let within = known.start.saturating_add(offset - start);
        Some((&path.path, Some(known.name.unwrap_or_default()), within))
    }

    /// The single location for everything unknown in the file of an unknown location.
    pub(crate) fn unknown(&self, location: Location) -> Option<Location> {
        let Location::File { file, offset } = location else { return None };
        let (known, start) = self.named.at(offset).filter(|_| self.is_named(location))?;
        known.name.is_none().then_some(Location::File { file, offset: start })
    }

    /// The function with a location that was recorded by name.
    pub(super) fn named_at(&self, file: usize, offset: u64) -> Option<Function> {
        let (known, start) = self.named.at(offset)?;
        let name = known.name?.to_owned();
        let offsets = start.wrapping_sub(known.start)..start + REACH;
        Some(Function { name, file, offsets, address: 0 })
    }
}
