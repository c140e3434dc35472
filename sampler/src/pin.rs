//! Pinning a thread to a CPU, and proving that it is there.

use core_affinity::CoreId;
use nix::sched::{CpuSet, sched_getcpu};

/// Why a thread could not be pinned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The CPU does not exist, or this process may not run on it.
    #[error("CPU {cpu} is not one this process may run on; allowed: {}", list(allowed))]
    NotAllowed {
        /// As asked for.
        cpu: u32,
        /// The CPUs that may be used.
        allowed: Vec<u32>,
    },
    /// The kernel refused.
    #[error("the thread could not be pinned to CPU {cpu}: {cause}")]
    Refused {
        /// As asked for.
        cpu: u32,
        /// The system's words.
        cause: std::io::Error,
    },
    /// The kernel agreed and the thread still ran elsewhere.
    #[error("the thread was pinned to CPU {cpu} and runs on {seen}")]
    Elsewhere {
        /// As asked for.
        cpu: u32,
        /// Where it was seen.
        seen: usize,
    },
}

/// The CPUs that the calling thread may run on, in ascending order. After
/// pinning that is one CPU alone: ask first.
#[must_use]
pub fn allowed() -> Vec<u32> {
    let mut cpus: Vec<u32> = core_affinity::get_core_ids()
        .unwrap_or_default()
        .into_iter()
        .filter_map(|core| u32::try_from(core.id).ok())
        .collect();
    cpus.sort_unstable();
    cpus
}

/// Pins the calling thread to a CPU.
///
/// # Errors
/// [`PinError`]. The thread is not pinned then, except after
/// [`Elsewhere`](PinError::Elsewhere).
pub fn pin_current_thread(cpu: u32) -> Result<(), PinError> {
    let allowed = allowed();
    // core_affinity hands the number to CPU_SET unchecked, which aborts beyond
    // the set's size.
    let fits = CpuSet::new().set(cpu as usize).is_ok();
    if !fits || !allowed.contains(&cpu) {
        return Err(PinError::NotAllowed { cpu, allowed });
    }
    if !core_affinity::set_for_current(CoreId { id: cpu as usize }) {
        return Err(PinError::Refused { cpu, cause: std::io::Error::last_os_error() });
    }
    match sched_getcpu() {
        Ok(seen) if seen != cpu as usize => Err(PinError::Elsewhere { cpu, seen }),
        Ok(_) => Ok(()),
        Err(errno) => Err(PinError::Refused { cpu, cause: errno.into() }),
    }
}

/// `0-3,6`, as the kernel lists CPUs.
fn list(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(cpu) => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    if ranges.is_empty() {
        return "none known".to_owned();
    }
    let words: Vec<String> = ranges
        .iter()
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        })
        .collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::list;

    #[test]
    fn cpus_are_listed_as_the_kernel_does() {
        assert_eq!(list(&[]), "none known");
        assert_eq!(list(&[0]), "0");
        assert_eq!(list(&[0, 1, 2, 4, 6, 7]), "0-2,4,6-7");
    }
}
