//! A real CPU as a subject: kernels are code that this process runs on it.
//!
//! A kernel is written into a frame, run a few times without recording to warm up caches, page
//! tables and predictors, and then once with recording. Unlike measured code it is trusted, so it
//! runs in this process: a second process alternating on the same CPU would add its own branches to
//! the records.
#![allow(unsafe_code, reason = "kernels are run")]

mod noted;
mod program;
mod rest;
#[cfg(test)]
#[path = "../../../../tests/lab/unit/verify/real.rs"]
mod tests;

use std::os::fd::{AsRawFd, OwnedFd};

use lbr_msr::access::Root;
use lbr_msr::probe::RecordedCpuid;
use lbr_msr::soft::machine;
use lbr_msr::{Msr, MsrError, MsrRead, MsrWrite};

use sampler::source::cpu::same_cpu::transferred;
use sampler::target::{Affinity, Moved, SourceError};
use sampler::{Random, fresh_seed};

use super::{Kernel, Ran, RunError, Subject, SubjectKind, Switch};
use crate::code::assembler::Gpr;
use crate::code::frame::{self, Frame};
use program::{ABORTED, CHOICES, EXPLICIT_ABORT, KernelCode};

/// Warm-up runs of a kernel.
const WARMING: u32 = 4;
/// Maximum number of runs, because an interrupt may disturb any.
const ATTEMPTS: u32 = 8;
/// CPUID.40000000H:EBX, ECX, EDX of QEMU's software emulation.
const TCG: [u32; 3] =
    [u32::from_le_bytes(*b"TCGT"), u32::from_le_bytes(*b"CGTC"), u32::from_le_bytes(*b"GTCG")];
/// CPUID.01H:ECX\[31\]: there is a hypervisor.
const HYPERVISOR: u32 = 1 << 31;

/// A CPU of this machine; the thread that created it is pinned to it.
pub struct RealSubject<M> {
    registers: M,
    descriptor: OwnedFd,
    sibling: Option<Box<dyn MsrRead>>,
    cpuid: RecordedCpuid,
    kind: SubjectKind,
    root: Root,
    random: Random,
    /// The last run's code. The next run unmaps it: doing so takes milliseconds where a CPU is
    /// emulated, and the timer's interrupt would overwrite the last-exception pair before it is
    /// read.
    ran: Option<Frame>,
    /// Unpins the thread on drop.
    _moved: Moved,
}

impl<M: std::fmt::Debug> std::fmt::Debug for RealSubject<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RealSubject")
            .field("registers", &self.registers)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl<M: MsrWrite> RealSubject<M> {
    /// Pins the calling thread to the CPU of `registers` until the value is dropped.
    ///
    /// `descriptor` is an open `/dev/cpu/N/msr` of the same CPU (writing eight bytes at an offset
    /// writes that register); `sibling` are the registers of another hyperthread of its core.
    ///
    /// # Errors
    /// The thread cannot run on that CPU. No register is written.
    pub fn new(
        mut registers: M,
        descriptor: OwnedFd,
        sibling: Option<Box<dyn MsrRead>>,
        cpuid: RecordedCpuid,
        root: Root,
    ) -> Result<RealSubject<M>, SourceError> {
        let allowed = Affinity::current()?;
        let moved = Moved::to(&allowed)?;
        allowed.pin_this_thread(registers.cpu())?;
        Ok(RealSubject {
            _moved: moved,
            kind: kind_of(&cpuid, &mut registers),
            registers,
            descriptor,
            sibling,
            cpuid,
            root,
            random: Random(fresh_seed()),
            ran: None,
        })
    }

    /// The registers.
    pub fn registers(&mut self) -> &mut M {
        &mut self.registers
    }

    fn run_program(&mut self, kernel: Kernel, switch: Switch) -> Result<Ran, RunError> {
        self.ran = None;
        let mut program = KernelCode::of(kernel);
        let mut frame = Frame::new(&program.code.finish(), program.entry).map_err(|error| {
            RunError::unavailable(format!(
                "this system does not allow a program to execute code it has written: {error}"
            ))
        })?;
        let mut choices = std::mem::take(&mut program.choices);
        let switched = frame::SwitchWrites {
            descriptor: self.descriptor.as_raw_fd(),
            msr: switch.msr.0,
            on: switch.on,
            off: switch.off,
        };
        let mut run = |choices: &mut Vec<u8>, switch| {
            // Which branches are taken; their number stays the same.
            self.random.shuffle(choices);
            let start = frame.start().with(CHOICES, choices.as_ptr() as u64);
            // SAFETY: a program ends in `leave`, which returns; it touches only its stack and its
            // areas, and reads one choice for each of its conditional branches. Its system calls
            // are getpid, madvise of a page of an area, and writes of registers to the switch's
            // descriptor.
            unsafe { frame.run(start, switch) }
        };
        for _ in 0..WARMING {
            run(&mut choices, frame::SwitchWrites::NONE);
        }
        let ran = run(&mut choices, switched);
        let base = self.ran.insert(frame).mapping().start;
        let (cpu, msr) = (self.registers.cpu(), switch.msr);
        for returned in ran.switched {
            transferred(returned, cpu, msr, lbr_msr::access::Access::Write)?;
        }
        if let Kernel::Transaction { abort } = kernel {
            let aborted = ran.registers.get(ABORTED) != 0;
            if !ended_itself(abort, aborted, ran.registers.get(Gpr::Rax)) {
                return Err(RunError::unavailable("the CPU aborted the transaction spontaneously"));
            }
        }
        let branches = program.code.taken(base);
        Ok(Ran {
            branches: KernelCode::choose(&branches, &choices),
            unlisted: true,
            before_event: program.before_event,
        })
    }
}

/// Whether a transaction committed, or, with `abort`, ended at its own XABORT; `status` is RAX after
/// an abort.
const fn ended_itself(abort: bool, aborted: bool, status: u64) -> bool {
    aborted == abort && (!abort || status & EXPLICIT_ABORT != 0)
}

/// The test machine identifies itself by private registers, which are read only if CPUID names its
/// emulator.
fn kind_of<M: MsrRead>(cpuid: &RecordedCpuid, registers: &mut M) -> SubjectKind {
    let guest = cpuid.get(1, 0).is_some_and(|leaf| leaf.ecx & HYPERVISOR != 0);
    let name = cpuid.get(0x4000_0000, 0).map(|leaf| [leaf.ebx, leaf.ecx, leaf.edx]);
    let emulated = guest
        && name == Some(TCG)
        && registers.read(machine::IDENT).is_ok_and(|value| value == machine::IDENTITY);
    if emulated { SubjectKind::Emulated } else { SubjectKind::Hardware }
}

impl<M: MsrWrite> Subject for RealSubject<M> {
    fn kind(&self) -> SubjectKind {
        self.kind
    }

    fn cpuid(&self) -> &RecordedCpuid {
        &self.cpuid
    }

    fn attempts(&self) -> u32 {
        ATTEMPTS
    }

    fn execute(&mut self, kernel: Kernel, switch: Switch) -> Result<Ran, RunError> {
        // CPUID.(07H,0):EBX[11], RTM.
        let rtm = self.cpuid.get(7, 0).is_some_and(|leaf| leaf.ebx >> 11 & 1 != 0);
        match kernel {
            Kernel::Transaction { .. } if !rtm => {
                Err(RunError::unavailable("this CPU does not support transactions"))
            }
            Kernel::AroundPmi if self.kind == SubjectKind::Hardware => Err(RunError::unavailable(
                "a program cannot raise a performance-monitoring interrupt",
            )),
            Kernel::AroundSmi if self.kind == SubjectKind::Hardware => {
                Err(RunError::unavailable("a program cannot raise a system-management interrupt"))
            }
            _ => self.run_program(kernel, switch),
        }
    }

    fn deep_c_state(&mut self) -> Result<(), RunError> {
        if self.kind == SubjectKind::Emulated {
            let event = machine::Event::DeepCState as u64;
            return Ok(self.registers.write(machine::EVENT, event)?);
        }
        rest::deep_c_state(&self.root, self.registers.cpu()).map_err(RunError::Unavailable)
    }

    fn read_sibling(&mut self, msr: Msr) -> Result<u64, RunError> {
        match &mut self.sibling {
            Some(sibling) => Ok(sibling.read(msr)?),
            None => Err(RunError::unavailable("this core has no other online hyperthread")),
        }
    }
}

impl<M: MsrWrite> MsrRead for RealSubject<M> {
    fn cpu(&self) -> u32 {
        self.registers.cpu()
    }

    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        self.registers.read(msr)
    }
}

impl<M: MsrWrite> MsrWrite for RealSubject<M> {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        self.registers.write(msr, value)
    }
}
