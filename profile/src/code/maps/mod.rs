//! Address spaces from mapping records: the file at an address.

mod common;
mod evidence;
mod files;
mod functions;
mod kernel;
mod kernel_files;
mod location_filter;
mod named;
mod processes;
mod programs;
mod tree;

use std::collections::{HashMap, VecDeque};

use lbr_msr::record::{Event, Mmap};

use crate::code::symbols::Sources;
use crate::read::KERNEL;
use crate::read::perf_data::FileInfo;
use common::Common;
use files::{FileKind, MappedFile};
use kernel::{Lists, is_kernel};
use kernel_files::{Kernel, VDSO};
use named::NamedPlaces;
use processes::{MOST_MAPPINGS, Space, covering, overlapped, put_if_few};
use programs::Programs;
use tree::{Mapping, Mappings};

pub use functions::{Function, Named};
pub use location_filter::LocationFilter;
pub use processes::Owner;
pub use programs::RecordedPrograms;

/// Nodes of mappings copied at most, for processes that change what they inherited
/// or replace what was sampled: 300 MB.
const MAX_COPIED: usize = 4 << 20;
/// Maximum number of distinct files.
const MOST_FILES: usize = 1 << 18;
/// PROT_EXEC.
const EXECUTABLE: u32 = 4;

/// The location of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// Outside of known files.
    Address(u64),
    /// In a file.
    File {
        /// Index of the file.
        file: usize,
        /// File offset, bytes.
        offset: u64,
    },
}

impl Default for Location {
    /// Address 0, at which no code is: the location of a loop whose head is unknown.
    fn default() -> Location {
        Location::Address(0)
    }
}

impl Location {
    /// The index of its file; `None` outside of files.
    pub const fn file(self) -> Option<usize> {
        if let Location::File { file, .. } = self { Some(file) } else { None }
    }

    /// The offset in a file; `None` if it is elsewhere.
    pub(crate) fn in_file(self, file: usize) -> Option<u64> {
        (self.file() == Some(file)).then(|| self.position())
    }

    /// The file offset; outside of files the address.
    pub(crate) const fn position(self) -> u64 {
        match self {
            Location::File { offset: at, .. } | Location::Address(at) => at,
        }
    }

    /// Whether it is outside of files and the kernel: the same number means something else in
    /// another process.
    pub(crate) fn is_private(&self) -> bool {
        matches!(self, Location::Address(addr) if *addr < KERNEL)
    }
}

/// Data of a recording beyond memory limits. Its branches count as outside of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unkept {
    /// Mappings beyond the limit per process, or of files beyond the maximum.
    pub mappings: u64,
    /// Processes whose mappings were discarded while they ran.
    pub processes: u64,
}

/// All address spaces of a recording.
///
/// A process starts a new space when a mapping replaces other file bytes, so that earlier samples
/// keep their meaning.
#[derive(Debug, Default)]
pub struct Maps {
    files: Vec<MappedFile>,
    by_path: HashMap<String, usize>,
    spaces: Vec<Space>,
    /// Spaces that are no longer referenced.
    free: Vec<usize>,
    current: HashMap<Option<u32>, usize>,
    /// By recording: a file that is another of the same path there.
    parted: HashMap<(u32, usize), usize>,
    /// Processes that have ended, the latest last, and their spaces.
    ended: VecDeque<(u32, usize)>,
    common: Common,
    recording: u32,
    /// Nodes of mappings copied so far.
    copied: usize,
    /// Upper bound of the mappings of current processes.
    held: usize,
    /// Counts the events about processes.
    clock: u64,
    unkept: Unkept,
    /// Build IDs that this recording has besides its mappings, by path.
    expected: HashMap<String, Vec<u8>>,
    /// By recording.
    kernels: Vec<Kernel>,
    /// Stacks examined for evidence about files.
    stacks: u64,
    kernel_lists: Lists,
    sources: Sources,
    named: NamedPlaces,
    programs: Programs,
}

impl Maps {
    /// With places to search for symbols.
    pub fn with_sources(sources: Sources) -> Maps {
        Maps { sources, ..Maps::default() }
    }

    /// The places to search for symbols.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Sets other places to search for symbols. They apply to files not yet opened, and to the
    /// generated code of later processes.
    pub fn set_sources(&mut self, sources: Sources) {
        for file in &mut self.files {
            file.look_in(&sources);
        }
        self.kernel_lists = Lists::default();
        self.sources = sources;
    }

    /// Handles events that change mappings; ignores others.
    pub fn event(&mut self, event: &Event) {
        self.common.last = None;
        match event {
            Event::Mmap(map) => self.mmap(map),
            Event::Comm(comm) if comm.exec => self.programs.exec(comm.pid),
            Event::Fork(task) if task.pid != task.ppid => {
                self.programs.fork(task.pid, task.ppid);
                let parent = self.process(task.ppid).map(|parent| parent.mappings.clone());
                let inherited = match self.process(task.pid) {
                    // Already reported by another CPU.
                    Some(known) if !known.ended => None,
                    Some(_) => Some(parent.unwrap_or_default()),
                    None => parent,
                };
                if let Some(inherited) = inherited {
                    self.add_space(Some(task.pid), inherited);
                }
            }
            Event::Exit(task) if task.pid == task.tid => {
                self.end(task.pid);
                self.programs.exit(task.pid);
            }
            _ => {}
        }
    }

    /// Data beyond memory limits.
    pub fn unkept(&self) -> Unkept {
        self.unkept
    }

    /// The recording of a space, and its process.
    pub(crate) fn owner(&self, space: usize) -> Option<Owner> {
        self.spaces.get(space).map(|space| space.owner)
    }

    /// Whether each file byte has a single address, or a single number, in a space.
    pub(crate) fn has_each_byte_once(&self, space: usize) -> bool {
        let Some(space) = self.spaces.get(space) else { return true };
        let kernel = self.kernels.get(space.owner.recording as usize);
        let mut all =
            space.mappings.values().chain(kernel.iter().flat_map(|k| k.mappings.values()));
        if space.named.is_some() {
            // A symbol's bytes may also have addresses in a mapping.
            return all.next().is_none();
        }
        let shared = all.filter(|map| self.is_shared(map.file));
        let part = |map: &Mapping| (map.file, map.pgoff, map.pgoff.saturating_add(map.len));
        let mut parts: Vec<(usize, u64, u64)> = shared.map(part).collect();
        parts.sort_unstable();
        let apart = |pair: &[(usize, u64, u64)]| match pair {
            [(file, _, end), (other, start, _)] => file != other || end <= start,
            _ => true,
        };
        parts.windows(2).all(apart)
    }

    /// Starts another recording, whose processes differ from earlier ones with the same numbers.
    pub fn next_recording(&mut self) {
        self.current.clear();
        self.ended.clear();
        self.common = Common::default();
        self.named.has_some = false;
        // Processes of another recording are others, whatever their numbers.
        self.programs.processes.clear();
        self.expected.clear();
        self.recording += 1;
        // Each recording has its own kernel until its identity is known.
        let files = &self.files;
        self.by_path.retain(|_, file| !files.get(*file).is_some_and(|file| file.kind.is_kernel()));
    }

    /// Number of address spaces.
    pub fn len(&self) -> usize {
        self.spaces.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spaces.is_empty()
    }

    /// Whether no recording has a mapping other than the kernel's.
    pub fn is_without_files(&self) -> bool {
        self.files.iter().all(|file| file.kind.is_kernel())
    }

    fn mmap(&mut self, map: &Mmap) {
        // A protection of 0 means that the recorder does not provide it.
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
        // It has no file; recorders write arbitrary offsets.
        let pgoff = if kind == FileKind::Vdso { 0 } else { map.pgoff };
        let process = self.process(map.pid);
        let is_full = process.is_some_and(|process| process.mappings.len() >= MOST_MAPPINGS);
        let file = if is_full { None } else { self.file(&map.path, build_id.as_deref(), kind) };
        if let Some(file) = file {
            let (here, code) = ((pgoff, map.len), &mut self.files[file].code);
            *code = Some(code.map_or(here, |first| first.min(here)));
            self.note_program(map.pid, (map.addr, map.len), file);
        }
        // Replaces the old mapping even if the new file is unknown.
        let mapping =
            Mapping { start: map.addr, len: map.len, pgoff, file: file.unwrap_or(usize::MAX) };
        self.insert(Some(map.pid), mapping);
        if self.current.contains_key(&None) {
            self.insert(None, mapping);
        }
    }

    /// The index of a file; `None` if there are too many.
    fn file(&mut self, path: &str, build_id: Option<&[u8]>, kind: FileKind) -> Option<usize> {
        let known = self.by_path.get(path).copied();
        // In another recording, the same path may be another file.
        let recording = self.recording;
        let same = known.filter(|&file| {
            let known = &self.files[file];
            !differs(known.build_id.as_deref(), build_id) && known.kind == kind
        });
        if let Some(file) = same {
            let known = &mut self.files[file];
            known.recording = recording;
            if known.build_id.is_none() {
                known.build_id = build_id.map(<[u8]>::to_vec);
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
        let space = &self.spaces[index];
        let mappings = &space.mappings;
        let is_file = |m: &Mapping| self.files.get(m.file).is_some_and(|f| f.kind == FileKind::Elf);
        let base = |m: &Mapping| m.start.wrapping_sub(m.pgoff);
        let other = |old: &Mapping| old.file != new.file || base(old) != base(&new);
        let replaces = overlapped(mappings, &new).any(|old| is_file(&old) && other(&old));
        if replaces && space.used && pid.is_some() {
            let before = mappings.clone();
            let replaced = index;
            index = self.add_space(pid, before);
            self.spaces[replaced].replaced = true;
        }
        let space = &mut self.spaces[index];
        let before = space.mappings.len();
        let kept = put_if_few(&mut space.mappings, new);
        self.unkept.mappings += u64::from(!kept);
        self.held = (self.held + space.mappings.len()).saturating_sub(before);
        let copied = space.mappings.take_copied();
        self.copied += copied;
        if copied > 0 && self.copied > MAX_COPIED {
            // Nothing is known of it then, rather than something wrong.
            space.mappings = Mappings::default();
            self.unkept.processes += 1;
        }
        if kept {
            self.common.mapped(index, &new);
        }
        self.forget_some();
    }

    /// The location of an address in a space.
    pub fn locate(&self, space: usize, addr: u64) -> Location {
        let Some(known) = self.spaces.get(space) else { return Location::Address(addr) };
        if let Some(location) = known.named.and_then(|table| self.named.locate(table, addr)) {
            return location;
        }
        let kernel = || {
            let kernel = self.kernels.get(known.owner.recording as usize)?;
            covering(&kernel.mappings, addr)
        };
        // Of a process's own mappings only [vsyscall] is in the kernel's half.
        let found = match addr {
            0..KERNEL => covering(&known.mappings, addr),
            KERNEL.. => kernel().or_else(|| covering(&known.mappings, addr)),
        };
        match found {
            Some(map) if self.is_shared(map.file) => {
                let offset = (addr - map.start).wrapping_add(map.pgoff);
                Location::File { file: self.file_of(known, map), offset }
            }
            _ => match known.generated {
                Some(file) if addr < KERNEL => Location::File { file, offset: addr },
                _ => Location::Address(addr),
            },
        }
    }

    /// Whether a name means the same bytes in every process: true for files and the kernel's
    /// mappings, not for anonymous memory.
    fn is_shared(&self, file: usize) -> bool {
        self.files.get(file).is_some_and(|file| {
            file.kind != FileKind::None || matches!(file.path.as_str(), VDSO | "[vsyscall]")
        })
    }

    /// Sets metadata that is known before the mappings: build IDs, so that replaced files are not
    /// opened, and the kernel, for callers that need symbols while reading.
    pub fn expect(&mut self, info: &FileInfo) {
        self.expected = info.build_ids.iter().cloned().collect();
        self.expect_kernel(info);
    }

    /// Adds build IDs that the recording has besides the mappings.
    pub fn build_ids(&mut self, ids: &[(String, Vec<u8>)]) {
        for (path, id) in ids {
            let Some(&file) = self.by_path.get(path) else { continue };
            let known = &mut self.files[file];
            if self.recording > 0 && differs(known.build_id.as_deref(), Some(id)) {
                self.part(file, id);
            } else {
                known.build_id.get_or_insert_with(|| id.clone());
                known.check();
            }
        }
    }

    /// Gives this recording's file a separate index, because it differs from earlier recordings'
    /// files at the same path.
    fn part(&mut self, file: usize, id: &[u8]) {
        let (path, kind) = (self.files[file].path.clone(), self.files[file].kind.clone());
        let own = self.files.len();
        self.files.push(MappedFile::new(path.clone(), Some(id.to_vec()), kind));
        self.by_path.insert(path, own);
        self.programs.part(file, own);
        self.parted.insert((self.recording, file), own);
    }

    /// The file of a mapping of a space.
    fn file_of(&self, space: &Space, map: &Mapping) -> usize {
        match self.parted.is_empty() {
            true => map.file,
            false => *self.parted.get(&(space.owner.recording, map.file)).unwrap_or(&map.file),
        }
    }
}

/// Whether two build IDs are both known and different.
fn differs(recorded: Option<&[u8]>, found: Option<&[u8]>) -> bool {
    // A record holds 20 bytes; longer IDs are truncated, shorter ones padded.
    match (recorded, found) {
        (Some(recorded), Some(found)) => {
            let len = recorded.len().min(found.len()).min(20);
            recorded.get(..len) != found.get(..len)
        }
        _ => false,
    }
}
