//! Whether the sampler kept its CPU while recording was off.
//!
//! SCHED_FIFO keeps ordinary tasks away only while the sampler is runnable. If it waits for a
//! kernel lock (in a page fault or a `/proc` file), or reaches the limit on real-time tasks
//! (`/proc/sys/kernel/sched_rt_runtime_us`), the target runs unrecorded. The kernel counts such
//! context switches for each thread.

use nix::sys::resource::{UsageWho, getrusage};

/// The calling thread's context switches so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given {
    /// Voluntary, to wait. getrusage(2), ru_nvcsw.
    waited: i64,
    /// Involuntary. ru_nivcsw.
    made: i64,
}

impl Given {
    /// The counts so far; `None` if the kernel does not report them.
    pub(super) fn now() -> Option<Given> {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
        Some(Given {
            waited: usage.voluntary_context_switches(),
            made: usage.involuntary_context_switches(),
        })
    }
}

/// Whether the thread kept its CPU from one freeze to the thaw and through the next sleep: `frozen`
/// was taken after the freeze, `before` just before the thaw, `after` after the sleep, which may
/// give up the CPU once.
pub(super) fn held(frozen: Option<Given>, before: Option<Given>, after: Option<Given>) -> bool {
    let (Some(frozen), Some(before), Some(after)) = (frozen, before, after) else { return false };
    frozen == before && after.made == before.made && after.waited.wrapping_sub(before.waited) <= 1
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/cpu/held.rs"]
mod tests;
