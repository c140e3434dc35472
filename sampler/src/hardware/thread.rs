//! The sampler thread of one CPU.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use lbr_msr::record::{Event, Head, Label, Lost};
use lbr_msr::{MsrError, MsrWrite};
use nix::sched::sched_getcpu;
use rtrb::Producer;

use super::code::Switches;
use super::cycles::Clock;
use super::first::go_first;
use super::held::{Given, held};
use super::{CpuReport, RecordUntil};
use crate::clock::monotonic_ns;
use crate::drain::{Drain, DrainError, Mode, Placement, RawStack};
use crate::gate::ThreadId;
use crate::pace::Pace;
use crate::pin::PinError;
use crate::source::SourceError;
use crate::target::Affinity;
use lbr_msr::caps::LbrCaps;

/// Why a sampler thread ended early.
#[derive(Debug)]
pub(super) enum Failed {
    Begin(DrainError),
    Drain(MsrError),
    Pin(PinError),
    Affinity(SourceError),
}

/// What decoder and main thread know of a sampler thread.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// No stack that is still to come is older: CLOCK_MONOTONIC, nanoseconds.
    pub(super) reached: AtomicU64,
}

/// One CPU's sampler, before it runs.
pub(super) struct CpuSampler<'a> {
    pub(super) cpu: u32,
    pub(super) registers: &'a mut (dyn MsrWrite + Send),
    /// How to share the CPU with the target; `None` drains from another CPU.
    pub(super) same_cpu: Option<Box<dyn RecordUntil + Send + 'a>>,
    /// The CPUs this process may run on.
    pub(super) allowed: Affinity,
    pub(super) caps: &'a LbrCaps,
    pub(super) mode: Mode,
    pub(super) thread: ThreadId,
    pub(super) pace: Pace,
    pub(super) queue: Producer<RawStack>,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) switches: Option<Box<dyn Switches>>,
    pub(super) progress: &'a Progress,
    pub(super) finish: &'a AtomicBool,
}

impl CpuSampler<'_> {
    /// Drains until `finish`, and once more. Tells `ready` when the target may
    /// run.
    pub(super) fn run(mut self, ready: &mpsc::Sender<()>) -> Result<CpuReport, Failed> {
        let same_cpu = self.same_cpu.take();
        let mut report = CpuReport { cpu: self.cpu, ..CpuReport::default() };
        if same_cpu.is_some() {
            self.take_place()?;
            report.same_cpu = true;
            report.first = go_first().is_ok();
        }
        let placement = if report.first { Placement::SameCpuFirst } else { Placement::Beside };
        let drain =
            Drain::begin(self.caps, self.mode, placement, self.registers).map_err(Failed::Begin)?;
        let mut running = Running {
            own_switches: u64::from(report.same_cpu),
            sampler: self,
            drain,
            clock: Clock::find(),
            report,
            untold: 0,
        };
        match same_cpu {
            Some(wait) => running.beneath(wait, ready),
            None => running.beside(ready),
        }
        .map_err(Failed::Drain)?;
        running.tell_dropped();
        running.sampler.progress.reached.store(u64::MAX, Ordering::Release);
        Ok(running.report)
    }

    /// Moves this thread to its CPU.
    fn take_place(&self) -> Result<(), Failed> {
        let cpu = self.cpu;
        let only = self.allowed.only(cpu).map_err(Failed::Affinity)?;
        only.apply(0).map_err(Failed::Affinity)?;
        let seen = match Clock::find() {
            Some(clock) => clock.now().cpu() as usize,
            None => sched_getcpu()
                .map_err(|errno| Failed::Pin(PinError::Refused { cpu, cause: errno.into() }))?,
        };
        // 12 bits of TSC_AUX hold the CPU.
        if seen & 0xFFF == cpu as usize & 0xFFF {
            Ok(())
        } else {
            Err(Failed::Pin(PinError::Elsewhere { cpu, seen }))
        }
    }
}

struct Running<'a> {
    sampler: CpuSampler<'a>,
    drain: Drain,
    clock: Option<Clock>,
    report: CpuReport,
    /// Switches of the target between two drains that are our doing.
    own_switches: u64,
    /// Stacks dropped since the decoder was last told.
    untold: u64,
}

impl Running<'_> {
    /// On the CPU of the target: the ring is on only while this thread sleeps.
    fn beneath(
        &mut self,
        mut wait: Box<dyn RecordUntil + Send + '_>,
        ready: &mpsc::Sender<()>,
    ) -> Result<(), MsrError> {
        let thread = self.sampler.thread;
        // What it holds so far is not the target's: some of it is our own.
        let (_, mut thawed) = self.drain.drain_frozen(self.sampler.registers, thread, None)?;
        self.settle();
        let mut frozen = Given::now();
        let _ = ready.send(());
        let mut next = monotonic_ns();
        while !self.sampler.finish.load(Ordering::Acquire) {
            next = self.tick_after(next);
            let thaw = Given::now();
            let seen = wait.record_until(thawed, Duration::from_nanos(next))?;
            let freeze = Given::now();
            if !held(std::mem::replace(&mut frozen, freeze), thaw, freeze) {
                self.report.not_held += 1;
                self.drain.may_have_missed();
            }
            let before = self.clock.map(Clock::now);
            let (stack, value) =
                self.drain.drain_frozen(self.sampler.registers, thread, Some(seen))?;
            self.count_cycles(before);
            thawed = value;
            self.take(stack);
        }
        let (control, _) = self.drain.control();
        self.sampler.registers.write(control, thawed)?;
        self.look_whose()
    }

    /// From another CPU, or in one call: the ring is off only during a drain.
    fn beside(&mut self, ready: &mpsc::Sender<()>) -> Result<(), MsrError> {
        let thread = self.sampler.thread;
        // What came before the target's start is not its own.
        self.drain.drain(self.sampler.registers, thread)?;
        self.settle();
        let _ = ready.send(());
        let mut next = monotonic_ns();
        loop {
            next = self.tick_after(next);
            let mut is_last = self.sampler.finish.load(Ordering::Acquire);
            while !is_last {
                let left = next.saturating_sub(monotonic_ns());
                if left == 0 {
                    break;
                }
                std::thread::park_timeout(Duration::from_nanos(left));
                is_last = self.sampler.finish.load(Ordering::Acquire);
            }
            self.sampler.progress.reached.store(monotonic_ns(), Ordering::Release);
            let before = self.clock.map(Clock::now);
            let stack = self.drain.drain(self.sampler.registers, thread)?;
            self.count_cycles(before);
            self.take(stack);
            if is_last {
                return self.look_whose();
            }
        }
    }

    /// From tick to tick, so that lateness does not slow the rate; what was
    /// missed altogether is not made up for.
    fn tick_after(&mut self, tick: u64) -> u64 {
        let interval = u64::try_from(self.sampler.pace.next_interval().as_nanos());
        let now = monotonic_ns();
        self.sampler.progress.reached.store(now, Ordering::Release);
        tick.saturating_add(interval.unwrap_or(0)).max(now)
    }

    fn count_cycles(&mut self, before: Option<super::cycles::Moment>) {
        let cycles = self.clock.zip(before).and_then(|(clock, before)| clock.now().since(before));
        if let Some(cycles) = cycles {
            let (drains, total) = self.report.timed.unwrap_or((0, 0));
            self.report.timed = Some((drains + 1, total.saturating_add(cycles)));
        }
    }

    /// Switches until now are nobody's concern.
    fn settle(&mut self) {
        if let Some(switches) = &mut self.sampler.switches {
            switches.since_last();
        }
    }

    fn take(&mut self, mut stack: RawStack) {
        let cost = stack.accesses.total();
        self.report.drains += 1;
        self.report.accesses += u64::from(cost);
        self.report.most_accesses = self.report.most_accesses.max(cost);
        let switched = self.sampler.switches.as_mut().and_then(|switches| switches.since_last());
        if switched.is_some_and(|count| count > self.own_switches) {
            self.report.switched += 1;
            // Whoever ran instead may have had the same addresses.
            if stack.integrity.head == Head::Joined && !stack.entries().is_empty() {
                stack.integrity.head = Head::Unknown;
            }
        }
        let says_nothing = stack.entries().is_empty() && stack.integrity.label == Label::Stream;
        match self.sampler.queue.push(stack) {
            Ok(()) => self.tell_dropped(),
            Err(_) if says_nothing => {}
            Err(_) => {
                self.report.dropped += 1;
                self.untold += 1;
                self.drain.stack_dropped();
            }
        }
    }

    /// Tells the recording what was dropped. Not through the full queue.
    fn tell_dropped(&mut self) {
        if self.untold > 0 {
            let ThreadId { pid, tid } = self.sampler.thread;
            // Where nobody listens, the session fails for that reason.
            let _ = self.sampler.events.send(Event::Lost(Lost {
                time: monotonic_ns(),
                pid,
                tid,
                cpu: self.sampler.cpu,
                stacks: std::mem::take(&mut self.untold),
                label: None,
            }));
        }
    }

    fn look_whose(&mut self) -> Result<(), MsrError> {
        self.report.taken_over = !self.drain.is_still_ours(self.sampler.registers)?;
        Ok(())
    }
}
