//! The recording file, and its progress on a terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use lbr_msr::record::{Event, Sink, SourceKnowledge};
use lbr_msr::{BranchFilter, LbrCaps};
use profile::note::Source as Origin;
use profile::perf_data::{Meta, Rate, WriteError, Writer};
use sampler::interrupt::Interrupts;
use sampler::source::Source;
use sampler::{RecordConfig, RecordError, Sampling, Summary, record};

use super::summary::{self, Details};
use super::{Record, check};
use crate::exit::{FAILED, Result};
use crate::output::Output;
use crate::output::recording;
use crate::output::stream::Stream;
use crate::present::{grouped, say};

/// Metadata of the file. `desc`: the CPU in words.
pub(super) fn meta(
    caps: &LbrCaps,
    desc: String,
    filter: BranchFilter,
    origin: Origin,
    knowledge: SourceKnowledge,
    sampling: Sampling,
) -> Meta {
    let cpu = &caps.cpu;
    let vendor = cpu.vendor.as_str();
    Meta {
        cpuid: Some(format!("{vendor},{},{},{}", cpu.family, cpu.model, cpu.stepping)),
        cpudesc: Some(desc),
        filter,
        knowledge,
        source: origin,
        event: event_name(filter).to_owned(),
        rate: match sampling {
            Sampling::Period(period) => Rate::Period(period),
            Sampling::Rate { hz, .. } => Rate::Frequency(u64::from(hz)),
        },
        ..Meta::of_this_machine()
    }
}

/// perf's name of the recorded event.
fn event_name(filter: BranchFilter) -> &'static str {
    match (filter.contains(BranchFilter::USER), filter.contains(BranchFilter::KERNEL)) {
        (true, false) => "branches:u",
        (false, true) => "branches:k",
        _ => "branches",
    }
}

/// A faster way to record, worded when the recording has become a long one.
type Hint = Box<dyn FnOnce() -> String + Send>;

/// A recording under way: the file, its progress on stderr, and what ends it.
pub(super) struct Recording<'a> {
    args: &'a Record,
    writer: Writer<Stream>,
    /// Draws, if stderr is a terminal.
    bar: ProgressBar,
    since: Instant,
    branches: u64,
    pub(super) hint: Option<Hint>,
    interrupts: Interrupts,
    stop: Arc<AtomicBool>,
    /// An older recording became `FILE.old`.
    has_moved: bool,
}

impl<'a> Recording<'a> {
    /// Creates the file. From here on SIGINT and SIGTERM are the program's.
    pub(super) fn create(args: &'a Record, output: Output, meta: Meta) -> Result<Recording<'a>> {
        let meta = Meta { compression: args.compression, ..meta };
        let interrupts = Interrupts::listen().context("signals cannot be listened for")?;
        let (writer, has_moved) = recording::begin(output, meta, interrupts)?;
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {human_pos} branches, {elapsed}")
        {
            bar.set_style(style);
        }
        let (since, branches, hint, stop) = (Instant::now(), 0, None, Arc::default());
        Ok(Recording { args, writer, bar, since, branches, hint, interrupts, stop, has_moved })
    }

    pub(super) fn record(
        &mut self,
        source: &mut dyn Source<'_>,
        config: RecordConfig,
    ) -> Result<Summary, RecordError<WriteError>> {
        let (stop, interrupts) = (Arc::clone(&self.stop), Some(self.interrupts));
        let config = RecordConfig { stop, interrupts, ..config };
        record(source, config, self)
    }

    /// Finishes the file and prints its summary.
    pub(super) fn finish(self, recorded: Result<Summary>, knowledge: SourceKnowledge) -> Result {
        let Recording { args, writer, bar, stop, has_moved, .. } = self;
        bar.finish_and_clear();
        let (recorded, finished) = recording::finish(writer, &args.output, recorded)?;
        let checked = finished.map(|file| check::read_back(&args.output, &file, recorded.complete));
        let doubts = checked.transpose()?.flatten();
        let (output, verbose, doubts) = (&*args.output, args.verbose, doubts.as_deref());
        let stopped = stop.load(Ordering::Relaxed);
        let told = Details { output, has_moved, knowledge, stopped, verbose, doubts };
        summary::print(&recorded, &told);
        let size = std::fs::metadata(output).map_or(0, |file| file.len());
        if size >= LARGE && args.compression.is_none() {
            say!(
                "the file has {} GB: -z writes a tenth (BOLT and LLVM read it through perf)",
                size / LARGE
            );
        }
        if args.report {
            crate::commands::report::hot(&args.output)?;
        }
        // A status is 0 to 255, or 128 + a signal's number.
        Ok(u8::try_from(recorded.exit.status()).unwrap_or(FAILED))
    }
}

/// Recordings of this many bytes are worth compressing. One of 84 million branches had 26.6 bytes a
/// branch, and 2.2 with `-z`.
const LARGE: u64 = 1_000_000_000;

/// Progress is shown after this time.
const PATIENCE: Duration = Duration::from_secs(1);
/// A faster source is worth a hint after this long.
const LONG: Duration = Duration::from_secs(5);

/// The hint, when a recording has become a long one.
fn due(hint: &mut Option<Hint>, elapsed: Duration) -> Option<String> {
    if elapsed > LONG { hint.take().map(|hint| hint()) } else { None }
}

/// Counts the branches on their way to the file.
impl Sink for Recording<'_> {
    type Error = WriteError;

    fn event(&mut self, event: &Event) -> Result<(), WriteError> {
        if let Event::Sample(sample) = event {
            self.branches += sample.stack.entries.len() as u64;
            let elapsed = self.since.elapsed();
            if elapsed > PATIENCE {
                self.bar.set_position(self.branches);
            }
            if let Some(hint) = due(&mut self.hint, elapsed) {
                let rate = grouped(self.branches / elapsed.as_secs());
                self.bar.suspend(|| say!("{rate} branches/s so far; {hint}"));
            }
        }
        self.writer.event(event)
    }
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/commands/record/output.rs"]
mod tests;
