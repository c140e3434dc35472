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
mod units;

use std::path::{Path, PathBuf};

use lbr_msr::text::AsText;

use crate::code::maps::{RecordedPrograms, Within};
use crate::code::symbols::{Module, SymbolError};
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
    /// Executed instructions; 0 for kinds that do not look at each.
    pub instructions: u64,
    /// Those of them that no function of the debug information has.
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
    /// No branch of the program is in the recording.
    #[error("the profile would be empty: no branch that counts lies in {name}; {instead}")]
    Empty {
        /// As the recording calls it.
        name: String,
        /// Where branches lie, and how to ask for a profile of that.
        instead: String,
    },
    /// Only a program that runs others was recorded.
    #[error(
        "{name} only runs other programs, and none of them was recorded ({why}): record the \
         program itself, or its processes too (lbr record --children); --dso NAME names a file of \
         the recording"
    )]
    OnlyLauncher {
        /// As the recording calls it.
        name: String,
        /// Why there is no profile of it.
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
    /// The compiler put the debug information into files that are not there.
    #[error(
        "{path} has its debug information in other files (split DWARF), which are not there: {files}; \
         they are looked for where the compiler put them, next to the program, and packed as {path}.dwp",
        path = path.as_text()
    )]
    NoPieces {
        /// The file.
        path: PathBuf,
        /// The files that are missing.
        files: String,
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
    /// The program that was recorded; if the recording does not show it, the file with
    /// most branches, a library only if there is nothing else.
    Recorded,
    /// A file by its name, as perf prints it, or its path.
    Named(String),
    /// A file by its index in the recording's maps.
    Indexed(usize),
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
    /// Other programs of the recording with branches, if none was named.
    pub others: Vec<String>,
    /// It only runs other programs, none of which was recorded.
    pub is_launcher: bool,
    /// Files of split debug information that are not there.
    pub missing: Vec<String>,
    /// Functions without line information that a profile of lines lacks, with their
    /// executed instructions, the most first; without start-up code and stubs.
    pub unknown: Vec<(String, u64)>,
    /// What is not in it.
    pub losses: Losses,
}

/// The file that a profile is of.
struct Chosen {
    /// `None` where nothing says what was mapped: addresses then are those of the
    /// program that is named.
    file: Option<usize>,
    others: Vec<usize>,
    is_launcher: bool,
}

impl Traced {
    /// The profile of one program.
    ///
    /// # Errors
    /// [`ExportError`].
    pub fn profile(
        &mut self,
        kind: ProfileKind,
        of: &ProgramChoice,
    ) -> Result<Profile, ExportError> {
        let Chosen { file, others, is_launcher } = self.choose(of)?;
        let mut lacks = llvm::Lacks::default();
        let made = self.profile_of(kind, of, file, &mut lacks);
        let (text, program, losses) = made.map_err(|error| match error {
            why @ (ExportError::Empty { .. } | ExportError::NoDebug { .. }) if is_launcher => {
                let name = file.and_then(|file| self.maps.path(file)).unwrap_or_default();
                ExportError::OnlyLauncher { name: name.to_owned(), why: why.to_string() }
            }
            error => error,
        })?;
        let path = |file: usize| self.maps.path(file).map(str::to_owned);
        let others = others.into_iter().filter_map(path).collect();
        let llvm::Lacks { missing, unknown } = lacks;
        Ok(Profile { text, program, others, is_launcher, missing, unknown, losses })
    }

    fn profile_of(
        &mut self,
        kind: ProfileKind,
        of: &ProgramChoice,
        file: Option<usize>,
        lacks: &mut llvm::Lacks,
    ) -> Result<(String, String, Losses), ExportError> {
        let instead = match of {
            ProgramChoice::File(path) => Some(path.as_path()),
            _ => None,
        };
        let (text, name, losses) = if kind == ProfileKind::AutoFdo {
            let file = file.ok_or(ExportError::NoFile)?;
            // The bytes are not needed, but another build deserves a warning.
            if let Some(path) = instead {
                self.maps.check_build(file, &Module::open(path)?)?;
            } else if self.maps.path(file).is_some_and(|path| Path::new(path).exists()) {
                self.maps.elf(file);
            }
            let (text, losses) = autofdo::text(self, file);
            (text, self.maps.path(file).unwrap_or("[unknown]").to_owned(), losses)
        } else {
            let mut of = Program::of(self, file, instead)?;
            let text = match kind {
                ProfileKind::LlvmRaw => ranges::Ranges::of(&mut of).text(of.binary.base),
                ProfileKind::Llvm => llvm::text(&mut of, &self.maps.sources().debug, lacks)?,
                ProfileKind::Preagg => preagg::text(&mut of),
                ProfileKind::PreaggTraces => preagg::traces(&mut of),
                ProfileKind::AutoFdo => String::new(),
            };
            (text, of.name, of.losses)
        };
        if losses.branches.0 == 0 && losses.ranges.0 == 0 {
            let instead = match losses.recorded {
                0 => "nothing that was recorded is of the selection".to_owned(),
                _ => format!("branches go to {} (--dso NAME)", self.most_branches()),
            };
            return Err(ExportError::Empty { name, instead });
        }
        Ok((text, name, losses))
    }

    fn choose(&self, of: &ProgramChoice) -> Result<Chosen, ExportError> {
        let name = match of {
            ProgramChoice::Recorded => return self.choose_recorded(),
            ProgramChoice::Indexed(file) => {
                return Ok(Chosen { file: Some(*file), others: Vec::new(), is_launcher: false });
            }
            ProgramChoice::Named(name) => name.clone(),
            ProgramChoice::File(_) if self.maps.files().next().is_none() => {
                return Ok(Chosen { file: None, others: Vec::new(), is_launcher: false });
            }
            ProgramChoice::File(path) => path
                .file_name()
                .map(|name| Path::new(name).as_text().into_owned())
                .unwrap_or_default(),
        };
        let within = Within::files(&self.maps, std::slice::from_ref(&name));
        let files = self.by_branches();
        let mut found = files.iter().find(|(_, file)| within.has_file(*file));
        // A copy under another name has the same build id.
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
            Some((_, file)) => {
                Ok(Chosen { file: Some(*file), others: Vec::new(), is_launcher: false })
            }
            None => Err(ExportError::NoSuchFile { name, instead: self.most_branches() }),
        }
    }

    fn choose_recorded(&self) -> Result<Chosen, ExportError> {
        let recorded = self.maps.recorded_programs(&program::by_file(self));
        let RecordedPrograms { main, others, is_launcher } = recorded.ok_or(ExportError::NoFile)?;
        Ok(Chosen { file: Some(main), others, is_launcher })
    }

    /// The programs and libraries that branches go to, the one with most first.
    #[must_use]
    pub fn files(&self) -> Vec<usize> {
        let is_file = |file: usize| self.maps.path(file).is_some_and(|path| path.starts_with('/'));
        let files = self.by_branches().into_iter().filter(|(count, _)| *count > 0);
        files.map(|(_, file)| file).filter(|file| is_file(*file)).collect()
    }

    /// Files with the branches that go to them, the most first; of those that are
    /// alike the first.
    fn by_branches(&self) -> Vec<(u64, usize)> {
        let counts = program::by_file(self);
        let count = |file: usize| (counts.get(&file).copied().unwrap_or(0), file);
        let mut files: Vec<(u64, usize)> = self.maps.files().map(count).collect();
        files.sort_by_key(|(count, file)| (std::cmp::Reverse(*count), *file));
        files
    }

    /// The files that most branches go to, in words.
    fn most_branches(&self) -> String {
        let files = self.by_branches().into_iter().filter(|(count, _)| *count > 0).take(NAMED);
        let names: Vec<&str> = files.filter_map(|(_, file)| self.maps.path(file)).collect();
        if names.is_empty() { "no file".to_owned() } else { names.join(", ") }
    }
}

/// The first few of some names.
fn some_of(names: &[String]) -> String {
    let more = if names.len() > NAMED { ", …" } else { "" };
    let some: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    some.join(", ") + more
}
