//! Units of debug information, including those in separate files (`-gsplit-dwarf`).

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use gimli::{AttributeValue, DebugInfoOffset, DwAt, Dwarf, IncompleteLineProgram, UnitOffset};

use crate::code::lines::{DebugReader, Lines, Pieces};
use crate::code::symbols::DebugDirs;

pub(super) type Die = gimli::DebuggingInformationEntry<DebugReader>;

/// Maximum length of a chain of entries that refer to each other.
const CHAIN: usize = 16;

/// A unit, with the sections that it needs.
pub(super) struct Unit {
    dwarf: Arc<Dwarf<DebugReader>>,
    pub(super) unit: gimli::Unit<DebugReader>,
    /// In the program's own sections, even for a split unit.
    pub(super) lines: Option<IncompleteLineProgram<DebugReader>>,
}

/// The units of a program.
pub(super) struct Units {
    dwarf: Arc<Dwarf<DebugReader>>,
    pieces: Pieces,
    /// Their offsets in the program's own section.
    pub(super) starts: Vec<usize>,
    /// The units read so far.
    pub(super) open: HashMap<usize, Arc<Unit>>,
    /// Missing files of split units.
    pub(super) missing: BTreeSet<String>,
}

impl Units {
    /// Reads a program's units; `None` if it has no debug information.
    pub(super) fn of(program: &Path, dirs: &DebugDirs) -> Option<Units> {
        let Lines { dwarf, pieces, .. } = Lines::of(program, dirs)?;
        let mut headers = dwarf.units();
        let headers = std::iter::from_fn(|| headers.next().ok()?);
        let starts = headers.filter_map(|header| Some(header.debug_info_offset()?.0)).collect();
        let (open, missing) = (HashMap::new(), BTreeSet::new());
        Some(Units { dwarf, pieces, starts, open, missing })
    }

    /// The unit at an offset.
    pub(super) fn get(&mut self, at: usize) -> Option<Arc<Unit>> {
        if let Some(unit) = self.open.get(&at) {
            return Some(Arc::clone(unit));
        }
        let header = self.dwarf.unit_header(DebugInfoOffset(at)).ok()?;
        let own = self.dwarf.unit(header).ok()?;
        let lines = own.line_program.clone();
        let split = self.split(&own);
        let (dwarf, unit) = split.unwrap_or_else(|| (Arc::clone(&self.dwarf), own));
        let unit = Arc::new(Unit { dwarf, unit, lines });
        self.open.insert(at, Arc::clone(&unit));
        Some(unit)
    }

    /// The split unit of a skeleton unit.
    fn split(
        &mut self,
        skeleton: &gimli::Unit<DebugReader>,
    ) -> Option<(Arc<Dwarf<DebugReader>>, gimli::Unit<DebugReader>)> {
        let id = skeleton.dwo_id?;
        let name = skeleton.dwo_name().ok()??;
        let name = self.dwarf.attr_string(skeleton, name).ok();
        let shown = name.as_ref().and_then(|name| gimli::Reader::to_string_lossy(name).ok());
        let shown = shown.map(std::borrow::Cow::into_owned).unwrap_or_default();
        let wanted = addr2line::SplitDwarfLoad {
            dwo_id: id,
            comp_dir: skeleton.comp_dir.clone(),
            path: name,
            parent: Arc::clone(&self.dwarf),
        };
        let found = self.pieces.find(&wanted).and_then(|dwarf| {
            let mut headers = dwarf.units();
            let headers = std::iter::from_fn(|| headers.next().ok()?);
            let mut units = headers.filter_map(|header| dwarf.unit(header).ok());
            let mut unit = units.find(|unit| unit.dwo_id == Some(id))?;
            unit.copy_relocated_attributes(skeleton);
            Some((Arc::clone(&dwarf), unit))
        });
        if found.is_none() {
            self.missing.insert(shown);
        }
        found
    }

    /// An attribute of an entry, or of its abstract origin or specification
    /// (`DWARFDie::findRecursively`).
    pub(super) fn find(
        &mut self,
        unit: &Arc<Unit>,
        die: &Die,
        names: &[DwAt],
    ) -> Option<(Arc<Unit>, AttributeValue<DebugReader>)> {
        let (mut unit, mut die) = (Arc::clone(unit), die.clone());
        for _ in 0..CHAIN {
            if let Some(value) = names.iter().find_map(|name| die.attr_value(*name)) {
                return Some((unit, value));
            }
            let origin = die.attr_value(gimli::DW_AT_abstract_origin);
            match origin.or_else(|| die.attr_value(gimli::DW_AT_specification))? {
                AttributeValue::UnitRef(offset) => die = unit.unit.entry(offset).ok()?,
                AttributeValue::DebugInfoRef(offset) => {
                    // Offsets of a split unit are relative to its own file.
                    if Arc::ptr_eq(&unit.dwarf, &self.dwarf) {
                        let after = self.starts.partition_point(|at| *at <= offset.0);
                        let at = *self.starts.get(after.checked_sub(1)?)?;
                        unit = self.get(at)?;
                        die = unit.unit.entry(UnitOffset(offset.0 - at)).ok()?;
                    } else {
                        let offset = offset.to_unit_offset(&unit.unit.header)?;
                        die = unit.unit.entry(offset).ok()?;
                    }
                }
                _ => return None,
            }
        }
        None
    }
}

impl Unit {
    pub(super) fn ranges(&self, die: &Die) -> Vec<(u64, u64)> {
        let Ok(mut ranges) = self.dwarf.die_ranges(&self.unit, die) else { return Vec::new() };
        let ranges = std::iter::from_fn(|| ranges.next().ok()?);
        ranges.filter(|of| of.begin < of.end).map(|of| (of.begin, of.end)).collect()
    }

    /// A string attribute, direct or by reference.
    pub(super) fn string(&self, value: AttributeValue<DebugReader>) -> Option<String> {
        let text = self.dwarf.attr_string(&self.unit, value).ok()?;
        gimli::Reader::to_string_lossy(&text).ok().map(std::borrow::Cow::into_owned)
    }
}
