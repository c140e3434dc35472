//! Where names of addresses come from, as arguments.

use std::path::PathBuf;

use crate::present::out::say;
use clap::Args;
use profile::maps::Maps;
use profile::symbols::{Sources, SymbolError};

/// Where names are looked for beside the files that were mapped.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Symbols")]
pub(crate) struct SymbolArgs {
    /// Names of the kernel's functions, in the format of /proc/kallsyms: those
    /// of the kernel that was recorded. Without it /proc/kallsyms is read, if
    /// that kernel runs here.
    #[arg(long, value_name = "FILE")]
    kallsyms: Option<PathBuf>,
    /// The ELF file of the kernel that was recorded, for the names and source
    /// lines of its functions. Without it the one with the same build id is
    /// looked for below /usr/lib/debug, in /boot, in the folder that the kernel
    /// was built in, and in perf's cache.
    #[arg(long, value_name = "FILE")]
    vmlinux: Option<PathBuf>,
    /// Look for debug files here too, before /usr/lib/debug: by build id
    /// (.build-id/xx/yyy.debug), or under the program's own folder. Several
    /// may be given.
    #[arg(long, value_name = "DIR")]
    debug_dir: Vec<PathBuf>,
    /// Leave source lines and inlined functions out.
    #[arg(long)]
    no_source: bool,
}

impl SymbolArgs {
    /// Makes them count.
    pub(crate) fn apply(&self, maps: &mut Maps) {
        let none = self.kallsyms.is_none() && self.vmlinux.is_none() && self.debug_dir.is_empty();
        if none && !self.no_source {
            return;
        }
        maps.set_sources(self.sources(maps.sources()));
    }

    /// Sources with what was given among them.
    pub(crate) fn sources(&self, others: &Sources) -> Sources {
        let mut sources = others.clone();
        sources.kallsyms.clone_from(&self.kallsyms);
        sources.vmlinux.clone_from(&self.vmlinux);
        sources.debug.roots.splice(0..0, self.debug_dir.iter().cloned());
        sources.lines = !self.no_source;
        sources
    }
}

/// Says on standard error why files gave no names.
pub(crate) fn warn(maps: &Maps) {
    if profile::lines::was_cut() {
        say!(
            "a file with debug information was cut short while it was read: its source lines are \
             left out"
        );
    }
    for failure in maps.failures() {
        let hint = match failure {
            SymbolError::OtherKernel { .. } | SymbolError::UnknownKernel => {
                "; --kallsyms FILE or --vmlinux FILE gives those of the recorded kernel"
            }
            _ => "",
        };
        say!("no names for its addresses: {failure}{hint}");
    }
}
