//! The sampler thread of one CPU.

use std::time::Duration;

use lbr_msr::MsrError;
use lbr_msr::caps::LbrCaps;
use lbr_msr::record::Head;

use super::code::Switches;
use super::cycles::{Clock, Moment};
use super::first::go_first;
use super::held::{Given, held};
use super::{CpuRing, RecordUntil};
use crate::clock::Pace;
use crate::clock::monotonic_ns;
use crate::drain::{Drain, Mode, Placement, RawStack};
use crate::outlet::{Outlet, SamplerError};
use crate::sync::thread;
use crate::target::{Affinity, ThreadId};

/// The sampler of one CPU, before it starts.
pub(super) struct CpuSampler<'a> {
    pub(super) ring: CpuRing<'a>,
    /// The CPUs that this process may use.
    pub(super) allowed: Affinity,
    pub(super) caps: LbrCaps,
    pub(super) mode: Mode,
    pub(super) thread: ThreadId,
    pub(super) pace: Pace,
    pub(super) switches: Option<Box<dyn Switches>>,
}

impl CpuSampler<'_> {
    /// Drains until the recording is over, and once more.
    pub(super) fn run(mut self, outlet: &mut Outlet) -> Result<(), SamplerError> {
        let same_cpu = self.ring.same_cpu.take();
        let cpu = self.ring.registers.cpu();
        outlet.report.cpu = cpu;
        if same_cpu.is_some() {
            self.allowed.pin_this_thread(cpu).map_err(SamplerError::Place)?;
            outlet.report.same_cpu = true;
            outlet.report.first = go_first().is_ok();
        }
        let placement =
            if outlet.report.first { Placement::SameCpuFirst } else { Placement::Beside };
        let drain = Drain::begin(&self.caps, self.mode, placement, self.ring.registers)
            .map_err(|error| SamplerError::Open(error.into()))?;
        let own_switches = u64::from(outlet.report.same_cpu);
        let mut running =
            Running { sampler: self, drain, clock: Clock::find(), outlet, own_switches };
        match same_cpu {
            Some(wait) => running.beneath(wait),
            None => running.drain_alongside(),
        }
        .map_err(SamplerError::Drain)
    }
}

struct Running<'a, 'b> {
    sampler: CpuSampler<'a>,
    drain: Drain,
    clock: Option<Clock>,
    outlet: &'b mut Outlet,
    /// Switches of the target between two drains that the sampler caused.
    own_switches: u64,
}

impl Running<'_, '_> {
    /// On the target's CPU: recording is on only while this thread sleeps.
    fn beneath(&mut self, mut wait: Box<dyn RecordUntil + Send + '_>) -> Result<(), MsrError> {
        let thread = self.sampler.thread;
        let mut woke = monotonic_ns();
        // The records so far include the sampler's own branches.
        let (_, mut thawed) = self.drain.drain_frozen(self.sampler.ring.registers, thread, None)?;
        self.settle();
        let mut frozen = Given::now();
        self.outlet.ready();
        let mut next = monotonic_ns();
        while !self.outlet.is_over() {
            next = self.tick_after(next, woke);
            let thaw = Given::now();
            let seen = wait.record_until(thawed, Duration::from_nanos(next))?;
            woke = monotonic_ns();
            let freeze = Given::now();
            if !held(std::mem::replace(&mut frozen, freeze), thaw, freeze) {
                self.outlet.report.not_held += 1;
                self.drain.may_have_missed();
            }
            let before = self.clock.map(Clock::now);
            let (stack, value) =
                self.drain.drain_frozen(self.sampler.ring.registers, thread, Some(seen))?;
            self.count_cycles(before);
            thawed = value;
            self.take(stack);
        }
        let (control, _) = self.drain.control();
        self.sampler.ring.registers.write(control, thawed)?;
        self.look_whose()
    }

    /// From another CPU, or in one call: recording is off only during a drain.
    fn drain_alongside(&mut self) -> Result<(), MsrError> {
        let thread = self.sampler.thread;
        let mut woke = monotonic_ns();
        // Discards branches from before the target's start.
        self.drain.drain(self.sampler.ring.registers, thread)?;
        self.settle();
        self.outlet.ready();
        let mut next = monotonic_ns();
        loop {
            next = self.tick_after(next, woke);
            let mut is_last = self.outlet.is_over();
            while !is_last {
                let left = next.saturating_sub(monotonic_ns());
                if left == 0 {
                    break;
                }
                thread::park_timeout(Duration::from_nanos(left));
                is_last = self.outlet.is_over();
            }
            woke = monotonic_ns();
            self.outlet.reach(woke);
            let before = self.clock.map(Clock::now);
            let stack = self.drain.drain(self.sampler.ring.registers, thread)?;
            self.count_cycles(before);
            self.take(stack);
            if is_last {
                return self.look_whose();
            }
        }
    }

    /// The time of the next drain; `woke` is when the last one began.
    fn tick_after(&mut self, tick: u64, woke: u64) -> u64 {
        let now = monotonic_ns();
        self.outlet.reach(now);
        self.sampler.pace.tick_after(tick, woke..now)
    }

    fn count_cycles(&mut self, before: Option<Moment>) {
        let cycles = self.clock.zip(before).and_then(|(clock, before)| clock.now().since(before));
        if let Some(cycles) = cycles {
            let (drains, total) = self.outlet.report.timed.unwrap_or((0, 0));
            self.outlet.report.timed = Some((drains + 1, total.saturating_add(cycles)));
        }
    }

    /// Discards the switches counted so far.
    fn settle(&mut self) {
        if let Some(switches) = &mut self.sampler.switches {
            switches.since_last();
        }
    }

    fn take(&mut self, mut stack: RawStack) {
        let switched = self.sampler.switches.as_mut().and_then(|switches| switches.since_last());
        if switched.is_some_and(|count| count > self.own_switches) {
            self.outlet.report.switched += 1;
            // Another task may have run at the same addresses.
            if stack.integrity.head == Head::Joined && !stack.entries().is_empty() {
                stack.integrity.head = Head::Unknown;
            }
        }
        if !self.outlet.push(&stack) {
            self.drain.stack_dropped();
        }
    }

    fn look_whose(&mut self) -> Result<(), MsrError> {
        self.outlet.report.taken_over = !self.drain.is_still_ours(self.sampler.ring.registers)?;
        Ok(())
    }
}
