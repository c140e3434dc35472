//! Which file an address belongs to: address spaces out of mapping records.

mod common;
mod evidence;
mod files;
mod functions;
mod kernel;
mod named;
mod processes;
mod source;
mod space;
mod vdso;
mod vmlinux;
mod within;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use lbr_msr::record::{Event, Mmap};

use crate::code::symbols::Sources;
use crate::read::address::KERNEL;
use crate::read::perf_data::FileInfo;
use common::Common;
use files::{FileKind, MappedFile};
use kernel::{Kernel, Lists, is_kernel};
use named::NamedPlaces;
use space::{MOST_MAPPINGS, Mapping, Mappings, Space, covering, overlapped, put_if_few};
use vdso::VDSO;

pub use functions::{Function, Named};
pub use space::Owner;
pub use within::Within;

/// Mappings copied at most, for processes that change what they inherited or
/// replace what was sampled: a small recording could ask for any number.
const MAX_COPIED: usize = 4 << 20;
/// Files that are told apart.
const MOST_FILES: usize = 1 << 18;
/// PROT_EXEC.
const EXECUTABLE: u32 = 4;

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
    /// The index of its file; `None` where it lies in none.
    #[must_use]
    pub const fn file(self) -> Option<usize> {
        match self {
            Location::File { file, .. } => Some(file),
            Location::Address(_) => None,
        }
    }

    /// In no file, and not in the kernel: the same number means something
    /// else in another process.
    pub(crate) fn is_private(&self) -> bool {
        matches!(self, Location::Address(addr) if *addr < KERNEL)
    }
}

/// What of a recording was more than is kept in memory. Branches there lie in no
/// file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unkept {
    /// Mappings beyond those of one process, or of more files than are told apart.
    pub mappings: u64,
    /// Processes whose mappings were given up while they ran.
    pub processes: u64,
}

/// Every address space of a recording.
///
/// A process starts a new space when a mapping replaces other bytes of a file:
/// what was sampled before keeps its meaning.
#[derive(Debug, Default)]
pub struct Maps {
    files: Vec<MappedFile>,
    by_path: HashMap<String, usize>,
    spaces: Vec<Space>,
    /// Spaces that nothing refers to any more.
    free: Vec<usize>,
    current: HashMap<Option<u32>, usize>,
    /// Processes that have ended, the latest last, and their spaces.
    ended: VecDeque<(u32, usize)>,
    common: Common,
    recording: u32,
    /// Mappings copied so far.
    copied: usize,
    /// Mappings of the current processes, at most.
    held: usize,
    /// Counts what is heard of processes.
    clock: u64,
    unkept: Unkept,
    /// Build ids that this recording has beside its mappings, by path.
    expected: HashMap<String, Vec<u8>>,
    /// By recording.
    kernels: Vec<Kernel>,
    /// Stacks that were looked at for evidence of which files ran.
    stacks: u64,
    kernel_lists: Lists,
    sources: Sources,
    named: NamedPlaces,
}

impl Maps {
    /// With places to look for names in.
    #[must_use]
    pub fn with_sources(sources: Sources) -> Maps {
        Maps { sources, ..Maps::default() }
    }

    /// The places where names are looked for.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Other places to look for names in. They count for what was not named
    /// yet, and for the generated code of processes that come from now on.
    pub fn set_sources(&mut self, sources: Sources) {
        for file in &mut self.files {
            file.look_in(&sources);
        }
        self.kernel_lists = Lists::default();
        self.sources = sources;
    }

    /// Takes in what changes mappings; everything else passes.
    pub fn event(&mut self, event: &Event) {
        self.common.last = None;
        match event {
            Event::Mmap(map) => self.mmap(map),
            Event::Fork(task) if task.pid != task.ppid => {
                let parent = self.process(task.ppid).map(|parent| Arc::clone(&parent.mappings));
                let inherited = match self.process(task.pid) {
                    // Told already, by another CPU.
                    Some(known) if !known.ended => None,
                    Some(_) => Some(parent.unwrap_or_default()),
                    None => parent,
                };
                if let Some(inherited) = inherited {
                    self.add_space(Some(task.pid), inherited);
                }
            }
            Event::Exit(task) if task.pid == task.tid => self.end(task.pid),
            _ => {}
        }
    }

    /// What was more than is kept.
    #[must_use]
    pub fn unkept(&self) -> Unkept {
        self.unkept
    }

    /// The recording of a space, and its process there.
    pub(crate) fn owner(&self, space: usize) -> Option<Owner> {
        self.spaces.get(space).map(|space| space.owner)
    }

    /// Whether no byte of a file lies at two addresses of a space.
    pub(crate) fn has_each_byte_once(&self, space: usize) -> bool {
        let Some(space) = self.spaces.get(space) else { return true };
        let kernel = self.kernels.get(space.owner.recording as usize);
        let all = space.mappings.values().chain(kernel.iter().flat_map(|k| k.mappings.values()));
        let shared = all.filter(|map| self.is_shared(map.file));
        let part = |map: &Mapping| (map.file, map.pgoff, map.pgoff.saturating_add(map.len));
        let mut parts: Vec<(usize, u64, u64)> = shared.map(part).collect();
        parts.sort_unstable();
        let apart = |pair: &[(usize, u64, u64)]| match pair {
            [(file, _, end), (other, start, _)] => file != other || end <= start,
            _ => true,
        };
        space.named.is_none() && parts.windows(2).all(apart)
    }

    /// What follows comes from another recording: its processes are others,
    /// whatever their numbers.
    pub fn next_recording(&mut self) {
        self.current.clear();
        self.ended.clear();
        self.common = Common::default();
        self.named.next_recording();
        self.expected.clear();
        self.recording += 1;
        // Each recording has a kernel of its own until it says which.
        let files = &self.files;
        self.by_path.retain(|_, file| !files.get(*file).is_some_and(|file| file.kind.is_kernel()));
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

    /// Whether no recording said of a file other than the kernel that it was
    /// mapped.
    #[must_use]
    pub fn is_without_files(&self) -> bool {
        self.files.iter().all(|file| file.kind.is_kernel())
    }

    fn mmap(&mut self, map: &Mmap) {
        // A protection of 0 is a recorder that does not say.
        if map.len == 0 || (map.prot != 0 && map.prot & EXECUTABLE == 0) {
            return;
        }
        if is_kernel(map) {
            self.kernel_mmap(map);
            return;
        }
        let expected = || self.expected.get(&map.path).cloned();
        let build_id = map.build_id.clone().or_else(expected);
        let kind = FileKind::of_mapping(map);
        // It has no file: recorders put anything there.
        let pgoff = if kind == FileKind::Vdso { 0 } else { map.pgoff };
        let is_full = |space: &Space| space.mappings.len() >= MOST_MAPPINGS;
        let file = match self.process(map.pid).is_some_and(is_full) {
            true => None,
            false => self.file(&map.path, build_id.as_deref(), kind),
        };
        if let Some(file) = file.and_then(|file| self.files.get_mut(file)) {
            let here = (pgoff, map.len);
            file.code = Some(file.code.map_or(here, |first| first.min(here)));
        }
        // What lay there is gone, also where nobody can say what lies there now.
        let mapping =
            Mapping { start: map.addr, len: map.len, pgoff, file: file.unwrap_or(usize::MAX) };
        self.insert(Some(map.pid), mapping);
        if self.current.contains_key(&None) {
            self.insert(None, mapping);
        }
    }

    /// The number of a file; `None` where there are too many.
    fn file(&mut self, path: &str, build_id: Option<&[u8]>, kind: FileKind) -> Option<usize> {
        let known = self.by_path.get(path).copied();
        // The same path may be another file in another recording.
        let recording = self.recording;
        let same = known.filter(|&file| {
            self.files.get(file).is_some_and(|known| {
                !differs(known.build_id.as_deref(), build_id) && known.kind == kind
            })
        });
        if let Some(file) = same {
            if let Some(known) = self.files.get_mut(file) {
                known.recording = recording;
                if known.build_id.is_none() {
                    known.build_id = build_id.map(<[u8]>::to_vec);
                }
            }
            return Some(file);
        }
        let file = Some(self.files.len()).filter(|file| *file < MOST_FILES)?;
        let mut new = MappedFile::new(path.to_owned(), build_id.map(<[u8]>::to_vec), kind);
        new.recording = recording;
        self.files.push(new);
        self.by_path.insert(path.to_owned(), file);
        Some(file)
    }

    fn insert(&mut self, pid: Option<u32>, new: Mapping) {
        let mut index = self.current_space(pid);
        let Some(space) = self.spaces.get(index) else { return };
        let mappings = &space.mappings;
        let is_file = |m: &Mapping| self.files.get(m.file).is_some_and(|f| f.kind == FileKind::Elf);
        let base = |m: &Mapping| m.start.wrapping_sub(m.pgoff);
        let other = |old: &Mapping| old.file != new.file || base(old) != base(&new);
        let replaces = overlapped(mappings, &new).iter().any(|old| is_file(old) && other(old));
        if replaces && space.used && pid.is_some() {
            let before = Arc::clone(mappings);
            index = self.add_space(pid, before);
        }
        let Some(space) = self.spaces.get_mut(index) else { return };
        space.ways = None;
        if Arc::get_mut(&mut space.mappings).is_none() {
            self.copied = self.copied.saturating_add(space.mappings.len());
            if self.copied > MAX_COPIED {
                // Nothing is known of it then, rather than something wrong.
                space.mappings = Arc::default();
                self.unkept.processes += 1;
            }
        }
        let mappings = Arc::make_mut(&mut space.mappings);
        let before = mappings.len();
        self.unkept.mappings += u64::from(!put_if_few(mappings, new));
        self.held = (self.held + mappings.len()).saturating_sub(before);
        self.forget_some();
    }

    /// Where an address of a space lies.
    #[must_use]
    pub fn locate(&self, space: usize, addr: u64) -> Location {
        let Some(known) = self.spaces.get(space) else { return Location::Address(addr) };
        if let Some(location) = known.named.and_then(|table| self.named.locate(table, addr)) {
            return location;
        }
        let kernel = || {
            let kernel = self.kernels.get(known.owner.recording as usize)?;
            covering(&kernel.mappings, addr)
        };
        // Of a process's own mappings only [vsyscall] lies in the kernel's half.
        let found = match addr {
            0..KERNEL => covering(&known.mappings, addr),
            KERNEL.. => kernel().or_else(|| covering(&known.mappings, addr)),
        };
        match found {
            Some(map) if self.is_shared(map.file) => {
                let offset = (addr - map.start).wrapping_add(map.pgoff);
                Location::File { file: map.file, offset }
            }
            _ => match known.generated {
                Some(file) if addr < KERNEL => Location::File { file, offset: addr },
                _ => Location::Address(addr),
            },
        }
    }

    /// Whether a name stands for the same bytes in every process: files and
    /// the kernel's own mappings do, anonymous memory does not.
    fn is_shared(&self, file: usize) -> bool {
        self.files.get(file).is_some_and(|file| {
            file.kind != FileKind::None || matches!(file.path.as_str(), VDSO | "[vsyscall]")
        })
    }

    /// What the recording is known to say before its mappings come: build ids,
    /// so that a file that was replaced is not opened, and which kernel ran, for
    /// those who ask for names while it is read.
    pub fn expect(&mut self, info: &FileInfo) {
        self.expected = info.build_ids.iter().cloned().collect();
        self.expect_kernel(info);
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
                known.check();
            }
        }
    }

    /// This recording's file turns out to be another than the earlier ones'
    /// of the same path: gives it a place of its own.
    fn part(&mut self, file: usize, id: &[u8]) {
        let Some(earlier) = self.files.get(file) else { return };
        let path = earlier.path.clone();
        let kind = earlier.kind.clone();
        let own = self.files.len();
        self.files.push(MappedFile::new(path.clone(), Some(id.to_vec()), kind));
        self.by_path.insert(path, own);
        let ours = self.spaces.iter_mut().filter(|space| space.owner.recording == self.recording);
        for space in ours {
            let mappings = Arc::make_mut(&mut space.mappings);
            for mapping in mappings.values_mut().filter(|mapping| mapping.file == file) {
                mapping.file = own;
            }
        }
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
