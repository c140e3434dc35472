//! A measurement's steps: try, count, measure.
//!
//! To measure a closure, a bracket calls a function that calls it. How many branches and
//! instructions that takes depends on the compiler. An empty closure compiled next to it shows how
//! many, and these are removed from both ends.

use std::sync::Arc;

use lbr_msr::MsrError;
use lbr_msr::arm::Restored;
use lbr_msr::caps::FilterRegister;
use lbr_msr::filter::{BranchClasses, BranchFilter, FilterError, to_register_including};
use lbr_msr::insn::{Insn, decode};
use lbr_msr::record::HwBranchType;
use lbr_msr::soft::SoftCpu;

use super::bracket::{Body, Bracket, Layout};
use super::child::StepCounts;
use super::forked::Setting;
use super::options::{MeasureError, Options, os};
use super::result::{Branches, Folded, Folding, Measurement, Run, Strip, sorted};
use super::ring::{Full, Ring};
use super::runner::Runner;
use sampler::target::{Affinity, Moved};

/// The value of the filter register for `filter` and the bracket's own branches. `rounds` and
/// `call` as in [`Body`].
///
/// # Errors
/// As [`to_register_including`]. On a CPU that cannot filter, user-mode filters are applied in
/// software.
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
    to_register_including(filter, beside, register)
}

/// Measures pieces of code.
#[derive(Debug)]
pub struct Session {
    pub(super) options: Options,
    pub(super) ring: Option<Box<dyn Ring>>,
}

impl Session {
    /// Counts by single-stepping, and times by the time stamp counter: needs neither branch records
    /// nor privileges.
    ///
    /// # Errors
    /// Never; the software LBR's CPU is a preset.
    pub fn stepping() -> Result<Session, lbr_msr::soft::preset::UnknownCpu> {
        SoftCpu::preset("06_5E").map(|cpu| Session { options: Options::new(cpu), ring: None })
    }

    /// Uses these options, and reads runs at full speed from `ring` if there is one.
    pub fn new(options: Options, ring: Option<Box<dyn Ring>>) -> Session {
        Session { options, ring }
    }

    /// The options.
    pub fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    /// Ends the session: restores the LBR registers, and returns what it found. Dropping a session
    /// restores them silently.
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
        self.measure_body(body, &around(body), Strip::default())
    }

    /// Chooses copies and loop iterations such that a run takes about `ticks` time stamp counter
    /// ticks, overhead subtracted. Short code is copied first, so that the loop's own branch is a
    /// negligible part of an iteration, unless its place is given.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub fn calibrate(&mut self, body: &Body, ticks: u64) -> Result<Body, MeasureError> {
        let few = Options { warm_up: 2, repeat: 9, stepped: 0, ..self.options.clone() };
        let options = std::mem::replace(&mut self.options, few);
        let found = self.grow(body, ticks);
        self.options = options;
        found
    }

    fn grow(&mut self, body: &Body, ticks: u64) -> Result<Body, MeasureError> {
        // Branch records give the cycles of a whole run only if the opening jump is still among
        // them.
        let most: u32 = if body.sets_up_again() && self.ring.is_some() { 1 } else { 1 << 20 };
        let mut body = Body { rounds: Some(1), ..body.clone() };
        let alone = body.sets_up_again() || body.unroll > 1 || body.page_offset.is_some();
        let copies = if alone { 1 } else { copies(&body.code) };
        loop {
            let again = body.iterations() > 1 && !body.sets_up_again();
            let measured = self.measure_code(&body).map_err(|mut error| {
                if let MeasureError::Fault { again: repeated, .. } = &mut error {
                    *repeated = again;
                }
                error
            })?;
            let gross = median(&measured.runs);
            let net = gross.saturating_sub(median(&measured.overhead));
            let rounds = body.rounds.unwrap_or(1);
            let enough = net >= ticks || gross >= 10 * ticks;
            if enough || rounds >= most || measured.stopped {
                return Ok(body);
            }
            let (unroll, missing) = (u64::from(body.unroll.max(1)), ticks / net.max(1));
            if unroll < copies && missing > 1 {
                body.unroll = copies.min(unroll.saturating_mul(missing)) as u32;
                continue;
            }
            // The first runs give only the order of magnitude.
            let more = u64::from(rounds).saturating_mul(ticks) / net.max(1);
            let next = u32::try_from(more.saturating_add(1)).unwrap_or(most);
            body.rounds = Some(next.clamp(rounds + 1, rounds.saturating_mul(16)).min(most));
        }
    }

    /// Performs all steps.
    pub(super) fn measure_body(
        &mut self,
        body: &Body,
        nothing: &Body,
        strip: Strip,
    ) -> Result<Measurement, MeasureError> {
        let mut lane = self.lane(body, nothing, strip)?;
        let turn = self.turn(std::slice::from_mut(&mut lane)).map_err(|(_, error)| error)?;
        let [mut result] = <[Measurement; 1]>::try_from(turn).map_err(|_| MeasureError::Stopped)?;
        if result.from_counters && strip == Strip::default() && !result.stopped {
            let folded = self.of_stacks(&mut lane.code, &mut result)?;
            if let Some(mut folded) = folded {
                result.rounds = std::mem::take(&mut folded.rounds);
                result.blocks = folded.blocks();
            }
        }
        Ok(result)
    }

    /// Runs at full speed get core cycles from registers or counters.
    pub(super) fn counts_cycles(&self) -> bool {
        self.ring.is_some() || self.options.counters.is_some()
    }

    /// Steps once: returns the counts, and the classes of the branches between the two marker
    /// jumps.
    pub(super) fn shape(
        &self,
        body: &Body,
    ) -> Result<(StepCounts, Vec<HwBranchType>), MeasureError> {
        let bracket = map(&Body { stepped: true, ..body.clone() })?;
        let setting = Setting { stop: Arc::clone(&self.options.stop), ..Setting::default() };
        let mut runner = Runner::new(&bracket, &setting)?;
        let mut classes = Vec::new();
        let (open, close) = (runner.child.layout.open, runner.child.layout.close);
        let walked = runner.child.step(self.options.limit, |branch| {
            if branch.from != open && branch.from != close {
                classes.push(branch.class);
            }
        });
        let counts = walked.map_err(|error| runner.failed(error, true))?;
        Ok((counts, classes))
    }

    /// Single-steps it.
    pub(super) fn count(
        &self,
        body: &Body,
        setting: &Setting,
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
        // Tracer and tracee, which alternate, are faster on one CPU.
        let here = nix::sched::sched_getcpu().ok().and_then(|cpu| u32::try_from(cpu).ok());
        let allowed = Affinity::current().ok();
        let shared = allowed.zip(setting.pin.is_none().then_some(here).flatten());
        let pin = shared.and_then(|(allowed, cpu)| allowed.only(cpu).ok()).or(setting.pin);
        let setting =
            Setting { pin, switch: None, lifeline: None, counters: None, ..setting.clone() };
        let mut runner = Runner::new(&bracket, &setting)?;
        let _moved = pin.and_then(|pin| Moved::to(&pin).ok());
        let soft = &self.options.soft_cpu;
        let value = select(self.options.filter, &body, soft.caps.filter)?;
        let keep = kept(self.options.filter);
        let limit = self.options.limit.saturating_mul(10);
        for _ in 0..self.options.stepped {
            let mut ring = Full::armed(&soft.caps, soft.perf_capabilities, value)?;
            let walked = runner.child.step(limit, |branch| ring.retire(branch));
            let counts = match walked {
                Ok(counts) => counts,
                // Keep the complete ones.
                Err(MeasureError::Stopped) if stepped.runs > 0 => break,
                Err(error) => return Err(runner.failed(error, true)),
            };
            let mut taken = ring.finish()?;
            let complete = !taken.is_empty();
            if complete {
                // The opening jump itself.
                taken.remove(0);
            }
            // As if it had run in the bracket for full speed.
            let here = &runner.child.layout;
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

/// Results of stepped runs.
pub(super) struct Stepped {
    pub(super) counts: Option<StepCounts>,
    pub(super) runs: u32,
    pub(super) vary: bool,
}

/// The classes of a filter to apply in software; `None` if it has all.
pub(super) fn kept(filter: BranchFilter) -> Option<BranchClasses> {
    let classes = filter.classes() | BranchClasses::OTHER;
    (!classes.is_all()).then_some(classes)
}

/// Copies of short code per iteration: few enough for the cache of decoded instructions, and enough
/// that the loop's branch (up to ten cycles if its target is not predicted in time) is about 1%.
fn copies(code: &[u8]) -> u64 {
    const INSTRUCTIONS: usize = 1024;
    const BYTES: usize = 4096;
    let (mut at, mut count) = (0, 0);
    while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
        at += match decode(rest, 0) {
            Insn::Branch(branch) => branch.next() as usize,
            Insn::Straight { len } => usize::from(len),
            Insn::Invalid => 1,
        };
        count += 1;
    }
    (BYTES / code.len().max(1)).min(INSTRUCTIONS / count.max(1)).max(1) as u64
}

fn median(runs: &[Run]) -> u64 {
    let ticks = sorted(runs, |_| true);
    ticks.get(ticks.len() / 2).copied().unwrap_or(0)
}

pub(super) fn map(body: &Body) -> Result<Bracket, MeasureError> {
    Bracket::new(body).map_err(os("mapping the code"))
}

/// The empty bracket whose time is subtracted.
pub(super) fn around(body: &Body) -> Body {
    let call = body.call.map(|_| nothing as extern "sysv64" fn() as usize as u64);
    match body.sets_up_again() {
        // Setting up registers is overhead too.
        true => Body { code: Vec::new(), call, fresh: true, ..body.clone() },
        false => Body { call, ..Body::default() },
    }
}

/// A function that does nothing.
extern "sysv64" fn nothing() {}

/// The function that the bracket calls. A reference, unlike a pointer, is not checked for alignment
/// in unoptimised builds.
extern "sysv64" fn invoke<F: FnMut()>(closure: &mut F) {
    closure();
}

fn body_of<F: FnMut()>(closure: &mut F) -> Body {
    let address = invoke::<F> as extern "sysv64" fn(&mut F) as usize as u64;
    let pointer = std::ptr::from_mut(closure) as u64;
    Body { call: Some(address), closure: Some(pointer), ..Body::default() }
}

impl Session {
    /// Measures a closure.
    ///
    /// It runs many times, in a forked process: its changes to memory persist from run to run
    /// there, but are not visible here. In a process with several threads it must not wait for
    /// another thread or for a lock that one may hold: the fork has only the calling thread.
    ///
    /// The call of the closure and the return from it are subtracted: an empty closure measures as
    /// empty.
    ///
    /// ```
    /// use lbr_lab::measure::Session;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut session = Session::stepping()?;
    /// let numbers = [3u32, 1, 2];
    /// let measured = session.measure(|| {
    ///     for n in &numbers {
    ///         std::hint::black_box(n);
    ///     }
    /// })?;
    /// let counts = measured.counts.ok_or("stepping was switched off")?;
    /// println!("{} instructions, {} taken branches", counts.instructions, counts.branches);
    /// # assert!(counts.instructions > 0);
    /// # assert_eq!(session.measure(|| {})?.counts.map(|counts| counts.instructions), Some(0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`MeasureError`]. A closure that panics ends its process by SIGABRT.
    pub fn measure<F: FnMut()>(&mut self, mut closure: F) -> Result<Measurement, MeasureError> {
        // Generic over F, so that it is compiled in the same crate as `closure`.
        let mut nothing = || {
            let _ = std::marker::PhantomData::<F>;
        };
        let nothing = body_of(&mut nothing);
        let (less, shape) = self.shape(&nothing)?;
        // Calls lead into the closure, its return out of it.
        let head = shape.iter().take_while(|class| **class != HwBranchType::Ret).count();
        let strip = Strip { head, tail: shape.len() - head };
        let mut measured = self.measure_body(&body_of(&mut closure), &nothing, strip)?;
        if let Some(counts) = &mut measured.counts {
            *counts = StepCounts {
                instructions: counts.instructions.saturating_sub(less.instructions),
                branches: counts.branches.saturating_sub(less.branches),
                not_taken: counts.not_taken.saturating_sub(less.not_taken),
                ..*counts
            };
        }
        Ok(measured)
    }
}
