//! A function of an object file or shared library, put into memory to be
//! called.
//!
//! The file is mapped and relocated here, without the system's loader: nothing
//! of it runs but what the function calls. What it takes from other files is
//! not there. Each such symbol has an address of its own that can be neither
//! read nor executed, so that a function that comes to it is stopped, and the
//! symbol named.
#![allow(unsafe_code, reason = "executable memory")]

use std::collections::HashMap;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use object::{
    Architecture, Object, ObjectKind, ObjectSection, ObjectSegment, ObjectSymbol,
    ObjectSymbolTable, Relocation, RelocationFlags, RelocationTarget, SectionFlags, SectionIndex,
    SegmentFlags, SymbolKind, elf,
};

/// Why a function cannot be called.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The file cannot be read.
    #[error("{}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's words.
        cause: io::Error,
    },
    /// It is none that could be used.
    #[error("{}: {what}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// It has no such function.
    #[error("{}: no function is called {symbol}{hint}", path.display())]
    NoSymbol {
        /// The file.
        path: PathBuf,
        /// As asked.
        symbol: String,
        /// Some that there are.
        hint: String,
    },
    /// The function itself refers to what cannot be had.
    #[error("{}: {symbol} refers to {what}, which cannot be had here: {why}", path.display())]
    Unsatisfied {
        /// The file.
        path: PathBuf,
        /// The function.
        symbol: String,
        /// The symbol it refers to.
        what: String,
        /// Why.
        why: &'static str,
    },
    /// No memory for it.
    #[error("{} cannot be mapped: {cause}", path.display())]
    Map {
        /// The file.
        path: PathBuf,
        /// The system's words.
        cause: io::Error,
    },
}

/// A file in memory, relocated, with one of its functions to call.
#[derive(Debug)]
pub struct Image {
    mapping: NonNull<libc::c_void>,
    length: usize,
    function: u64,
    symbols: Vec<(Range<u64>, String)>,
    absent: HashMap<u64, String>,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Image {}

/// A name for an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The symbol.
    pub symbol: String,
    /// Bytes behind its start.
    pub offset: u64,
}

const PAGE: u64 = 4096;
/// Distance of the addresses of absent symbols.
const APART: u64 = 16;

impl Image {
    /// Maps and relocates a file.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn load(path: &Path, symbol: &str) -> Result<Image, ImageError> {
        let bytes =
            read(path).map_err(|cause| ImageError::Read { path: path.to_owned(), cause })?;
        let format = |what: String| ImageError::Format { path: path.to_owned(), what };
        let file = object::File::parse(&*bytes)
            .map_err(|error| format(format!("no object file: {error}")))?;
        if file.architecture() != Architecture::X86_64 || file.format() != object::BinaryFormat::Elf
        {
            return Err(format("no ELF file for x86-64".to_owned()));
        }
        let loading = Loading { path, symbol, file: &file };
        match file.kind() {
            ObjectKind::Relocatable => loading.relocatable(),
            ObjectKind::Dynamic => loading.shared(),
            ObjectKind::Executable => Err(format(
                "a program linked for fixed addresses; give its object files, or link it with -pie"
                    .to_owned(),
            )),
            kind => Err(format(format!("{kind:?} files cannot be called"))),
        }
    }

    /// Address of the function.
    #[must_use]
    pub const fn function(&self) -> u64 {
        self.function
    }

    /// The symbol that an address belongs to.
    #[must_use]
    pub fn name(&self, address: u64) -> Option<Named> {
        let (range, symbol) = self.symbols.iter().find(|(range, _)| range.contains(&address))?;
        Some(Named { symbol: symbol.clone(), offset: address - range.start })
    }

    /// The symbol of another file that this address stands for.
    #[must_use]
    pub fn absent(&self, address: u64) -> Option<&str> {
        self.absent.get(&(address - address % APART)).map(String::as_str)
    }
}

/// No object file is longer, bytes.
const LONGEST: u64 = 1 << 30;

/// A whole file; a pipe or a device is none, and nobody waits for it.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let found = std::fs::metadata(path)?;
    if !found.is_file() {
        return Err(io::Error::other("no regular file"));
    }
    if found.len() > LONGEST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    std::fs::read(path)
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own; nothing borrows from it.
        let _ = unsafe { munmap(self.mapping, self.length) };
    }
}

struct Loading<'a> {
    path: &'a Path,
    symbol: &'a str,
    file: &'a object::File<'a>,
}

/// A mapping that is being filled: an image of the file, a table of addresses,
/// and addresses for what is absent.
struct Memory {
    image: Image,
    base: u64,
    bytes: Vec<u8>,
    table: u64,
    tabled: HashMap<u64, u64>,
    absent: u64,
    absents: HashMap<String, u64>,
}

impl Memory {
    fn new(path: &Path, size: u64, references: u64) -> Result<Memory, ImageError> {
        let map = |cause: io::Error| ImageError::Map { path: path.to_owned(), cause };
        let size = size.next_multiple_of(PAGE);
        let table = (references * 8 + 8).next_multiple_of(PAGE);
        let absent = (references * APART + APART).next_multiple_of(PAGE);
        let length = usize::try_from(size + table + absent).ok().and_then(NonZeroUsize::new);
        let length = length.ok_or_else(|| map(io::ErrorKind::OutOfMemory.into()))?;
        // In the lower 2 GiB even 32-bit addresses reach it.
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_32BIT;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapping = unsafe { mmap_anonymous(None, length, ProtFlags::PROT_NONE, flags) };
        let mapping = mapping.map_err(|errno| map(errno.into()))?;
        let base = mapping.as_ptr() as u64;
        let image = Image {
            mapping,
            length: length.get(),
            function: 0,
            symbols: Vec::new(),
            absent: HashMap::new(),
        };
        Ok(Memory {
            image,
            base,
            bytes: vec![0; (size + table) as usize],
            table: size,
            tabled: HashMap::new(),
            absent: size + table,
            absents: HashMap::new(),
        })
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> Option<()> {
        let start = usize::try_from(offset).ok()?;
        self.bytes.get_mut(start..start.checked_add(bytes.len())?)?.copy_from_slice(bytes);
        Some(())
    }

    /// The address that stands for a symbol of another file.
    fn absent(&mut self, name: &str) -> u64 {
        let next = self.base + self.absent + APART * self.absents.len() as u64;
        *self.absents.entry(name.to_owned()).or_insert(next)
    }

    /// The address of a place that holds `address`.
    fn tabled(&mut self, address: u64) -> u64 {
        if let Some(&place) = self.tabled.get(&address) {
            return place;
        }
        let offset = self.table + 8 * self.tabled.len() as u64;
        // There is a place for each relocation.
        let _ = self.put(offset, &address.to_le_bytes());
        self.tabled.insert(address, self.base + offset);
        self.base + offset
    }

    /// Writes it all, and lets the given ranges execute.
    fn finish(self, path: &Path, code: &[Range<u64>]) -> Result<Image, ImageError> {
        let mut image = self.image;
        let map =
            |errno: nix::Error| ImageError::Map { path: path.to_owned(), cause: errno.into() };
        // SAFETY: these bytes are within the mapping, which nobody uses yet.
        unsafe {
            let writable = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
            mprotect(image.mapping, self.bytes.len(), writable).map_err(map)?;
            let into = image.mapping.cast::<u8>().as_ptr();
            std::ptr::copy_nonoverlapping(self.bytes.as_ptr(), into, self.bytes.len());
            for range in code {
                let start = range.start - range.start % PAGE;
                let length = (range.end - start).next_multiple_of(PAGE).min(self.table - start);
                let at = image.mapping.byte_add(start as usize);
                let executable = ProtFlags::PROT_READ | ProtFlags::PROT_EXEC;
                mprotect(at, length as usize, executable).map_err(map)?;
            }
        }
        image.absent = self.absents.into_iter().map(|(name, at)| (at, name)).collect();
        image.symbols.sort_by_key(|(range, _)| (range.start, range.end));
        Ok(image)
    }
}

impl Loading<'_> {
    fn format(&self, what: &str) -> ImageError {
        ImageError::Format { path: self.path.to_owned(), what: what.to_owned() }
    }

    fn no_symbol(&self) -> ImageError {
        let mut names: Vec<&str> = self
            .file
            .symbols()
            .chain(self.file.dynamic_symbols())
            .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
            .filter_map(|symbol| symbol.name().ok())
            .collect();
        names.sort_unstable();
        names.dedup();
        let near = |name: &&&str| name.contains(self.symbol) || self.symbol.contains(**name);
        let mut few: Vec<&str> = names.iter().filter(near).take(5).copied().collect();
        if few.is_empty() && names.len() <= 10 {
            few = names;
        }
        let hint =
            if few.is_empty() { String::new() } else { format!("; there is {}", few.join(", ")) };
        ImageError::NoSymbol { path: self.path.to_owned(), symbol: self.symbol.to_owned(), hint }
    }

    fn unsatisfied(&self, what: &str, why: &'static str) -> ImageError {
        ImageError::Unsatisfied {
            path: self.path.to_owned(),
            symbol: self.symbol.to_owned(),
            what: what.to_owned(),
            why,
        }
    }

    /// Sections one behind the other, code first.
    fn relocatable(&self) -> Result<Image, ImageError> {
        let is_alloc = |flags| {
            matches!(flags, SectionFlags::Elf { sh_flags, .. }
            if (sh_flags & elf::SHF_ALLOC).0 != 0)
        };
        let is_code = |flags| {
            matches!(flags, SectionFlags::Elf { sh_flags, .. }
            if (sh_flags & elf::SHF_EXECINSTR).0 != 0)
        };
        let mut sections: Vec<_> =
            self.file.sections().filter(|section| is_alloc(section.flags())).collect();
        sections.sort_by_key(|section| !is_code(section.flags()));
        let (mut offsets, mut end, mut code, mut references) = (HashMap::new(), 0u64, 0..0, 0u64);
        for section in &sections {
            if code.end == 0 && !is_code(section.flags()) {
                code.end = end;
                end = end.next_multiple_of(PAGE);
            }
            let aligned = section.align().max(1).checked_next_power_of_two().unwrap_or(1);
            end = end.next_multiple_of(aligned.min(PAGE));
            offsets.insert(section.index(), end);
            end = end
                .checked_add(section.size())
                .filter(|&end| end < 1 << 30)
                .ok_or_else(|| self.format("too large"))?;
            references += section.relocations().count() as u64;
        }
        if code.end == 0 {
            code.end = end;
        }
        let mut memory = Memory::new(self.path, end, references)?;
        for section in &sections {
            let data = section.uncompressed_data().unwrap_or_default();
            let offset = offsets.get(&section.index()).copied().unwrap_or(0);
            memory.put(offset, &data).ok_or_else(|| self.format("a section is damaged"))?;
        }
        let base = memory.base;
        let place = |section: Option<SectionIndex>, address: u64| {
            let offset = offsets.get(&section?)?;
            Some(base.wrapping_add(*offset).wrapping_add(address))
        };
        let mut function = None;
        for symbol in self.file.symbols() {
            let (Ok(name), Some(at)) =
                (symbol.name(), place(symbol.section_index(), symbol.address()))
            else {
                continue;
            };
            if symbol.kind() == SymbolKind::Text || name == self.symbol {
                memory.image.symbols.push((at..at + symbol.size().max(1), name.to_owned()));
            }
            if name == self.symbol && symbol.is_definition() {
                function = Some(at..at + symbol.size());
            }
        }
        let function = function.ok_or_else(|| self.no_symbol())?;
        memory.image.function = function.start;
        for section in &sections {
            let Some(start) = place(Some(section.index()), 0) else { continue };
            for (offset, relocation) in section.relocations() {
                let at = start.wrapping_add(offset);
                let within = function.contains(&at);
                let (target, name) = match relocation.target() {
                    RelocationTarget::Symbol(index) => {
                        let symbol = self.file.symbol_by_index(index).ok();
                        let name = symbol.as_ref().and_then(|s| s.name().ok()).unwrap_or("");
                        let here =
                            symbol.as_ref().and_then(|s| place(s.section_index(), s.address()));
                        (here, name.to_owned())
                    }
                    RelocationTarget::Section(index) => (place(Some(index), 0), String::new()),
                    _ => (None, String::new()),
                };
                if target.is_none() && within {
                    return Err(self.unsatisfied(&name, "the file does not define it"));
                }
                let target = target.unwrap_or_else(|| memory.absent(&name));
                let done = relocate(&mut memory, at, target, &relocation);
                if done.is_none() && within {
                    return Err(self.unsatisfied(&name, "by a relocation that only a linker knows"));
                }
            }
        }
        memory.finish(self.path, std::slice::from_ref(&code))
    }

    /// Segments as the file asks for them.
    fn shared(&self) -> Result<Image, ImageError> {
        let end = self.file.segments().map(|s| s.address().saturating_add(s.size())).max();
        let end = end.filter(|&end| end < 1 << 30);
        let end = end.ok_or_else(|| self.format("no segments, or too large"))?;
        let references = self.file.dynamic_relocations().map_or(0, Iterator::count) as u64;
        let mut memory = Memory::new(self.path, end, references)?;
        let mut code = Vec::new();
        for segment in self.file.segments() {
            let data = segment.data().map_err(|_| self.format("a segment is damaged"))?;
            memory
                .put(segment.address(), data)
                .ok_or_else(|| self.format("a segment is damaged"))?;
            if let SegmentFlags::Elf { p_flags, .. } = segment.flags()
                && (p_flags & elf::PF_X).0 != 0
            {
                code.push(segment.address()..segment.address() + segment.size());
            }
        }
        let base = memory.base;
        let mut function = None;
        for symbol in self.file.symbols().chain(self.file.dynamic_symbols()) {
            let Ok(name) = symbol.name() else { continue };
            if !symbol.is_definition() || name.is_empty() {
                continue;
            }
            let at = base.wrapping_add(symbol.address());
            if symbol.kind() == SymbolKind::Text {
                memory
                    .image
                    .symbols
                    .push((at..at.saturating_add(symbol.size().max(1)), name.to_owned()));
                // Of several versions the last is as good as the first.
                if name == self.symbol {
                    function = Some(at);
                }
            }
        }
        memory.image.function = function.ok_or_else(|| self.no_symbol())?;
        let symbols = self.file.dynamic_symbol_table();
        for (address, relocation) in self.file.dynamic_relocations().into_iter().flatten() {
            let symbol = match relocation.target() {
                RelocationTarget::Symbol(index) => {
                    symbols.as_ref().and_then(|table| table.symbol_by_index(index).ok())
                }
                _ => None,
            };
            let name =
                symbol.as_ref().and_then(|s| s.name().ok()).unwrap_or("an indirect function");
            let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
            let addend = relocation.addend() as u64;
            let value = match (r_type, &symbol) {
                (elf::R_X86_64_RELATIVE, _) => base.wrapping_add(addend),
                (
                    elf::R_X86_64_64 | elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT,
                    Some(symbol),
                ) if symbol.is_definition() => {
                    let addend = if r_type == elf::R_X86_64_64 { addend } else { 0 };
                    base.wrapping_add(symbol.address()).wrapping_add(addend)
                }
                _ => memory.absent(name),
            };
            // Outside of every segment it concerns nobody.
            let _ = memory.put(address, &value.to_le_bytes());
        }
        memory.finish(self.path, &code)
    }
}

/// Applies one relocation; `None` for a kind that is not known, or a distance
/// that does not fit.
fn relocate(memory: &mut Memory, at: u64, target: u64, relocation: &Relocation) -> Option<()> {
    let RelocationFlags::Elf { r_type } = relocation.flags() else { return None };
    let addend = relocation.addend() as u64;
    let offset = at.wrapping_sub(memory.base);
    let distance = |target: u64| {
        let distance = target.wrapping_add(addend).wrapping_sub(at).cast_signed();
        i32::try_from(distance).ok().map(i32::to_le_bytes)
    };
    match r_type {
        elf::R_X86_64_NONE => Some(()),
        elf::R_X86_64_64 => memory.put(offset, &target.wrapping_add(addend).to_le_bytes()),
        elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => {
            let bytes = distance(target)?;
            memory.put(offset, &bytes)
        }
        elf::R_X86_64_PC64 => {
            memory.put(offset, &target.wrapping_add(addend).wrapping_sub(at).to_le_bytes())
        }
        elf::R_X86_64_32 | elf::R_X86_64_32S => {
            let value = i32::try_from(target.wrapping_add(addend).cast_signed()).ok()?;
            memory.put(offset, &value.to_le_bytes())
        }
        elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX => {
            let place = memory.tabled(target);
            let bytes = distance(place)?;
            memory.put(offset, &bytes)
        }
        _ => None,
    }
}
