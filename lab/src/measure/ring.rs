//! LBR stacks that a measurement reads: a CPU's registers, or a software LBR fed by a stepped run.

use std::fmt::Debug;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

use lbr_msr::arm::{ArmError, ArmOptions, ArmPlan, Restored};
use lbr_msr::decode::decode;
use lbr_msr::record::BranchEntry;
use lbr_msr::snapshot::Snapshot;
use lbr_msr::soft::{Retired, SoftLbr};
use lbr_msr::{LbrCaps, MsrError, MsrRead, MsrWrite};

use super::bracket::SwitchWrites;
use sampler::guard::Armed;

/// The LBR stack, as read after a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The records, newest first.
    Records(Vec<BranchEntry>),
    /// They changed while they were read.
    Torn,
    /// The control or the filter register has changed: another program writes it, and the records
    /// may be that program's.
    Foreign,
}

/// An LBR stack that a bracket switches on and off itself.
pub trait Ring: Debug {
    /// How to switch it.
    fn switch(&self) -> SwitchWrites;

    /// A descriptor that the code's process keeps open: when it closes, the [watchdog
    /// process](sampler::keeper) knows that no one writes the registers any more.
    fn lifeline(&self) -> Option<RawFd>;

    /// Number of records.
    fn depth(&self) -> u32;

    /// Reads the records. Recording must be off.
    ///
    /// # Errors
    /// The access that failed.
    fn read(&mut self) -> Result<Reading, MsrError>;

    /// Switches recording off, in case a bracket left it on.
    ///
    /// # Errors
    /// The access that failed.
    fn stop(&mut self) -> Result<(), MsrError>;

    /// Restores the registers.
    ///
    /// # Errors
    /// The first access that failed.
    fn restore(self: Box<Self>) -> Result<Restored, MsrError>;
}

/// A CPU's registers, with the guard that restores them.
#[derive(Debug)]
pub struct GuardedRegisters<M: MsrWrite> {
    armed: Armed<M>,
    caps: LbrCaps,
    node: File,
    switch: SwitchWrites,
}

impl<M: MsrWrite> GuardedRegisters<M> {
    /// Takes over an enabled LBR stack, and stops recording. `node` is the device that a bracket
    /// writes to switch it, opened for writing: `/dev/cpu/N/msr`.
    ///
    /// # Errors
    /// The access that failed.
    pub fn new(
        mut armed: Armed<M>,
        caps: LbrCaps,
        node: File,
    ) -> Result<GuardedRegisters<M>, MsrError> {
        let frozen = armed.freeze()?;
        let (control, enable) = armed.plan().control();
        let switch = SwitchWrites {
            descriptor: node.as_raw_fd(),
            msr: control.0,
            on: frozen.control | enable,
            off: frozen.control & !enable,
        };
        Ok(GuardedRegisters { armed, caps, node, switch })
    }
}

impl<M: MsrWrite + Debug> Ring for GuardedRegisters<M> {
    fn switch(&self) -> SwitchWrites {
        SwitchWrites { descriptor: self.node.as_raw_fd(), ..self.switch }
    }

    fn lifeline(&self) -> Option<RawFd> {
        self.armed.lifeline()
    }

    fn depth(&self) -> u32 {
        self.caps.depth
    }

    fn read(&mut self) -> Result<Reading, MsrError> {
        let snapshot = Snapshot::read(self.armed.registers(), &self.caps)?;
        let ours = self.armed.plan().filter_value();
        if snapshot.control != self.switch.off || snapshot.select.is_some_and(|now| now != ours) {
            return Ok(Reading::Foreign);
        }
        if snapshot.torn() {
            return Ok(Reading::Torn);
        }
        Ok(Reading::Records(entries(&snapshot, &self.caps)))
    }

    fn stop(&mut self) -> Result<(), MsrError> {
        self.armed.freeze().map(drop)
    }

    fn restore(self: Box<Self>) -> Result<Restored, MsrError> {
        self.armed.restore()
    }
}

fn entries(snapshot: &Snapshot, caps: &LbrCaps) -> Vec<BranchEntry> {
    let records = snapshot.records.iter();
    records.filter_map(|(_, record)| decode(caps.layout, record)).collect()
}

/// A software LBR, read whenever it is full: no branch that passes the filter is lost.
#[derive(Debug)]
pub(super) struct Full<'a> {
    soft: SoftLbr,
    caps: &'a LbrCaps,
    new: usize,
    taken: Vec<BranchEntry>,
    error: Option<MsrError>,
}

impl<'a> Full<'a> {
    pub(super) fn armed(
        caps: &'a LbrCaps,
        perf_capabilities: Option<u64>,
        select: u64,
    ) -> Result<Full<'a>, ArmError> {
        let plan = ArmPlan::new(caps, select, ArmOptions::default())?;
        let mut soft = SoftLbr::new(caps, perf_capabilities);
        let saved = plan.save(&mut soft)?;
        plan.arm(&mut soft, &saved)?;
        Ok(Full { soft, caps, new: 0, taken: Vec::new(), error: None })
    }

    pub(super) fn retire(&mut self, branch: &Retired) {
        if self.soft.retire(branch) {
            self.new += 1;
        }
        if self.new >= self.caps.depth as usize {
            self.drain();
        }
    }

    fn drain(&mut self) {
        let new = std::mem::take(&mut self.new);
        match Snapshot::read(&mut self.soft as &mut dyn MsrRead, self.caps) {
            Ok(snapshot) => {
                let entries = entries(&snapshot, self.caps);
                // Single-stepping knows no cycles: drops those that the software LBR made up.
                let known = entries.iter().take(new).rev().map(|entry| BranchEntry {
                    cycles: None,
                    cycles_saturated: None,
                    ..*entry
                });
                self.taken.extend(known);
            }
            Err(error) => self.error = Some(error),
        }
    }

    /// All branches, oldest first.
    pub(super) fn finish(mut self) -> Result<Vec<BranchEntry>, MsrError> {
        self.drain();
        self.error.map_or(Ok(self.taken), Err)
    }
}
