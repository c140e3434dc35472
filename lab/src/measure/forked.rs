//! Code that a forked child runs until it waits at the INT3 before its bracket.
#![allow(unsafe_code, reason = "system calls after a fork")]

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nix::libc;
use nix::unistd::Pid;

use super::bracket::Bracket;
use super::confine::{CodeRights, Confinement, SealedSwitch};
use crate::code::memory::PAGE;
use sampler::source::perf::Counting;
use sampler::target::Affinity;

/// How a child is set up before its first run.
#[derive(Clone, Debug, Default)]
pub(super) struct Setting {
    /// Closes all descriptors except the two below; standard streams become /dev/null.
    pub(super) alone: bool,
    /// Confines the code to its own process, with these rights.
    pub(super) confined: Option<CodeRights>,
    /// The control register's values, which its bracket writes.
    pub(super) switch: Option<Arc<SealedSwitch>>,
    /// The descriptor watched by the [watchdog process](sampler::keeper).
    pub(super) lifeline: Option<RawFd>,
    /// Its performance counters.
    pub(super) counters: Option<Counting>,
    /// The CPU that it is pinned to.
    pub(super) pin: Option<Affinity>,
    /// Set to stop the current run.
    pub(super) stop: Arc<AtomicBool>,
}

/// The exit status of a child that could not be confined.
pub(super) const NOT_CONFINED: i32 = 2;

/// Prepares the child, then waits at the INT3.
pub(super) fn serve(
    bracket: &Bracket,
    setting: &Setting,
    null: &File,
    parent: Pid,
    confinement: &mut Confinement,
) -> ! {
    // SAFETY: system calls that are async-signal-safe and touch no memory of this program. Failures
    // here are harmless: a child that cannot be traced dies at its INT3, and is reported.
    unsafe {
        // Signals from the terminal must not reach it.
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent.as_raw() {
            // The parent died first: no one would trace or end this child.
            libc::_exit(1);
        }
        if setting.alone {
            for stream in 0..3 {
                libc::dup2(null.as_raw_fd(), stream);
            }
            let registers = setting.switch.as_ref().map(|switch| switch.writes.descriptor);
            let mut keep = [registers, setting.lifeline];
            keep.sort_unstable();
            let mut first = 3u32;
            for keep in keep.into_iter().flatten().map(RawFd::cast_unsigned) {
                if keep > first {
                    libc::syscall(libc::SYS_close_range, first, keep - 1, 0u32);
                }
                first = first.max(keep.saturating_add(1));
            }
            libc::syscall(libc::SYS_close_range, first, u32::MAX, 0u32);
        }
        let mut nothing = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut nothing);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const nothing, std::ptr::null_mut());
        if let Some(counters) = &setting.counters {
            count(bracket, counters);
        }
        libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
        let confined = confinement.apply();
        // Without seccomp, the tracer still sees the forks that it can trace.
        if !confined && setting.confined.is_some() {
            libc::_exit(NOT_CONFINED);
        }
        bracket.serve()
    }
}

/// Opens this process's counters and maps their pages, which enables RDPMC in it. On failure a page
/// stays zero: an inactive counter.
///
/// # Safety
/// The bracket's counter pages belong to this process alone.
unsafe fn count(bracket: &Bracket, counters: &Counting) {
    for (attributes, page) in counters.attributes.iter().zip(bracket.counter_pages()) {
        let Some(attributes) = attributes else { continue };
        let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: the first system call reads the attributes, the second replaces a page that only
        // the bracket's code reads. A mapping keeps its event open.
        unsafe {
            let event = libc::syscall(libc::SYS_perf_event_open, attributes, 0, -1, -1, 0);
            if let Ok(event) = RawFd::try_from(event)
                && event >= 0
            {
                libc::mmap(page as *mut _, PAGE as usize, read, shared, event, 0);
                libc::close(event);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#[path = "../../../tests/lab/unit/measure/forked.rs"]
mod tests;
