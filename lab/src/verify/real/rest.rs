//! Detects stays in a deep C-state through Linux's cpuidle.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lbr_msr::access::Root;

/// How long to sleep at most.
const PATIENCE: Duration = Duration::from_secs(1);
/// One sleep: long enough for any governor to choose the deepest.
const NAP: Duration = Duration::from_millis(50);

/// Sleeps until the CPU, which the calling thread is pinned to, has entered a C-state deeper than
/// C1.
///
/// # Errors
/// Why it entered none.
pub(super) fn deep_c_state(root: &Root, cpu: u32) -> Result<(), String> {
    let folder = root.join(&format!("sys/devices/system/cpu/cpu{cpu}/cpuidle"));
    let states = deep_states(&folder);
    if states.is_empty() {
        return Err("the kernel offers no C-state deeper than C1".into());
    }
    let before = entered(&states);
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        std::thread::sleep(NAP);
        if entered(&states) > before {
            return Ok(());
        }
    }
    Err("the CPU entered no C-state deeper than C1".into())
}

/// The directories of the states deeper than C1.
fn deep_states(folder: &std::path::Path) -> Vec<PathBuf> {
    let Ok(found) = fs::read_dir(folder) else { return Vec::new() };
    let states = found.filter_map(|entry| Some(entry.ok()?.path()));
    states
        .filter(|state| {
            let name = fs::read_to_string(state.join("name")).unwrap_or_default();
            is_deep(name.trim())
        })
        .collect()
}

/// State names of the drivers intel_idle and acpi_idle: POLL, C1, C1E, C1_ACPI, C2, C6, C10,
/// C3_ACPI. SDM 17.10.3 counts C1E as C1.
fn is_deep(name: &str) -> bool {
    let digits = name.strip_prefix('C').unwrap_or_default();
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end).and_then(|digits| digits.parse().ok()).is_some_and(|level: u32| level > 1)
}

fn entered(states: &[PathBuf]) -> u64 {
    let usage = |state: &PathBuf| fs::read_to_string(state.join("usage")).ok();
    let count = |text: String| text.trim().parse::<u64>().ok();
    states.iter().filter_map(usage).filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_c_states_are_recognised_by_name() {
        for name in ["C2", "C6", "C10", "C3_ACPI", "C6N", "C7s"] {
            assert!(is_deep(name), "{name}");
        }
        for name in ["POLL", "C1", "C1E", "C1_ACPI", "", "CX"] {
            assert!(!is_deep(name), "{name}");
        }
    }

    #[test]
    fn a_cpu_that_never_sleeps_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let why = deep_c_state(&Root::at(folder.path()), 0).expect_err("no states");
        assert!(why.contains("offers no C-state"), "{why}");
    }

    /// Only a state deeper than C1 counts, and only what is entered from now on.
    #[test]
    fn a_stay_in_a_deep_state_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let states = folder.path().join("sys/devices/system/cpu/cpu0/cpuidle");
        for (state, name) in [("state0", "C1"), ("state1", "C6")] {
            std::fs::create_dir_all(states.join(state)).expect("a folder");
            std::fs::write(states.join(state).join("name"), name).expect("a name");
            std::fs::write(states.join(state).join("usage"), "5\n").expect("a count");
        }
        let enter = |state: &str, count: &str| {
            let usage = states.join(state).join("usage");
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    std::thread::sleep(NAP);
                    std::fs::write(&usage, count).expect("a count");
                });
                deep_c_state(&Root::at(folder.path()), 0)
            })
        };
        assert_eq!(
            enter("state0", "9\n"),
            Err("the CPU entered no C-state deeper than C1".to_owned())
        );
        assert_eq!(enter("state1", "6\n"), Ok(()));
    }
}
