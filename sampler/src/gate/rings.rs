//! The rings of a target's threads: fed, and drained when a period is full, by
//! the thread of the source, or drained when a clock ticks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lbr_msr::MsrError;
use lbr_msr::caps::LbrCaps;
use lbr_msr::soft::{Retired, SoftLbr};

use super::registers::{BranchRegisters, OpenError, OpenRegisters};
use super::shared::{Shared, lock};
use crate::config::RecordConfig;
use crate::drain::{Drain, DrainError, Mode, Placement, RawStack};
use crate::outlet::{Outlet, SamplerError, SamplerReport};
use crate::pace::Pace;
use crate::target::ThreadId;

/// Longest sleep of the clock: an end must be seen some time.
const DOZE: Duration = Duration::from_millis(50);

/// The registers of one thread.
pub(crate) struct Cell {
    pub(super) thread: ThreadId,
    state: Mutex<State>,
    /// The clock has ticked while somebody had the registers.
    due: AtomicBool,
}

struct State {
    registers: Box<dyn BranchRegisters>,
    drain: Drain,
    /// What was drained last.
    stack: RawStack,
    /// Ring changes since the last drain.
    since_drain: u64,
    /// What the thread's registers hold behind the newest branch, for the next
    /// drain.
    arguments: Option<[u64; 6]>,
}

impl Cell {
    pub(super) fn is_due(&self) -> bool {
        self.due.load(Ordering::Relaxed)
    }
}

/// All rings of a recording, and the way to the decoder that they share.
pub(crate) struct Rings {
    shared: Arc<Shared>,
    caps: LbrCaps,
    mode: Mode,
    /// Ring changes after which a ring is drained; `None` with a clock.
    pub(super) period: Option<u64>,
    /// Whether the source sees the kernel. One that does not cannot say where
    /// a branch into the kernel lands, and such a branch enters no ring.
    sees_kernel: bool,
    open: Option<OpenRegisters>,
    cells: Mutex<Vec<Arc<Cell>>>,
    /// `None` once nothing is drained any more.
    outlet: Mutex<Option<Outlet>>,
    ended: Mutex<Result<SamplerReport, SamplerError>>,
    open_failure: Mutex<Option<OpenError>>,
    retired: AtomicU64,
}

impl Rings {
    /// `outlet`: `None` where the source has samplers of its own.
    pub(crate) fn new(
        config: &mut RecordConfig,
        period: Option<u64>,
        sees_kernel: bool,
        shared: Arc<Shared>,
        outlet: Option<Outlet>,
    ) -> Arc<Rings> {
        Arc::new(Rings {
            shared,
            caps: config.caps.clone(),
            mode: config.mode(),
            period,
            sees_kernel,
            open: config.open.take(),
            cells: Mutex::default(),
            outlet: Mutex::new(outlet),
            ended: Mutex::new(Ok(SamplerReport::default())),
            open_failure: Mutex::new(None),
            retired: AtomicU64::new(0),
        })
    }

    /// Opens and arms the registers of a new thread; `None` fails everything.
    pub(super) fn open(&self, thread: ThreadId) -> Option<Arc<Cell>> {
        let state = self.armed(thread).map_err(|error| {
            lock(&self.open_failure).get_or_insert(error);
            self.shared.fail();
        });
        let state = Mutex::new(state.ok()?);
        let cell = Arc::new(Cell { thread, state, due: AtomicBool::new(false) });
        lock(&self.cells).push(Arc::clone(&cell));
        Some(cell)
    }

    fn registers(&self, thread: ThreadId) -> Result<Box<dyn BranchRegisters>, OpenError> {
        let Some(open) = &self.open else {
            let why = "nothing makes registers for a thread of the target";
            let facility = self.caps.facility;
            return Err(DrainError::Unsupported { facility, why }.into());
        };
        open(thread)
    }

    fn armed(&self, thread: ThreadId) -> Result<State, OpenError> {
        let mut registers = self.registers(thread)?;
        let drain = Drain::begin(&self.caps, self.mode, Placement::SourceWaits, &mut *registers)?;
        let stack = RawStack::empty(thread, registers.cpu());
        Ok(State { registers, drain, stack, since_drain: 0, arguments: None })
    }

    pub(super) fn model(&self) -> Option<SoftLbr> {
        let nobody = ThreadId { pid: 0, tid: 0 };
        self.registers(nobody).ok()?.soft().cloned()
    }

    /// Feeds a ring. Branches that pass were left out in front of the run. How
    /// often the ring changed.
    pub(super) fn feed(&self, cell: &Cell, left_out: u64, run: &[Retired]) -> u64 {
        let state = &mut *lock(&cell.state);
        let mut changes = 0;
        if self.period.is_none() && cell.due.swap(false, Ordering::Relaxed) && state.since_drain > 0
        {
            self.drain_state(cell, state);
        }
        if left_out > 0
            && let Some(soft) = state.registers.soft()
        {
            soft.skip(left_out);
            state.since_drain += left_out;
            changes += left_out;
        }
        let lands_unseen = |branch: &Retired| branch.cpl_after == 0 && !self.sees_kernel;
        for mut run in run.split(lands_unseen) {
            while !run.is_empty() {
                let period = self.period.unwrap_or(u64::MAX);
                let room = period.saturating_sub(state.since_drain);
                let (taken, changed) = state.registers.retire_run(run, room);
                changes += changed;
                state.since_drain += changed;
                if state.since_drain >= period {
                    self.drain_state(cell, state);
                }
                run = run.get(taken.max(1)..).unwrap_or_default();
            }
        }
        changes
    }

    /// Feeds a ring one branch, behind which the registers hold these arguments,
    /// and drains it unless the filter leaves the branch out. How often the ring
    /// changed.
    pub(super) fn feed_entry(&self, cell: &Cell, branch: &Retired, arguments: [u64; 6]) -> u64 {
        let state = &mut *lock(&cell.state);
        let changed = u64::from(state.registers.retire(branch));
        if changed > 0 {
            state.arguments = Some(arguments);
            self.drain_state(cell, state);
        }
        changed
    }

    /// Drains a ring now.
    pub(super) fn drain(&self, cell: &Cell) {
        self.drain_state(cell, &mut lock(&cell.state));
    }

    /// With the source locked out from before the freeze until after the thaw.
    fn drain_state(&self, cell: &Cell, state: &mut State) {
        let Some(outlet) = &mut *lock(&self.outlet) else { return };
        cell.due.store(false, Ordering::Relaxed);
        state.since_drain = 0;
        if let Err(error) = state.registers.drained(&mut state.drain, &mut state.stack) {
            return self.fail(error);
        }
        state.stack.arguments = state.arguments.take();
        if !outlet.push(&state.stack) {
            state.drain.stack_dropped();
        }
    }

    fn fail(&self, error: MsrError) {
        let ended = &mut *lock(&self.ended);
        if ended.is_ok() {
            *ended = Err(SamplerError::Drain(error));
        }
        self.shared.fail();
    }

    /// A thread has ended, after so many ring changes.
    pub(super) fn finish(&self, cell: &Arc<Cell>, retired: u64) {
        self.retired.fetch_add(retired, Ordering::AcqRel);
        lock(&self.cells).retain(|ring| !Arc::ptr_eq(ring, cell));
        self.finish_cell(cell);
    }

    fn finish_cell(&self, cell: &Cell) {
        let state = &mut *lock(&cell.state);
        self.drain_state(cell, state);
        let is_still_ours = state.drain.is_still_ours(&mut *state.registers);
        match (is_still_ours, &mut *lock(&self.outlet)) {
            (Ok(is_still_ours), Some(outlet)) => outlet.report.taken_over |= !is_still_ours,
            (Ok(_), None) => {}
            (Err(error), _) => self.fail(error),
        }
    }

    /// Nothing is retired any more: drains the rings that their source forgot,
    /// and lets the decoder come to its end.
    pub(crate) fn close(&self) {
        for cell in std::mem::take(&mut *lock(&self.cells)) {
            self.finish_cell(&cell);
        }
        if let Some(outlet) = lock(&self.outlet).take() {
            let ended = &mut *lock(&self.ended);
            let report = outlet.end();
            if ended.is_ok() {
                *ended = Ok(report);
            }
        }
    }

    /// What the drains came to. Once only.
    pub(crate) fn report(&self) -> Result<SamplerReport, SamplerError> {
        std::mem::replace(&mut *lock(&self.ended), Ok(SamplerReport::default()))
    }

    pub(crate) fn take_open_failure(&self) -> Option<OpenError> {
        lock(&self.open_failure).take()
    }

    /// Ring changes over all threads: the truth that a complete recording
    /// must reach.
    pub(crate) fn retired(&self) -> u64 {
        self.retired.load(Ordering::Acquire)
    }

    /// Drains by the clock until the recording ends.
    pub(crate) fn tick(&self, mut pace: Pace) {
        self.shared.i_am_a_sampler();
        let mut tick = Instant::now() + pace.next_interval();
        while !self.shared.has_ended() && !self.shared.has_failed() {
            let now = Instant::now();
            if let Some(wait) = tick.checked_duration_since(now).filter(|wait| !wait.is_zero()) {
                std::thread::park_timeout(wait.min(DOZE));
                continue;
            }
            let cells = lock(&self.cells).clone();
            for cell in &cells {
                cell.due.store(true, Ordering::Relaxed);
                // Who has it looks before each run: the source need not wait here.
                if let Ok(mut state) = cell.state.try_lock()
                    && state.since_drain > 0
                {
                    self.drain_state(cell, &mut state);
                }
            }
            // From tick to tick, so that lateness does not slow the rate;
            // what was missed altogether is not made up for.
            tick = (tick + pace.next_interval()).max(now);
        }
    }
}
