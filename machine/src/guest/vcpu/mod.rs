//! One virtual CPU: turns its execution into retired branches for its software LBR.
//!
//! QEMU reports an instruction before it executes, a block when it starts, and a discontinuity
//! afterwards. So a branch is pending from its start until it is known where execution continued.

mod counting;

use lbr_msr::address::IA32_DEBUGCTL;
use lbr_msr::insn::BranchInsn;
use lbr_msr::record::HwBranchType;
use lbr_msr::soft::machine::{self, Event};
use lbr_msr::soft::{Faults, Retired, SoftLbr};
use lbr_msr::{Msr, MsrRead, MsrWrite};

use super::instruction::Transaction;
use super::model::Model;
use super::pmu::{Happened, Pmu};
use super::registers::{Answer, Owner};
use super::sharing::SharedSelect;
use lbr_msr::soft::Predictor;

/// The state of one virtual CPU.
#[derive(Debug)]
pub(super) struct Vcpu {
    pub(super) lbr: SoftLbr,
    index: u32,
    /// The version of the model that made `lbr`.
    version: u32,
    /// The fault names written so far.
    names: Vec<u8>,
    select: Option<SharedSelect>,
    control: Msr,
    enable: u64,
    /// Whether the branches of this vCPU must be reported.
    pub(super) recording: bool,
    /// The branch that has started but not completed.
    pending: Option<BranchInsn>,
    /// The offset of the present block from its address at translation.
    shift: u64,
    predictor: Predictor,
    pub(super) transaction: Option<Transaction>,
    pub(super) pmu: Option<Pmu>,
    /// Its event counts from generated code.
    pub(super) counted: Happened,
    /// Whether a counter is enabled.
    pub(super) counting: bool,
    /// A counter has overflowed, but nothing is frozen yet.
    overflow: bool,
    /// A performance-monitor interrupt is due.
    pmi: bool,
    /// Whether generated code reports branches, and whether it counts.
    pub(super) reports: (bool, bool),
    /// Current privilege level, valid while recording or counting.
    cpl: u8,
    /// A far branch has started: the privilege level may change.
    pub(super) leaves_level: bool,
    /// Cycles since the last retired branch; unknown before the first.
    cycles: Option<u32>,
    /// An exception was raised but not delivered.
    exception: bool,
    /// The guest's RCX before an access that is made to fault.
    pub(super) faulting_rcx: Option<u64>,
    /// The address of the faulting instruction, if the fault was raised elsewhere.
    pub(super) faulting_ip: Option<u64>,
    /// The leaf and sub-leaf of a CPUID instruction that has just executed.
    pub(super) asked: Option<(u32, u32)>,
    /// Base of the interrupt descriptor table.
    pub(super) idt: Option<u64>,
    pub(super) counts: EventCounts,
}

/// Event counts of a vCPU, for the final statistics.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventCounts {
    pub(super) retired: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) faults: u64,
    pub(super) discontinuities: u64,
    pub(super) pmis: u64,
}

impl Vcpu {
    /// Virtual CPU `index` of a machine with this CPU; `select` if it shares the filter with
    /// others.
    pub(super) fn new(model: &Model, index: u32, select: Option<SharedSelect>) -> Vcpu {
        let registers = &model.cpu.caps.registers;
        Vcpu {
            lbr: model.soft(index),
            index,
            version: model.version(),
            names: Vec::new(),
            select,
            control: registers.control,
            enable: registers.enable,
            recording: false,
            pending: None,
            shift: 0,
            predictor: Predictor::default(),
            transaction: None,
            pmu: model.pmu.clone(),
            counted: Happened::default(),
            counting: false,
            overflow: false,
            pmi: false,
            reports: (false, false),
            cpl: 0,
            leaves_level: false,
            cycles: None,
            exception: false,
            faulting_rcx: None,
            faulting_ip: None,
            asked: None,
            idt: None,
            counts: EventCounts::default(),
        }
    }

    /// Applies changes of the model.
    pub(super) fn follow(&mut self, model: &Model) {
        if self.version != model.version() {
            self.version = model.version();
            self.lbr = model.soft(self.index);
            if let Some(select) = &mut self.select {
                select.reset();
            }
            self.look_at_control();
        }
    }

    /// RDMSR at privilege level 0.
    pub(super) fn read(&mut self, msr: Msr) -> Answer<u64> {
        if let Some(answer) = self.read_counter(msr) {
            return answer;
        }
        let owner = Owner::of(msr);
        match owner {
            Owner::Emulator => return Answer::NotOurs,
            Owner::Machine if msr == machine::IDENT => return Answer::Done(machine::IDENTITY),
            Owner::Machine => return Answer::Fault,
            Owner::Lbr | Owner::LbrOrEmulator => {}
        }
        self.take_over_select();
        match self.lbr.read(msr) {
            Ok(value) => {
                self.counts.reads += 1;
                Answer::Done(value)
            }
            Err(_) => self.refused(owner),
        }
    }

    /// WRMSR at privilege level 0. It may change the model.
    pub(super) fn write(&mut self, msr: Msr, value: u64, model: &Model) -> Answer<()> {
        self.cpl = 0;
        if let Some(answer) = self.write_counter(msr, value) {
            return answer;
        }
        let owner = Owner::of(msr);
        if owner == Owner::Machine {
            return self.tell_machine(msr, value, model);
        }
        // An unreadable register does not exist; a readable one refused the value.
        if owner == Owner::Emulator || owner == Owner::LbrOrEmulator && self.lbr.read(msr).is_err()
        {
            return Answer::NotOurs;
        }
        self.take_over_select();
        match self.lbr.write(msr, value) {
            Ok(()) => {
                self.counts.writes += 1;
                if let Some(select) = &mut self.select {
                    select.written(msr, value);
                }
                self.look_at_control();
                Answer::Done(())
            }
            Err(_) => self.refused(Owner::Lbr),
        }
    }

    fn tell_machine(&mut self, msr: Msr, value: u64, model: &Model) -> Answer<()> {
        if msr == machine::EVENT {
            match Event::from_code(value) {
                Some(Event::Pmi) => self.lbr.pmi(),
                Some(Event::Smi) => self.lbr.smi(),
                Some(Event::DeepCState) => self.lbr.deep_c_state(),
                None => return Answer::Fault,
            }
            self.look_at_control();
            return Answer::Done(());
        }
        if msr != machine::FAULTS {
            return Answer::Fault;
        }
        let bytes = value.to_le_bytes();
        let end = bytes.iter().position(|byte| *byte == 0);
        self.names.extend(bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default());
        if end.is_none() {
            return Answer::Done(());
        }
        let names = std::mem::take(&mut self.names);
        let faults = match &*String::from_utf8_lossy(&names) {
            // Later writes of the same call are padding.
            "" => return Answer::Done(()),
            machine::NONE => Ok(Faults::NONE),
            names => names.parse(),
        };
        match faults {
            Ok(faults) => {
                model.set_faults(faults);
                self.follow(model);
                Answer::Done(())
            }
            Err(_) => Answer::Fault,
        }
    }

    fn take_over_select(&mut self) {
        if let Some(select) = &mut self.select {
            select.take_over(&mut self.lbr);
        }
    }

    fn refused<T>(&mut self, owner: Owner) -> Answer<T> {
        if owner == Owner::LbrOrEmulator {
            return Answer::NotOurs;
        }
        self.fault()
    }

    /// Starts or stops following the vCPU. WRMSR executes at privilege level 0 and is not a branch,
    /// so nothing is pending.
    fn look_at_control(&mut self) {
        // DEBUGCTL.LBR enables AMD's one-entry pair, also with a stack.
        let lbr = self.is_set(self.control, self.enable) || self.is_set(IA32_DEBUGCTL, 1);
        let recording = self.look_at_counters() || lbr;
        if recording != self.recording {
            self.recording = recording;
            self.pending = None;
            self.cycles = None;
            self.predictor.forget_calls();
        }
    }

    fn is_set(&mut self, msr: Msr, bits: u64) -> bool {
        self.lbr.read(msr).is_ok_and(|value| value & bits != 0)
    }

    /// A branch instruction is about to execute; `branch` as QEMU translated it.
    pub(super) fn branch(&mut self, branch: BranchInsn) {
        self.pending = Some(BranchInsn {
            ip: branch.ip.wrapping_add(self.shift),
            target: branch.target.map(|target| target.wrapping_add(self.shift)),
            ..branch
        });
    }

    /// A block starts at `start`, which QEMU translated at `translated`.
    pub(super) fn located(&mut self, start: u64, translated: u64) {
        self.shift = start.wrapping_sub(translated);
    }

    /// The present address of code that QEMU translated at `translated`.
    pub(super) const fn at(&self, translated: u64) -> u64 {
        translated.wrapping_add(self.shift)
    }

    /// A block of `cycles` starts at `start`. `cpl` returns the privilege level; it is called only
    /// if a branch may have changed it.
    pub(super) fn block(&mut self, start: u64, cycles: u32, cpl: impl FnOnce() -> u8) {
        self.take_over_select();
        if let Some(branch) = self.pending.take() {
            let after = if branch.is_far() { cpl() } else { self.cpl };
            self.arrived(branch, start, after);
        }
        self.cycles = self.cycles.map(|before| before.saturating_add(cycles));
    }

    /// XBEGIN.
    pub(super) fn begin(&mut self, transaction: Transaction) {
        self.pmu.iter_mut().for_each(Pmu::begin);
        self.transaction = Some(transaction);
    }

    /// XABORT at `from`: the transaction to roll back, `None` outside of one.
    pub(super) fn abort(&mut self, from: u64) -> Option<Transaction> {
        let transaction = self.transaction?;
        self.pmu.iter_mut().for_each(Pmu::abort);
        if self.recording {
            self.retire(Retired { abort: true, ..other(from, transaction.fallback, self.cpl) });
        }
        self.transaction = None;
        Some(transaction)
    }

    /// An exception will be delivered next, see [`delivered`](Self::delivered).
    pub(super) fn raised(&mut self) {
        self.exception = true;
    }

    /// An interrupt or exception was delivered from `from` to its handler at `to`, where the
    /// privilege level is `cpl`.
    pub(super) fn delivered(&mut self, from: u64, to: u64, cpl: u8, debug: bool) {
        self.counts.discontinuities += 1;
        let exception = std::mem::take(&mut self.exception);
        let pending = self.pending.take();
        self.transaction = None;
        self.leaves_level = false;
        if !self.recording {
            self.freeze_on_overflow();
            self.cpl = cpl;
            return;
        }
        // An exception at the branch itself means that it did not retire, or that it is INT n,
        // which is recorded below.
        if let Some(branch) = pending
            && !(exception && from == branch.ip)
        {
            let after = if branch.is_far() { level_of(from) } else { self.cpl };
            self.arrived(branch, from, after);
        }
        self.freeze_on_overflow();
        if debug {
            // No record (SDM24 Table 20-3), and recording stops (SDM 17.4.2).
            self.lbr.debug_exception();
            self.look_at_control();
        } else {
            self.lbr.exception();
            self.retire(other(from, to, cpl));
        }
        self.cpl = cpl;
    }

    /// `branch` continued at `to`, which for a conditional one may be the next instruction. A taken
    /// branch to the next instruction looks like one that is not taken, and counts as such.
    fn arrived(&mut self, branch: BranchInsn, to: u64, cpl_after: u8) {
        let taken = !branch.is_conditional() || to != branch.next();
        let mispredicted =
            self.predictor.executed(branch.ip, branch.next(), branch.class, to, taken);
        self.count(&Happened {
            taken: taken.into(),
            mispredicted: mispredicted.into(),
            ..Happened::default()
        });
        if taken {
            self.retire(Retired {
                class: branch.class,
                zero_length_call: branch.is_zero_length_call(),
                mispredicted: Some(mispredicted),
                ..other(branch.ip, to, cpl_after)
            });
        }
        self.cpl = cpl_after;
    }

    fn retire(&mut self, taken: Retired) {
        self.lbr.retire(&Retired {
            cpl_before: self.cpl,
            cycles: self.cycles,
            in_tx: self.transaction.is_some(),
            ..taken
        });
        self.counts.retired += 1;
        self.cpl = taken.cpl_after;
        self.cycles = Some(0);
    }
}

/// A far branch, an interrupt, an exception.
const fn other(from: u64, to: u64, cpl_after: u8) -> Retired {
    Retired { cpl_after, mispredicted: Some(false), ..Retired::user(from, to, HwBranchType::Other) }
}

/// The privilege level at an address of 64-bit Linux, used between a far branch and the first
/// instruction after it, when an interrupt has already replaced CS.
const fn level_of(address: u64) -> u8 {
    if address >> 63 == 1 { 0 } else { 3 }
}

#[cfg(test)]
#[path = "../../../../tests/machine/unit/guest/vcpu.rs"]
mod tests;
