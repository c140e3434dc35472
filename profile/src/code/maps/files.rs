//! What was mapped: opened when the first of its addresses is asked for.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use lbr_msr::insn::{self, BranchInsn};
use lbr_msr::record::Mmap;

use super::kernel::Listed;
use super::vdso::VDSO;
use super::vmlinux::Vmlinux;
use super::{Location, Maps, differs};
use crate::code::demangle::is_called;
use crate::code::lines::{Frame, SourceLine};
use crate::code::symbols::{Found, JitMap, Module, Sources, SymbolError, demangle};
use crate::read::names::REACH;

/// Something that was mapped.
#[derive(Debug)]
pub(super) struct MappedFile {
    pub(super) path: String,
    pub(super) build_id: Option<Vec<u8>>,
    pub(super) kind: FileKind,
    pub(super) state: State,
    /// Names that were asked for, as people read them: by first address and
    /// the one behind the last. Each is asked for once an address in it.
    demangled: RefCell<HashMap<(u64, u64), Box<str>>>,
}

/// What it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    /// A file: offsets are its bytes.
    Elf,
    /// The kernel. Offsets count from its symbol `reference`, wherever it was
    /// loaded; without one they are addresses.
    Kernel { recording: u32, reference: Option<String> },
    /// A module of the kernel, recorded at `start`. Offsets count from there.
    Module { recording: u32, name: String, start: u64 },
    /// Code that the kernel translated, such as a BPF program: its own name is
    /// all there is to say. Offsets count from its start.
    Whole { recording: u32, len: u64 },
    /// Generated code of one process, named by a list. Offsets are addresses.
    Jit { list: PathBuf },
    /// Code that the kernel maps into processes. Offsets are its bytes.
    Vdso,
    /// What a recording without addresses says of a file: offsets are those of
    /// its symbols, one after the other as they came.
    Named,
    /// Named in brackets, relative or anonymous: nothing to open.
    None,
}

impl FileKind {
    /// What a process's mapping stands for.
    pub(super) fn of_mapping(map: &Mmap) -> FileKind {
        // That of a process of 32 bits is another one.
        let wide = map.addr > u64::from(u32::MAX);
        if Path::new(&map.path).is_absolute() && !map.path.starts_with("//") {
            FileKind::Elf
        } else if map.path == VDSO && wide {
            FileKind::Vdso
        } else {
            FileKind::None
        }
    }

    pub(super) fn is_kernel(&self) -> bool {
        matches!(self, FileKind::Kernel { .. } | FileKind::Module { .. } | FileKind::Whole { .. })
    }

    /// The symbol that offsets in the kernel count from.
    pub(super) fn reference(&self) -> Option<&str> {
        if let FileKind::Kernel { reference, .. } = self { reference.as_deref() } else { None }
    }
}

#[derive(Debug)]
pub(super) enum State {
    NotTried,
    Open(Box<Module>),
    /// Names are in a list of the kernel's.
    Listed(Listed),
    /// Names and lines are in the kernel's ELF file; those that it lacks in a
    /// list.
    Vmlinux(Vmlinux, Option<Listed>),
    Jit(JitMap),
    Failed(SymbolError),
    /// As another file that failed, which says why.
    Silent,
}

impl State {
    pub(super) fn failure(&self) -> Option<&SymbolError> {
        if let State::Failed(error) = self { Some(error) } else { None }
    }
}

impl MappedFile {
    pub(super) fn new(path: String, build_id: Option<Vec<u8>>, kind: FileKind) -> MappedFile {
        let (state, demangled) = (State::NotTried, RefCell::default());
        MappedFile { path, build_id, kind, state, demangled }
    }

    /// Other places to look for names in. What was found stays.
    pub(super) fn look_in(&mut self, sources: &Sources) {
        match &mut self.state {
            State::Open(module) => module.look_in(&sources.debug),
            state => *state = State::NotTried,
        }
    }

    /// Gives up a file that was opened before its build id was known, and has
    /// another.
    pub(super) fn check(&mut self) {
        if let State::Open(module) = &self.state
            && differs(self.build_id.as_deref(), module.build_id())
        {
            self.state = State::Failed(SymbolError::BuildId { path: module.path().to_owned() });
        }
    }

    /// The name of a symbol as its language writes it.
    fn demangled(&self, name: &str, range: &Range<u64>) -> String {
        let mut known = self.demangled.borrow_mut();
        let key = (range.start, range.end);
        known.entry(key).or_insert_with(|| demangle(name).into()).to_string()
    }

    fn module(&mut self) -> Option<&mut Module> {
        match &mut self.state {
            State::Open(module) => Some(module),
            _ => None,
        }
    }
}

/// A symbol and the place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Name, demangled.
    pub name: String,
    /// Bytes from its start.
    pub offset: u64,
}

/// A function: its name, and where its code lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name, demangled.
    pub name: String,
    /// Index of the file that it lies in.
    pub file: usize,
    /// Its bytes in that file, as [`Location::File`] counts them.
    pub offsets: Range<u64>,
    /// Its first address as the file's symbol table counts, which is what a
    /// disassembler prints; where there is no file, as it was recorded. 0 where
    /// it was recorded by its name alone.
    pub address: u64,
}

impl Function {
    /// Whether a place lies in it.
    #[must_use]
    pub fn contains(&self, location: Location) -> bool {
        matches!(location, Location::File { file, offset }
            if file == self.file && self.offsets.contains(&offset))
    }
}

impl Maps {
    /// Path of a file, as the recording has it; generated code is
    /// `[JIT] tid PID`, as perf calls it. `None` where the recording has symbols
    /// without their files.
    #[must_use]
    pub fn path(&self, file: usize) -> Option<&str> {
        let said = |file: &&MappedFile| file.kind != FileKind::Named || !file.path.is_empty();
        self.files.get(file).filter(said).map(|file| file.path.as_str())
    }

    /// Indexes of all that was mapped, for [`path`](Self::path).
    pub fn files(&self) -> Range<usize> {
        0..self.files.len()
    }

    /// Opens a file, or finds out why not.
    fn open(&mut self, index: usize) {
        let Some(file) = self.files.get(index) else { return };
        if !matches!(file.state, State::NotTried) {
            return;
        }
        let state = match &file.kind {
            FileKind::Elf => match open_elf(file, &self.sources) {
                Ok(module) => State::Open(Box::new(module)),
                Err(error) => State::Failed(error),
            },
            FileKind::Kernel { .. } | FileKind::Module { .. } => {
                let kind = file.kind.clone();
                self.open_kernel(&kind)
            }
            FileKind::Jit { list } => match JitMap::read(list) {
                Ok(map) => State::Jit(map),
                Err(error) => State::Failed(error),
            },
            FileKind::Vdso => self.open_vdso(file.build_id.as_deref()),
            FileKind::Whole { .. } | FileKind::Named | FileKind::None => State::Silent,
        };
        if let Some(file) = self.files.get_mut(index) {
            file.state = state;
        }
    }

    /// The symbol that covers a place: its name as the file has it, its bytes,
    /// its address.
    fn covering(&mut self, location: Location) -> Option<(String, usize, Range<u64>, u64)> {
        let (index, offset) = match location {
            Location::File { file, offset } => (file, offset),
            Location::Address(addr) => return self.in_given_list(addr),
        };
        self.open(index);
        let file = self.files.get(index)?;
        if let FileKind::Whole { len, .. } = file.kind {
            return Some((file.path.clone(), index, 0..len, 0));
        }
        if file.kind == FileKind::Named {
            return self.named_at(index, offset);
        }
        match &file.state {
            State::Open(module) => {
                let addr = module.address_of_offset(offset)?;
                let (name, range) = module.function_at(addr)?;
                let start = offset.wrapping_sub(addr - range.start);
                let name = file.demangled(name, &range);
                Some((name, index, start..start.wrapping_add(range.end - range.start), range.start))
            }
            State::Jit(map) => {
                let Found { name, addr, end } = map.at(offset)?;
                Some((name.to_owned(), index, addr..end?, addr))
            }
            State::Listed(listed) => listed.covering(index, offset),
            State::Vmlinux(vmlinux, listed) => match vmlinux.function_at(offset) {
                Some((name, offsets, addr)) => {
                    Some((demangle(name).into_owned(), index, offsets, addr))
                }
                None => listed.as_ref()?.covering(index, offset),
            },
            State::NotTried | State::Failed(_) | State::Silent => None,
        }
    }

    /// The symbol at a place.
    pub fn name(&mut self, location: Location) -> Option<Named> {
        let at = match location {
            Location::File { offset, .. } => offset,
            Location::Address(addr) => addr,
        };
        let (name, _, range, _) = self.covering(location)?;
        Some(Named { name, offset: at.wrapping_sub(range.start) })
    }

    /// The function at a place, with all its code. `None` where no symbol
    /// covers it, or it lies in no file.
    pub fn function(&mut self, location: Location) -> Option<Function> {
        let (name, file, offsets, address) = self.covering(location)?;
        (file != usize::MAX).then_some(Function { name, file, offsets, address })
    }

    /// The functions of a name, in all that was mapped.
    pub(crate) fn functions_named(&mut self, name: &str) -> Vec<Function> {
        let mut found = Vec::new();
        for index in self.files() {
            self.open(index);
            let Some(file) = self.files.get(index) else { continue };
            if file.kind == FileKind::Named {
                for (called, start) in self.named.of_file(index) {
                    if is_called(called, name) {
                        let (name, offsets) = (called.to_owned(), start..start + REACH);
                        found.push(Function { name, file: index, offsets, address: 0 });
                    }
                }
                continue;
            }
            match &file.state {
                State::Open(module) => {
                    for range in module.named(name) {
                        let Some(start) = module.offset_of_address(range.start) else { continue };
                        let offsets = start..start.saturating_add(range.end - range.start);
                        let name = module.symbol_at(range.start).map_or(name, |(name, _)| name);
                        let name = demangle(name).into_owned();
                        found.push(Function { name, file: index, offsets, address: range.start });
                    }
                }
                State::Jit(map) => {
                    for Found { name, addr, end } in map.named(|symbol| is_called(symbol, name)) {
                        let Some(end) = end else { continue };
                        let name = name.to_owned();
                        found.push(Function {
                            name,
                            file: index,
                            offsets: addr..end,
                            address: addr,
                        });
                    }
                }
                State::Vmlinux(vmlinux, _) => {
                    for (offsets, address) in vmlinux.named(name) {
                        let name = name.to_owned();
                        found.push(Function { name, file: index, offsets, address });
                    }
                }
                State::Listed(listed) => {
                    for Found { name, addr, end } in listed.named(name) {
                        let end = end.unwrap_or_else(|| addr.saturating_add(1));
                        let offsets = addr.wrapping_sub(listed.base)..end.wrapping_sub(listed.base);
                        let name = name.to_owned();
                        found.push(Function { name, file: index, offsets, address: addr });
                    }
                }
                State::NotTried | State::Failed(_) | State::Silent => {}
            }
        }
        found
    }

    /// The program or library at an index, and the address there that an
    /// offset stands for.
    pub(crate) fn elf(&mut self, index: usize) -> Option<&mut Module> {
        // Asked while a recording is read, which kernel ran is not known yet,
        // and its code would not be looked at.
        if self.files.get(index)?.kind.is_kernel() {
            return None;
        }
        self.open(index);
        self.files.get_mut(index)?.module()
    }

    /// The kernel's ELF file, where that is what an index stands for. Its code is
    /// not asked for: a kernel changes it while it runs.
    fn vmlinux_of(&mut self, index: usize) -> Option<&mut Vmlinux> {
        self.open(index);
        match &mut self.files.get_mut(index)?.state {
            State::Vmlinux(vmlinux, _) => Some(vmlinux),
            _ => None,
        }
    }

    /// Looks up the lines of many places at once. What
    /// [`source`](Self::source) and [`frames`](Self::frames) say is the same
    /// without; with it each piece of the debug information is read once and
    /// not kept.
    pub fn look_up_lines(&mut self, places: impl IntoIterator<Item = Location>) {
        if !self.sources.lines {
            return;
        }
        let mut offsets: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for place in places {
            if let Location::File { file, offset } = place {
                offsets.entry(file).or_default().push(offset);
            }
        }
        for (file, mut addrs) in offsets {
            if let Some(vmlinux) = self.vmlinux_of(file) {
                vmlinux.look_up_lines(&addrs);
                continue;
            }
            let Some(module) = self.elf(file) else { continue };
            addrs.retain_mut(|offset| {
                let addr = module.address_of_offset(*offset);
                *offset = addr.unwrap_or(*offset);
                addr.is_some()
            });
            module.look_up_lines(addrs);
        }
    }

    /// The line of a place; of inlined code, the innermost. `None` where the
    /// file has no debug information, or was replaced.
    pub fn source(&mut self, location: Location) -> Option<SourceLine> {
        let Location::File { file, offset } = location else { return None };
        if !self.sources.lines {
            return None;
        }
        if let Some(vmlinux) = self.vmlinux_of(file) {
            return vmlinux.source(offset);
        }
        let module = self.elf(file)?;
        module.source(module.address_of_offset(offset)?)
    }

    /// The functions that a place belongs to, out of debug information: those
    /// inlined there from the innermost on, and at the end the one that stands
    /// for itself. Empty where there is none.
    pub fn frames(&mut self, location: Location) -> Vec<Frame> {
        let Location::File { file, offset } = location else { return Vec::new() };
        if !self.sources.lines {
            return Vec::new();
        }
        if let Some(vmlinux) = self.vmlinux_of(file) {
            return vmlinux.frames(offset);
        }
        let Some(module) = self.elf(file) else { return Vec::new() };
        module.address_of_offset(offset).map(|addr| module.frames(addr)).unwrap_or_default()
    }

    /// The branch instruction at a place, out of the file's code bytes.
    /// `ip` is where it ran.
    pub fn branch(&mut self, location: Location, ip: u64) -> Option<BranchInsn> {
        insn::branch_kind(&self.code(location)?, ip)
    }

    /// Code bytes at a place, up to 15; `None` where its file has none there.
    pub fn code(&mut self, location: Location) -> Option<Vec<u8>> {
        let Location::File { file, offset } = location else { return None };
        let module = self.elf(file)?;
        let addr = module.address_of_offset(offset)?;
        Some(module.code_at(addr)).filter(|code| !code.is_empty())
    }

    /// Why files gave no symbols, each once.
    pub fn failures(&self) -> impl Iterator<Item = &SymbolError> {
        self.files.iter().filter_map(|file| file.state.failure())
    }
}

/// Opens the file that was recorded: where it was, or out of perf's cache.
fn open_elf(file: &MappedFile, sources: &Sources) -> Result<Module, SymbolError> {
    let path = Path::new(&file.path);
    let opened = Module::open_with(path, &sources.debug);
    let recorded = file.build_id.as_deref();
    let is_right = |module: &Module| match (recorded, module.build_id()) {
        // It had a build id, and what is there now has none.
        (Some(_), None) => false,
        (recorded, found) => !differs(recorded, found),
    };
    let error = match opened {
        Ok(module) if is_right(&module) => return Ok(module),
        Ok(module) => SymbolError::BuildId { path: module.path().to_owned() },
        Err(error) => error,
    };
    let kept = recorded.and_then(|id| sources.debug.program(id));
    kept.and_then(|path| Module::open_with(&path, &sources.debug).ok()).ok_or(error)
}
