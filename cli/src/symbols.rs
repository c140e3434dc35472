//! Sources of symbols, as arguments.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::args::heading;
use crate::present::{counted, say};
use clap::Args;
use lbr_msr::text::AsText;
use profile::maps::{Maps, Unkept};
use profile::symbols::{Sources, SymbolError};

/// Where symbols are looked up, in addition to the mapped files.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = heading::SYMBOLS)]
pub(crate) struct SymbolArgs {
    /// Kernel symbols, in the format of /proc/kallsyms
    ///
    /// They must be those of the recorded kernel. By default /proc/kallsyms is read if that kernel
    /// is running.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    kallsyms: Option<PathBuf>,
    /// ELF file of the recorded kernel, for symbols and source lines
    ///
    /// By default the file with the same build ID, if it is below /usr/lib/debug, in /boot, in the
    /// kernel's build directory or in perf's cache.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    vmlinux: Option<PathBuf>,
    /// Look for the recorded programs and libraries below DIR
    ///
    /// /usr/bin/foo is DIR/usr/bin/foo or DIR/foo; its debug file may be below DIR/usr/lib/debug.
    /// This machine's own files are not used then.
    #[arg(long, value_name = "DIR")]
    symfs: Option<PathBuf>,
    /// Look here first for recorded files and debug files
    ///
    /// Searched before /usr/lib/debug: by build ID (.build-id/xx/yyy, .build-id/xx/yyy.debug),
    /// under the program's own path, and for programs under the name alone. May be repeated.
    #[arg(long, value_name = "DIR")]
    debug_dir: Vec<PathBuf>,
    /// Skip source lines and inlined functions
    #[arg(long)]
    no_source: bool,
}

impl SymbolArgs {
    /// Files that are read besides recordings, and so must not be outputs.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.kallsyms.iter().chain(&self.vmlinux)
    }

    /// Applies them.
    pub(crate) fn apply(&self, maps: &mut Maps) {
        let files = [&self.kallsyms, &self.vmlinux, &self.symfs];
        let none = files.into_iter().all(Option::is_none) && self.debug_dir.is_empty();
        if none && !self.no_source {
            return;
        }
        maps.set_sources(self.sources(maps.sources()));
    }

    /// `others`, with the given files added.
    pub(crate) fn sources(&self, others: &Sources) -> Sources {
        let mut sources = others.clone();
        sources.kallsyms.clone_from(&self.kallsyms);
        sources.vmlinux.clone_from(&self.vmlinux);
        let debug = &mut sources.debug;
        // Build ids count in files with absolute paths only.
        let absolute = |dir: &PathBuf| std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
        debug.symfs = self.symfs.as_ref().map(absolute);
        debug.programs = self.debug_dir.iter().map(absolute).collect();
        let symfs = debug.symfs.iter().flat_map(|dir| [dir.clone(), dir.join("usr/lib/debug")]);
        let given: Vec<PathBuf> = debug.programs.iter().cloned().chain(symfs).collect();
        debug.roots.splice(0..0, given);
        sources.lines = !self.no_source;
        sources
    }
}

/// Prints on standard error which files gave no symbols, why, and a remedy.
pub(crate) fn warn(all: &[&Maps]) {
    for file in profile::lines::cut_files() {
        say!("{} was cut short while it was read: its source lines are missing", file.as_text());
    }
    for Unkept { mappings, processes } in all.iter().map(|maps| maps.unkept()) {
        if mappings + processes == 0 {
            continue;
        }
        say!(
            "more is mapped than is kept in memory (131,072 mappings of a process, 262,144 files, \
             65,536 processes at a time): {} and {} were given up, whose branches have no names",
            counted(mappings, "mapping", "mappings"),
            counted(processes, "process", "processes")
        );
    }
    let (mut by_id, mut by_path, mut kernel) = (false, false, false);
    let mut printed = HashSet::new();
    for failure in all.iter().flat_map(|maps| maps.failures()) {
        if !printed.insert(failure.to_string()) {
            continue;
        }
        match failure {
            SymbolError::NotFound { build_id: Some(_), .. } => by_id = true,
            SymbolError::BuildId { .. } => by_id = true,
            SymbolError::NotFound { .. } => by_path = true,
            failure => by_path |= failure.is_other_file(),
        }
        kernel |= matches!(failure, SymbolError::OtherKernel { .. } | SymbolError::UnknownKernel);
        say!("no names for its addresses: {failure}");
    }
    if by_id {
        say!(
            "the files that were recorded give names: perf buildid-cache --add FILE, or --symfs DIR \
             or --debug-dir DIR with a folder that has them"
        );
    } else if by_path {
        say!(
            "the files that were recorded give names: --symfs DIR or --debug-dir DIR with a folder that has them"
        );
    }
    if kernel {
        say!("--kallsyms FILE or --vmlinux FILE gives the names of the recorded kernel");
    }
}
