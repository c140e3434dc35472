//! Loads a function of an object file or shared library, to be called.
//!
//! The system's `ld` links an object file at the address that it gets. A shared library is mapped
//! and relocated here, without the dynamic loader: no initialisers run, only the called function.
//! Imported symbols are not resolved. Each gets its own address that can be neither read nor
//! executed, so that a function that uses it is stopped, and the symbol reported.

use lbr_msr::text::AsText;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::mman::MapFlags;
use object::{
    Architecture, Object, ObjectKind, ObjectSection, ObjectSegment, ObjectSymbol,
    ObjectSymbolTable, RelocationFlags, RelocationTarget, SegmentFlags, SymbolKind, elf,
};

use super::tool::run_tool;
use crate::code::memory::{EXECUTABLE, Mapping, PAGE, WRITABLE};

/// Why a function cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read, or not in this format.
    #[error("{}: {what}", path.as_text())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
    /// The file has no such function.
    #[error("{}: no function is called {symbol}", path.as_text())]
    NoSymbol {
        /// The file.
        path: PathBuf,
        /// The requested symbol.
        symbol: String,
    },
    /// The function itself refers to a symbol that the file does not define.
    #[error("{}: {symbol} refers to {what}, which the file does not define", path.as_text())]
    Unsatisfied {
        /// The file.
        path: PathBuf,
        /// The function.
        symbol: String,
        /// The symbol it refers to.
        what: String,
    },
    /// The system's linker is missing or rejected the file, or the image cannot be mapped.
    #[error("{}: {what}", path.as_text())]
    System {
        /// The file.
        path: PathBuf,
        /// The error.
        what: String,
    },
}

/// A relocated file in memory, with the function to call.
#[derive(Debug)]
pub struct LoadedFile {
    mapping: Mapping,
    function: u64,
    symbols: Vec<(Range<u64>, String)>,
    /// First address of the page that represents imported symbols.
    nowhere: u64,
    /// The address there of each imported symbol.
    absent: HashMap<String, u64>,
}

/// An address as symbol and offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The symbol.
    pub symbol: String,
    /// Bytes after its start.
    pub offset: u64,
}

/// Distance between the addresses of imported symbols.
const APART: u64 = 16;
/// Maximum time to link.
const LINKING: Duration = Duration::from_secs(20);

impl LoadedFile {
    /// Maps and relocates a file.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(path: &Path, symbol: &str) -> Result<LoadedFile, LoadError> {
        let bytes = read(path)?;
        let file = parse(path, &bytes)?;
        if file.architecture() != Architecture::X86_64 || file.format() != object::BinaryFormat::Elf
        {
            return Err(unusable(path, "not an ELF file for x86-64"));
        }
        let loading = Loading { path, symbol, file: &file };
        match file.kind() {
            ObjectKind::Relocatable => loading.relocatable(),
            ObjectKind::Dynamic => loading.shared(),
            ObjectKind::Executable => Err(unusable(
                path,
                "a program linked for fixed addresses; give its object files, or link it with -pie",
            )),
            kind => Err(unusable(path, format!("{kind:?} files cannot be called"))),
        }
    }

    /// Lists the functions of a file.
    ///
    /// # Errors
    /// [`LoadError::Unusable`].
    pub fn functions(path: &Path) -> Result<Vec<String>, LoadError> {
        let bytes = read(path)?;
        let file = parse(path, &bytes)?;
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let defined = symbols.filter(|s| s.is_definition() && s.kind() == SymbolKind::Text);
        let mut names: Vec<String> =
            defined.filter_map(|symbol| Some(symbol.name().ok()?.to_owned())).collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Address of the function.
    pub const fn function(&self) -> u64 {
        self.function
    }

    /// The symbol that contains an address.
    pub fn name(&self, address: u64) -> Option<Named> {
        let (range, symbol) = self.symbols.iter().find(|(range, _)| range.contains(&address))?;
        Some(Named { symbol: symbol.clone(), offset: address - range.start })
    }

    /// The imported symbol that this address represents.
    pub fn absent(&self, address: u64) -> Option<&str> {
        let place = address.checked_sub(self.nowhere)? / APART;
        let (name, _) = self.absent.iter().find(|(_, at)| **at == place)?;
        Some(name)
    }

    /// The address that represents an imported symbol.
    fn stand_in(&mut self, name: &str) -> u64 {
        let next = self.absent.len() as u64;
        let place = *self.absent.entry(name.to_owned()).or_insert(next);
        self.nowhere + APART * place
    }
}

/// Maximum length of an object file in bytes.
const LONGEST: u64 = 1 << 30;

/// Reads a whole file. Rejects pipes and devices, which could block.
fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    let whole = || {
        let found = std::fs::metadata(path)?;
        match (found.is_file(), found.len()) {
            (false, _) => Err(io::Error::other("no regular file")),
            (true, LONGEST..) => Err(io::ErrorKind::FileTooLarge.into()),
            _ => std::fs::read(path),
        }
    };
    whole().map_err(|cause| unusable(path, cause))
}

fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<object::File<'a>, LoadError> {
    let parsed = object::File::parse(bytes);
    parsed.map_err(|error| unusable(path, format!("not an object file: {error}")))
}

fn unusable(path: &Path, what: impl ToString) -> LoadError {
    LoadError::Unusable { path: path.to_owned(), what: what.to_string() }
}

#[derive(Clone, Copy)]
struct Loading<'a> {
    path: &'a Path,
    symbol: &'a str,
    file: &'a object::File<'a>,
}

impl Loading<'_> {
    fn format(&self, what: &str) -> LoadError {
        unusable(self.path, what)
    }

    fn no_symbol(&self) -> LoadError {
        LoadError::NoSymbol { path: self.path.to_owned(), symbol: self.symbol.to_owned() }
    }

    fn system(&self, what: String) -> LoadError {
        LoadError::System { path: self.path.to_owned(), what }
    }

    fn not_mapped(&self, cause: io::Error) -> LoadError {
        self.system(format!("it cannot be mapped: {cause}"))
    }

    /// Maps an image of `size` bytes plus addresses for `absent` imported symbols, in the lower 2
    /// GiB, within reach of 32-bit relocations.
    fn image(&self, size: u64, absent: u64) -> Result<LoadedFile, LoadError> {
        if size > LONGEST {
            return Err(self.format("too large"));
        }
        let size = size.next_multiple_of(PAGE);
        let length = size + (absent * APART + APART).next_multiple_of(PAGE);
        let mapping = Mapping::reserve(length, MapFlags::MAP_32BIT);
        let mapping = mapping.map_err(|cause| self.not_mapped(cause))?;
        let nowhere = mapping.address() + size;
        Ok(LoadedFile {
            mapping,
            function: 0,
            symbols: Vec::new(),
            nowhere,
            absent: HashMap::new(),
        })
    }

    /// Links an object file.
    fn relocatable(&self) -> Result<LoadedFile, LoadError> {
        let function = self.file.symbols().find(|symbol| {
            symbol.is_definition() && symbol.name().is_ok_and(|name| name == self.symbol)
        });
        self.satisfied(&function.ok_or_else(|| self.no_symbol())?)?;
        let undefined = self.file.symbols().filter(|symbol| symbol.is_undefined());
        let names: Vec<&str> =
            undefined.filter_map(|symbol| symbol.name().ok()).filter(|n| !n.is_empty()).collect();
        // Each section may start on a new page; the linker adds the GOT and the PLT, and puts the
        // ELF header first.
        let room = self.file.sections().fold(8 * PAGE, |room, section| {
            let tables = section.relocations().count() as u64 * 32;
            let length = section.size().saturating_add(section.align()).saturating_add(PAGE);
            room.saturating_add(length).saturating_add(tables)
        });
        let mut image = self.image(room, names.len() as u64)?;
        let mut script = String::new();
        for name in names {
            if name.contains(['"', '\\']) || name.contains(char::is_control) {
                return Err(self.format("a symbol has a name that the linker does not accept"));
            }
            script += &format!("\"{name}\" = {:#x};\n", image.stand_in(name));
        }
        let linked = self.link(image.mapping.address(), &script)?;
        let file = object::File::parse(&*linked)
            .map_err(|error| self.format(&format!("the linker's output: {error}")))?;
        let loading = Loading { file: &file, ..*self };
        let (bytes, code) = loading.segments(image.mapping.address(), room)?;
        loading.finish(image, 0, bytes, &code)
    }

    /// Checks that the file defines all symbols that the function itself refers to.
    fn satisfied(&self, function: &object::Symbol<'_, '_>) -> Result<(), LoadError> {
        let section = function.section_index().and_then(|at| self.file.section_by_index(at).ok());
        let range = function.address()..function.address().saturating_add(function.size());
        for (offset, relocation) in section.iter().flat_map(ObjectSection::relocations) {
            let RelocationTarget::Symbol(index) = relocation.target() else { continue };
            let Ok(symbol) = self.file.symbol_by_index(index) else { continue };
            if range.contains(&offset) && symbol.is_undefined() {
                return Err(LoadError::Unsatisfied {
                    path: self.path.to_owned(),
                    symbol: self.symbol.to_owned(),
                    what: symbol.name().unwrap_or_default().to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Links the file at address `base`. `script` defines the imported symbols.
    fn link(&self, base: u64, script: &str) -> Result<Vec<u8>, LoadError> {
        let path = sampler::target::find("ld").map_err(|_| {
            let what = "an object file needs the system's linker, and there is no `ld`: install \
                        binutils, or give a shared library";
            self.system(what.to_owned())
        })?;
        let linking = || {
            let folder = tempfile::tempdir()?;
            let (input, output) = (folder.path().join("symbols"), folder.path().join("linked"));
            std::fs::write(&input, script)?;
            let mut ld = Command::new(path);
            ld.args(["-m", "elf_x86_64", "-static", "-nostdlib", "--no-relax", "--entry=0"]);
            ld.args(["-z", "noexecstack", "-z", "max-page-size=4096"]);
            ld.arg(format!("-Ttext-segment={base:#x}")).arg("-o").arg(&output);
            ld.arg(std::path::absolute(self.path)?).arg(&input);
            let done = run_tool(ld.stdin(Stdio::null()), LINKING)?;
            Ok::<_, io::Error>((done, std::fs::read(output).unwrap_or_default()))
        };
        let (done, linked) =
            linking().map_err(|cause| self.system(format!("it cannot be linked: {cause}")))?;
        if done.status.success() {
            return Ok(linked);
        }
        let words = done.stderr.as_text();
        let words = words.lines().find(|line| !line.contains("warning:")).unwrap_or("ld failed");
        Err(self.system(format!("it cannot be linked: {words}")))
    }

    /// The bytes of a file's segments, whose first address is `origin`, and the ranges that are
    /// code.
    fn segments(&self, origin: u64, room: u64) -> Result<(Vec<u8>, Vec<Range<u64>>), LoadError> {
        let mut bytes = vec![0; room as usize];
        let mut code = Vec::new();
        for segment in self.file.segments() {
            let offset = segment.address().checked_sub(origin);
            let end = offset.and_then(|offset| offset.checked_add(segment.size()));
            let data = segment.data().ok();
            let (Some(offset), Some(end), Some(data)) = (offset, end.filter(|&e| e <= room), data)
            else {
                return Err(self.format("a segment is damaged"));
            };
            put(&mut bytes, offset, data).ok_or_else(|| self.format("a segment is damaged"))?;
            if let SegmentFlags::Elf { p_flags, .. } = segment.flags()
                && (p_flags & elf::PF_X).0 != 0
            {
                code.push(offset..end);
            }
        }
        Ok((bytes, code))
    }

    /// Maps a shared library's segments.
    fn shared(&self) -> Result<LoadedFile, LoadError> {
        let end = self.file.segments().map(|s| s.address().saturating_add(s.size())).max();
        let room = end.ok_or_else(|| self.format("no segments"))?;
        let relocations = || self.file.dynamic_relocations().into_iter().flatten();
        let mut image = self.image(room, relocations().count() as u64)?;
        let (mut bytes, code) = self.segments(0, room)?;
        let base = image.mapping.address();
        let symbols = self.file.dynamic_symbol_table();
        for (address, relocation) in relocations() {
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
                _ => image.stand_in(name),
            };
            // Relocations outside all segments have no effect.
            let _ = put(&mut bytes, address, &value.to_le_bytes());
        }
        self.finish(image, base, bytes, &code)
    }

    /// Fills the image. `base` is added to the addresses of the file's symbols.
    fn finish(
        &self,
        mut image: LoadedFile,
        base: u64,
        bytes: Vec<u8>,
        code: &[Range<u64>],
    ) -> Result<LoadedFile, LoadError> {
        let mut function = None;
        for symbol in self.file.symbols().chain(self.file.dynamic_symbols()) {
            let Ok(name) = symbol.name() else { continue };
            if !symbol.is_definition() || name.is_empty() {
                continue;
            }
            let at = base.wrapping_add(symbol.address());
            if symbol.kind() == SymbolKind::Text || name == self.symbol {
                let range = at..at.saturating_add(symbol.size().max(1));
                image.symbols.push((range, name.to_owned()));
            }
            if name == self.symbol {
                // If a symbol has several versions, any will do.
                function = Some(at);
            }
        }
        image.function = function.ok_or_else(|| self.no_symbol())?;
        image.symbols.sort_by_key(|(range, _)| (range.start, range.end));
        let length = (bytes.len() as u64).next_multiple_of(PAGE);
        let mut filled = image.mapping.fill(0, length, &bytes, WRITABLE);
        for range in code {
            let start = range.start - range.start % PAGE;
            let length = range.end.next_multiple_of(PAGE).min(length) - start;
            filled = filled.and_then(|()| image.mapping.protect(start, length, EXECUTABLE));
        }
        filled.map_err(|cause| self.not_mapped(cause))?;
        Ok(image)
    }
}

fn put(into: &mut [u8], offset: u64, bytes: &[u8]) -> Option<()> {
    let start = usize::try_from(offset).ok()?;
    into.get_mut(start..start.checked_add(bytes.len())?)?.copy_from_slice(bytes);
    Some(())
}
