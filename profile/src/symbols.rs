//! Names of addresses, out of ELF files.

use std::borrow::Cow;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use object::read::ReadCache;
use object::{Object, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind, elf};

/// Why a file gives no symbols.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SymbolError {
    /// It cannot be opened.
    #[error("cannot open {}: {cause}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's words.
        cause: std::io::Error,
    },
    /// It is no regular file: a name in brackets, a device.
    #[error("{} is no regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// It is no ELF file.
    #[error("{} is no object file: {what}", path.display())]
    NotElf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// It is not the file that was recorded.
    #[error("{} was replaced since it was recorded (build ids differ): its symbols are not used", path.display())]
    BuildId {
        /// The file.
        path: PathBuf,
    },
    /// It has no symbol of that name.
    #[error("{} has no symbol {name}{}", path.display(), if *stripped { " (it is stripped)" } else { "" })]
    NoSymbol {
        /// The file.
        path: PathBuf,
        /// The name asked for.
        name: String,
        /// It has no symbols at all.
        stripped: bool,
    },
    /// Several symbols have that name.
    #[error("{} has {count} symbols {name}; give an address instead", path.display())]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// The name asked for.
        name: String,
        /// How many different addresses.
        count: usize,
    },
}

/// A segment that is loaded. PT_LOAD.
#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    file_size: u64,
    vaddr: u64,
    executable: bool,
}

/// A symbol: where it starts, how far it reaches, and where its name stands.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    addr: u64,
    size: u64,
    name: (u32, u32),
    rank: u8,
}

/// An ELF file: its loaded segments and symbols.
#[derive(Debug)]
pub struct Module {
    path: PathBuf,
    file: File,
    segments: Vec<Segment>,
    symbols: Vec<Symbol>,
    names: String,
    build_id: Option<Vec<u8>>,
    /// The part of the file read last: code of one function lies together.
    page: Option<(u64, Vec<u8>)>,
}

const PAGE: u64 = 4096;

impl Module {
    /// Reads segments and symbols of a file.
    ///
    /// # Errors
    /// [`SymbolError`].
    pub fn open(path: &Path) -> Result<Module, SymbolError> {
        let file = open_regular(path)?;
        let not_elf =
            |e: object::Error| SymbolError::NotElf { path: path.to_owned(), what: e.to_string() };
        let io = |cause| SymbolError::Open { path: path.to_owned(), cause };
        let cache = ReadCache::new(file.try_clone().map_err(io)?);
        let object = object::File::parse(&cache).map_err(not_elf)?;
        let mut module = Module {
            path: path.to_owned(),
            file,
            segments: segments(&object),
            symbols: Vec::new(),
            names: String::new(),
            build_id: object.build_id().ok().flatten().map(<[u8]>::to_vec),
            page: None,
        };
        for symbol in object.symbols().chain(object.dynamic_symbols()) {
            module.add(&symbol);
        }
        // Of several names of one address the best comes first.
        module.symbols.sort_by_key(|symbol| (symbol.addr, symbol.rank));
        module.symbols.dedup_by_key(|symbol| symbol.addr);
        Ok(module)
    }

    fn add<'data>(&mut self, symbol: &impl ObjectSymbol<'data>) {
        let is_code = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown);
        // Marks without a type, such as _DYNAMIC, also stand among data.
        let runs = self.segment_at(symbol.address()).is_some_and(|segment| segment.executable);
        if !symbol.is_definition() || !is_code || !runs {
            return;
        }
        let Ok(name) = symbol.name() else { return };
        if name.is_empty() {
            return;
        }
        let start = u32::try_from(self.names.len());
        let end = u32::try_from(self.names.len() + name.len());
        let (Ok(start), Ok(end)) = (start, end) else { return };
        self.names.push_str(name);
        let rank = u8::from(symbol.kind() != SymbolKind::Text) << 3
            | u8::from(symbol.size() == 0) << 2
            | u8::from(symbol.is_weak()) << 1
            | u8::from(symbol.is_local());
        self.symbols.push(Symbol {
            addr: symbol.address(),
            size: symbol.size(),
            name: (start, end),
            rank,
        });
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its build id.
    #[must_use]
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// Whether it has no symbols of code.
    #[must_use]
    pub fn is_stripped(&self) -> bool {
        self.symbols.is_empty()
    }

    /// The address, as the symbol table counts, of a byte of the file. Page
    /// rounding makes neighbouring segments share pages of the file, so the
    /// segment that really holds the byte decides, an executable one first.
    #[must_use]
    pub fn address_of_offset(&self, offset: u64) -> Option<u64> {
        let holds =
            |s: &&Segment| offset.checked_sub(s.offset).is_some_and(|within| within < s.file_size);
        let mut holding = self.segments.iter().filter(holds);
        let first = holding.next()?;
        let segment = if first.executable {
            first
        } else {
            holding.find(|segment| segment.executable).unwrap_or(first)
        };
        Some(segment.vaddr.wrapping_add(offset - segment.offset))
    }

    /// The symbol that covers an address of the symbol table's counting, and
    /// how far into it the address is. The name is as the file has it.
    #[must_use]
    pub fn symbol_at(&self, addr: u64) -> Option<(&str, u64)> {
        let after = self.symbols.partition_point(|symbol| symbol.addr <= addr);
        let symbol = self.symbols.get(after.checked_sub(1)?)?;
        let within = addr - symbol.addr;
        // Symbols of assembler code often have no size: they reach up to the
        // next one, but not out of their segment.
        let covered = match symbol.size {
            0 => self.segment_at(symbol.addr).is_some_and(|s| in_segment(s, addr)),
            size => within < size,
        };
        let (start, end) = symbol.name;
        let name = self.names.get(start as usize..end as usize)?;
        covered.then_some((name, within))
    }

    /// Address of the symbol of a name, as in the file or demangled.
    ///
    /// # Errors
    /// [`SymbolError::NoSymbol`], [`SymbolError::Ambiguous`].
    pub fn find(&self, name: &str) -> Result<u64, SymbolError> {
        let named = |wanted: &dyn Fn(&str) -> bool| -> Vec<u64> {
            let matching = self.symbols.iter().filter(|symbol| {
                let (start, end) = symbol.name;
                self.names.get(start as usize..end as usize).is_some_and(wanted)
            });
            matching.map(|symbol| symbol.addr).collect()
        };
        let mut found = named(&|symbol| symbol == name);
        if found.is_empty() {
            found = named(&|symbol| demangle(symbol) == name);
        }
        match *found.as_slice() {
            [addr] => Ok(addr),
            [] => Err(SymbolError::NoSymbol {
                path: self.path.clone(),
                name: name.to_owned(),
                stripped: self.is_stripped(),
            }),
            _ => Err(SymbolError::Ambiguous {
                path: self.path.clone(),
                name: name.to_owned(),
                count: found.len(),
            }),
        }
    }

    /// Code bytes at an address of the symbol table's counting: up to 15, as
    /// many as an instruction may have. Empty where the file has none there.
    pub fn code_at(&mut self, addr: u64) -> Vec<u8> {
        let Some(segment) = self.segment_at(addr).filter(|segment| segment.executable) else {
            return Vec::new();
        };
        let within = addr - segment.vaddr;
        let Some(offset) = segment.offset.checked_add(within) else { return Vec::new() };
        let len = (segment.file_size - within).min(15);
        let page = offset - offset % PAGE;
        if self.page.as_ref().is_none_or(|(at, _)| *at != page) {
            // One instruction more than the page: none is cut at its end.
            let mut bytes = vec![0; PAGE as usize + 15];
            let read = self.file.read_at(&mut bytes, page).unwrap_or(0);
            bytes.truncate(read);
            self.page = Some((page, bytes));
        }
        let Some((_, bytes)) = &self.page else { return Vec::new() };
        let start = (offset - page) as usize;
        let end = (start + len as usize).min(bytes.len());
        bytes.get(start..end).unwrap_or_default().to_vec()
    }

    fn segment_at(&self, addr: u64) -> Option<Segment> {
        self.segments.iter().copied().find(|segment| in_segment(*segment, addr))
    }
}

fn in_segment(segment: Segment, addr: u64) -> bool {
    addr.checked_sub(segment.vaddr).is_some_and(|within| within < segment.file_size)
}

fn segments<'data>(object: &impl Object<'data>) -> Vec<Segment> {
    let executable = |flags| match flags {
        SegmentFlags::Elf { p_flags, .. } => p_flags.contains(elf::PF_X),
        _ => true,
    };
    object
        .segments()
        .map(|segment| {
            let (offset, file_size) = segment.file_range();
            let (vaddr, executable) = (segment.address(), executable(segment.flags()));
            Segment { offset, file_size, vaddr, executable }
        })
        .collect()
}

fn open_regular(path: &Path) -> Result<File, SymbolError> {
    let cause = |cause| SymbolError::Open { path: path.to_owned(), cause };
    // Looked at before it is opened: opening a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(cause)?.is_file() {
        return Err(SymbolError::NotAFile { path: path.to_owned() });
    }
    File::open(path).map_err(cause)
}

/// Build id of a file; `None` where it has none or is no object file.
#[must_use]
pub fn build_id(path: &Path) -> Option<Vec<u8>> {
    if !path.is_absolute() {
        return None;
    }
    let cache = ReadCache::new(open_regular(path).ok()?);
    let object = object::File::parse(&cache).ok()?;
    object.build_id().ok().flatten().map(<[u8]>::to_vec)
}

/// Address of a function of a file, as its symbol table counts.
///
/// # Errors
/// [`SymbolError`].
pub fn find_symbol(path: &Path, name: &str) -> Result<u64, SymbolError> {
    Module::open(path)?.find(name)
}

/// The name as its language writes it; Rust's without the hash.
#[must_use]
pub fn demangle(name: &str) -> Cow<'_, str> {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}").into();
    }
    if name.starts_with("_Z") {
        let demangled = cpp_demangle::Symbol::new(name).ok().and_then(|s| s.demangle().ok());
        if let Some(cpp) = demangled {
            return cpp.into();
        }
    }
    name.into()
}
