//! What other tools read: profiles of a program for compilers and linkers.
//!
//! A kind is a file here, and a line in [`ProfileKind`]. Recordings are counted
//! by one walk behind the one cleaner ([`Traces`]), by the pairing rules of the
//! tool that will read the profile; the kind then sums the traces by that tool's
//! other rules, each of which names where it is written.

mod autofdo;
mod binary;
mod debug;
mod edges;
mod firefox;
mod flamegraph;
mod llvm;
#[cfg(feature = "parquet")]
mod parquet;
mod perf_data;
mod pprof;
mod preagg;
mod program;
mod ranges;
mod samples;
mod speedscope;
mod traces;

use std::path::{Path, PathBuf};

use lbr_msr::text::AsText;

use crate::code::maps::Within;
use crate::code::symbols::SymbolError;
use program::Program;

#[cfg(feature = "parquet")]
pub use self::parquet::Parquet;
pub use edges::{EdgeCounts, EdgeRow, EdgeRows};
pub use firefox::firefox;
pub use flamegraph::flamegraph;
pub use perf_data::perf_data;
pub use pprof::pprof;
pub use speedscope::speedscope;
pub use traces::{Rules, Tally, Traced, Traces};

/// Files that are named where one is not there.
const NAMED: usize = 5;

/// A profile of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileKind {
    /// llvm-profgen's own ranges and branches, before lines are looked up:
    /// `llvm-profgen --unsymbolized-profile` reads it.
    LlvmRaw,
    /// LLVM's sample profile as text: `clang -fprofile-sample-use` reads it.
    Llvm,
    /// BOLT's pre-aggregated text, in the letters B, F and f that all versions
    /// take: `perf2bolt -pa` reads it.
    Preagg,
    /// The same in the letters T and B, which BOLT 22 takes.
    PreaggTraces,
    /// AutoFDO's ranges and branches: `create_llvm_prof --profiler=text` and
    /// `create_gcov` read it.
    AutoFdo,
}

impl ProfileKind {
    /// By whose rules recordings are counted for it.
    #[must_use]
    pub fn rules(self) -> Rules {
        match self {
            ProfileKind::LlvmRaw | ProfileKind::Llvm => Rules::Llvm,
            ProfileKind::Preagg | ProfileKind::PreaggTraces => Rules::Bolt,
            ProfileKind::AutoFdo => Rules::AutoFdo,
        }
    }
}

/// What of the recorded branches is not in a profile, and why. Times, unless
/// said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Branches that were recorded.
    pub recorded: u64,
    /// Those with neither end in the program.
    pub outside: u64,
    /// Those that leave the program, where only those that end in it count.
    pub leaving: u64,
    /// Straight code that begins or ends outside.
    pub ranges_outside: u64,
    /// Straight code that cannot have run so.
    pub bogus: u64,
    /// Straight code that counts, and different pieces of it.
    pub ranges: (u64, usize),
    /// Branches that count, and different ones.
    pub branches: (u64, usize),
    /// Instructions that ran and belong to no function of the debug
    /// information.
    pub without_lines: u64,
}

/// A profile was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// No file of the recording has the name that was asked for.
    #[error("no file of the recording is called {name:?}; branches go to {instead}")]
    NoSuchFile {
        /// What was asked for.
        name: String,
        /// The files that most branches go to.
        instead: String,
    },
    /// Nothing that was recorded lies in a program.
    #[error(
        "none of the branches lies in a file that was mapped: text says what was by perf script \
         --show-mmap-events; a program that lies where it was linked is named by --binary FILE"
    )]
    NoFile,
    /// The program is not here.
    #[error(
        "{name} is needed, which was recorded: {why} (--binary FILE or --symfs DIR says where)"
    )]
    NotFound {
        /// As the recording calls it.
        name: String,
        /// What speaks against what was found.
        why: String,
    },
    /// A file was not opened, or is not ELF.
    #[error(transparent)]
    Symbols(#[from] SymbolError),
    /// It has no executable segment.
    #[error("{path} has no code", path = path.as_text())]
    NoCode {
        /// The file.
        path: PathBuf,
    },
    /// A sample profile is of lines, and there are none.
    #[error("{path} has no debug information, which a sample profile is made of: build with -g", path = path.as_text())]
    NoDebug {
        /// The file.
        path: PathBuf,
    },
    /// Its compiler put probes into it, for which the profile has another form.
    #[error("{path} was built with pseudo probes, whose profiles llvm-profgen alone makes: --to llvm-raw is what it reads", path = path.as_text())]
    Probes {
        /// The file.
        path: PathBuf,
    },
}

/// The program that a profile is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramChoice {
    /// The file that most branches go to.
    Hottest,
    /// A file by its name, as perf prints it, or its path.
    Named(String),
    /// This file, whatever lies where it was recorded under this name.
    File(PathBuf),
}

/// A profile, and what is not in it.
#[derive(Debug)]
pub struct Profile {
    /// The text.
    pub text: String,
    /// The program, as the recording calls it.
    pub program: String,
    /// What is not in it.
    pub losses: Losses,
}

impl Traced {
    /// The profile of one program: of a name, as perf prints it, or of the file
    /// that most branches go to.
    ///
    /// # Errors
    /// [`ExportError`].
    pub fn profile(
        &mut self,
        kind: ProfileKind,
        of: &ProgramChoice,
    ) -> Result<Profile, ExportError> {
        let file = self.file(of)?;
        let instead = match of {
            ProgramChoice::File(path) => Some(path.as_path()),
            ProgramChoice::Hottest | ProgramChoice::Named(_) => None,
        };
        if kind == ProfileKind::AutoFdo {
            let file = file.ok_or(ExportError::NoFile)?;
            let program = self.maps.path(file).unwrap_or("[unknown]").to_owned();
            let (text, losses) = autofdo::text(self, file);
            return Ok(Profile { text, program, losses });
        }
        let mut of = Program::of(self, file, instead)?;
        let text = match kind {
            ProfileKind::LlvmRaw => ranges::Ranges::of(&mut of).text(of.binary.base),
            ProfileKind::Llvm => llvm::text(&mut of, &self.maps.sources().debug)?,
            ProfileKind::Preagg => preagg::text(&mut of),
            ProfileKind::PreaggTraces => preagg::traces(&mut of),
            ProfileKind::AutoFdo => String::new(),
        };
        Ok(Profile { text, program: of.name, losses: of.losses })
    }

    /// The file; `None` where nothing says what was mapped: addresses then are those
    /// of the program that is named.
    fn file(&self, of: &ProgramChoice) -> Result<Option<usize>, ExportError> {
        if matches!(of, ProgramChoice::File(_)) && self.maps.files().next().is_none() {
            return Ok(None);
        }
        let name = match of {
            ProgramChoice::Hottest => None,
            ProgramChoice::Named(name) => Some(name.clone()),
            ProgramChoice::File(path) => {
                path.file_name().map(|name| Path::new(name).as_text().into_owned())
            }
        };
        let counts = program::by_file(self);
        let within = Within::files(&self.maps, name.as_slice());
        let path = |file: usize| self.maps.path(file).unwrap_or_default();
        let mut files: Vec<(u64, usize)> =
            self.maps.files().map(|file| (counts.get(&file).copied().unwrap_or(0), file)).collect();
        // Of those that are alike the first.
        files.sort_by_key(|(count, file)| (std::cmp::Reverse(*count), *file));
        let Some(name) = name else {
            // The kernel and what it lends a process are no programs.
            let found =
                files.iter().find(|(count, file)| *count > 0 && !path(*file).starts_with('['));
            return found.map(|(_, file)| Some(*file)).ok_or(ExportError::NoFile);
        };
        let found = files.iter().find(|(_, file)| within.has_file(*file));
        found.map(|(_, file)| Some(*file)).ok_or_else(|| {
            let some = files.iter().take(NAMED).map(|(_, file)| path(*file));
            ExportError::NoSuchFile { name, instead: some.collect::<Vec<_>>().join(", ") }
        })
    }
}
