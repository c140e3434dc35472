//! The program that each process of a recording runs, and the one that the recorder
//! was asked for.

use std::collections::{HashMap, HashSet};

use super::Maps;
use super::files::{FileKind, MappedFile};
use super::location_filter::DELETED;

/// Processes at most whose program is kept, and those from which on ended ones are
/// dropped.
const MOST: usize = 1 << 16;
const FEW: usize = 1 << 12;

/// Programs that run others and are recorded only on the way to these; `sleep` says
/// how long a recording of the whole system takes.
const LAUNCHERS: &[&str] = &[
    "bash",
    "busybox",
    "cargo",
    "chroot",
    "chrt",
    "dash",
    "doas",
    "env",
    "fish",
    "gdb",
    "gmake",
    "hyperfine",
    "ionice",
    "ksh",
    "lbr",
    "ltrace",
    "make",
    "nice",
    "ninja",
    "nohup",
    "nsenter",
    "numactl",
    "parallel",
    "perf",
    "rr",
    "runuser",
    "setarch",
    "setpriv",
    "setsid",
    "sh",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "taskset",
    "time",
    "timeout",
    "unshare",
    "xargs",
    "zsh",
];

/// How a program came to run after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum After {
    /// In the same process, by exec.
    Exec(usize),
    /// In a process that the other program forked.
    Fork(usize),
    /// It is the first of its process that was recorded.
    #[default]
    Nothing,
}

/// A process of the recording at hand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Process {
    /// Where the first mapping of its program starts, and the file.
    program: Option<(u64, usize)>,
    after: After,
    /// The program that forked it.
    parent: Option<usize>,
}

/// The programs of all recordings.
#[derive(Debug, Default)]
pub(super) struct Programs {
    pub(super) processes: HashMap<u32, Process>,
    /// Every program, with what ran before it.
    started: HashSet<(usize, After)>,
    /// The recorders' command lines, without their first words.
    pub(super) words: Vec<String>,
}

/// The programs of a recording that branches lie in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedPrograms {
    /// The one that was to be recorded.
    pub main: usize,
    /// The others, the one with most branches first.
    pub others: Vec<usize>,
    /// It only runs other programs, none of which was recorded.
    pub is_launcher: bool,
}

impl Programs {
    /// This recording's file is not that of earlier recordings with the same path.
    pub(super) fn part(&mut self, earlier: usize, own: usize) {
        let starts = self.started.iter().filter(|(file, _)| *file == earlier);
        let starts: Vec<_> = starts.map(|(_, after)| (own, *after)).collect();
        self.started.extend(starts);
    }

    fn process(&mut self, pid: u32) -> Option<&mut Process> {
        if self.processes.len() >= MOST && !self.processes.contains_key(&pid) {
            return None;
        }
        Some(self.processes.entry(pid).or_default())
    }

    pub(super) fn fork(&mut self, pid: u32, parent: u32) {
        let runs = self.processes.get(&parent);
        let parent = runs.and_then(|runs| runs.program.map(|(_, file)| file).or(runs.parent));
        if let Some(process) = self.process(pid) {
            *process = Process { parent, ..Process::default() };
        }
    }

    /// Only programs from an exec on were started by the parent: perf synthesizes forks
    /// of processes that run already.
    pub(super) fn exec(&mut self, pid: u32) {
        let Some(process) = self.process(pid) else { return };
        process.after = match (process.program.take(), process.parent) {
            (Some((_, program)), _) => After::Exec(program),
            (None, Some(parent)) => After::Fork(parent),
            (None, None) => After::Nothing,
        };
    }

    pub(super) fn exit(&mut self, pid: u32) {
        // Samples of other CPUs may come after it.
        if self.processes.len() > FEW {
            self.processes.remove(&pid);
        }
    }

    /// A process maps a file that may be a program.
    pub(super) fn mapped(&mut self, pid: u32, start: u64, len: u64, file: usize) {
        let Some(process) = self.process(pid) else { return };
        // Recorders before Linux 3.16 do not mark an exec: a new program lies
        // where the old one lay.
        let covers = |addr: u64| addr.checked_sub(start).is_some_and(|within| within < len);
        match process.program {
            Some((addr, _)) if !covers(addr) => return,
            Some((_, known)) if known == file => return,
            Some((_, known)) => process.after = After::Exec(known),
            None => {}
        }
        process.program = Some((start, file));
        let started = (file, process.after);
        self.started.insert(started);
    }
}

impl Maps {
    /// The file that a process of the current recording runs, if known.
    pub(crate) fn program_of(&self, pid: u32) -> Option<usize> {
        Some(self.programs.processes.get(&pid)?.program?.1)
    }

    /// The program that was to be recorded, of those that branches lie in
    /// (`branches`, by file): not one that only runs others, nor one that has
    /// replaced itself by another or was started by another of them. Of several, the
    /// one of the recorder's command line, then the one with most branches.
    pub fn recorded_programs(&self, branches: &HashMap<usize, u64>) -> Option<RecordedPrograms> {
        let count = |file: &usize| branches.get(file).copied().unwrap_or(0);
        let mut all = self.programs();
        if all.is_empty() {
            // The kernel and the code that it lends a process have names in brackets.
            all.extend(
                self.files()
                    .filter(|file| count(file) > 0 && !self.short_path(*file).starts_with('[')),
            );
            only_if_any(&mut all, |file| !self.path(file).is_some_and(is_library));
        }
        only_if_any(&mut all, |file| count(&file) > 0);
        all.sort_by_key(|file| (std::cmp::Reverse(count(file)), *file));
        let is_launcher = all.iter().all(|file| self.is_launcher(*file));
        let left = self.leading(all.clone());
        let named = self.programs.words.iter().find_map(|word| {
            let word = short(word);
            left.iter().find(|file| self.short_path(**file) == word)
        });
        let main = *named.or(left.first())?;
        let others = all.into_iter().filter(|file| *file != main).collect();
        Some(RecordedPrograms { main, others, is_launcher })
    }

    /// Which files are the recorded program's own, by file: programs, libraries that
    /// are not the system's, and generated code. `None` where the recording does not
    /// show one program that was to be recorded.
    pub(crate) fn own_files(&self) -> Option<Vec<bool>> {
        let programs = self.programs();
        let left = self.leading(programs.clone());
        let mut names: Vec<&str> = left.iter().map(|file| self.short_path(*file)).collect();
        names.sort_unstable();
        names.dedup();
        let is_named = |name: &&str| self.programs.words.iter().any(|word| short(word) == *name);
        if names.is_empty() || names.len() > 1 && !names.iter().any(is_named) {
            return None;
        }
        let is_own = |(file, known): (usize, &MappedFile)| match known.kind {
            FileKind::Elf => programs.contains(&file) || !is_of_system(&known.path),
            FileKind::Jit { .. } => true,
            _ => false,
        };
        Some(self.files.iter().enumerate().map(is_own).collect())
    }

    /// Every program that a process ran, each once.
    pub(crate) fn programs(&self) -> Vec<usize> {
        let files: HashSet<usize> = self.programs.started.iter().map(|(file, _)| *file).collect();
        files.into_iter().collect()
    }

    /// Drops the programs that only run others, then those that another of them has replaced, and
    /// then those that run only where another of them has forked.
    fn leading(&self, mut left: Vec<usize>) -> Vec<usize> {
        only_if_any(&mut left, |file| !self.is_launcher(file));
        let started = &self.programs.started;
        let among = left.clone();
        only_if_any(&mut left, |file| {
            !started
                .iter()
                .any(|(by, after)| *after == After::Exec(file) && *by != file && among.contains(by))
        });
        let among = left.clone();
        only_if_any(&mut left, |file| {
            let mut starts = started.iter().filter(|(of, _)| *of == file);
            let follows = |after: &After| matches!(after, After::Fork(parent) if *parent != file && among.contains(parent));
            starts.any(|(_, after)| !follows(after)) || !started.iter().any(|(of, _)| *of == file)
        });
        left
    }

    fn is_launcher(&self, file: usize) -> bool {
        LAUNCHERS.contains(&self.short_path(file))
    }

    fn short_path(&self, file: usize) -> &str {
        short(self.path(file).unwrap_or_default())
    }

    /// Notes a mapping of a file that may be a program.
    pub(super) fn note_program(&mut self, pid: u32, (start, len): (u64, u64), file: usize) {
        let known = self.files.get(file).filter(|known| known.kind == FileKind::Elf);
        if known.is_some_and(|known| !is_library(&known.path)) {
            self.programs.mapped(pid, start, len, file);
        }
    }
}

/// Keeps only the files that match, unless none does.
fn only_if_any(files: &mut Vec<usize>, is: impl Fn(usize) -> bool) {
    if files.iter().any(|file| is(*file)) {
        files.retain(|file| is(*file));
    }
}

/// The last part of a path, without what the kernel appends to the path of a
/// deleted file.
fn short(path: &str) -> &str {
    let path = path.strip_suffix(DELETED).unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a file lies where systems keep their libraries.
fn is_of_system(path: &str) -> bool {
    const FOLDERS: [&str; 7] =
        ["/lib/", "/lib32/", "/lib64/", "/libx32/", "/libexec/", "/nix/store/", "/gnu/store/"];
    let path = path.strip_prefix("/usr").unwrap_or(path);
    FOLDERS.iter().any(|folder| path.starts_with(folder))
}

/// Whether a name is that of a library, or of the dynamic linker: `libc.so.6`,
/// `ld-linux-x86-64.so.2`.
fn is_library(path: &str) -> bool {
    let name = short(path);
    name.ends_with(".so") || name.contains(".so.")
}
