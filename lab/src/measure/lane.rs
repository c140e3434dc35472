//! A piece of code, ready to run at full speed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{fs, io};

use super::bracket::{Body, Gpr, SwitchWrites};
use super::confine::{CodeRights, SealedSwitch};
use super::forked::Setting;
use super::options::{MeasureError, os};
use super::result::{Branches, Cut, Folded, Folding, Measurement, Run, Strip, cut, runs, total};
use super::ring::Reading;
use super::runner::Runner;
use super::session::{Session, kept, map};
use sampler::source::perf::Stacks;
use sampler::{Random, fresh_seed};

/// The code and an empty bracket, each in a process that waits for its next run.
pub(super) struct Lane {
    pub(super) code: Runner,
    nothing: Runner,
    strip: Strip,
    /// The results known before the first run at full speed.
    blank: Measurement,
}

impl Session {
    /// Tries the code, single-steps it to count, and prepares both processes.
    pub(super) fn lane(
        &mut self,
        body: &Body,
        nothing: &Body,
        strip: Strip,
    ) -> Result<Lane, MeasureError> {
        let sealed = self.ring.as_ref().map(|ring| SealedSwitch::new(ring.switch())).transpose();
        let sealed = sealed.map_err(os("mapping the values of the control register"))?;
        let alone = body.closure.is_none();
        let confined = alone && self.options.confined;
        let setting = Setting {
            alone,
            confined: confined.then(CodeRights::of_caller).transpose()?,
            switch: sealed.map(Arc::new),
            lifeline: self.ring.as_ref().and_then(|ring| ring.lifeline()),
            counters: self.options.counters.filter(|_| self.ring.is_none()),
            pin: self.options.pin,
            stop: Arc::clone(&self.options.stop),
        };

        // Hostile code fails here, at full speed, before recording is ever switched on.
        let counters = setting.counters.is_some();
        self.keeps_counter(body, &setting)?;
        let bracket = map(&Body { counters, ..body.clone() })?;
        let mut code = Runner::new(&bracket, &setting)?;
        let mut end = code.run(SwitchWrites::NONE, self.options.limit)?.registers;
        for _ in 1..self.options.warm_up.max(1) {
            end = code.run(SwitchWrites::NONE, self.options.limit)?.registers;
        }

        let mut folded = Folded::default();
        let stepped_body = Body { rounds: self.stepped_rounds(body), ..body.clone() };
        let layout = bracket.layout();
        let stepped = self.count(&stepped_body, &setting, strip, layout, &mut folded)?;
        if let (Some(rounds), Some(counts)) = (stepped_body.rounds, stepped.counts)
            && counts.rounds != u64::from(rounds.max(1))
        {
            return Err(MeasureError::Counter);
        }

        let empty = map(&Body { counters, ..nothing.clone() })?;
        let mut nothing = Runner::new(&empty, &setting)?;
        for _ in 0..self.options.warm_up {
            nothing.run(SwitchWrites::NONE, self.options.limit)?;
        }
        let blank = Measurement {
            layout: layout.clone(),
            iterations: body.iterations(),
            counts: stepped.counts,
            stepped_iterations: stepped_body.iterations(),
            stepped: stepped.runs,
            counts_vary: stepped.vary,
            blocks: folded.blocks(),
            from_registers: self.ring.is_some(),
            from_counters: counters,
            depth: self.ring.as_ref().map(|ring| ring.depth()),
            end,
            ..Measurement::default()
        };
        Ok(Lane { code, nothing, strip, blank })
    }

    /// Runs all pieces of code, alternating; an error includes the piece's index.
    pub(super) fn turn(
        &mut self,
        lanes: &mut [Lane],
    ) -> Result<Vec<Measurement>, (usize, MeasureError)> {
        let mut results: Vec<(Measurement, Folded)> =
            lanes.iter().map(|lane| (lane.blank.clone(), Folded::default())).collect();
        let (mut order, mut random): (Vec<usize>, _) =
            ((0..lanes.len()).collect(), Random(fresh_seed()));
        'runs: for _ in 0..self.options.repeat {
            // In a fixed order, periodic activity of other programs could always hit the same piece.
            random.shuffle(&mut order);
            for &i in &order {
                let (Some(lane), Some((result, folded))) = (lanes.get_mut(i), results.get_mut(i))
                else {
                    continue;
                };
                match self.both(lane, result, folded) {
                    Ok(()) => {}
                    Err(MeasureError::Stopped) => {
                        result.stopped = true;
                        break 'runs;
                    }
                    Err(error) => return Err((i, error)),
                }
            }
        }
        let finish = |(mut result, mut folded): (Measurement, Folded)| {
            if result.from_registers {
                result.rounds = std::mem::take(&mut folded.rounds);
                result.blocks = folded.blocks();
            }
            result
        };
        Ok(results.into_iter().map(finish).collect())
    }

    /// Runs the empty bracket and the code once each.
    fn both(
        &mut self,
        lane: &mut Lane,
        result: &mut Measurement,
        folded: &mut Folded,
    ) -> Result<(), MeasureError> {
        let nothing = self.once(&mut lane.nothing, result)?;
        result.overhead.extend(nothing.map(|(run, _)| run));
        if let Some((run, branches)) = self.once(&mut lane.code, result)? {
            result.runs.push(run);
            if let Some(branches) = branches {
                result.overflowed += u64::from(!branches.complete);
                let Runner { child, code, .. } = &mut lane.code;
                let keep = kept(self.options.filter);
                let how = Folding { layout: &child.layout, strip: lane.strip, keep };
                folded.add(&branches, &how, |at| code.class(child, at));
            }
        }
        Ok(())
    }

    /// Rejects code that changes the loop's count register.
    fn keeps_counter(&self, body: &Body, setting: &Setting) -> Result<(), MeasureError> {
        let Some(rounds) = body.rounds.filter(|_| !body.sets_up_again()) else { return Ok(()) };
        let bracket = map(&Body { rounds: None, ..body.clone() })?;
        let first = u64::from(rounds.max(1));
        let mut runner = Runner::new(&bracket, setting)?;
        runner.child.start = runner.child.start.with(Gpr::R15, first);
        let end = runner.run(SwitchWrites::NONE, self.options.limit)?;
        if end.registers.get(Gpr::R15) == first { Ok(()) } else { Err(MeasureError::Counter) }
    }

    /// Number of loop iterations in a stepped run.
    fn stepped_rounds(&self, body: &Body) -> Option<u32> {
        let most = self.options.stepped_iterations / body.unroll.max(1);
        // At least two, so that the loop's branch is taken once.
        body.rounds.map(|rounds| rounds.min(most.max(2)))
    }

    /// Repeats the runs while the kernel samples branch stacks; `None` if it took none.
    pub(super) fn of_stacks(
        &self,
        runner: &mut Runner,
        result: &mut Measurement,
    ) -> Result<Option<Folded>, MeasureError> {
        /// Maximum number of stacks; each costs an interrupt.
        const ENOUGH: u64 = 1_000;
        let (Some(kernel), Some(pin)) = (&self.options.stacks, self.options.pin) else {
            return Ok(None);
        };
        let (host, caps) = &**kernel;
        let branches: u64 = result.runs.iter().filter_map(|run| run.branches).sum();
        // Odd, to fall on all parts of a loop; long enough that no stack reaches back to the
        // previous interrupt.
        let period = (branches / ENOUGH).max(2 * u64::from(caps.depth)) | 1;
        let pid = runner.child.pid.as_raw().cast_unsigned();
        let Some(cpu) = pin.cpus().next() else { return Ok(None) };
        let Ok(mut stacks) = Stacks::of(pid, cpu, period, host, caps) else { return Ok(None) };
        let keep = kept(self.options.filter);
        let mut folded = Folded::default();
        for _ in 0..self.options.repeat {
            if self.options.stop.load(Ordering::Relaxed) {
                break;
            }
            runner.run(SwitchWrites::NONE, self.options.limit)?;
            let Runner { child, code, .. } = &mut *runner;
            let layout = &child.layout;
            let how = Folding { layout, strip: Strip::default(), keep };
            for stack in stacks.take() {
                result.stacks += 1;
                for run in runs(&stack, layout, |at| code.is_behind_call(child, at)) {
                    folded.add(&run, &how, |at| code.class(child, at));
                }
            }
        }
        Ok((!folded.is_empty()).then_some(folded))
    }

    /// One run at full speed; `None` if it has to be discarded.
    fn once(
        &mut self,
        runner: &mut Runner,
        result: &mut Measurement,
    ) -> Result<Option<(Run, Option<Branches>)>, MeasureError> {
        let switch = self.ring.as_ref().map_or(SwitchWrites::NONE, |ring| ring.switch());
        let pid = runner.child.pid.as_raw();
        let before = preemptions(pid);
        if self.options.stop.load(Ordering::Relaxed) {
            return Err(MeasureError::Stopped);
        }
        let ran = match runner.run(switch, self.options.limit) {
            Ok(ran) => ran,
            Err(error) => {
                // It may have died while recording was on.
                if let Some(ring) = &mut self.ring {
                    ring.stop()?;
                }
                return Err(error);
            }
        };
        let (ticks, preempted) = (ran.ticks(), preemptions(pid) > before);
        let Some(ring) = &mut self.ring else {
            let Some([cycles, instructions, branches, mispredicted]) = ran.counted else {
                result.interrupted += 1;
                return Ok(None);
            };
            let run = Run {
                ticks,
                cycles,
                instructions,
                branches,
                mispredicted,
                preempted,
                saturated: false,
            };
            return Ok(Some((run, None)));
        };
        for (what, returned) in ["on", "off"].into_iter().zip(ran.switched) {
            if returned != 8 {
                ring.stop()?;
                let errno = i32::try_from(-returned).unwrap_or(0);
                let cause = io::Error::from_raw_os_error(errno);
                return Err(MeasureError::Switch { what, cause });
            }
        }
        let Runner { child, code, .. } = runner;
        let read = match ring.read()? {
            Reading::Records(records) => {
                cut(&records, &child.layout, |at| code.is_behind_call(child, at))
            }
            Reading::Torn => Cut::Unreadable,
            Reading::Foreign => {
                result.foreign += 1;
                return Ok(None);
            }
        };
        match read {
            Cut::Interrupted => result.interrupted += 1,
            Cut::Unreadable => result.unreadable += 1,
            Cut::Run(branches) => {
                let (cycles, saturated) = total(&branches);
                let run = Run { ticks, cycles, saturated, preempted, ..Run::default() };
                return Ok(Some((run, Some(branches))));
            }
        }
        Ok(None)
    }
}

/// Number of times that a process was preempted. proc_pid_status(5).
pub(super) fn preemptions(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}
