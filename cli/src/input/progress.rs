//! Progress of reading, shown if it takes longer than a second.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Progress on standard error: only on a terminal, only after a second.
pub(crate) struct Progress {
    started: Instant,
    bar: Option<ProgressBar>,
    wanted: bool,
}

impl Progress {
    /// Starts the timer.
    pub(crate) fn new() -> Progress {
        let wanted = std::io::stderr().is_terminal();
        Progress { started: Instant::now(), bar: None, wanted }
    }

    /// How far it is.
    pub(crate) fn at(&mut self, position: u64, size: Option<u64>) {
        if !self.wanted || self.started.elapsed() < Duration::from_secs(1) {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| match size {
            Some(size) => ProgressBar::new(size).with_style(
                ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {eta}{msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            ),
            None => ProgressBar::new_spinner().with_style(
                ProgressStyle::with_template("{spinner} {bytes}{msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_spinner()),
            ),
        });
        if cfg!(debug_assertions) {
            bar.set_message(" (slow: a build without --release)");
        }
        bar.set_position(position);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
