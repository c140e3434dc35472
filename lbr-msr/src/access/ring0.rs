//! RDMSR and WRMSR instructions, for code in ring 0: kernels, hypervisors, unikernels, firmware. No
//! program of this workspace uses them.
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

/// The registers of the executing CPU, for ring-0 code.
///
/// An absent register or a reserved bit raises #GP in the caller's context; it does not become
/// [`MsrError::Fault`]. Handle the #GP, or [probe](crate::probe) first.
#[derive(Debug)]
pub struct Ring0 {
    cpu: u32,
    /// The registers belong to the executing CPU, so the value must not be `Send`.
    stays: core::marker::PhantomData<*mut ()>,
}

impl Ring0 {
    /// The registers of the executing CPU; errors call it `cpu`.
    ///
    /// # Safety
    /// While the value lives, the code must run in ring 0 and stay on this CPU (preemption or
    /// migration off), and no other code may depend on the former values of registers written.
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
        // SAFETY: the caller of `new` promised ring 0 on this CPU, and handles a #GP as documented.
        Ok(unsafe { x86::msr::rdmsr(msr.0) })
    }
}

impl MsrWrite for Ring0 {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        // SAFETY: as for reading; the caller of `new` also promised that new values are harmless.
        unsafe { x86::msr::wrmsr(msr.0, value) };
        Ok(())
    }
}
