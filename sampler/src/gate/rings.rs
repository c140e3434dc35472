//! The LBRs of a target's threads: written by the source's thread, and drained by it when a period
//! is full, or by the clock thread.

use std::sync::Arc;
use std::time::Duration;

use lbr_msr::caps::LbrCaps;
use lbr_msr::record::{MoveKind, ThreadMove};
use lbr_msr::soft::Retired;

use super::registers::{BranchRegisters, OpenError, OpenRegisters};
use super::shared::{Shared, lock};
use crate::clock::{Pace, monotonic_ns};
use crate::config::RecordConfig;
use crate::drain::{Drain, DrainError, Mode, Placement, RawStack};
use crate::outlet::{Outlet, SamplerError, SamplerReport};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, thread};
use crate::target::ThreadId;

/// The clock's longest sleep, so that shutdown is noticed.
const DOZE: Duration = Duration::from_millis(50);

/// Maximum number of moves between two drains. Nearly every move comes with a branch.
const MOST_MOVES: usize = 256;

/// The registers of one thread.
pub(crate) struct Cell {
    pub(super) thread: ThreadId,
    state: Mutex<State>,
    /// The clock ticked while the registers were in use.
    pub(super) due: AtomicBool,
}

struct State {
    registers: Box<dyn BranchRegisters>,
    drain: Drain,
    /// The last drained stack.
    stack: RawStack,
    /// LBR changes since the last drain.
    since_drain: u64,
    /// The thread's argument registers after the newest branch, for the next drain.
    arguments: Option<[u64; 6]>,
    /// Moves since the last drain, each with the number of ring changes before it.
    moves: Vec<(u64, ThreadMove)>,
}

/// All LBRs of a recording, and their common queue to the decoder.
pub(crate) struct Rings {
    pub(super) shared: Arc<Shared>,
    caps: LbrCaps,
    mode: Mode,
    /// Number of LBR changes after which it is drained; `None` with a clock.
    pub(super) period: Option<u64>,
    /// The period is shorter than the ring, so every branch is recorded. A full period is drained
    /// only before the next branch: the last stack of a thread then has a branch, and carries the
    /// moves after it.
    pub(crate) takes_all: bool,
    /// Whether the source sees the kernel. If not, the target of a branch into the kernel is
    /// unknown, and such branches are not recorded.
    sees_kernel: bool,
    open: Option<OpenRegisters>,
    cells: Mutex<Vec<Arc<Cell>>>,
    /// `None` when draining has ended.
    outlet: Mutex<Option<Outlet>>,
    ended: Mutex<Result<SamplerReport, SamplerError>>,
    /// LBR changes of all ended threads: the number of branches that a complete recording must hold.
    pub(crate) retired: AtomicU64,
}

impl Rings {
    /// `outlet`: `None` if the source has its own samplers.
    pub(crate) fn new(
        config: &mut RecordConfig,
        period: Option<u64>,
        sees_kernel: bool,
        shared: Arc<Shared>,
        outlet: Option<Outlet>,
    ) -> Arc<Rings> {
        Arc::new(Rings {
            shared,
            takes_all: period.is_some_and(|period| period < u64::from(config.caps.depth))
                && !config.call_stack,
            caps: config.caps.clone(),
            mode: config.mode(),
            period,
            sees_kernel,
            open: config.open.take(),
            cells: Mutex::default(),
            outlet: Mutex::new(outlet),
            ended: Mutex::new(Ok(SamplerReport::default())),
            retired: AtomicU64::new(0),
        })
    }

    /// Opens and arms the registers of a new thread; `None` fails the recording.
    pub(super) fn open(&self, thread: ThreadId) -> Option<Arc<Cell>> {
        let state = self.armed(thread).map_err(|error| self.fail(SamplerError::Open(error)));
        let state = Mutex::new(state.ok()?);
        let cell = Arc::new(Cell { thread, state, due: AtomicBool::new(false) });
        lock(&self.cells).push(Arc::clone(&cell));
        Some(cell)
    }

    pub(super) fn registers(
        &self,
        thread: ThreadId,
    ) -> Result<Box<dyn BranchRegisters>, OpenError> {
        let Some(open) = &self.open else {
            let why = "no registers are configured for threads of the target";
            let facility = self.caps.facility;
            return Err(DrainError::Unsupported { facility, why }.into());
        };
        open(thread)
    }

    fn armed(&self, thread: ThreadId) -> Result<State, OpenError> {
        let mut registers = self.registers(thread)?;
        let drain = Drain::begin(&self.caps, self.mode, Placement::SourceWaits, &mut *registers)?;
        let stack = RawStack::empty(thread, registers.cpu());
        Ok(State { registers, drain, stack, since_drain: 0, arguments: None, moves: Vec::new() })
    }

    /// Retires a run, preceded by omitted branches that passed the filter. Returns how often the
    /// LBR changed.
    pub(super) fn feed(&self, cell: &Cell, left_out: u64, run: &[Retired]) -> u64 {
        let state = &mut *lock(&cell.state);
        let mut changes = 0;
        let period = self.period.unwrap_or(u64::MAX);
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
                self.drain_full(cell, state);
                let room = period.saturating_sub(state.since_drain);
                let (taken, changed) = state.registers.retire_run(run, room);
                changes += changed;
                state.since_drain += changed;
                if !self.takes_all && state.since_drain >= period {
                    self.drain_state(cell, state);
                }
                run = run.get(taken.max(1)..).unwrap_or_default();
            }
        }
        changes
    }

    /// Retires one branch, after which the argument registers have these values, and drains unless
    /// the branch is filtered. Returns how often the LBR changed.
    pub(super) fn feed_entry(&self, cell: &Cell, branch: &Retired, arguments: [u64; 6]) -> u64 {
        let state = &mut *lock(&cell.state);
        self.drain_full(cell, state);
        let changed = u64::from(state.registers.retire(branch));
        if changed > 0 {
            state.arguments = Some(arguments);
            state.since_drain += 1;
            self.drain_state(cell, state);
        }
        changed
    }

    /// Drains a ring with a full period before its next branch.
    #[inline]
    fn drain_full(&self, cell: &Cell, state: &mut State) {
        if self.takes_all && state.since_drain >= self.period.unwrap_or(u64::MAX) {
            self.drain_state(cell, state);
        }
    }

    /// Records that the kernel moves the ring's thread.
    pub(super) fn moved(&self, cell: &Cell, kind: MoveKind, from: u64, to: u64) {
        if !self.takes_all {
            return;
        }
        let state = &mut *lock(&cell.state);
        let moved = ThreadMove { newer: 0, kind, from, to };
        if state.moves.len() < MOST_MOVES {
            state.moves.push((state.since_drain, moved));
        } else if let Some(last) = state.moves.last_mut() {
            *last = (state.since_drain, ThreadMove { kind: MoveKind::Unknown, ..moved });
        }
    }

    /// Drains a ring now.
    pub(super) fn drain(&self, cell: &Cell) {
        self.drain_state(cell, &mut lock(&cell.state));
    }

    /// The caller holds the lock, so the source waits from before the freeze until after the thaw.
    fn drain_state(&self, cell: &Cell, state: &mut State) {
        let Some(outlet) = &mut *lock(&self.outlet) else { return };
        cell.due.store(false, Ordering::Relaxed);
        let drained = std::mem::take(&mut state.since_drain);
        let arguments = state.arguments.take();
        if let Err(error) = state.registers.drained(&mut state.drain, &mut state.stack) {
            // They belong to branches that the next stack may not have.
            state.moves.clear();
            return self.fail(SamplerError::Drain(error));
        }
        state.stack.arguments = arguments;
        if drained > 0 && !state.moves.is_empty() {
            let is_whole = state.stack.entries().len() as u64 == drained;
            let moves = state.moves.drain(..).map(|(before, moved)| ThreadMove {
                newer: drained.saturating_sub(before) as u32,
                kind: if is_whole { moved.kind } else { MoveKind::Unknown },
                ..moved
            });
            self.shared.send_moves(cell.thread, state.stack.time, moves.collect());
        }
        if !outlet.push(&state.stack) {
            state.drain.stack_dropped();
        }
    }

    fn fail(&self, error: SamplerError) {
        let ended = &mut *lock(&self.ended);
        if ended.is_ok() {
            *ended = Err(error);
        }
        self.shared.fail();
    }

    /// A thread has ended, after `retired` LBR changes.
    pub(super) fn finish(&self, cell: &Arc<Cell>, retired: u64) {
        self.retired.fetch_add(retired, Ordering::AcqRel);
        lock(&self.cells).retain(|ring| !Arc::ptr_eq(ring, cell));
        self.finish_cell(cell);
    }

    fn finish_cell(&self, cell: &Cell) {
        let state = &mut *lock(&cell.state);
        // Another snapshot of an unchanged call stack would count twice.
        if state.since_drain > 0 {
            self.drain_state(cell, state);
        }
        let is_still_ours = state.drain.is_still_ours(&mut *state.registers);
        match (is_still_ours, &mut *lock(&self.outlet)) {
            (Ok(is_still_ours), Some(outlet)) => outlet.report.taken_over |= !is_still_ours,
            (Ok(_), None) => {}
            (Err(error), _) => self.fail(SamplerError::Drain(error)),
        }
    }

    /// After the last branch: drains the LBRs that the source did not finish, and lets the decoder
    /// end.
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

    /// The statistics of the drains. Can be taken once.
    pub(crate) fn report(&self) -> Result<SamplerReport, SamplerError> {
        std::mem::replace(&mut *lock(&self.ended), Ok(SamplerReport::default()))
    }

    /// Drains by the clock until the recording ends.
    pub(crate) fn tick(&self, mut pace: Pace) {
        self.shared.i_am_a_sampler();
        let mut tick = pace.tick_after(monotonic_ns(), 0..0);
        while !self.shared.has_ended() && !self.shared.has_failed() {
            let now = monotonic_ns();
            let wait = tick.saturating_sub(now);
            if wait > 0 {
                thread::park_timeout(Duration::from_nanos(wait).min(DOZE));
                continue;
            }
            let cells = lock(&self.cells).clone();
            for cell in &cells {
                cell.due.store(true, Ordering::Relaxed);
                // If locked, the holder checks `due` before its next run, so no wait is needed
                // here.
                if let Ok(mut state) = cell.state.try_lock()
                    && state.since_drain > 0
                {
                    self.drain_state(cell, &mut state);
                }
            }
            tick = pace.tick_after(tick, now..now);
        }
    }
}
