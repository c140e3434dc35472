//! The order of a measurement: try, count, measure.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lbr_msr::MsrError;
use lbr_msr::arm::Restored;
use lbr_msr::caps::FilterRegister;
use lbr_msr::filter::{BranchClasses, BranchFilter, FilterError, to_register_beside};
use lbr_msr::record::HwBranchType;
use lbr_msr::soft::SoftCpu;

use super::bracket::{Body, Bracket, GprValues, Layout, SwitchWrites};
use super::child::Setting;
use super::fault::NoResult;
use super::options::{MeasureError, Options};
use super::result::{Branches, Cut, Folded, Folding, Measurement, Run, Strip, cut, runs, total};
use super::ring::{Full, Reading, Ring};
use super::runner::Runner;
use super::walk::StepCounts;
use crate::code::counted::CounterDeltas;
use sampler::source::perf::Stacks;
use sampler::target::{Affinity, Moved};

/// The value of the filter register that `filter` and the bracket's own
/// branches need. `rounds` and `call` as in [`Body`].
///
/// # Errors
/// As [`to_register_beside`]; where nothing can be filtered, every filter on
/// user mode is done afterwards.
pub fn select(
    filter: BranchFilter,
    body: &Body,
    register: FilterRegister,
) -> Result<u64, FilterError> {
    let mut beside = BranchClasses::REL_JMP | BranchClasses::OTHER;
    beside.set(BranchClasses::COND, body.rounds.is_some());
    beside.set(BranchClasses::IND_CALL, body.call.is_some());
    if register == FilterRegister::None {
        return Ok(0);
    }
    to_register_beside(filter, beside, register)
}

/// Measures pieces of code.
#[derive(Debug)]
pub struct Session {
    options: Options,
    ring: Option<Box<dyn Ring>>,
}

impl Session {
    /// StepCounts by single-stepping, and times by the time stamp counter: no
    /// branch records are needed, and no rights.
    ///
    /// # Errors
    /// Never; the software LBR's CPU is a preset.
    pub fn stepping() -> Result<Session, lbr_msr::soft::preset::UnknownCpu> {
        SoftCpu::preset("06_5E").map(|cpu| Session { options: Options::new(cpu), ring: None })
    }

    /// As the options say; with a ring, the runs at full speed are read from
    /// it.
    #[must_use]
    pub fn new(options: Options, ring: Option<Box<dyn Ring>>) -> Session {
        Session { options, ring }
    }

    /// The options.
    pub fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    /// Ends the session: puts the registers of its ring back, and tells what
    /// was found there. A session that is dropped does that silently.
    ///
    /// # Errors
    /// The first access that failed.
    pub fn restore(self) -> Result<Restored, MsrError> {
        self.ring.map_or(Ok(Restored::default()), |ring| ring.restore())
    }

    /// Measures a piece of code. The standard streams of its process are
    /// /dev/null.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub fn measure_code(&mut self, body: &Body) -> Result<Measurement, MeasureError> {
        let nothing = match body.call {
            Some(_) => Body { call: Some(nothing_address()), ..Body::default() },
            None => Body::default(),
        };
        self.measure_body(body, &nothing, true, |registers| registers, Strip::default())
    }

    /// How many rounds of its loop a piece of code needs for a run to take this
    /// many ticks of the time stamp counter, what is around it taken off.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub fn calibrate(&mut self, body: &Body, ticks: u64) -> Result<u32, MeasureError> {
        const MOST: u32 = 1 << 20;
        let few = Options { warm_up: 2, repeat: 9, stepped: 0, ..self.options.clone() };
        let options = std::mem::replace(&mut self.options, few);
        let mut rounds = 1;
        let found = loop {
            let measured = match self.measure_code(&Body { rounds: Some(rounds), ..body.clone() }) {
                Ok(measured) => measured,
                Err(error) => break Err(error),
            };
            let net = median(&measured.runs).saturating_sub(median(&measured.overhead));
            if net >= ticks || rounds == MOST || measured.stopped {
                break Ok(rounds);
            }
            // The first runs tell little but the order of magnitude.
            let more = u64::from(rounds).saturating_mul(ticks) / net.max(1);
            let next = u32::try_from(more.saturating_add(1)).unwrap_or(MOST);
            rounds = next.clamp(rounds + 1, rounds.saturating_mul(16)).min(MOST);
        };
        self.options = options;
        found
    }

    /// The whole of it.
    pub(super) fn measure_body(
        &mut self,
        body: &Body,
        nothing: &Body,
        alone: bool,
        start: impl Fn(GprValues) -> GprValues,
        strip: Strip,
    ) -> Result<Measurement, MeasureError> {
        let switch = self.ring.as_ref().map_or(SwitchWrites::NONE, |ring| ring.switch());
        let setting = Setting {
            alone,
            confined: alone && self.options.confined,
            switch,
            lifeline: self.ring.as_ref().map_or(-1, |ring| ring.lifeline()),
            counters: self.options.counters.filter(|_| self.ring.is_none()),
            pin: self.options.pin,
            stop: Arc::clone(&self.options.stop),
        };

        // Hostile code shows itself here, at full speed, before anything is
        // switched on.
        let counters = setting.counters.is_some();
        let bracket = map(&Body { counters, ..body.clone() })?;
        let mut measured = Runner::new(&bracket, &setting, start(bracket.start()))?;
        let mut end = measured.run(SwitchWrites::NONE, self.options.limit)?.registers;
        for _ in 1..self.options.warm_up.max(1) {
            end = measured.run(SwitchWrites::NONE, self.options.limit)?.registers;
        }

        let mut folded = Folded::default();
        let stepped = self.count(body, &setting, &start, strip, bracket.layout(), &mut folded)?;

        let empty = map(&Body { counters, ..nothing.clone() })?;
        let mut around_nothing = Runner::new(&empty, &setting, start(empty.start()))?;
        for _ in 0..self.options.warm_up {
            around_nothing.run(SwitchWrites::NONE, self.options.limit)?;
        }

        let iterations = u64::from(body.unroll.max(1)) * u64::from(body.rounds.unwrap_or(1).max(1));
        let mut result = Measurement {
            layout: bracket.layout().clone(),
            iterations,
            counts: stepped.counts,
            stepped: stepped.runs,
            counts_vary: stepped.vary,
            runs: Vec::new(),
            overhead: Vec::new(),
            blocks: Vec::new(),
            rounds: std::collections::BTreeMap::new(),
            from_registers: self.ring.is_some(),
            from_counters: counters,
            stacks: 0,
            depth: self.ring.as_ref().map(|ring| ring.depth()),
            interrupted: 0,
            unreadable: 0,
            foreign: 0,
            overflowed: 0,
            end,
            stopped: false,
        };
        if self.ring.is_some() {
            folded = Folded::default();
        }
        for _ in 0..self.options.repeat {
            let runs = self
                .once(&mut around_nothing, switch, &mut result)
                .and_then(|nothing| Ok((nothing, self.once(&mut measured, switch, &mut result)?)));
            let (nothing, code) = match runs {
                Err(MeasureError::Stopped) => {
                    result.stopped = true;
                    break;
                }
                runs => runs?,
            };
            result.overhead.extend(nothing.map(|(run, _)| run));
            if let Some((run, branches)) = code {
                result.runs.push(run);
                if let Some(branches) = branches {
                    result.overflowed += u64::from(!branches.complete);
                    let keep = kept(self.options.filter);
                    let how = Folding { layout: &measured.layout, strip, keep };
                    folded.add(&branches, &how, |at| measured.code.class(&measured.child, at));
                }
            }
        }
        if counters && strip == Strip::default() && !result.stopped {
            folded = self.of_stacks(&mut measured, &mut result)?.unwrap_or(folded);
        }
        result.rounds = std::mem::take(&mut folded.rounds);
        result.blocks = folded.blocks();
        Ok(result)
    }

    /// As many runs again, of which the kernel takes branch stacks; `None` where it
    /// has taken none.
    fn of_stacks(
        &self,
        runner: &mut Runner,
        result: &mut Measurement,
    ) -> Result<Option<Folded>, MeasureError> {
        /// Stacks at most: each is an interrupt.
        const ENOUGH: u64 = 1_000;
        let (Some(kernel), Some(pin)) = (&self.options.stacks, self.options.pin) else {
            return Ok(None);
        };
        let (host, caps) = &**kernel;
        let branches: u64 = result.runs.iter().filter_map(|run| run.branches).sum();
        // Odd, so as to fall everywhere in a loop; no stack reaches back to the interrupt of
        // the one before.
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
            let Runner { child, layout, code, .. } = &mut *runner;
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

    /// One run at full speed; `None` where it does not count.
    fn once(
        &mut self,
        runner: &mut Runner,
        switch: SwitchWrites,
        result: &mut Measurement,
    ) -> Result<Option<(Run, Option<Branches>)>, MeasureError> {
        if self.options.stop.load(Ordering::Relaxed) {
            return Err(MeasureError::Stopped);
        }
        let ran = match runner.run(switch, self.options.limit) {
            Ok(ran) => ran,
            Err(error) => {
                // It may have died with recording on.
                if let Some(ring) = &mut self.ring {
                    ring.stop()?;
                }
                return Err(error);
            }
        };
        let ticks = ran.ticks();
        let Some(ring) = &mut self.ring else {
            let counted = match ran.counted {
                CounterDeltas::All(counted) => counted,
                CounterDeltas::Interrupted => {
                    result.interrupted += 1;
                    return Ok(None);
                }
            };
            let [cycles, instructions, branches, mispredicted] = counted;
            let run = Run { ticks, cycles, instructions, branches, mispredicted, saturated: false };
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
        let records = match ring.read()? {
            Reading::Records(records) => records,
            Reading::Torn => {
                result.unreadable += 1;
                return Ok(None);
            }
            Reading::Foreign => {
                result.foreign += 1;
                return Ok(None);
            }
        };
        let Runner { child, layout, code, .. } = runner;
        match cut(&records, layout, |at| code.is_behind_call(child, at)) {
            Cut::Interrupted => result.interrupted += 1,
            Cut::Unreadable => result.unreadable += 1,
            Cut::Run(branches) => {
                let (cycles, saturated) = total(&branches);
                let run = Run { ticks, cycles, saturated, ..Run::default() };
                return Ok(Some((run, Some(branches))));
            }
        }
        Ok(None)
    }

    /// Steps through it once: what is counted, and the classes of the branches
    /// between the two jumps.
    pub(super) fn shape(
        &self,
        body: &Body,
        start: &impl Fn(GprValues) -> GprValues,
    ) -> Result<(StepCounts, Vec<HwBranchType>), MeasureError> {
        let bracket = map(&Body { stepped: true, ..body.clone() })?;
        let stop = Arc::clone(&self.options.stop);
        let setting = Setting {
            alone: false,
            confined: false,
            switch: SwitchWrites::NONE,
            lifeline: -1,
            counters: None,
            pin: None,
            stop,
        };
        let mut runner = Runner::new(&bracket, &setting, start(bracket.start()))?;
        let mut classes = Vec::new();
        let (open, close) = (runner.layout.open, runner.layout.close);
        let walked = runner.child.step(runner.start, self.options.limit, |branch| {
            if branch.from != open && branch.from != close {
                classes.push(branch.class);
            }
        });
        let (counts, _) = walked.map_err(|error| runner.failed(error, true))?;
        Ok((counts, classes))
    }

    /// Runs it step by step.
    fn count(
        &self,
        body: &Body,
        setting: &Setting,
        start: &impl Fn(GprValues) -> GprValues,
        strip: Strip,
        layout: &Layout,
        folded: &mut Folded,
    ) -> Result<Stepped, MeasureError> {
        let mut stepped = Stepped { counts: None, runs: 0, vary: false };
        if self.options.stepped == 0 {
            return Ok(stepped);
        }
        let body = Body { stepped: true, ..body.clone() };
        let bracket = map(&body)?;
        // Two that take turns are faster on one CPU.
        let here = nix::sched::sched_getcpu().ok().and_then(|cpu| u32::try_from(cpu).ok());
        let allowed = Affinity::current().ok();
        let shared = allowed.zip(setting.pin.is_none().then_some(here).flatten());
        let pin = shared.and_then(|(allowed, cpu)| allowed.only(cpu).ok()).or(setting.pin);
        let setting = Setting {
            pin,
            switch: SwitchWrites::NONE,
            lifeline: -1,
            counters: None,
            ..setting.clone()
        };
        let mut runner = Runner::new(&bracket, &setting, start(bracket.start()))?;
        let _moved = pin.and_then(|pin| Moved::to(&pin).ok());
        let soft = &self.options.soft_cpu;
        let value = select(self.options.filter, &body, soft.caps.filter)?;
        let keep = kept(self.options.filter);
        let limit = self.options.limit.saturating_mul(10);
        for _ in 0..self.options.stepped {
            let mut ring = Full::armed(&soft.caps, soft.perf_capabilities, value)?;
            let walked = runner.child.step(runner.start, limit, |branch| ring.retire(branch));
            let counts = match walked {
                Ok((counts, _)) => counts,
                // Those that were complete count.
                Err(NoResult::Stopped) if stepped.runs > 0 => break,
                Err(error) => return Err(runner.failed(error, true)),
            };
            let mut taken = ring.finish()?;
            let complete = !taken.is_empty();
            if complete {
                // The opening jump itself.
                taken.remove(0);
            }
            // Told as if it had been the bracket that runs at full speed.
            let here = &runner.layout;
            for branch in &mut taken {
                branch.from = here.moved(branch.from, layout);
                branch.to = here.moved(branch.to, layout);
            }
            let how = Folding { layout, strip, keep };
            let branches = Branches { taken, complete };
            folded.add(&branches, &how, |at| {
                runner.code.class(&runner.child, layout.moved(at, here))
            });
            stepped.vary |= stepped.counts.is_some_and(|before| before != counts);
            stepped.counts = Some(counts);
            stepped.runs += 1;
        }
        Ok(stepped)
    }
}

struct Stepped {
    counts: Option<StepCounts>,
    runs: u32,
    vary: bool,
}

/// The classes that are left of a filter once it has passed the ring.
fn kept(filter: BranchFilter) -> Option<BranchClasses> {
    let classes = filter.classes() | BranchClasses::OTHER;
    (!classes.is_all()).then_some(classes)
}

fn median(runs: &[Run]) -> u64 {
    let mut ticks: Vec<u64> = runs.iter().map(|run| run.ticks).collect();
    ticks.sort_unstable();
    ticks.get(ticks.len() / 2).copied().unwrap_or(0)
}

fn map(body: &Body) -> Result<Bracket, MeasureError> {
    Bracket::new(body).map_err(|cause| MeasureError::Os { what: "mapping the code", cause })
}

/// A function that does nothing.
extern "sysv64" fn nothing() {}

fn nothing_address() -> u64 {
    nothing as extern "sysv64" fn() as usize as u64
}
