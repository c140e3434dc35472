//! The sampler thread: pinned, it drains rings when a source's period is full
//! or its own clock ticks, and hands the stacks to the decoder through a
//! bounded queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lbr_msr::MsrError;
use lbr_msr::record::{Event, Label, Lost};
use rtrb::{Producer, PushError};

use crate::drain::RawStack;
use crate::gate::{Cell, Shared, ThreadId, Work};
use crate::pace::Pace;

/// What the sampler does when the queue to the decoder is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Waits for room: nothing is lost. For sources that wait.
    Wait,
    /// Drops the stack and counts it: the sampler never blocks. For hardware,
    /// which does not wait.
    Drop,
}

/// The queue from the sampler thread to the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Stacks it holds; at least 1. One stack is about 2 KiB.
    pub stacks: usize,
    /// What happens when it is full.
    pub when_full: WhenFull,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { stacks: 512, when_full: WhenFull::Wait }
    }
}

/// What the sampler thread counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) drains: u64,
    pub(crate) accesses: u64,
    pub(crate) most_accesses: u32,
    pub(crate) dropped: u64,
    /// Rings whose control or filter register had changed at their end.
    pub(crate) taken_over: u64,
}

/// Longest sleep without a clock: a stop must be seen some time.
const DOZE: Duration = Duration::from_millis(50);

/// The sampler's side of a session.
pub(crate) struct Sampler<'a> {
    shared: &'a Shared,
    queue: Producer<RawStack>,
    when_full: WhenFull,
    pace: Option<Pace>,
    rings: Vec<Arc<Cell>>,
    counts: Counts,
    /// Dropped since the decoder was last told, and whose.
    untold: Option<(ThreadId, u32, u64)>,
}

impl<'a> Sampler<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        queue: Producer<RawStack>,
        when_full: WhenFull,
        pace: Option<Pace>,
    ) -> Sampler<'a> {
        Sampler {
            shared,
            queue,
            when_full,
            pace,
            rings: Vec::new(),
            counts: Counts::default(),
            untold: None,
        }
    }

    /// Runs until the source has ended and every ring is drained, or until
    /// nothing can be recorded any more.
    pub(crate) fn run(mut self) -> Result<Counts, MsrError> {
        self.shared.i_am_the_sampler();
        let mut tick = self.tick_after(Instant::now());
        while !self.shared.has_failed() {
            let limit = match tick {
                Some(at) => at.saturating_duration_since(Instant::now()),
                None => DOZE,
            };
            // Asked before looking: work from before the end is still done.
            let is_last_look = self.shared.has_ended();
            match self.shared.next_work(limit) {
                Some(work) => self.work(work)?,
                None if is_last_look => break,
                None => {}
            }
            let now = Instant::now();
            if let Some(at) = tick.filter(|at| *at <= now) {
                self.drain_fresh()?;
                // From tick to tick, so that lateness does not slow the rate;
                // what was missed altogether is not made up for.
                tick = self.tick_after(at).map(|next| next.max(now));
            }
        }
        // Rings that their source forgot.
        for cell in std::mem::take(&mut self.rings) {
            self.finish(&cell)?;
        }
        self.tell_dropped();
        Ok(self.counts)
    }

    fn tick_after(&mut self, at: Instant) -> Option<Instant> {
        self.pace.as_mut().map(|pace| at + pace.next_interval())
    }

    fn work(&mut self, work: Work) -> Result<(), MsrError> {
        match work {
            Work::Start(cell) => self.rings.push(cell),
            Work::Drain(cell) => {
                self.drain(&cell)?;
                cell.release();
            }
            Work::Finish(cell) => {
                self.rings.retain(|ring| !Arc::ptr_eq(ring, &cell));
                self.finish(&cell)?;
                cell.release();
            }
        }
        Ok(())
    }

    fn drain_fresh(&mut self) -> Result<(), MsrError> {
        for index in 0..self.rings.len() {
            let Some(cell) = self.rings.get(index).map(Arc::clone) else { break };
            if cell.is_fresh() {
                self.drain(&cell)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, cell: &Cell) -> Result<(), MsrError> {
        self.drain(cell)?;
        if !cell.is_still_ours()? {
            self.counts.taken_over += 1;
        }
        Ok(())
    }

    fn drain(&mut self, cell: &Cell) -> Result<(), MsrError> {
        let stack = cell.drain()?;
        let cost = stack.accesses.total();
        self.counts.drains += 1;
        self.counts.accesses += u64::from(cost);
        self.counts.most_accesses = self.counts.most_accesses.max(cost);
        let mut offered = stack;
        loop {
            match (self.queue.push(offered), self.when_full) {
                (Ok(()), _) => {
                    self.tell_dropped();
                    return Ok(());
                }
                (Err(PushError::Full(_)), WhenFull::Drop) => {
                    self.drop_stack(cell, &stack);
                    return Ok(());
                }
                (Err(PushError::Full(back)), WhenFull::Wait) => offered = back,
            }
            // The decoder has died: what it left is reported by the session.
            if self.shared.has_failed() || self.queue.is_abandoned() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn drop_stack(&mut self, cell: &Cell, stack: &RawStack) {
        if stack.entries().is_empty() && stack.integrity.label == Label::Stream {
            return; // it says nothing that the next one does not
        }
        self.counts.dropped += 1;
        cell.stack_dropped();
        match &mut self.untold {
            Some((thread, _, stacks)) if *thread == stack.thread => *stacks += 1,
            _ => {
                self.tell_dropped();
                self.untold = Some((stack.thread, stack.cpu, 1));
            }
        }
    }

    /// Tells the recording what was dropped. Not through the full queue.
    fn tell_dropped(&mut self) {
        if let Some((thread, cpu, stacks)) = self.untold.take() {
            // Where nobody listens, the session fails for that reason.
            let _ = self.shared.send(Event::Lost(Lost {
                time: crate::clock::monotonic_ns(),
                pid: thread.pid,
                tid: thread.tid,
                cpu,
                stacks,
                label: None,
            }));
        }
    }
}
