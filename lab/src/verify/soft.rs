//! The software LBR as a subject: kernels are lists of branches.

use lbr_msr::probe::RecordedCpuid;
use lbr_msr::record::HwBranchType::{self, Cond, IndCall, IndJmp, Other, RelCall, RelJmp, Ret};
use lbr_msr::soft::{Faults, Retired, SoftCpu, SoftLbr};
use lbr_msr::{Msr, MsrError, MsrRead, MsrWrite};

use super::{Kernel, Known, Ran, RunError, Subject, SubjectKind, Switch};

/// Address of a kernel's user code.
const USER: u64 = 0x0040_0000;
/// Address of ring 0 code.
const RING_0: u64 = 0xFFFF_FFFF_8100_0000;
/// Distance between two branches.
const STEP: u64 = 0x40;
/// Cycles of a branch without a chain before it.
const SHORT: u32 = 2;

/// Two hyperthreads of a core with software LBRs.
#[derive(Clone, Debug)]
pub struct SoftSubject {
    lbr: SoftLbr,
    sibling: SoftLbr,
    cpuid: RecordedCpuid,
    select: Option<Msr>,
}

impl SoftSubject {
    /// A core of this CPU, with injected faults.
    pub fn new(cpu: &SoftCpu, faults: impl Into<Faults>) -> SoftSubject {
        let lbr = SoftLbr::new(&cpu.caps, cpu.perf_capabilities).with(faults);
        let registers = &cpu.caps.registers;
        SoftSubject {
            sibling: lbr.clone().on_cpu(1),
            lbr,
            cpuid: cpu.cpuid.clone(),
            select: registers.select.filter(|select| *select != registers.control),
        }
    }

    /// The software LBR.
    pub fn lbr(&mut self) -> &mut SoftLbr {
        &mut self.lbr
    }

    /// Records branches in order; returns them.
    fn retire(&mut self, branches: &[Retired]) -> Vec<Known> {
        for branch in branches {
            self.lbr.retire(branch);
        }
        branches.iter().copied().map(Known::of).collect()
    }
}

/// Address of a kernel's `n`th location.
const fn place(n: u32) -> u64 {
    USER + n as u64 * STEP
}

/// A user branch between two locations.
fn branch(from: u32, to: u32, class: HwBranchType) -> Retired {
    Retired {
        mispredicted: Some(false),
        cycles: Some(SHORT),
        ..Retired::user(place(from) + 0x10, place(to), class)
    }
}

/// Relative jumps from one location to the next.
fn jumps(count: u32) -> Vec<Retired> {
    (0..count).map(|n| branch(n, n + 1, RelJmp)).collect()
}

fn syscall(from: u32) -> Retired {
    Retired { to: RING_0 + 0x40, cpl_after: 0, ..branch(from, 0, Other) }
}

fn in_ring_0() -> Retired {
    Retired {
        from: RING_0 + 0x48,
        to: RING_0 + 0x80,
        cpl_before: 0,
        cpl_after: 0,
        ..branch(0, 0, RelJmp)
    }
}

fn sysret(to: u32) -> Retired {
    Retired { from: RING_0 + 0x88, cpl_before: 0, ..branch(0, to, Other) }
}

/// A kernel's branches, up to an event that occurs between them.
fn script(kernel: Kernel) -> Vec<Retired> {
    match kernel {
        Kernel::Jumps(count) => jumps(count),
        Kernel::EveryClass => vec![
            branch(0, 1, Cond),
            branch(1, 2, RelJmp),
            branch(2, 3, IndJmp),
            branch(3, 8, RelCall),
            branch(8, 4, Ret),
            branch(4, 5, IndCall),
            syscall(5),
            sysret(6),
        ],
        Kernel::Calls { calls, returns } => {
            let call =
                |n: u32| branch(n, n + 1, if n.is_multiple_of(2) { RelCall } else { IndCall });
            // After the call, so that all targets are distinct.
            let ret =
                |n: u32| Retired { to: place(calls - 1 - n) + 0x18, ..branch(calls - n, 0, Ret) };
            (0..calls).map(call).chain((0..returns).map(ret)).collect()
        }
        Kernel::Leaves(count) => {
            let pair = |n: u32| {
                let call = branch(1 + n, 200, RelCall);
                [call, Retired { to: place(1 + n) + 0x15, ..branch(200, 0, Ret) }]
            };
            [branch(0, 1, RelCall)].into_iter().chain((0..count).flat_map(pair)).collect()
        }
        Kernel::ZeroLengthCall => {
            let next = Retired { to: place(1) + 0x15, ..branch(1, 0, RelCall) };
            vec![branch(0, 1, RelCall), Retired { zero_length_call: true, ..next }]
        }
        Kernel::Predictable(count) => (0..count).map(|n| branch(n, n + 1, Cond)).collect(),
        Kernel::Unpredictable(count) => (0..count)
            .map(|n| Retired { mispredicted: Some(n % 2 == 0), ..branch(n, n + 1, Cond) })
            .collect(),
        Kernel::Chain(cycles) => vec![
            branch(0, 1, RelJmp),
            Retired { cycles: Some(cycles.saturating_add(SHORT)), ..branch(1, 2, RelJmp) },
        ],
        Kernel::Transaction { abort } => {
            let mut branches = vec![Retired { in_tx: true, ..branch(0, 1, RelJmp) }];
            if abort {
                branches.push(Retired { abort: true, ..branch(1, 2, Other) });
            }
            branches
        }
        Kernel::KernelAddresses => vec![syscall(0), in_ring_0(), sysret(1)],
        Kernel::Exception => jumps(2),
        Kernel::AroundPmi | Kernel::AroundSmi => jumps(3),
    }
}

impl Subject for SoftSubject {
    fn kind(&self) -> SubjectKind {
        SubjectKind::Software
    }

    fn cpuid(&self) -> &RecordedCpuid {
        &self.cpuid
    }

    fn execute(&mut self, kernel: Kernel, switch: Switch) -> Result<Ran, RunError> {
        self.write(switch.msr, switch.on)?;
        let mut branches = self.retire(&script(kernel));
        let before_event = match kernel {
            Kernel::Exception => {
                let before = branches.len();
                self.lbr.exception();
                let handler = Retired { from: place(2), ..syscall(2) };
                branches.extend(self.retire(&[handler]));
                Some(before)
            }
            Kernel::AroundPmi => {
                let before = branches.len();
                self.lbr.pmi();
                branches.extend(self.retire(&[branch(3, 4, RelJmp)]));
                Some(before)
            }
            Kernel::AroundSmi => {
                self.lbr.smi();
                Some(branches.len())
            }
            _ => None,
        };
        // Keeps bits that the CPU itself changed: MSROFF of BRS.
        let now = self.read(switch.msr)?;
        self.write(switch.msr, now & !(switch.on & !switch.off))?;
        Ok(Ran { branches, unlisted: false, before_event })
    }

    fn deep_c_state(&mut self) -> Result<(), RunError> {
        self.lbr.deep_c_state();
        Ok(())
    }

    fn read_sibling(&mut self, msr: Msr) -> Result<u64, RunError> {
        Ok(self.sibling.read(msr)?)
    }
}

impl MsrRead for SoftSubject {
    fn cpu(&self) -> u32 {
        self.lbr.cpu()
    }

    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        self.lbr.read(msr)
    }
}

impl MsrWrite for SoftSubject {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        self.lbr.write(msr, value)?;
        if Some(msr) == self.select && self.lbr.shares_select() {
            self.sibling.write(msr, value)?;
        }
        Ok(())
    }
}
