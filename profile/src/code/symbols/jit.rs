//! Symbols of generated code: the lists that JIT compilers write for perf (Linux
//! `tools/perf/Documentation/jit-interface.txt`).

use lbr_msr::text::{AsText, hex};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc;

use super::SymbolError;
use super::kernel::{ListedSymbols, each_line};
use super::table::SymbolTable;

/// Maximum size of a list.
const MAX_LIST: u64 = 256 << 20;
/// Maximum length of a line; the rest is ignored.
const MAX_LINE: u64 = 1 << 16;

/// The path of a process's list, if it exists. Does not read it.
pub(crate) fn jit_list(folder: &Path, pid: u32) -> Option<PathBuf> {
    let path = folder.join(format!("perf-{pid}.map"));
    std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()).then_some(path)
}

/// Reads a list: `START SIZE NAME` in hexadecimal, the name up to the end of the line. Later
/// entries replace earlier code.
pub(crate) fn read_jit_list(path: &Path) -> Result<ListedSymbols, SymbolError> {
    let open = |cause| SymbolError::Open { path: path.to_owned(), cause };
    // Anyone can write to /tmp: a link could lead anywhere, and opening a pipe would block.
    let named = std::fs::symlink_metadata(path).map_err(open)?;
    if !named.is_file() {
        return Err(SymbolError::NotAFile(path.to_owned()));
    }
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(open)?;
    let found = file.metadata().map_err(open)?;
    if (found.dev(), found.ino()) != (named.dev(), named.ino()) {
        return Err(SymbolError::NotAFile(path.to_owned()));
    }
    let me = std::fs::metadata("/proc/self").map_err(open)?.uid();
    if found.uid() != 0 && found.uid() != me {
        return Err(SymbolError::Owner(path.to_owned()));
    }
    if found.len() > MAX_LIST {
        return Err(SymbolError::TooLarge { path: path.to_owned(), size: found.len() });
    }
    let mut all = Vec::new();
    each_line(file.take(MAX_LIST), MAX_LINE, |line| {
        let line = line.as_text();
        let mut words = line.trim().splitn(3, ' ');
        let mut number = || hex(words.next()?);
        let (Some(start), Some(size)) = (number(), number()) else { return };
        let name = words.next().unwrap_or_default().trim();
        if size > 0 && !name.is_empty() {
            all.push((start, size, name.to_owned()));
        }
    })
    .map_err(open)?;
    let mut table = SymbolTable::default();
    // Of several at one address, the latest comes first here.
    for (start, size, name) in all.iter().rev() {
        table.push(*start, *size, name, 0);
    }
    table.sort();
    Ok(ListedSymbols::of(table))
}
