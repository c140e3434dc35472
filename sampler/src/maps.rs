//! Mappings, threads and names of processes, from `/proc`.

use lbr_msr::text::AsText;
use std::io;

use lbr_msr::record::{Comm, Event, Mmap};
use nix::libc;

use crate::target::ThreadId;

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) prot: u32,
    pub(crate) shared: bool,
    pub(crate) pgoff: u64,
    pub(crate) dev: (u32, u32),
    pub(crate) ino: u64,
    /// The kernel's name; empty for anonymous memory.
    pub(crate) path: String,
}

impl Mapping {
    pub(crate) fn is_executable(&self) -> bool {
        self.prot & libc::PROT_EXEC as u32 != 0
    }

    /// Whether its bytes can change only through a mapping system call: private, so that other
    /// mappings of the file do not show through, and not writable.
    pub(crate) fn is_fixed(&self) -> bool {
        !self.shared && self.prot & libc::PROT_WRITE as u32 == 0
    }

    /// Whether the byte at a file offset is at this address.
    pub(crate) fn has(&self, address: u64, offset: u64) -> bool {
        (self.start..self.end).contains(&address)
            && self.pgoff.checked_add(address - self.start) == Some(offset)
    }

    /// perf's record for it.
    pub(crate) fn event(&self, time: u64, id: ThreadId) -> Mmap {
        // perf's name for memory without a file.
        let path = if self.path.is_empty() { "//anon" } else { &self.path };
        Mmap {
            time,
            pid: id.pid,
            tid: id.tid,
            addr: self.start,
            len: self.end.saturating_sub(self.start),
            pgoff: self.pgoff,
            dev: self.dev,
            ino: self.ino,
            ino_generation: 0,
            build_id: None,
            prot: self.prot,
            // MAP_* bits, as far as the file shows them.
            flags: (if self.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE }) as u32,
            path: path.to_owned(),
        }
    }
}

/// Whether a process is running. A zombie still has its folder, but no memory.
pub(crate) fn is_running(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// Reads the mappings of the process that a thread belongs to.
pub(crate) fn read(tid: i32) -> io::Result<Vec<Mapping>> {
    let text = std::fs::read(format!("/proc/{tid}/maps"))?;
    Ok(text.as_text().lines().filter_map(parse).collect())
}

/// An event with the name of a thread, at most 15 bytes; `None` if it has ended.
pub(crate) fn comm(id: ThreadId, time: u64, exec: bool) -> Option<Event> {
    let ThreadId { pid, tid } = id;
    let name = std::fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    let comm = name.strip_suffix(b"\n").unwrap_or(&name).as_text().into_owned();
    Some(Event::Comm(Comm { time, pid, tid, comm, exec }))
}

/// The entries of a folder that are numbers: processes of `/proc`, or threads.
pub(crate) fn numbers(folder: &str) -> io::Result<Vec<i32>> {
    let entries = std::fs::read_dir(folder)?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// `start-end perms offset major:minor inode    path`
fn parse(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let mut next = || fields.next();
    let (start, end) = next()?.split_once('-')?;
    let perms = next()?.as_bytes();
    let pgoff = next()?;
    let (major, minor) = next()?.split_once(':')?;
    let ino = next()?;
    let path = next().unwrap_or("").trim_start();
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut prot = 0;
    for (at, letter, bit) in
        [(0, b'r', libc::PROT_READ), (1, b'w', libc::PROT_WRITE), (2, b'x', libc::PROT_EXEC)]
    {
        if perms.get(at) == Some(&letter) {
            prot |= bit as u32;
        }
    }
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        prot,
        shared: perms.get(3) == Some(&b's'),
        pgoff: hex(pgoff)?,
        dev: (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?),
        ino: ino.parse().ok()?,
        path: path.to_owned(),
    })
}

#[cfg(test)]
#[path = "../../tests/sampler/unit/maps.rs"]
mod tests;
