//! ELF files: segments, symbols, code and source lines.

use std::cell::OnceCell;
use std::ops::Range;
use std::path::{Path, PathBuf};

use lbr_msr::insn::{CodeBytes, Isa};
use lbr_msr::text::AsText;
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind, elf};

use super::bytes::{ElfBytes, unpacked};
use super::table::{SymbolExtent, SymbolTable};
use super::{SymbolError, plt};
use crate::code::debug_file::{DebugContent, DebugDirs, debug_file, open_regular};
use crate::code::demangle::Called;
use crate::code::lines::{CodeOfLine, Frame, Lines, SourceLine};

/// A loaded segment. PT_LOAD.
#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    file_size: u64,
    vaddr: u64,
    executable: bool,
}

/// An ELF file: its loaded segments, symbols, code and source lines. Symbols and lines are read on
/// first use.
#[derive(Debug)]
pub struct Module {
    path: PathBuf,
    bytes: ElfBytes,
    /// Whether it contains its code: debug files do not.
    pub(crate) has_bytes: bool,
    /// The instruction set, if it contains code that can be decoded.
    pub(crate) isa: Option<Isa>,
    segments: Vec<Segment>,
    build_id: Option<Vec<u8>>,
    dirs: DebugDirs,
    symbols: OnceCell<SymbolTable>,
    lines: OnceCell<Option<Box<Lines>>>,
    /// The last part read: the code of one function is adjacent.
    page: Option<(u64, Vec<u8>)>,
}

const PAGE: u64 = 4096;

impl Module {
    /// Reads the segments of a file; searches for debug files in the system's places.
    ///
    /// # Errors
    /// [`SymbolError`].
    pub fn open(path: &Path) -> Result<Module, SymbolError> {
        Module::open_with(path, &DebugDirs::usual())
    }

    /// As [`open`](Self::open), with places to search for debug files.
    ///
    /// # Errors
    /// [`SymbolError`].
    pub fn open_with(path: &Path, dirs: &DebugDirs) -> Result<Module, SymbolError> {
        Module::of(path, ElfBytes::File(open_regular(path)?), dirs)
    }

    /// An ELF file in memory; `path` is its name for messages.
    pub(crate) fn in_memory(
        path: &Path,
        bytes: Vec<u8>,
        dirs: &DebugDirs,
    ) -> Result<Module, SymbolError> {
        Module::of(path, ElfBytes::Memory(bytes.into()), dirs)
    }

    fn of(path: &Path, bytes: ElfBytes, dirs: &DebugDirs) -> Result<Module, SymbolError> {
        let not_elf =
            |e: object::Error| SymbolError::NotElf { path: path.to_owned(), what: e.to_string() };
        let io = |cause| SymbolError::Open { path: path.to_owned(), cause };
        let cache = ReadCache::new(bytes.input().map_err(io)?);
        let object = object::File::parse(&cache).map_err(not_elf)?;
        let has_code = has_code(&object);
        Ok(Module {
            path: path.to_owned(),
            segments: segments(&object, has_code),
            has_bytes: has_code,
            isa: isa(&object).filter(|_| has_code),
            build_id: object.build_id().ok().flatten().map(<[u8]>::to_vec),
            bytes,
            dirs: dirs.clone(),
            symbols: OnceCell::new(),
            lines: OnceCell::new(),
            page: None,
        })
    }

    /// Sets other places to search for debug files, if not yet read.
    pub(crate) fn look_in(&mut self, dirs: &DebugDirs) {
        self.dirs.clone_from(dirs);
    }

    fn symbols(&self) -> &SymbolTable {
        self.symbols.get_or_init(|| {
            let mut table = SymbolTable::default();
            // An unreadable file has no symbols.
            let _ = self.read_symbols(&mut table);
            table.sort();
            table
        })
    }

    fn read_symbols(&self, table: &mut SymbolTable) -> Option<()> {
        let cache = ReadCache::new(self.bytes.input().ok()?);
        let object = object::File::parse(&cache).ok()?;
        let stripped = object.symbol_table().is_none();
        let symbols = object.symbols().chain(object.dynamic_symbols());
        symbols.for_each(|symbol| self.add(table, &symbol));
        plt::add(&object, table);
        for section in object.sections() {
            table.bounds.push(section.address().saturating_add(section.size()));
        }
        if !stripped {
            return Some(());
        }
        if let Some(path) = debug_file(&self.path, &object, &self.dirs, DebugContent::Symbols) {
            let cache = ReadCache::new(open_regular(&path).ok()?);
            let object = object::File::parse(&cache).ok()?;
            object.symbols().for_each(|symbol| self.add(table, &symbol));
        } else if let Some(bytes) = unpacked(&object) {
            let object = object::File::parse(bytes.as_slice()).ok()?;
            object.symbols().for_each(|symbol| self.add(table, &symbol));
        }
        Some(())
    }

    fn add<'data>(&self, table: &mut SymbolTable, symbol: &impl ObjectSymbol<'data>) {
        let is_code = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown);
        // Untyped marks such as _DYNAMIC may also be in data.
        let runs = self.segment_at(symbol.address()).is_some_and(|segment| segment.executable);
        if !symbol.is_definition() || !is_code || !runs {
            return;
        }
        let Ok(name) = symbol.name_bytes() else { return };
        // Marks of code and data (Arm's ELF ABI, "Mapping symbols").
        if self.isa == Some(Isa::Aarch64) && name.starts_with(b"$") {
            return;
        }
        let rank = u8::from(symbol.kind() != SymbolKind::Text) << 3
            | u8::from(symbol.size() == 0) << 2
            | u8::from(symbol.is_weak()) << 1
            | u8::from(symbol.is_local());
        table.push(symbol.address(), symbol.size(), &name.as_text(), rank);
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its build id.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// Sets the position of a debug file's code in its program: it was mapped from `pgoff` on,
    /// `len` bytes. The debug file's own offsets may differ. `false` if this cannot be the mapping
    /// of its code; always `true` for a program.
    pub(crate) fn lay_code_at(&mut self, mapped: Option<(u64, u64)>) -> bool {
        if self.has_bytes {
            return true;
        }
        self.segments.retain(|segment| segment.executable);
        let ([segment], Some((pgoff, len))) = (self.segments.as_mut_slice(), mapped) else {
            return false;
        };
        let within = segment.vaddr % PAGE;
        segment.offset = pgoff.saturating_add(within);
        within.checked_add(segment.file_size).and_then(|end| end.checked_next_multiple_of(PAGE))
            == Some(len)
    }

    /// Whether it has no code symbols.
    pub fn is_stripped(&self) -> bool {
        self.symbols().is_empty()
    }

    /// The symbol-table address of a file offset. Page rounding makes adjacent segments share pages
    /// of the file, so the segment that contains the byte decides, executable ones first.
    pub fn address_of_offset(&self, offset: u64) -> Option<u64> {
        let holds =
            |s: &&Segment| offset.checked_sub(s.offset).is_some_and(|within| within < s.file_size);
        let holding = self.segments.iter().filter(holds);
        let segment = holding.min_by_key(|segment| !segment.executable)?;
        Some(segment.vaddr.wrapping_add(offset - segment.offset))
    }

    /// The file offset of a symbol-table address. The inverse of
    /// [`address_of_offset`](Self::address_of_offset).
    pub fn offset_of_address(&self, addr: u64) -> Option<u64> {
        let segment = self.segment_at(addr)?;
        segment.offset.checked_add(addr - segment.vaddr)
    }

    /// The symbol that covers a symbol-table address, and the offset in it. The name is as in the
    /// file.
    pub fn symbol_at(&self, addr: u64) -> Option<(&str, u64)> {
        let (name, range) = self.function_at(addr)?;
        Some((name, addr - range.start))
    }

    /// The symbol that covers an address, and its range.
    pub fn function_at(&self, addr: u64) -> Option<(&str, Range<u64>)> {
        let found = self.symbols().at(addr)?;
        let range = self.range(&found)?;
        range.contains(&addr).then_some((found.name, range))
    }

    /// The range of a symbol. Assembler symbols often have no size: they extend to the next one,
    /// but not beyond their segment.
    fn range(&self, found: &SymbolExtent<'_>) -> Option<Range<u64>> {
        let segment = self.segment_at(found.addr)?;
        let last = segment.vaddr.saturating_add(segment.file_size);
        Some(found.addr..found.end.unwrap_or(last).min(last))
    }

    /// Every function: its name as in the file, and its addresses.
    pub fn functions(&self) -> impl Iterator<Item = (&str, Range<u64>)> + Clone {
        self.symbols().iter().filter_map(|found| Some((found.name, self.range(&found)?)))
    }

    /// The address of the function that matches a name.
    ///
    /// # Errors
    /// [`SymbolError::NoSymbol`].
    pub fn find(&self, name: &str) -> Result<u64, SymbolError> {
        let functions = self.functions().map(|(name, range)| (name, Some(range.start)));
        Called::new(name).one_of(functions).map(|(_, address)| address.unwrap_or(0)).map_err(
            |why| SymbolError::NoSymbol {
                path: self.path.clone(),
                why,
                stripped: self.is_stripped(),
            },
        )
    }

    fn lines(&self) -> Option<&Lines> {
        let load = || Lines::of(&self.path, &self.dirs).map(Box::new);
        self.lines.get_or_init(load).as_deref().filter(|lines| !lines.is_cut())
    }

    /// The line of an address; for inlined code, the innermost.
    pub fn source(&self, addr: u64) -> Option<SourceLine> {
        self.lines()?.source(addr)
    }

    /// The functions that contain an address: inlined functions from the innermost on, then the
    /// enclosing one.
    pub fn frames(&self, addr: u64) -> Vec<Frame> {
        self.lines().map(|lines| lines.frames(addr)).unwrap_or_default()
    }

    /// Adds the code of a line, in source files whose path ends with `file`, sorted by address.
    pub(crate) fn code_of_line(&self, file: &str, wanted: u32, found: &mut CodeOfLine) {
        let Some(lines) = self.lines() else { return };
        for segment in self.segments.iter().filter(|segment| segment.executable) {
            let end = segment.vaddr.saturating_add(segment.file_size);
            lines.code_of_line(segment.vaddr..end, file, wanted, found);
        }
        found.settle();
    }

    /// The lines that have code within some addresses.
    pub(crate) fn lines_within(&self, within: Range<u64>) -> Vec<SourceLine> {
        self.lines().map(|lines| lines.lines_within(within)).unwrap_or_default()
    }

    /// Code bytes at a symbol-table address, up to the longest instruction. Empty if the file has
    /// none.
    pub fn code_at(&mut self, addr: u64) -> CodeBytes {
        let isa = self.isa.unwrap_or_default();
        CodeBytes { isa, bytes: self.bytes_at(addr, isa.longest().into()).unwrap_or_default() }
    }

    fn bytes_at(&mut self, addr: u64, longest: u64) -> Option<Vec<u8>> {
        let segment = self.segment_at(addr).filter(|s| s.executable && self.isa.is_some())?;
        let within = addr - segment.vaddr;
        let offset = segment.offset.checked_add(within)?;
        let len = (segment.file_size - within).min(longest);
        let page = offset - offset % PAGE;
        if self.page.as_ref().is_none_or(|(at, _)| *at != page) {
            // One instruction longer than the page, so that none is truncated.
            self.page = Some((page, self.bytes.read(page, PAGE as usize + 15)));
        }
        let (_, bytes) = self.page.as_ref()?;
        let start = (offset - page) as usize;
        let end = (start + len as usize).min(bytes.len());
        bytes.get(start..end).map(<[u8]>::to_vec)
    }

    fn segment_at(&self, addr: u64) -> Option<Segment> {
        let holds = |s: &Segment| addr.checked_sub(s.vaddr).is_some_and(|at| at < s.file_size);
        self.segments.iter().copied().find(holds)
    }
}

fn has_code<'data>(object: &impl Object<'data>) -> bool {
    let is_empty = |section: &_| ObjectSection::file_range(section).is_none();
    object.section_by_name(".text").is_none_or(|text| text.size() == 0 || !is_empty(&text))
}

/// The instruction set of an ELF file, if its code can be decoded.
pub(crate) fn isa<'data>(object: &impl Object<'data>) -> Option<Isa> {
    use object::Architecture::{Aarch64, I386, X86_64, X86_64_X32};
    match object.architecture() {
        I386 | X86_64 | X86_64_X32 => Some(Isa::X86_64),
        Aarch64 if object.is_little_endian() => Some(Isa::Aarch64),
        _ => None,
    }
}

/// A debug file lists the segments, but contains none of their bytes.
fn segments<'data>(object: &impl Object<'data>, has_code: bool) -> Vec<Segment> {
    let executable = |flags| match flags {
        SegmentFlags::Elf { p_flags, .. } => p_flags.contains(elf::PF_X),
        _ => true,
    };
    object
        .segments()
        .map(|segment| {
            let (offset, in_file) = segment.file_range();
            let file_size = if has_code { in_file } else { segment.size() };
            let (vaddr, executable) = (segment.address(), executable(segment.flags()));
            Segment { offset, file_size, vaddr, executable }
        })
        .collect()
}
