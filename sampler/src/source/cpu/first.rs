//! Real-time priority over ordinary tasks, and preventing deep C-states.
#![allow(unsafe_code, reason = "sched_setscheduler(2), which nix does not have")]

use std::fs::File;
use std::io::{self, Write};

use lbr_msr::access::Root;
use nix::errno::Errno;
use nix::libc;

/// The lowest real-time priority exceeds that of every ordinary task.
const PRIORITY: i32 = 1;

/// Gives the calling thread SCHED_FIFO: no ordinary task runs on its CPU while it is runnable.
///
/// # Errors
/// EPERM without CAP_SYS_NICE or a limit on real-time priorities (RLIMIT_RTPRIO).
pub(super) fn go_first() -> io::Result<()> {
    // SAFETY: the structure is a plain number, for which all zeros is valid.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = PRIORITY;
    // SAFETY: `parameters` outlives the call; 0 is the calling thread.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    Ok(Errno::result(done).map(drop)?)
}

/// Whether `go_first` would succeed, without applying it to the caller.
pub fn may_go_first() -> bool {
    let thread = std::thread::Builder::new().spawn(|| go_first().is_ok());
    thread.is_ok_and(|thread| thread.join().unwrap_or(false))
}

/// Keeps all CPUs out of deep C-states, which clear the records of some (SDM 17.10.3), until
/// dropped.
#[derive(Debug)]
pub struct Awake {
    /// The request ends when its last descriptor is closed.
    _request: File,
}

impl Awake {
    /// Requests a wake-up latency of 0 through `/dev/cpu_dma_latency`.
    ///
    /// # Errors
    /// The file cannot be opened or written (most often: not root).
    pub fn hold(root: &Root) -> io::Result<Awake> {
        let mut request = File::options().write(true).open(root.join("dev/cpu_dma_latency"))?;
        request.write_all(&0_i32.to_ne_bytes())?;
        Ok(Awake { _request: request })
    }
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/cpu/first.rs"]
mod tests;
