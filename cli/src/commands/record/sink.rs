//! Shows on a terminal how much has been recorded.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use lbr_msr::record::{Event, Sink};

/// A short recording needs no display.
const PATIENCE: Duration = Duration::from_secs(1);

/// A sink that counts the branches on their way into another one.
pub(super) struct Watched<S> {
    inner: S,
    bar: ProgressBar,
    since: Instant,
    branches: u64,
}

impl<S> Watched<S> {
    /// Draws on stderr, if that is a terminal.
    pub(super) fn new(inner: S) -> Watched<S> {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {human_pos} branches, {elapsed}")
        {
            bar.set_style(style);
        }
        Watched { inner, bar, since: Instant::now(), branches: 0 }
    }

    /// Takes the display away and gives the inner sink back.
    pub(super) fn finish(self) -> S {
        self.bar.finish_and_clear();
        self.inner
    }
}

impl<S: Sink> Sink for Watched<S> {
    type Error = S::Error;

    fn event(&mut self, event: &Event) -> Result<(), S::Error> {
        if let Event::Sample(sample) = event {
            self.branches += sample.stack.entries.len() as u64;
            if self.since.elapsed() > PATIENCE {
                self.bar.set_position(self.branches);
            }
        }
        self.inner.event(event)
    }
}
