//! Mapped files, opened when the first of their addresses is needed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use lbr_msr::record::Mmap;

use super::evidence::{ENOUGH, Evidence, Findings};
use super::kernel_files::{Listed, VDSO, Vmlinux};
use super::{Location, Maps, differs};
use crate::code::demangle::demangle;
use crate::code::symbols::{Module, Sources, SymbolError, read_jit_list};

/// A mapped file.
#[derive(Debug, Default)]
pub(super) struct MappedFile {
    pub(super) path: String,
    pub(super) build_id: Option<Vec<u8>>,
    pub(super) kind: FileKind,
    pub(super) state: State,
    /// The first mapping of its code: offset, length.
    pub(super) code: Option<(u64, u64)>,
    /// Evidence from its recorded branches.
    pub(super) evidence: Evidence,
    /// The machine it was recorded on, if known to be another.
    pub(super) other_machine: Option<String>,
    /// The last recording that mapped it.
    pub(super) recording: u32,
    /// Files found at its possible paths that are other files.
    rejected: Vec<(PathBuf, SymbolError)>,
    /// Demangled names already requested, by address range. Each is requested once per address.
    demangled: RefCell<HashMap<(u64, u64), Box<str>>>,
}

/// The kind of a mapped file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum FileKind {
    /// A file: offsets are file offsets.
    Elf,
    /// The kernel. Offsets are relative to its symbol `reference`, independent of the load address;
    /// without one they are addresses.
    Kernel { recording: u32, reference: Option<String> },
    /// A kernel module, recorded at `start`. Offsets are relative to it.
    Module { recording: u32, name: String, start: u64 },
    /// Code translated by the kernel, such as a BPF program: only its name is known. Offsets are
    /// relative to its start.
    Whole { recording: u32, len: u64 },
    /// Generated code of one process, named by a list. Offsets are addresses.
    Jit { list: PathBuf },
    /// Code that the kernel maps into processes. Offsets are relative to its start.
    Vdso,
    /// A file in a recording without addresses: offsets are those of its symbols, consecutively in
    /// order of appearance.
    Named,
    /// Named in brackets, relative, or anonymous: cannot be opened.
    #[default]
    None,
}

impl FileKind {
    /// The kind for a process's mapping.
    pub(super) fn of_mapping(map: &Mmap) -> FileKind {
        // A 32-bit process has another vDSO.
        let wide = map.addr > u64::from(u32::MAX);
        if Path::new(&map.path).is_absolute() && !map.path.starts_with("//") {
            FileKind::Elf
        } else if map.path == VDSO && wide {
            FileKind::Vdso
        } else {
            FileKind::None
        }
    }

    /// The kind for a file with offsets in a text.
    pub(super) fn of_path(path: &str, recording: u32) -> FileKind {
        match Path::new(path).is_absolute() && !path.starts_with("//") {
            true => FileKind::Elf,
            false => FileKind::Whole { recording, len: u64::MAX },
        }
    }

    pub(super) fn is_kernel(&self) -> bool {
        matches!(self, FileKind::Kernel { .. } | FileKind::Module { .. } | FileKind::Whole { .. })
    }

    /// The symbol that kernel offsets are relative to.
    pub(super) fn reference(&self) -> Option<&str> {
        if let FileKind::Kernel { reference, .. } = self { reference.as_deref() } else { None }
    }
}

#[derive(Debug, Default)]
pub(super) enum State {
    #[default]
    NotTried,
    Open(Box<Module>),
    /// Symbols from a list of the kernel, or of a JIT compiler.
    Listed(Listed),
    /// Symbols and lines from the kernel's ELF file; missing symbols from a list.
    Vmlinux(Vmlinux, Option<Listed>),
    Failed(SymbolError),
    /// Unavailable like another file, which reports the reason.
    Silent,
}

impl State {
    pub(super) fn failure(&self) -> Option<&SymbolError> {
        if let State::Failed(error) = self { Some(error) } else { None }
    }
}

impl MappedFile {
    pub(super) fn new(path: String, build_id: Option<Vec<u8>>, kind: FileKind) -> MappedFile {
        MappedFile { path, build_id, kind, ..MappedFile::default() }
    }

    /// Sets other places to search for symbols. Open files are kept.
    pub(super) fn look_in(&mut self, sources: &Sources) {
        match &mut self.state {
            State::Open(module) => module.look_in(&sources.debug),
            state => *state = State::NotTried,
        }
    }

    /// Discards the opened file, or the failure, if a build ID that arrived later contradicts it.
    pub(super) fn check(&mut self) {
        let again = match &self.state {
            State::Open(module) => !self.has_right_id(module),
            State::Failed(error) => error.is_other_file(),
            _ => false,
        };
        if again {
            self.state = State::NotTried;
        }
    }

    fn has_right_id(&self, module: &Module) -> bool {
        match (self.build_id.as_deref(), module.build_id()) {
            // It had a build ID, but the file found has none.
            (Some(_), None) => false,
            (recorded, found) => !differs(recorded, found),
        }
    }

    /// Finds and opens the recorded program or library: the first file without contradictions.
    fn open_program(&mut self, sources: &Sources) {
        self.state = loop {
            match self.find_program(sources) {
                Ok(mut module) => {
                    self.evidence.found = Findings::default();
                    self.demangled.borrow_mut().clear();
                    match self.doubt(&mut module) {
                        None => break State::Open(Box::new(module)),
                        Some(error) => self.rejected.push((module.path().to_owned(), error)),
                    }
                }
                Err(error) => {
                    let first = self.rejected.drain(..).map(|(_, error)| error).next();
                    break State::Failed(first.unwrap_or(error));
                }
            }
        };
    }

    /// Why the opened file is not the recorded one, judged by its branches so far. A build ID is
    /// stronger evidence.
    fn doubt(&mut self, module: &mut Module) -> Option<SymbolError> {
        if self.build_id.is_some() {
            return None;
        }
        self.evidence.judge(module);
        let why = self.evidence.contradiction(module.path());
        if why.is_some() {
            return why;
        }
        // Enough branches confirm that this is the recorded file.
        if self.evidence.found.direct >= ENOUGH {
            return None;
        }
        // Files in other places were put there for this recording.
        let path = module.path().to_owned();
        let recorded = self.other_machine.clone().filter(|_| path == Path::new(&self.path))?;
        Some(SymbolError::OtherMachine { path, recorded })
    }

    fn find_program(&self, sources: &Sources) -> Result<Module, SymbolError> {
        let recorded = Path::new(&self.path);
        let id = self.build_id.as_deref();
        let (mut without_code, mut why) = (None, None);
        for path in sources.debug.programs(recorded, id) {
            if self.rejected.iter().any(|(rejected, _)| *rejected == path) {
                continue;
            }
            match Module::open_with(&path, &sources.debug) {
                Ok(module) if !self.has_right_id(&module) => {
                    why.get_or_insert(other_build(id, &module));
                }
                Ok(module) if module.has_bytes => return Ok(module),
                Ok(mut module) => {
                    if module.lay_code_at(self.code) {
                        without_code.get_or_insert(module);
                    }
                }
                Err(SymbolError::Open { cause, .. })
                    if cause.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) if path == recorded => {
                    why.get_or_insert(error);
                }
                // Caches have folders where others have files.
                Err(_) => {}
            }
        }
        without_code.ok_or_else(|| {
            why.unwrap_or_else(|| SymbolError::NotFound {
                path: self.path.clone(),
                build_id: self.build_id.clone(),
                folders: sources.debug.folders(id.is_some()),
            })
        })
    }

    /// The demangled name of a symbol.
    pub(super) fn demangled(&self, name: &str, range: &Range<u64>) -> String {
        let mut known = self.demangled.borrow_mut();
        let key = (range.start, range.end);
        known.entry(key).or_insert_with(|| demangle(name).into()).to_string()
    }
}

impl Maps {
    /// Path of a file, as recorded; for generated code `[JIT] tid PID`, as in perf. `None` if the
    /// recording has symbols without files.
    pub fn path(&self, file: usize) -> Option<&str> {
        let is_known = |file: &&MappedFile| file.kind != FileKind::Named || !file.path.is_empty();
        self.files.get(file).filter(is_known).map(|file| file.path.as_str())
    }

    /// Path of the file that contains a location.
    pub fn path_of(&self, location: Location) -> Option<&str> {
        self.path(location.file()?)
    }

    /// The file offset of a location; in the kernel relative to the symbol that its recorder gives,
    /// in a module to its start. `None` if only addresses exist: generated code, locations recorded
    /// by name, and addresses outside of files.
    pub fn file_offset(&self, location: Location) -> Option<u64> {
        let Location::File { file, offset } = location else { return None };
        let counts = match &self.files.get(file)?.kind {
            FileKind::Kernel { reference, .. } => reference.is_some(),
            kind => !matches!(kind, FileKind::Jit { .. } | FileKind::Named | FileKind::None),
        };
        counts.then_some(offset)
    }

    /// Indices of all mapped files, for [`path`](Self::path).
    pub fn files(&self) -> Range<usize> {
        0..self.files.len()
    }

    /// Opens a file, or records why that failed.
    pub(super) fn open(&mut self, index: usize) {
        let Some(file) = self.files.get_mut(index) else { return };
        match std::mem::take(&mut file.state) {
            State::NotTried => {}
            State::Open(mut module) if file.kind == FileKind::Elf => {
                let Some(error) = file.doubt(&mut module) else {
                    return file.state = State::Open(module);
                };
                file.rejected.push((module.path().to_owned(), error));
                return file.open_program(&self.sources);
            }
            state => return file.state = state,
        }
        let state = match &file.kind {
            FileKind::Elf => return file.open_program(&self.sources),
            FileKind::Kernel { .. } | FileKind::Module { .. } => {
                let kind = file.kind.clone();
                self.open_kernel(&kind)
            }
            FileKind::Jit { list } => match read_jit_list(list) {
                Ok(symbols) => State::Listed(Listed::of_addresses(symbols)),
                Err(error) => State::Failed(error),
            },
            FileKind::Vdso => {
                let id = file.build_id.clone();
                self.open_vdso(id.as_deref()).map_or(State::Silent, State::Open)
            }
            FileKind::Whole { .. } | FileKind::Named | FileKind::None => State::Silent,
        };
        self.files[index].state = state;
    }

    /// The program or library with an index.
    pub(crate) fn elf(&mut self, index: usize) -> Option<&mut Module> {
        // While a recording is read, its kernel is not yet known, and the kernel's code would not
        // be used.
        if self.files.get(index)?.kind.is_kernel() {
            return None;
        }
        self.open(index);
        let state = &mut self.files.get_mut(index)?.state;
        if let State::Open(module) = state { Some(module) } else { None }
    }

    /// The recorded build ID of a file.
    pub fn build_id(&self, file: usize) -> Option<&[u8]> {
        self.files.get(file)?.build_id.as_deref()
    }

    /// Whether a given file has the build ID of a mapped one.
    pub(crate) fn check_build(&self, index: usize, module: &Module) -> Result<(), SymbolError> {
        let recorded = self.build_id(index);
        let is_other = differs(recorded, module.build_id());
        if is_other { Err(other_build(recorded, module)) } else { Ok(()) }
    }

    /// Whether the file at a location's path is not the recorded one.
    pub(crate) fn is_of_other_file(&self, location: Location) -> bool {
        let failure = location.file().and_then(|file| self.failure(file));
        failure.is_some_and(SymbolError::is_other_file)
    }

    /// Whether there is any such file, judged by all branches so far.
    pub(crate) fn has_other_files(&mut self) -> bool {
        for index in self.files() {
            // Files without branches give no evidence.
            if self.files.get(index).is_some_and(|file| !file.evidence.branches.is_empty()) {
                self.open(index);
            }
        }
        self.failures().any(SymbolError::is_other_file)
    }

    /// Why a file gave no symbols.
    pub(crate) fn failure(&self, file: usize) -> Option<&SymbolError> {
        self.files.get(file)?.state.failure()
    }

    /// Why files gave no symbols, each reason once.
    pub fn failures(&self) -> impl Iterator<Item = &SymbolError> {
        self.files.iter().filter_map(|file| file.state.failure())
    }
}

/// The error for a file with another build ID than the recorded one.
fn other_build(recorded: Option<&[u8]>, module: &Module) -> SymbolError {
    SymbolError::BuildId {
        path: module.path().to_owned(),
        recorded: recorded.unwrap_or_default().to_vec(),
        found: module.build_id().map(<[u8]>::to_vec),
    }
}
