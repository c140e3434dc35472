//! Running at full speed to the address where recording starts.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// INT3.
const BREAKPOINT: u8 = 0xcc;
/// Auxiliary vector: entry address of the program.
const AT_ENTRY: u64 = 9;

/// The breakpoint that the first thread to reach it starts recording at.
#[derive(Debug)]
pub(super) struct Start {
    /// Its address in the target.
    pub(super) address: u64,
    original: u8,
    /// Processes whose memory contains the breakpoint.
    armed: HashSet<u32>,
}

impl Start {
    /// Sets a breakpoint at address `asked` of the program that process `pid` has just started.
    /// `entry` is `e_entry` of its file.
    pub(super) fn arm(pid: u32, asked: u64, entry: u64) -> io::Result<Start> {
        let address = relocated(pid, asked, entry)?;
        let mut original = [0u8];
        let memory = memory(pid)?;
        memory.read_exact_at(&mut original, address)?;
        memory.write_all_at(&[BREAKPOINT], address)?;
        let [original] = original;
        Ok(Start { address, original, armed: HashSet::from([pid]) })
    }

    /// A process has forked `child`, which has the breakpoint too.
    pub(super) fn inherited(&mut self, pid: u32, child: u32) {
        if self.armed.contains(&pid) {
            self.armed.insert(child);
        }
    }

    /// A process has replaced its memory: by exec, or by its end.
    pub(super) fn dropped(&mut self, pid: u32) {
        self.armed.remove(&pid);
    }

    /// Removes the breakpoint from one process. One that has just died has no memory left to
    /// restore.
    pub(super) fn disarm(&mut self, pid: u32) {
        if self.armed.remove(&pid)
            && let Ok(memory) = memory(pid)
        {
            let _ = memory.write_all_at(&[self.original], self.address);
        }
    }
}

/// The memory of a process: its tracer can write read-only pages, without a stop.
fn memory(pid: u32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))
}

/// The run-time address of `asked` in the program that process `pid` has just started. `entry` is
/// `e_entry` of its file.
pub(super) fn relocated(pid: u32, asked: u64, entry: u64) -> io::Result<u64> {
    let auxv = std::fs::read(format!("/proc/{pid}/auxv"))?;
    let pairs = auxv.as_chunks::<8>().0.as_chunks::<2>().0.iter();
    let mut pairs = pairs.map(|pair| pair.map(u64::from_ne_bytes));
    let [_, loaded] = pairs
        .find(|[kind, _]| *kind == AT_ENTRY)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no AT_ENTRY in its auxv"))?;
    Ok(asked.wrapping_add(loaded.wrapping_sub(entry)))
}
