//! Detects stays in a deep C-state through Linux's cpuidle.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lbr_msr::access::Root;
use lbr_msr::text::leading_number;

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
    name.strip_prefix('C').and_then(leading_number).is_some_and(|level: u32| level > 1)
}

fn entered(states: &[PathBuf]) -> u64 {
    let usage = |state: &PathBuf| fs::read_to_string(state.join("usage")).ok();
    let count = |text: String| text.trim().parse::<u64>().ok();
    states.iter().filter_map(usage).filter_map(count).sum()
}

#[cfg(test)]
#[path = "../../../../tests/lab/unit/verify/real/rest.rs"]
mod tests;
