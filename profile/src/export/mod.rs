//! Exports profiles of a program for other tools: compilers, optimizers, viewers.
//!
//! Each kind is a file here and a variant of [`ProfileKind`]. Recordings are cleaned as for every
//! view, then counted once ([`Traces`]) by the pairing rules of the consuming tool. The kind sums
//! the traces by that tool's other rules; comments name the functions that define them.

mod binary;
mod debug;
mod edges;
mod llvm;
#[cfg(feature = "parquet")]
mod parquet;
mod perf_data;
mod pprof;
mod program;
mod ranges;
mod samples;
mod traces;
mod units;
mod viewers;

use std::path::{Path, PathBuf};

use lbr_msr::text::AsText;

use crate::code::maps::{LocationFilter, RecordedPrograms};
use crate::code::symbols::{Module, SymbolError};
use program::Program;
use ranges::Ranges;

#[cfg(feature = "parquet")]
pub use self::parquet::Parquet;
pub use edges::{EdgeCounts, EdgeRow, EdgeRows};
pub use perf_data::perf_data;
pub use pprof::pprof;
pub use traces::{Tally, Traced, Traces};
pub use viewers::{firefox, flamegraph, speedscope};

/// Maximum number of files listed in an error.
const NAMED: usize = 5;

/// A profile of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileKind {
    /// llvm-profgen's own ranges and branches, before line lookup; input of `llvm-profgen
    /// --unsymbolized-profile`.
    LlvmRaw,
    /// LLVM's sample profile as text; input of `clang -fprofile-sample-use`.
    Llvm,
    /// BOLT's pre-aggregated text with the letters B, F and f, which all versions accept; input of
    /// `perf2bolt -pa`.
    Preagg,
    /// The same with the letters T and B, for BOLT 22.
    PreaggTraces,
    /// AutoFDO's ranges and branches; input of `create_llvm_prof --profiler=text` and
    /// `create_gcov`.
    AutoFdo,
}

/// Recorded branches that are missing from a profile, by reason. Fields are execution counts unless
/// noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// All recorded branches.
    pub recorded: u64,
    /// Branches with neither end in the program.
    pub outside: u64,
    /// Branches that leave the program, if the format counts only those that end in it.
    pub leaving: u64,
    /// Fall-through ranges that start or end outside.
    pub ranges_outside: u64,
    /// Fall-through ranges that are impossible.
    pub bogus: u64,
    /// Counted fall-through ranges: executions, and number of distinct ranges.
    pub ranges: (u64, usize),
    /// Counted branches: executions, and number of distinct branches.
    pub branches: (u64, usize),
    /// Executed instructions; 0 for kinds that do not count them.
    pub instructions: u64,
    /// Executed instructions outside of all functions in the debug information.
    pub without_lines: u64,
}

/// Why a profile was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The recording has no file of the requested name.
    #[error("no file of the recording is called {name:?}; branches are in {instead}")]
    NoSuchFile {
        /// The requested name.
        name: String,
        /// The files with the most branches.
        instead: String,
    },
    /// No branch is in a known file.
    #[error(
        "none of the branches is in a mapped file: text input needs the mappings (perf script \
         --show-mmap-events); for a program at its link address use --binary FILE"
    )]
    NoFile,
    /// The program is unavailable.
    #[error("the recorded program {name} is needed: {why} (use --binary FILE or --symfs DIR)")]
    NotFound {
        /// Its name in the recording.
        name: String,
        /// Why the file found was rejected.
        why: String,
    },
    /// The recording has no branches in the program.
    #[error("the profile would be empty: no countable branch is in {name}; {instead}")]
    Empty {
        /// Its name in the recording.
        name: String,
        /// Files that have branches, and how to select them.
        instead: String,
    },
    /// Only a program that launches others was recorded.
    #[error(
        "{name} only launches other programs, none of which was recorded ({why}): record the \
         program itself, or also its child processes (lbr record --children); --dso NAME selects \
         a file of the recording"
    )]
    OnlyLauncher {
        /// Its name in the recording.
        name: String,
        /// Why it cannot be profiled.
        why: String,
    },
    /// A file could not be opened, or is not ELF.
    #[error(transparent)]
    Symbols(#[from] SymbolError),
    /// It has no executable segment.
    #[error("{} has no code", .0.as_text())]
    NoCode(PathBuf),
    /// The debug information is in separate files, which are missing.
    #[error(
        "{path} has its debug information in other files (split DWARF), which are not there: {files}; \
         they are looked for where the compiler put them, next to the program, and packed as {path}.dwp",
        path = path.as_text()
    )]
    NoPieces {
        /// The file.
        path: PathBuf,
        /// The missing files.
        files: String,
    },
    /// A sample profile needs line information.
    #[error("{} has no debug information, which a sample profile needs: build with -g", .0.as_text())]
    NoDebug(PathBuf),
    /// It was compiled with pseudo probes, which require another profile format.
    #[error("{} was built with pseudo probes, which only llvm-profgen supports: use --to llvm-raw and pass the result to it", .0.as_text())]
    Probes(PathBuf),
}

/// The program to profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramChoice {
    /// The recorded program. If the recording does not show it, the file with most branches; a
    /// library only as a last resort.
    Recorded,
    /// The file with this name, as printed by perf, or path.
    Named(String),
    /// The file with this index in the recording's maps.
    Indexed(usize),
    /// This file, in place of the recorded file of the same name.
    File(PathBuf),
}

/// A profile, with statistics on what it omits.
#[derive(Debug, Default)]
pub struct Profile {
    /// The text.
    pub text: String,
    /// The program's name in the recording.
    pub program: String,
    /// Other recorded programs with branches, if none was requested.
    pub others: Vec<String>,
    /// The program only launches others, none of which was recorded.
    pub is_launcher: bool,
    /// Missing files of split debug information.
    pub missing: Vec<String>,
    /// Functions omitted for lack of line information, with their executed instructions, in
    /// descending order; without start-up code and stubs.
    pub unknown: Vec<(String, u64)>,
    /// Branches that it omits.
    pub losses: Losses,
}

impl Traced {
    /// Makes a profile of one program.
    ///
    /// # Errors
    /// [`ExportError`].
    pub fn profile(
        &mut self,
        kind: ProfileKind,
        of: &ProgramChoice,
    ) -> Result<Profile, ExportError> {
        let chosen = self.choose(of)?;
        let file = chosen.as_ref().map(|chosen| chosen.main);
        let is_launcher = chosen.as_ref().is_some_and(|chosen| chosen.is_launcher);
        let mut profile = Profile { is_launcher, ..Profile::default() };
        self.fill(&mut profile, kind, of, file).map_err(|error| match error {
            why @ (ExportError::Empty { .. } | ExportError::NoDebug(..)) if is_launcher => {
                let name = file.and_then(|file| self.maps.path(file)).unwrap_or_default();
                ExportError::OnlyLauncher { name: name.to_owned(), why: why.to_string() }
            }
            error => error,
        })?;
        let path = |file: usize| self.maps.path(file).map(str::to_owned);
        let others = chosen.into_iter().flat_map(|chosen| chosen.others);
        profile.others = others.filter_map(path).collect();
        Ok(profile)
    }

    fn fill(
        &mut self,
        profile: &mut Profile,
        kind: ProfileKind,
        of: &ProgramChoice,
        file: Option<usize>,
    ) -> Result<(), ExportError> {
        let instead = if let ProgramChoice::File(path) = of { Some(path.as_path()) } else { None };
        if kind == ProfileKind::AutoFdo {
            let file = file.ok_or(ExportError::NoFile)?;
            // The contents are not needed, but a different build deserves a warning.
            if let Some(path) = instead {
                self.maps.check_build(file, &Module::open(path)?)?;
            } else if self.maps.path(file).is_some_and(|path| Path::new(path).exists()) {
                self.maps.elf(file);
            }
            let (ranges, losses) = Ranges::of_file(self, file);
            profile.text = ranges.text(0, "0\n");
            profile.program = self.maps.path(file).unwrap_or("[unknown]").to_owned();
            profile.losses = losses;
        } else {
            let mut of = Program::of(self, file, instead)?;
            profile.text = match kind {
                ProfileKind::LlvmRaw => Ranges::of(&mut of).text(of.binary.base, ""),
                ProfileKind::Llvm => llvm::text(&mut of, &self.maps.sources().debug, profile)?,
                ProfileKind::Preagg => ranges::bolt(&mut of),
                ProfileKind::PreaggTraces => ranges::bolt_traces(&mut of),
                ProfileKind::AutoFdo => String::new(),
            };
            (profile.program, profile.losses) = (of.name, of.losses);
        }
        let Losses { recorded, branches, ranges, .. } = profile.losses;
        if branches.0 > 0 || ranges.0 > 0 {
            return Ok(());
        }
        let instead = match recorded {
            0 => "nothing recorded matches the selection".to_owned(),
            _ => format!("branches are in {} (--dso NAME)", self.most_branches()),
        };
        Err(ExportError::Empty { name: std::mem::take(&mut profile.program), instead })
    }

    /// The chosen file. `None` if the recording has no mappings: addresses are then taken as the
    /// requested program's.
    fn choose(&self, of: &ProgramChoice) -> Result<Option<RecordedPrograms>, ExportError> {
        let only = |main| RecordedPrograms { main, others: Vec::new(), is_launcher: false };
        let name = match of {
            ProgramChoice::Recorded => {
                let recorded = self.maps.recorded_programs(&program::by_file(self));
                return recorded.map(Some).ok_or(ExportError::NoFile);
            }
            ProgramChoice::Indexed(file) => return Ok(Some(only(*file))),
            ProgramChoice::Named(name) => name.clone(),
            ProgramChoice::File(_) if self.maps.files().next().is_none() => return Ok(None),
            ProgramChoice::File(path) => path
                .file_name()
                .map(|name| Path::new(name).as_text().into_owned())
                .unwrap_or_default(),
        };
        let within = LocationFilter::files(&self.maps, std::slice::from_ref(&name));
        let files = self.by_branches();
        let mut found = files.iter().find(|(_, file)| within.has_file(*file));
        // A copy with another name has the same build id.
        if let (None, ProgramChoice::File(path)) = (found, of)
            && let Ok(module) = Module::open(path)
            && module.build_id().is_some()
        {
            let is = |file: usize| {
                self.maps.build_id(file).is_some() && self.maps.check_build(file, &module).is_ok()
            };
            found = files.iter().find(|(_, file)| is(*file));
        }
        match found {
            Some((_, file)) => Ok(Some(only(*file))),
            None => Err(ExportError::NoSuchFile { name, instead: self.most_branches() }),
        }
    }

    /// The programs and libraries with branches, in descending order of their number.
    pub fn files(&self) -> Vec<usize> {
        let is_file = |file: usize| self.maps.path(file).is_some_and(|path| path.starts_with('/'));
        let files = self.by_branches().into_iter().filter(|(count, _)| *count > 0);
        files.map(|(_, file)| file).filter(|file| is_file(*file)).collect()
    }

    /// Files with their number of branches, in descending order; ties are in the order of the maps.
    fn by_branches(&self) -> Vec<(u64, usize)> {
        let counts = program::by_file(self);
        let count = |file: usize| (counts.get(&file).copied().unwrap_or(0), file);
        let mut files: Vec<(u64, usize)> = self.maps.files().map(count).collect();
        files.sort_by_key(|(count, file)| (std::cmp::Reverse(*count), *file));
        files
    }

    /// Lists the files with the most branches.
    fn most_branches(&self) -> String {
        let files = self.by_branches().into_iter().filter(|(count, _)| *count > 0).take(NAMED);
        let names: Vec<&str> = files.filter_map(|(_, file)| self.maps.path(file)).collect();
        if names.is_empty() { "no file".to_owned() } else { names.join(", ") }
    }
}

/// Lists the first few names.
fn some_of(names: &[String]) -> String {
    let more = if names.len() > NAMED { ", …" } else { "" };
    let some: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    some.join(", ") + more
}
