//! Steps a trace forwards and back on a software LBR.

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

/// Register settings before the first instruction.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Branches to record.
    pub filter: BranchFilter,
    /// Additional fields to set, if the CPU has them.
    pub set: Vec<String>,
    /// An erratum, if the lesson is about one.
    pub faults: Faults,
}

/// A state: the CPU, its registers, and the number of executed steps.
#[derive(Clone, Debug)]
pub struct State {
    /// Which CPU.
    pub cpu: Arc<SoftCpu>,
    /// Its registers.
    pub lbr: SoftLbr,
    /// Whether the CPU has the erratum.
    pub faulty: bool,
    /// Number of executed steps of the trace.
    pub done: usize,
}

/// A trace, and every state reached so far.
#[derive(Clone, Debug)]
pub struct Session {
    trace: Arc<Trace>,
    setup: Setup,
    /// The last is the current state.
    states: Vec<State>,
    /// Addresses where [`run`](Self::run) stops.
    pub breakpoints: BTreeSet<u64>,
}

/// Why a setting was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The chosen CPU has no such field.
    #[error("this CPU has no {name}")]
    NoSuchField {
        /// The name as the user gave it.
        name: String,
    },
    /// The CPU refuses the value.
    #[error("#GP: {0}")]
    Register(#[from] MsrError),
    /// The CPU does not support the filter.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

impl Session {
    /// Starts before the first step of a trace, on `cpu`.
    ///
    /// # Errors
    /// [`Refused::Filter`] if the CPU does not support the filter in `setup`.
    pub fn new(trace: Arc<Trace>, cpu: SoftCpu, setup: Setup) -> Result<Session, Refused> {
        let faulty = !setup.faults.is_empty();
        let state =
            State { lbr: armed(&cpu, &setup, faulty)?, cpu: Arc::new(cpu), faulty, done: 0 };
        Ok(Session { trace, setup, states: vec![state], breakpoints: BTreeSet::new() })
    }

    /// Starts a lesson; `None` if the lesson is invalid (a test checks that none is).
    pub fn of(lesson: &Lesson) -> Option<Session> {
        let trace = Trace::of(Program::assemble(lesson.code)?);
        let setup = Setup {
            filter: lesson.filter.parse().ok()?,
            set: lesson.set.iter().map(|name| (*name).to_owned()).collect(),
            faults: lesson.erratum.parse().ok()?,
        };
        Session::new(Arc::new(trace), SoftCpu::preset(lesson.cpu).ok()?, setup).ok()
    }

    /// The trace.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The current state.
    pub fn state(&self) -> &State {
        // `states` is never empty.
        &self.states[self.states.len() - 1]
    }

    /// The previous state, if any.
    pub fn before(&self) -> Option<&State> {
        self.states.iter().nth_back(1)
    }

    /// The step that led to the current state, if any.
    pub fn last(&self) -> Option<&Step> {
        let done = self.state().done;
        (self.before()?.done < done).then(|| self.trace.steps.get(done - 1))?
    }

    /// Address of the next instruction.
    pub fn next(&self) -> u64 {
        self.trace.steps.get(self.state().done).map_or(self.trace.end, |step| step.at)
    }

    /// Executes one step; `false` at the end.
    pub fn step(&mut self) -> bool {
        let Some(step) = self.trace.steps.get(self.state().done) else { return false };
        let mut next = self.state().clone();
        next.does(step);
        self.states.push(next);
        true
    }

    /// Undoes the last change, whether a step or a setting; `false` at the beginning.
    pub fn back(&mut self) -> bool {
        let undone = self.states.len() > 1;
        if undone {
            self.states.pop();
        }
        undone
    }

    /// Steps to a breakpoint or the end; `false` if the trace has ended.
    pub fn run(&mut self) -> bool {
        let stepped = self.step();
        while !self.breakpoints.contains(&self.next()) && self.step() {}
        stepped
    }

    /// Makes the current state the first.
    pub fn begin_here(&mut self) {
        self.states.drain(..self.states.len() - 1);
    }

    /// Goes back to before the first step. This cannot be undone.
    pub fn restart(&mut self) {
        self.states.truncate(1);
    }

    /// Toggles bits of a control register.
    ///
    /// # Errors
    /// [`Refused::Register`] if the CPU raises #GP; then nothing has changed.
    pub fn toggle(&mut self, msr: Msr, mask: u64) -> Result<(), Refused> {
        let mut next = self.state().clone();
        toggle(&mut next.lbr, msr, mask)?;
        self.states.push(next);
        Ok(())
    }

    /// Toggles a control register field.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn toggle_named(&mut self, name: &str) -> Result<(), Refused> {
        let state = self.state();
        let (msr, mask) = View::field(&state.lbr, &state.cpu.caps, name)
            .ok_or_else(|| Refused::NoSuchField { name: name.to_owned() })?;
        self.toggle(msr, mask)
    }

    /// Switches to another CPU and replays all steps on it, starting with the initial settings. If
    /// it does not support the filter, records all branches and returns the error.
    pub fn change_cpu(&mut self, cpu: SoftCpu) -> Option<Refused> {
        self.again(Arc::new(cpu), self.state().faulty)
    }

    /// Adds or removes the lesson's erratum; `false` if the lesson has none.
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

/// The registers of a CPU set up as `setup` describes.
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

/// Status bits are set and cleared through separate registers. SDM 18.2.4.
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
