//! The sampler of software branch records: one thread that drains the rings of
//! all threads of the target, when a period is full or its clock ticks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lbr_msr::MsrError;

use crate::gate::{Cell, Work};
use crate::outlet::{Outlet, Sampler, SamplerError};
use crate::pace::Pace;

/// Longest sleep without a clock: a stop must be seen some time.
const DOZE: Duration = Duration::from_millis(50);

/// Drains whatever rings the source opens.
pub(crate) fn sampler<'a>(pace: Option<Pace>) -> Sampler<'a> {
    Box::new(move |outlet| {
        RingSampler { outlet, pace, rings: Vec::new() }.run().map_err(SamplerError::Drain)
    })
}

struct RingSampler<'a, 'b> {
    outlet: &'a mut Outlet<'b>,
    pace: Option<Pace>,
    rings: Vec<Arc<Cell>>,
}

impl RingSampler<'_, '_> {
    /// Runs until the source has ended and every ring is drained, or until
    /// nothing can be recorded any more.
    fn run(mut self) -> Result<(), MsrError> {
        let shared = self.outlet.shared;
        self.outlet.ready();
        let mut tick = self.tick_after(Instant::now());
        while !shared.has_failed() {
            let limit = match tick {
                Some(at) => at.saturating_duration_since(Instant::now()),
                None => DOZE,
            };
            // Asked before looking: work from before the end is still done.
            let is_last_look = shared.has_ended();
            match shared.next_work(limit) {
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
        Ok(())
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
        self.outlet.report.taken_over |= !cell.is_still_ours()?;
        Ok(())
    }

    fn drain(&mut self, cell: &Cell) -> Result<(), MsrError> {
        if !self.outlet.push(cell.drain()?) {
            cell.stack_dropped();
        }
        Ok(())
    }
}
