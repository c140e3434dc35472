//! Where names of addresses come from, as arguments; and what people see of a
//! place in code.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::present::out::say;
use clap::Args;
use profile::lines::Frame;
use profile::maps::{Location, Maps, Named};
use profile::symbols::{Sources, SymbolError};
use serde_json::{Value, json};

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

/// A place as people read it: symbol, else file, else address; and the line
/// where it is known, `foo+0x1a (foo.c:12)`, with the function that was inlined
/// there.
pub(crate) fn place(maps: &mut Maps, location: Location, addr: u64) -> String {
    place_within(maps, location, addr, usize::MAX)
}

/// The same with names of at most so many characters.
pub(crate) fn place_within(maps: &mut Maps, location: Location, addr: u64, most: usize) -> String {
    let mut text = match (maps.name(location), location) {
        (Some(Named { name, offset }), _) => format!("{}+{offset:#x}", shortened(&name, most)),
        (None, Location::File { file, .. }) => {
            let addr = maps.address_of(location, addr).map(|addr| format!("{addr:#x}"));
            let place = addr.unwrap_or_else(|| "[unknown]".to_owned());
            match maps.path(file).map(|path| path.rsplit('/').next().unwrap_or(path)) {
                Some("[unknown]") | None => place,
                Some(name) => format!("{place} ({name})"),
            }
        }
        (None, Location::Address(_)) => format!("{addr:#x}"),
    };
    let frames = maps.frames(location);
    let Some(Frame { function, source: Some(source) }) = frames.first() else { return text };
    text += &format!(" ({}:{}", source.file_name(), source.line);
    if let (Some(function), true) = (function, frames.len() > 1) {
        text += &format!(" {}, inlined", shortened(function, most));
    }
    text.push(')');
    text
}

/// A long name without its middle.
pub(crate) fn shortened(name: &str, most: usize) -> String {
    let chars = name.chars().count();
    if chars <= most {
        return name.to_owned();
    }
    let tail = (most / 2).saturating_sub(1);
    let head: String = name.chars().take(most.saturating_sub(tail + 1)).collect();
    let tail: String = name.chars().skip(chars - tail).collect();
    format!("{head}…{tail}")
}

/// Characters of a name that a row has room for: on a terminal a name of C++
/// would be most of the screen. Whoever reads a file or a pipe gets it whole.
pub(crate) fn room() -> usize {
    const LEAST: usize = 32;
    static ROOM: OnceLock<usize> = OnceLock::new();
    *ROOM.get_or_init(|| {
        let size = terminal_size::terminal_size_of(std::io::stdout());
        size.map_or(usize::MAX, |(width, _)| (usize::from(width.0) / 4).max(LEAST))
    })
}

/// The line of a place, and the functions that were inlined there, for JSON:
/// from the innermost out to the function that stands for itself, each with
/// its line; null where nothing was inlined.
pub(crate) fn source_json(maps: &mut Maps, location: Location) -> (Option<String>, Value) {
    let frames = maps.frames(location);
    let line = |frame: &Frame| frame.source.as_ref().map(ToString::to_string);
    let innermost = frames.first().and_then(line);
    if frames.len() < 2 {
        return (innermost, Value::Null);
    }
    let inlines =
        frames.iter().map(|f| json!({ "function": f.function.as_deref(), "line": line(f) }));
    (innermost, inlines.collect())
}
