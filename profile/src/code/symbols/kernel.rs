//! The kernel's functions, from its own list.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use lbr_msr::record::Mmap;
use object::read::elf::NoteIterator;
use object::{NativeEndian, elf};

use super::SymbolError;
use super::table::{SymbolExtent, SymbolTable};
use crate::code::debug_file::open_regular;
use crate::read::KERNEL_NAME;

/// Maximum size of a list.
const MAX_LIST: u64 = 1 << 30;
/// Maximum length of a line.
const MAX_LINE: u64 = 4096;

/// The running kernel: its identity, and the files with its symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningKernel {
    /// Its release, as in `uname -r`.
    pub release: Option<String>,
    /// The host name.
    pub hostname: Option<String>,
    /// Its build id.
    pub build_id: Option<Vec<u8>>,
    /// Its symbol list.
    pub kallsyms: PathBuf,
    /// The list of its modules with addresses.
    pub modules: PathBuf,
}

impl Default for RunningKernel {
    fn default() -> RunningKernel {
        static HERE: LazyLock<RunningKernel> = LazyLock::new(RunningKernel::here);
        HERE.clone()
    }
}

impl RunningKernel {
    fn here() -> RunningKernel {
        let read = |name| std::fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).ok();
        let read = |name| read(name).map(|text| text.trim().to_owned());
        let notes = std::fs::read("/sys/kernel/notes").unwrap_or_default();
        RunningKernel {
            release: read("osrelease"),
            hostname: read("hostname"),
            build_id: build_id_of_notes(&notes),
            kallsyms: PathBuf::from("/proc/kallsyms"),
            modules: PathBuf::from("/proc/modules"),
        }
    }

    /// The mappings of the kernel and its modules, as perf writes them at the start of a recording:
    /// the first one's offset is the address of the symbol at the end of its name.
    ///
    /// # Errors
    /// [`SymbolError`] if it shows no addresses.
    pub fn mappings(&self, time: u64) -> Result<Vec<Mmap>, SymbolError> {
        let symbols = ListedSymbols::read(&self.kallsyms)?;
        let list = || SymbolError::NotKallsyms(self.kallsyms.clone());
        let text = symbols.address("_text").ok_or_else(list)?;
        let end = symbols.address("_etext").filter(|end| *end > text).ok_or_else(list)?;
        let mapping = |addr, len, pgoff, path: String, build_id| Mmap {
            time,
            pid: u32::MAX,
            addr,
            len,
            pgoff,
            build_id,
            prot: 4,
            path,
            ..Mmap::default()
        };
        let kernel = format!("{KERNEL_NAME}_text");
        let mut mappings = vec![mapping(text, end - text, text, kernel, self.build_id.clone())];
        for (name, (addr, size)) in module_addresses(&self.modules) {
            mappings.push(mapping(addr, size, 0, format!("[{name}]"), None));
        }
        Ok(mappings)
    }
}

/// The build ID in ELF notes: name GNU, type 3.
fn build_id_of_notes(notes: &[u8]) -> Option<Vec<u8>> {
    type Notes<'a> = NoteIterator<'a, elf::FileHeader64<NativeEndian>>;
    let mut notes = Notes::new(NativeEndian, 4, notes).ok()?;
    let mut notes = std::iter::from_fn(|| notes.next().ok()?);
    let is_id = |kind| kind == elf::NT_GNU_BUILD_ID;
    let found = notes.find(|n| n.name() == elf::ELF_NOTE_GNU && is_id(n.n_type(NativeEndian)));
    found.map(|note| note.desc().to_vec())
}

/// The functions in a list by module; "" is the kernel, or no module.
#[derive(Debug, Default)]
pub(crate) struct ListedSymbols {
    tables: HashMap<String, SymbolTable>,
}

impl ListedSymbols {
    /// The symbols in a list without modules.
    pub(super) fn of(table: SymbolTable) -> ListedSymbols {
        ListedSymbols { tables: HashMap::from([(String::new(), table)]) }
    }

    /// Reads a list in the format of `/proc/kallsyms`.
    pub(crate) fn read(path: &Path) -> Result<ListedSymbols, SymbolError> {
        let file = open_regular(path)?;
        let io = |cause| SymbolError::Open { path: path.to_owned(), cause };
        let (mut symbols, mut zeros) = (ListedSymbols::default(), false);
        each_line(file.take(MAX_LIST), MAX_LINE, |line| {
            let Some((addr, kind, name, module)) = parse(line) else { return };
            // Without permission, all addresses are zero.
            zeros |= addr == 0 && matches!(kind, b't' | b'T');
            if addr != 0 && matches!(kind, b't' | b'T' | b'w' | b'W') {
                let rank = u8::from(kind.is_ascii_lowercase()) | u8::from(is_mark(name)) << 1;
                symbols.tables.entry(module.to_owned()).or_default().push(addr, 0, name, rank);
            }
        })
        .map_err(io)?;
        if symbols.tables.is_empty() {
            let path = path.to_owned();
            return Err(if zeros {
                SymbolError::Restricted(path)
            } else {
                SymbolError::NotKallsyms(path)
            });
        }
        symbols.tables.values_mut().for_each(SymbolTable::sort);
        Ok(symbols)
    }

    /// The function of a module ("" is the kernel) that covers an address.
    pub(crate) fn at(&self, module: &str, addr: u64) -> Option<SymbolExtent<'_>> {
        self.tables.get(module)?.at(addr)
    }

    /// The function of any module that covers an address.
    pub(crate) fn at_any(&self, addr: u64) -> Option<SymbolExtent<'_>> {
        let tables = self.tables.values();
        tables.filter_map(|table| table.at(addr)).max_by_key(|found| found.addr)
    }

    /// The address of a kernel symbol.
    pub(crate) fn address(&self, name: &str) -> Option<u64> {
        self.of_module("").find(|found| found.name == name).map(|found| found.addr)
    }

    /// Every symbol.
    pub(crate) fn iter(&self) -> impl Iterator<Item = SymbolExtent<'_>> {
        self.tables.values().flat_map(SymbolTable::iter)
    }

    /// Every symbol of a module ("" is the kernel).
    pub(crate) fn of_module(&self, module: &str) -> impl Iterator<Item = SymbolExtent<'_>> {
        self.tables.get(module).into_iter().flat_map(SymbolTable::iter)
    }
}

/// Visits the lines of a list; longer ones in parts of `longest` bytes.
pub(super) fn each_line(
    list: impl Read,
    longest: u64,
    mut visit: impl FnMut(&[u8]),
) -> std::io::Result<()> {
    let (mut input, mut line) = (BufReader::with_capacity(1 << 16, list), Vec::new());
    while input.by_ref().take(longest).read_until(b'\n', &mut line)? > 0 {
        visit(&line);
        line.clear();
    }
    Ok(())
}

/// Symbols that mark the start of a section, where a function starts too.
fn is_mark(name: &str) -> bool {
    name.starts_with("_text")
        || name.starts_with("_stext")
        || name.starts_with("__pfx_")
        || name.ends_with("_start")
        || name.ends_with("_begin")
        || name.ends_with("_end")
}

/// `ffffffff81000000 T _text`, for modules followed by `[name]`.
fn parse(line: &[u8]) -> Option<(u64, u8, &str, &str)> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let addr = u64::from_str_radix(words.next()?, 16).ok()?;
    let kind = *words.next()?.as_bytes().first()?;
    let name = words.next()?;
    let module = words.next().and_then(|word| word.strip_prefix('[')?.strip_suffix(']'));
    Some((addr, kind, name, module.unwrap_or("")))
}

/// The addresses and sizes of the running kernel's modules, from a list in the format of
/// `/proc/modules`; empty if unreadable or without addresses.
pub(crate) fn module_addresses(path: &Path) -> BTreeMap<String, (u64, u64)> {
    let Ok(file) = open_regular(path) else { return BTreeMap::new() };
    let lines = BufReader::new(file.take(MAX_LIST)).lines().map_while(Result::ok);
    let modules = lines.filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let name = words.next()?.to_owned();
        let size = words.next()?.parse().ok()?;
        let addr = words.find_map(|word| word.strip_prefix("0x"))?;
        let addr = u64::from_str_radix(addr, 16).ok().filter(|addr| *addr != 0)?;
        Some((name, (addr, size)))
    });
    modules.collect()
}
