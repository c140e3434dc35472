//! Which file an address belongs to: address spaces out of mapping records.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use lbr_msr::insn::{self, BranchInsn};
use lbr_msr::record::{Event, Mmap};

use crate::symbols::{Module, SymbolError, demangle};

/// Addresses from here up belong to the kernel, whoever runs.
const KERNEL: u64 = 1 << 63;
/// PROT_EXEC.
const EXECUTABLE: u32 = 4;

/// One mapping of a file.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    start: u64,
    len: u64,
    pgoff: u64,
    file: usize,
}

/// Mappings by their first address; none overlap.
type Mappings = BTreeMap<u64, Mapping>;

/// A file that was mapped.
#[derive(Debug)]
struct MappedFile {
    path: String,
    build_id: Option<Vec<u8>>,
    module: State,
}

#[derive(Debug)]
enum State {
    NotTried,
    Open(Box<Module>),
    Failed(SymbolError),
    /// Named in brackets, relative or anonymous: nothing to open.
    NoFile,
}

/// Where an address lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// In no file that we know.
    Address(u64),
    /// In a file, at this byte of it.
    File {
        /// Index of the file.
        file: usize,
        /// Offset in it, bytes.
        offset: u64,
    },
}

impl Location {
    /// In no file, and not in the kernel: the same number means something
    /// else in another process.
    pub(crate) fn is_private(&self) -> bool {
        matches!(self, Location::Address(addr) if *addr < KERNEL)
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

/// What a process had mapped for a while.
#[derive(Debug)]
struct Space {
    /// Shared with the parent until either changes it.
    mappings: Arc<Mappings>,
    owner: Option<u32>,
    /// Which recording, counted from 0: a process number of one means nothing
    /// in another.
    recording: u32,
    /// Samples refer to it: it must not change its meaning.
    used: bool,
}

/// Every address space of a recording.
///
/// A process starts a new space when a mapping replaces another file's: what
/// was sampled before keeps its meaning.
#[derive(Debug, Default)]
pub struct Maps {
    files: Vec<MappedFile>,
    by_path: HashMap<String, usize>,
    spaces: Vec<Space>,
    current: HashMap<Option<u32>, usize>,
    recording: u32,
}

impl Maps {
    /// Takes in what changes mappings; everything else passes.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Mmap(map) => self.mmap(map),
            Event::Fork(task) if task.pid != task.ppid => {
                let parent = self.current.get(&Some(task.ppid)).and_then(|&p| self.spaces.get(p));
                if let (Some(parent), false) = (parent, self.current.contains_key(&Some(task.pid)))
                {
                    let inherited = Arc::clone(&parent.mappings);
                    self.add_space(Some(task.pid), inherited);
                }
            }
            _ => {}
        }
    }

    /// The present address space of a process, for a sample to refer to.
    /// Samples of text may not say their process: they share one space, which
    /// has every mapping.
    pub fn space(&mut self, pid: Option<u32>) -> usize {
        let space = self.current_space(pid);
        if let Some(space) = self.spaces.get_mut(space) {
            space.used = true;
        }
        space
    }

    fn current_space(&mut self, pid: Option<u32>) -> usize {
        match self.current.get(&pid) {
            Some(&space) => space,
            None => self.add_space(pid, Arc::default()),
        }
    }

    fn add_space(&mut self, owner: Option<u32>, mappings: Arc<Mappings>) -> usize {
        let space = self.spaces.len();
        self.spaces.push(Space { mappings, owner, recording: self.recording, used: false });
        self.current.insert(owner, space);
        space
    }

    /// The recording of a space, and its process there.
    pub(crate) fn owner(&self, space: usize) -> Option<(u32, Option<u32>)> {
        self.spaces.get(space).map(|space| (space.recording, space.owner))
    }

    /// What follows comes from another recording: its processes are others,
    /// whatever their numbers.
    pub fn next_recording(&mut self) {
        self.current.clear();
        self.recording += 1;
    }

    /// How many address spaces there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spaces.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spaces.is_empty()
    }

    fn mmap(&mut self, map: &Mmap) {
        // A protection of 0 is a recorder that does not say.
        if map.len == 0 || (map.prot != 0 && map.prot & EXECUTABLE == 0) {
            return;
        }
        let file = self.file(map);
        let mapping = Mapping { start: map.addr, len: map.len, pgoff: map.pgoff, file };
        self.insert(Some(map.pid), mapping);
        self.insert(None, mapping);
    }

    fn file(&mut self, map: &Mmap) -> usize {
        let known = self.by_path.get(&map.path).copied();
        // The same path may be another file in another recording.
        let same = known.filter(|&file| {
            let known = self.files.get(file).and_then(|file| file.build_id.as_deref());
            !differs(known, map.build_id.as_deref())
        });
        if let Some(file) = same {
            if let Some(known) = self.files.get_mut(file).filter(|f| f.build_id.is_none()) {
                known.build_id.clone_from(&map.build_id);
            }
            return file;
        }
        let file = self.files.len();
        let is_file = Path::new(&map.path).is_absolute() && !map.path.starts_with("//");
        self.files.push(MappedFile {
            path: map.path.clone(),
            build_id: map.build_id.clone(),
            module: if is_file { State::NotTried } else { State::NoFile },
        });
        self.by_path.insert(map.path.clone(), file);
        file
    }

    fn insert(&mut self, pid: Option<u32>, new: Mapping) {
        let mut index = self.current_space(pid);
        let Some(space) = self.spaces.get(index) else { return };
        let mappings = &space.mappings;
        let end = new.start.saturating_add(new.len);
        let overlapped: Vec<Mapping> = mappings
            .range(..end)
            .rev()
            .map(|(_, mapping)| *mapping)
            .take_while(|mapping| mapping.start.saturating_add(mapping.len) > new.start)
            .collect();
        let is_file = |m: &Mapping| {
            self.files.get(m.file).is_some_and(|file| !matches!(file.module, State::NoFile))
        };
        let replaces = overlapped.iter().any(|old| old.file != new.file && is_file(old));
        if replaces && space.used && pid.is_some() {
            let before = Arc::clone(mappings);
            index = self.add_space(pid, before);
        }
        let Some(space) = self.spaces.get_mut(index) else { return };
        let mappings = Arc::make_mut(&mut space.mappings);
        for old in overlapped {
            mappings.remove(&old.start);
            let old_end = old.start.saturating_add(old.len);
            if old.start < new.start {
                mappings.insert(old.start, Mapping { len: new.start - old.start, ..old });
            }
            if old_end > end {
                let moved = end - old.start;
                let pgoff = old.pgoff.wrapping_add(moved);
                mappings.insert(end, Mapping { start: end, len: old_end - end, pgoff, ..old });
            }
        }
        mappings.insert(new.start, new);
    }

    /// Where an address of a space lies.
    #[must_use]
    pub fn locate(&self, space: usize, addr: u64) -> Location {
        let below = self.spaces.get(space).and_then(|s| s.mappings.range(..=addr).next_back());
        match below {
            Some((_, map))
                if addr < KERNEL && addr - map.start < map.len && self.is_shared(map.file) =>
            {
                let offset = (addr - map.start).wrapping_add(map.pgoff);
                Location::File { file: map.file, offset }
            }
            _ => Location::Address(addr),
        }
    }

    /// Whether a name stands for the same bytes in every process: files and
    /// the kernel's own mappings do, anonymous memory does not.
    fn is_shared(&self, file: usize) -> bool {
        self.files.get(file).is_some_and(|file| {
            !matches!(file.module, State::NoFile)
                || matches!(file.path.as_str(), "[vdso]" | "[vsyscall]")
        })
    }

    /// Path of a file, as the recording has it.
    #[must_use]
    pub fn path(&self, file: usize) -> Option<&str> {
        self.files.get(file).map(|file| file.path.as_str())
    }

    /// Build ids that the recording has beside the mappings.
    pub fn build_ids(&mut self, ids: &[(String, Vec<u8>)]) {
        for (path, id) in ids {
            let Some(&file) = self.by_path.get(path) else { continue };
            let Some(known) = self.files.get_mut(file) else { continue };
            if self.recording > 0 && differs(known.build_id.as_deref(), Some(id)) {
                self.part(file, id);
            } else {
                known.build_id.get_or_insert_with(|| id.clone());
            }
        }
    }

    /// This recording's file turns out to be another than the earlier ones'
    /// of the same path: gives it a place of its own.
    fn part(&mut self, file: usize, id: &[u8]) {
        let Some(earlier) = self.files.get(file) else { return };
        let path = earlier.path.clone();
        let is_file = !matches!(earlier.module, State::NoFile);
        let own = self.files.len();
        self.files.push(MappedFile {
            path: path.clone(),
            build_id: Some(id.to_vec()),
            module: if is_file { State::NotTried } else { State::NoFile },
        });
        self.by_path.insert(path, own);
        let ours = self.spaces.iter_mut().filter(|space| space.recording == self.recording);
        for space in ours {
            let mappings = Arc::make_mut(&mut space.mappings);
            for mapping in mappings.values_mut().filter(|mapping| mapping.file == file) {
                mapping.file = own;
            }
        }
    }

    fn module(&mut self, file: usize) -> Option<&mut Module> {
        let file = self.files.get_mut(file)?;
        if matches!(file.module, State::NotTried) {
            let opened = Module::open(Path::new(&file.path));
            file.module = match opened {
                Ok(module) if differs(file.build_id.as_deref(), module.build_id()) => {
                    State::Failed(SymbolError::BuildId { path: module.path().to_owned() })
                }
                Ok(module) => State::Open(Box::new(module)),
                Err(error) => State::Failed(error),
            };
        }
        match &mut file.module {
            State::Open(module) => Some(module),
            _ => None,
        }
    }

    /// The symbol at a place.
    pub fn name(&mut self, location: Location) -> Option<Named> {
        let Location::File { file, offset } = location else { return None };
        let module = self.module(file)?;
        let addr = module.address_of_offset(offset)?;
        let (name, offset) = module.symbol_at(addr)?;
        Some(Named { name: demangle(name).into_owned(), offset })
    }

    /// The branch instruction at a place, out of the file's code bytes.
    /// `ip` is where it ran.
    pub fn branch(&mut self, location: Location, ip: u64) -> Option<BranchInsn> {
        insn::branch_kind(&self.code(location)?, ip)
    }

    /// Code bytes at a place, up to 15; `None` where its file has none there.
    pub fn code(&mut self, location: Location) -> Option<Vec<u8>> {
        let Location::File { file, offset } = location else { return None };
        let module = self.module(file)?;
        let addr = module.address_of_offset(offset)?;
        Some(module.code_at(addr)).filter(|code| !code.is_empty())
    }

    /// Why files gave no symbols, each once.
    pub fn failures(&self) -> impl Iterator<Item = &SymbolError> {
        self.files.iter().filter_map(|file| match &file.module {
            State::Failed(error) => Some(error),
            _ => None,
        })
    }
}

/// Two build ids that are both known and not the same.
fn differs(recorded: Option<&[u8]>, found: Option<&[u8]>) -> bool {
    // A record holds 20 bytes; longer ids are cut there, shorter ones padded.
    match (recorded, found) {
        (Some(recorded), Some(found)) => {
            let len = recorded.len().min(found.len()).min(20);
            recorded.get(..len) != found.get(..len)
        }
        _ => false,
    }
}
