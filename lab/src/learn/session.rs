//! Stepping through a trace on a software LBR, forwards and back.

use std::collections::BTreeSet;
use std::sync::Arc;

use lbr_msr::BranchFilter;
use lbr_msr::address::{
    IA32_PERF_GLOBAL_STATUS, IA32_PERF_GLOBAL_STATUS_RESET, IA32_PERF_GLOBAL_STATUS_SET, Msr,
};
use lbr_msr::filter::FilterError;
use lbr_msr::soft::{Faults, SoftCpu, SoftLbr};
use lbr_msr::{MsrError, MsrRead, MsrWrite};

use super::{Did, Event, Lesson, Program, Step, Trace, View};

/// How the registers are set before the first instruction.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What is recorded.
    pub filter: BranchFilter,
    /// Fields that are set beside, where the CPU has them.
    pub set: Vec<String>,
    /// An erratum, where the lesson is about one.
    pub faults: Faults,
}

/// A moment: the CPU, its registers, and how many steps are done.
#[derive(Clone, Debug)]
pub struct State {
    /// Which CPU.
    pub cpu: Arc<SoftCpu>,
    /// Its registers.
    pub lbr: SoftLbr,
    /// Whether it has the erratum.
    pub faulty: bool,
    /// Steps of the trace that are done.
    pub done: usize,
}

/// A trace, and every state that was gone through.
#[derive(Clone, Debug)]
pub struct Session {
    trace: Arc<Trace>,
    setup: Setup,
    /// The last is the present.
    states: Vec<State>,
    /// Where [`run`](Self::run) halts.
    pub breakpoints: BTreeSet<u64>,
}

/// Why a register cannot be changed so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The chosen CPU has no such field.
    #[error("this CPU has no {name}")]
    NoSuchField {
        /// As it was named.
        name: String,
    },
    /// The CPU refuses the value.
    #[error("#GP: {0}")]
    Register(#[from] MsrError),
    /// The CPU cannot filter so.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

impl Session {
    /// Of a trace, before its first step, on `cpu`.
    ///
    /// # Errors
    /// [`Refused::Filter`] where the CPU cannot filter as `setup` asks.
    pub fn new(trace: Arc<Trace>, cpu: SoftCpu, setup: Setup) -> Result<Session, Refused> {
        let faulty = !setup.faults.is_empty();
        let state =
            State { lbr: armed(&cpu, &setup, faulty)?, cpu: Arc::new(cpu), faulty, done: 0 };
        Ok(Session { trace, setup, states: vec![state], breakpoints: BTreeSet::new() })
    }

    /// Of a lesson; `None` where the lesson is wrong, which a test holds none is.
    #[must_use]
    pub fn of(lesson: &Lesson) -> Option<Session> {
        let trace = Trace::of(Program::assemble(lesson.code)?);
        let setup = Setup {
            filter: lesson.filter.parse().ok()?,
            set: lesson.set.iter().map(|name| (*name).to_owned()).collect(),
            faults: lesson.erratum.parse().ok()?,
        };
        Session::new(Arc::new(trace), SoftCpu::preset(lesson.cpu).ok()?, setup).ok()
    }

    /// What is stepped through.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The present state.
    #[must_use]
    pub fn state(&self) -> &State {
        // There is always the first.
        &self.states[self.states.len() - 1]
    }

    /// The one before, where there is one.
    #[must_use]
    pub fn before(&self) -> Option<&State> {
        self.states.iter().nth_back(1)
    }

    /// The step that led here, where a step did.
    #[must_use]
    pub fn last(&self) -> Option<&Step> {
        let done = self.state().done;
        (self.before()?.done < done).then(|| self.trace.steps.get(done - 1))?
    }

    /// Address of the instruction that comes next.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.trace.steps.get(self.state().done).map_or(self.trace.end, |step| step.at)
    }

    /// Does one step; `false` at the end.
    pub fn step(&mut self) -> bool {
        let Some(step) = self.trace.steps.get(self.state().done) else { return false };
        let mut next = self.state().clone();
        next.does(step);
        self.states.push(next);
        true
    }

    /// Undoes what was done last, whatever it was; `false` at the beginning.
    pub fn back(&mut self) -> bool {
        let undone = self.states.len() > 1;
        if undone {
            self.states.pop();
        }
        undone
    }

    /// Steps until an instruction with a breakpoint comes next, or the end;
    /// `false` where nothing is left to do.
    pub fn run(&mut self) -> bool {
        let stepped = self.step();
        while !self.breakpoints.contains(&self.next()) && self.step() {}
        stepped
    }

    /// Forgets what led here: this is the beginning now.
    pub fn begin_here(&mut self) {
        self.states.drain(..self.states.len() - 1);
    }

    /// Goes back to before the first step. Nothing can bring back what is undone.
    pub fn restart(&mut self) {
        self.states.truncate(1);
    }

    /// Toggles bits of a control register.
    ///
    /// # Errors
    /// [`Refused::Register`] where the CPU raises #GP; nothing has changed then.
    pub fn toggle(&mut self, msr: Msr, mask: u64) -> Result<(), Refused> {
        let mut next = self.state().clone();
        toggle(&mut next.lbr, msr, mask)?;
        self.states.push(next);
        Ok(())
    }

    /// The same of a field by its name.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn toggle_named(&mut self, name: &str) -> Result<(), Refused> {
        let state = self.state();
        let (msr, mask) = View::field(&state.lbr, &state.cpu.caps, name)
            .ok_or_else(|| Refused::NoSuchField { name: name.to_owned() })?;
        self.toggle(msr, mask)
    }

    /// Takes another CPU, which has then gone through the same steps with the
    /// registers as they were set at first. What it cannot filter is recorded,
    /// and said.
    pub fn change_cpu(&mut self, cpu: SoftCpu) -> Option<Refused> {
        self.again(Arc::new(cpu), self.state().faulty)
    }

    /// Gives the CPU the lesson's erratum, or takes it away; `false` where the
    /// lesson is about none.
    pub fn toggle_erratum(&mut self) -> bool {
        let has_one = !self.setup.faults.is_empty();
        if has_one {
            self.again(Arc::clone(&self.state().cpu), !self.state().faulty);
        }
        has_one
    }

    fn again(&mut self, cpu: Arc<SoftCpu>, faulty: bool) -> Option<Refused> {
        let (lbr, refused) = match armed(&cpu, &self.setup, faulty) {
            Ok(lbr) => (lbr, None),
            Err(refused) => {
                let open = [BranchFilter::USER, BranchFilter::USER | BranchFilter::KERNEL];
                let armed = open.into_iter().find_map(|filter| {
                    armed(&cpu, &Setup { filter, ..self.setup.clone() }, faulty).ok()
                });
                let unarmed = || SoftLbr::new(&cpu.caps, cpu.perf_capabilities);
                (armed.unwrap_or_else(unarmed), Some(refused))
            }
        };
        let mut next = State { cpu, lbr, faulty, done: 0 };
        for step in self.trace.steps.iter().take(self.state().done) {
            next.does(step);
        }
        self.states.push(next);
        refused
    }
}

impl State {
    fn does(&mut self, step: &Step) {
        self.done += 1;
        match step.did {
            Did::Straight | Did::FellThrough { .. } => {}
            Did::Branch(branch) => {
                self.lbr.retire(&branch);
            }
            Did::Interrupt(branch) => {
                self.lbr.exception();
                self.lbr.retire(&branch);
            }
            Did::Event(Event::Pmi) => self.lbr.pmi(),
            Did::Event(Event::Smi) => self.lbr.smi(),
            Did::Event(Event::DeepCState) => self.lbr.deep_c_state(),
            Did::Event(Event::DebugException) => self.lbr.debug_exception(),
        }
    }
}

/// The registers of a CPU that records as `setup` says.
fn armed(cpu: &SoftCpu, setup: &Setup, faulty: bool) -> Result<SoftLbr, Refused> {
    let faults = if faulty { setup.faults } else { Faults::NONE };
    let mut lbr = SoftLbr::new(&cpu.caps, cpu.perf_capabilities).with(faults);
    lbr.arm(setup.filter)?;
    for name in &setup.set {
        if let Some((msr, mask)) = View::field(&lbr, &cpu.caps, name) {
            toggle(&mut lbr, msr, mask)?;
        }
    }
    Ok(lbr)
}

/// A status bit is cleared and set through registers of its own. SDM 18.2.4.
fn toggle(lbr: &mut SoftLbr, msr: Msr, mask: u64) -> Result<(), MsrError> {
    let value = lbr.read(msr)?;
    match msr {
        IA32_PERF_GLOBAL_STATUS if value & mask != 0 => {
            lbr.write(IA32_PERF_GLOBAL_STATUS_RESET, mask)
        }
        IA32_PERF_GLOBAL_STATUS => lbr.write(IA32_PERF_GLOBAL_STATUS_SET, mask),
        _ => lbr.write(msr, value ^ mask),
    }
}
