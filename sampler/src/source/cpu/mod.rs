//! The registers of this machine's CPUs, with a sampler thread for each, and the target.
//!
//! # Placements
//!
//! - **On the target's CPU**, with SCHED_FIFO over it: the target cannot run during a drain, so
//!   nothing is missing between two drains, and [the path from thaw to freeze](same_cpu) takes no
//!   branch. If the sampler had to wait in that time or lost its CPU, the next stack is not joined.
//!   Without SCHED_FIFO, the target may run between freeze and thaw, and every stack is cut.
//! - **From another CPU**: every register access interrupts the target's CPU, which keeps running
//!   in between. Every stack is contiguous inside and cut. If the registers are reached in one call
//!   (msr-safe), one interrupt is enough, and nothing is cut.
//!
//! # Ownership of branches
//!
//! Records do not name a process. If the [`Target`] has code, a stack with a user-mode branch
//! outside of it is `mixed`. If a single-threaded target lost its CPU involuntarily to a task other
//! than the sampler, the stack is not joined: most often a kernel thread ran, but code at the same
//! addresses, such as a forked child on that CPU or another program that is not
//! position-independent, cannot be distinguished. Mappings are read when the target starts and ends
//! and whenever a branch is outside of the known ones; a mapping without a recorded branch may be
//! missed.

pub(in crate::source) mod code;
mod cycles;
mod first;
mod held;
pub mod registers;
pub mod same_cpu;
mod sampler;
pub mod target;

use std::time::Duration;

use lbr_msr::caps::{Facility, FilterRegister, LbrCaps};
use lbr_msr::record::SourceKnowledge;
use lbr_msr::{MsrError, MsrWrite};

use super::{Decoding, Exit, Source, SourceError, SourceNotes};
use crate::clock::{DEFAULT_HZ, Pace};
use crate::config::RecordConfig;
use crate::gate::{Gate, Recorder};
use crate::outlet::{Outlet, Sampler};
use crate::target::{Affinity, Moved};
pub use code::{ProcessCode, Switches, UserCode};
pub use first::{Awake, may_go_first};
use sampler::CpuSampler;
use target::Target;

/// Why a CPU whose LBR has no filter (Core 2, Bonnell) cannot be recorded; `None` if it has one.
pub fn unrecordable(caps: &LbrCaps) -> Option<&'static str> {
    let is_ring = caps.facility == Facility::IntelLegacy;
    (is_ring && caps.filter == FilterRegister::None).then_some(
        "its LBR has no filter, and between any two register accesses the kernel's own branches \
         overwrite every record: user code cannot be recorded through the msr driver",
    )
}

/// Waits on the target's CPU while recording.
pub trait RecordUntil {
    /// Writes `thawed` to the control register, sleeps until `deadline` of CLOCK_MONOTONIC, then
    /// disables recording. Returns the control register's value before that.
    ///
    /// # Errors
    /// The failed access.
    fn record_until(&mut self, thawed: u64, deadline: Duration) -> Result<u64, MsrError>;
}

/// The armed registers of one CPU.
pub struct CpuRing<'a> {
    /// The registers; recording is on.
    pub registers: &'a mut (dyn MsrWrite + Send),
    /// How to drain from the CPU itself; `None` drains from another CPU.
    pub same_cpu: Option<Box<dyn RecordUntil + Send + 'a>>,
}

impl std::fmt::Debug for CpuRing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuRing").field("cpu", &self.registers.cpu()).finish_non_exhaustive()
    }
}

/// The armed LBRs of CPUs, and their target. The caller arms the LBRs and restores them afterwards.
///
/// The calling thread controls the target. That thread and those it starts avoid the recorded CPUs
/// if there are others.
pub struct Cpus<'a> {
    rings: Vec<CpuRing<'a>>,
    target: &'a mut dyn Target,
    allowed: Affinity,
    moved: Option<Moved>,
}

impl std::fmt::Debug for Cpus<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cpus").field("rings", &self.rings).finish_non_exhaustive()
    }
}

impl<'a> Cpus<'a> {
    /// `allowed`: the CPUs that this process could use before it [left](Moved::off) the recorded
    /// ones.
    pub fn new(rings: Vec<CpuRing<'a>>, target: &'a mut dyn Target, allowed: Affinity) -> Cpus<'a> {
        Cpus { rings, target, allowed, moved: None }
    }
}

impl<'a> Source<'a> for Cpus<'a> {
    fn name(&self) -> &'static str {
        "hardware"
    }

    fn knowledge(&self) -> SourceKnowledge {
        SourceKnowledge::HARDWARE
    }

    fn decoding(&mut self) -> Decoding {
        Decoding {
            decode: None,
            classify: self.target.classify(),
            owns: self.target.code().map(code::owns),
            ours: Some(same_cpu::ours()),
        }
    }

    fn samplers(&mut self, config: &RecordConfig) -> Vec<Sampler<'a>> {
        let cpus: Vec<u32> = self.rings.iter().map(|ring| ring.registers.cpu()).collect();
        self.moved = Moved::off(&cpus, &self.allowed);
        let rings = std::mem::take(&mut self.rings).into_iter().zip(0..);
        let samplers = rings.map(|(ring, nth)| {
            // CPU registers cannot interrupt after a number of branches: they support only a rate.
            let pace = config.sampling.pace(nth).unwrap_or_else(|| Pace::new(DEFAULT_HZ, nth));
            let sampler = CpuSampler {
                ring,
                allowed: self.allowed,
                caps: config.caps.clone(),
                mode: config.mode(),
                thread: self.target.id(),
                pace,
                switches: self.target.switches(),
            };
            Box::new(move |outlet: &mut Outlet| sampler.run(outlet)) as Sampler<'a>
        });
        samplers.collect()
    }

    fn run(&mut self, gate: &Gate) -> Result<(Exit, SourceNotes), SourceError> {
        let mut emit = |event| {
            // If the receiver is gone, the decoder's failure is reported.
            let _ = gate.emit(event);
        };
        let is_over = || gate.is_closed();
        if let Some(pid) = self.target.started() {
            gate.started(pid);
        }
        let ran = self.target.start(&mut emit).and_then(|()| self.target.wait(&is_over, &mut emit));
        // Types are decoded from the target's code, which exists until it ends.
        gate.end();
        // Released even after other failures.
        let exit = self.target.finish(&mut emit);
        self.moved = None;
        ran?;
        Ok((exit?.unwrap_or(Exit::Code(0)), SourceNotes::default()))
    }
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/cpu.rs"]
mod tests;
