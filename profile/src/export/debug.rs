//! Functions and inlined calls from DWARF, as LLVM's symbolizer reports them to llvm-profgen:
//! linkage names, lines relative to the start of the function, discriminators. All units are
//! scanned once for functions; lines and inlined calls are read only for executed units.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use gimli::{AttributeValue, DwAt};

use super::units::{Die, Unit, Units};
use crate::code::lines::{DEEPEST, DebugReader, stored_once};
use crate::code::symbols::DebugDirs;

/// A source location in a function: the line relative to its start, in 16 bits
/// (`ProfiledBinary::symbolize`), and the discriminator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) function: Arc<str>,
    pub(super) line: u32,
    pub(super) discriminator: u32,
    /// The function's first line; 0 if unknown.
    pub(super) start: u32,
}

/// A range of a function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) end: u64,
    /// Index of the function.
    pub(super) function: usize,
    /// Branches to its start are calls of the function (`FuncRange::IsFuncEntry`).
    pub(super) is_entry: bool,
}

/// All code with one name.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: Arc<str>,
    pub(super) ranges: Vec<(u64, u64)>,
}

/// A function or an inlined call.
#[derive(Clone, Debug)]
struct Scope {
    name: Arc<str>,
    /// Its first source line.
    start: u32,
    /// Line and discriminator of the call, and the index of the enclosing scope.
    caller: Option<(u32, u32, usize)>,
}

/// Maps a unit's addresses to scopes.
#[derive(Debug, Default)]
struct Tree {
    scopes: Vec<Scope>,
    /// By start address: the end address and the innermost scope.
    innermost: BTreeMap<u64, (u64, usize)>,
}

/// The line table of a unit: sequences of rows with ascending addresses.
type Rows = Vec<Vec<LineRow>>;

#[derive(Clone, Copy, Debug)]
struct LineRow {
    addr: u64,
    line: u32,
    discriminator: u32,
}

/// The functions of a program.
pub(super) struct Functions {
    units: Units,
    pub(super) all: Vec<Function>,
    /// By start address.
    pub(super) parts: BTreeMap<u64, Part>,
    /// The functions' units. By start address: the end address and the unit's offset.
    units_at: BTreeMap<u64, (u64, usize)>,
    /// By unit.
    read: HashMap<usize, Arc<(Tree, Rows)>>,
    names: HashSet<Arc<str>>,
}

impl Functions {
    /// Reads a program's functions at addresses from `base` on; `None` without debug information.
    pub(super) fn of(program: &Path, dirs: &DebugDirs, base: u64) -> Option<Functions> {
        let mut functions = Functions {
            units: Units::of(program, dirs)?,
            all: Vec::new(),
            parts: BTreeMap::new(),
            units_at: BTreeMap::new(),
            read: HashMap::new(),
            names: HashSet::new(),
        };
        let mut by_name = HashMap::new();
        for at in functions.units.starts.clone() {
            // Unreadable units have no functions.
            let _ = functions.read_unit(at, base, &mut by_name);
            functions.units.open.clear();
        }
        Some(functions)
    }

    /// Missing files of split debug information.
    pub(super) fn missing(&self) -> impl Iterator<Item = &str> {
        self.units.missing.iter().map(String::as_str)
    }

    /// Reads every subprogram entry with a name and addresses
    /// (`ProfiledBinary::loadSymbolsFromDWARFUnit`).
    fn read_unit(
        &mut self,
        at: usize,
        base: u64,
        by_name: &mut HashMap<Arc<str>, usize>,
    ) -> Option<()> {
        let unit = self.units.get(at)?;
        let mut raw = unit.unit.entries_raw(None).ok()?;
        while !raw.is_empty() {
            let offset = raw.next_offset();
            let Some(abbreviation) = raw.read_abbreviation().ok()? else { continue };
            raw.skip_attributes(abbreviation.attributes()).ok()?;
            let has = |name: DwAt| abbreviation.attributes().iter().any(|of| of.name() == name);
            let placed = has(gimli::DW_AT_low_pc) || has(gimli::DW_AT_ranges);
            if abbreviation.tag() != gimli::DW_TAG_subprogram || !placed {
                continue;
            }
            let Some(die) = unit.unit.entry(offset).ok() else { continue };
            let Some(name) = self.name(&unit, &die) else { continue };
            let mut ranges = unit.ranges(&die);
            for (start, end) in &ranges {
                self.units_at.entry(*start).or_insert((*end, at));
            }
            // The linker moved dropped functions below `base`.
            ranges.retain(|(start, _)| *start >= base);
            if ranges.is_empty() {
                continue;
            }
            let function = *by_name.entry(Arc::clone(&name)).or_insert_with(|| {
                self.all.push(Function { name, ranges: Vec::new() });
                self.all.len() - 1
            });
            for (start, end) in ranges {
                self.all.get_mut(function)?.ranges.push((start, end));
                // If several functions start there, the first has the address.
                self.parts.entry(start).or_insert(Part { end, function, is_entry: false });
            }
        }
        Some(())
    }

    /// The range that contains an address, with its start (`findFuncRange`).
    pub(super) fn part(&self, addr: u64) -> Option<(u64, Part)> {
        let (start, part) = self.parts.range(..=addr).next_back()?;
        (addr < part.end).then_some((*start, *part))
    }

    /// Adds a symbol of the program's table: if it names a function, branches to its address are
    /// calls (`ProfiledBinary::setIsFuncEntry`).
    pub(super) fn symbol(&mut self, addr: u64, name: &str) {
        let Some((start, part)) = self.part(addr) else { return };
        let Some(function) = self.all.get(part.function) else { return };
        if function.ranges.len() == 1 || *function.name == *super::samples::canonical(name) {
            self.parts.entry(start).and_modify(|part| part.is_entry = true);
        }
    }

    /// The function at an address and the functions inlined there, outermost first. `None` if the
    /// debug information has none.
    pub(super) fn frames(&mut self, addr: u64) -> Option<Vec<Frame>> {
        let (_, &(end, unit)) = self.units_at.range(..=addr).next_back()?;
        if addr >= end {
            return None;
        }
        let read = self.read(unit);
        let (tree, rows) = &*read;
        let (_, &(end, innermost)) = tree.innermost.range(..=addr).next_back()?;
        let mut scope = Some(innermost).filter(|_| addr < end);
        let (mut line, mut discriminator) = row(rows, addr).unwrap_or((0, 0));
        let mut frames = Vec::new();
        while let Some(of) = scope.and_then(|number| tree.scopes.get(number)) {
            let function = super::samples::canonical(&of.name);
            let function = if function.len() == of.name.len() {
                Arc::clone(&of.name)
            } else {
                function.into()
            };
            frames.push(Frame {
                function,
                line: line.wrapping_sub(of.start) & 0xffff,
                discriminator,
                start: of.start,
            });
            scope = of.caller.map(|(call_line, call_discriminator, caller)| {
                (line, discriminator) = (call_line, call_discriminator);
                caller
            });
        }
        frames.reverse();
        Some(frames)
    }

    fn read(&mut self, at: usize) -> Arc<(Tree, Rows)> {
        if let Some(known) = self.read.get(&at) {
            return Arc::clone(known);
        }
        let tree = self.read_tree(at).unwrap_or_default();
        let rows = self.units.get(at).and_then(|unit| rows(&unit)).unwrap_or_default();
        let read = Arc::new((tree, rows));
        self.read.insert(at, Arc::clone(&read));
        read
    }

    /// A function's linkage name or, without one, its name.
    fn name(&mut self, unit: &Arc<Unit>, die: &Die) -> Option<Arc<str>> {
        let linkage = [gimli::DW_AT_linkage_name, gimli::DW_AT_MIPS_linkage_name];
        let mut find = |names: &[DwAt]| self.units.find(unit, die, names);
        let (unit, value) = find(&linkage).or_else(|| find(&[gimli::DW_AT_name]))?;
        let text = unit.string(value)?;
        // A newline in a name would corrupt the profile.
        if text.contains(char::is_control) {
            return None;
        }
        Some(stored_once(&mut self.names, &text))
    }

    /// Reads functions and the calls inlined into them (`getInlinedChainForAddress`).
    fn read_tree(&mut self, at: usize) -> Option<Tree> {
        let unit = self.units.get(at)?;
        let mut raw = unit.unit.entries_raw(None).ok()?;
        let mut tree = Tree::default();
        // Enclosing scopes, with the depths of their entries.
        let mut open: Vec<(isize, usize)> = Vec::new();
        while !raw.is_empty() {
            let (depth, offset) = (raw.next_depth(), raw.next_offset());
            if depth > DEEPEST {
                return None;
            }
            let Some(abbreviation) = raw.read_abbreviation().ok()? else { continue };
            raw.skip_attributes(abbreviation.attributes()).ok()?;
            open.truncate(open.partition_point(|(of, _)| *of < depth));
            let inlined = abbreviation.tag() == gimli::DW_TAG_inlined_subroutine;
            if !inlined && abbreviation.tag() != gimli::DW_TAG_subprogram {
                continue;
            }
            let Ok(die) = unit.unit.entry(offset) else { continue };
            let ranges = unit.ranges(&die);
            // An inlined call without any code may still enclose others.
            if ranges.is_empty() && !inlined {
                continue;
            }
            let number = |value: Option<AttributeValue<DebugReader>>| {
                value.and_then(|value| value.udata_value()).unwrap_or(0) as u32
            };
            let caller = open.last().filter(|_| inlined).map(|(_, caller)| {
                let discriminator = number(die.attr_value(gimli::DW_AT_GNU_discriminator));
                (number(die.attr_value(gimli::DW_AT_call_line)), discriminator, *caller)
            });
            let start = self.units.find(&unit, &die, &[gimli::DW_AT_decl_line]);
            let start = number(start.map(|(_, value)| value));
            let name = self.name(&unit, &die).unwrap_or_else(|| Arc::from(""));
            for range in ranges {
                paint(&mut tree.innermost, range, tree.scopes.len());
            }
            open.push((depth, tree.scopes.len()));
            tree.scopes.push(Scope { name, start, caller });
        }
        Some(tree)
    }
}

/// Assigns an address range to a scope. It is inside the range of an outer scope, added before
/// (`DWARFUnit::updateAddressDieMap`). Dropped functions at address 0 may extend past the outer
/// range.
fn paint(innermost: &mut BTreeMap<u64, (u64, usize)>, (start, end): (u64, u64), scope: usize) {
    if let Some((&from, &(to, of))) = innermost.range(..=start).next_back()
        && start < to
    {
        if end < to {
            innermost.insert(end, (to, of));
        }
        if from < start {
            innermost.insert(from, (start, of));
        }
    }
    innermost.insert(start, (end, scope));
}

/// Line and discriminator of an address, from the last row at or before it. Line 0 is code without
/// a line, and counts as such.
fn row(rows: &Rows, addr: u64) -> Option<(u32, u32)> {
    // The linker leaves dropped functions at address 0. Of overlapping sequences use the one that
    // ends first (`LineTable::lookupAddressImpl`).
    let end = |run: &&Vec<LineRow>| run.last().map_or(0, |last| last.addr);
    let run = rows.iter().filter(|run| addr < end(run)).min_by_key(end)?;
    let row = run.get(run.partition_point(|row| row.addr <= addr).checked_sub(1)?)?;
    Some((row.line, row.discriminator))
}

fn rows(unit: &Unit) -> Option<Rows> {
    let mut table = unit.lines.clone()?.rows();
    let (mut runs, mut run): (Rows, Vec<LineRow>) = (Vec::new(), Vec::new());
    while let Ok(Some((_, row))) = table.next_row() {
        run.push(LineRow {
            addr: row.address(),
            line: row.line().map_or(0, |line| line.get() as u32),
            discriminator: row.discriminator() as u32,
        });
        if row.end_sequence() {
            runs.push(std::mem::take(&mut run));
        }
    }
    Some(runs)
}
