//! RDMSR and WRMSR by instruction, for code that runs in ring 0: a kernel, a
//! hypervisor, a unikernel, firmware. No program of this workspace does.
//!
//! ```no_run
//! use lbr_msr::{LbrCaps, access::Ring0, probe, snapshot::Snapshot};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let caps: LbrCaps = probe::probe(&raw_cpuid::CpuIdReaderNative, None)?;
//! // SAFETY: this runs in ring 0 with preemption off, and only reads.
//! let mut registers = unsafe { Ring0::new(0) };
//! for (index, record) in Snapshot::read(&mut registers, &caps)?.records {
//!     assert!(index < caps.depth, "{record:x?}");
//! }
//! # Ok(())
//! # }
//! ```
#![allow(unsafe_code, reason = "RDMSR and WRMSR are privileged instructions")]

use super::{MsrError, MsrRead, MsrWrite};
use crate::address::Msr;

/// The registers of the CPU that executes the code: in a kernel, a hypervisor
/// or firmware.
///
/// A register that is absent, or a reserved bit, raises #GP in the caller's
/// own context: nothing here turns it into [`MsrError::Fault`]. Where that
/// may happen the caller's #GP handler has to deal with it, or the caller
/// [probes](crate::probe) first.
#[derive(Debug)]
pub struct Ring0 {
    cpu: u32,
    /// What is written counts for the executing CPU alone: not `Send`.
    stays: core::marker::PhantomData<*mut ()>,
}

impl Ring0 {
    /// The registers of the executing CPU, which is called `cpu` in errors.
    ///
    /// # Safety
    /// As long as the value lives: the code runs in ring 0, stays on this CPU
    /// (preemption or migration off), and nothing that depends on the
    /// registers' former values is hurt by what is written.
    #[must_use]
    pub const unsafe fn new(cpu: u32) -> Ring0 {
        Ring0 { cpu, stays: core::marker::PhantomData }
    }
}

impl MsrRead for Ring0 {
    fn cpu(&self) -> u32 {
        self.cpu
    }

    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        // SAFETY: whoever made this value runs in ring 0 on the CPU meant; a
        // #GP is theirs, as documented.
        Ok(unsafe { x86::msr::rdmsr(msr.0) })
    }
}

impl MsrWrite for Ring0 {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        // SAFETY: as for reading; that the new value hurts nobody was promised
        // to `new`.
        unsafe { x86::msr::wrmsr(msr.0, value) };
        Ok(())
    }
}
