//! Which backends serve the options that were given. An option that a backend cannot serve is
//! never ignored: another backend is chosen, or the command fails.

use lbr_msr::insn::Isa;
use sampler::target;

use super::{AUTO, Placing, Record};
use crate::commands::machine::MachineArgs;
use crate::present::applicable;

/// `Err`: why a backend cannot do what is asked, and what can.
pub(super) type Serves = Result<(), String>;

impl Record {
    /// Whether the registers of a CPU can serve these options.
    pub(super) fn served_by_registers(&self) -> Serves {
        self.not_for_software_alone()?;
        refuse([
            (
                self.from.is_some(),
                "--from: hardware records from the program's start; the software LBR \
                 (--backend soft) can start later",
            ),
            (
                self.args.is_some(),
                "--args: branch records hold no registers; the software LBR (--backend soft) \
                 records them",
            ),
            (
                self.count.is_some(),
                "-c: hardware cannot be drained after a number of branches, because it raises no \
                 interrupt that a program could wait for; give a rate (-F), or take perf events \
                 (--backend perf) or the software LBR (--backend soft)",
            ),
            (
                self.children,
                "--children: the registers do not say whose branches they hold; record the whole \
                 CPU (-C without a program), or take perf events (--backend perf) or the software \
                 LBR (--backend soft)",
            ),
        ])
    }

    /// Whether the kernel's perf events can serve these options.
    pub(super) fn served_by_perf(&self) -> Serves {
        self.not_for_software_alone()?;
        refuse([
            (self.from.is_some(), "--from: the kernel records from the program's start"),
            (
                self.args.is_some(),
                "--args: the kernel samples when a counter is full, not when a function is entered",
            ),
            (self.placement != Placing::Auto, "--placement: lbr reads no register"),
            (
                !MachineArgs::from(self.host.clone()).is_live(),
                "perf events are those of the running kernel: drop --msr-root and --cpuid",
            ),
        ])
    }

    /// Whether the software LBR can serve these options.
    pub(super) fn served_by_software(&self) -> Serves {
        const STARTED: &str =
            "the software LBR records only programs that it starts (lbr record PROGRAM)";
        if let Some(pid) = self.pid {
            return Err(format!("process {pid}: {STARTED}"));
        }
        if self.command.is_empty() {
            return Err(format!("whole CPUs: {STARTED}"));
        }
        refuse([(
            self.placement != Placing::Auto,
            "--placement: the software LBR is not read by a CPU",
        )])
    }

    fn not_for_software_alone(&self) -> Serves {
        let is_foreign = isa(self) == Isa::Aarch64;
        refuse([
            (is_foreign, "the program is for AArch64: only the software LBR has it, in QEMU"),
            (self.soft_cpu.is_some(), "--soft-cpu: only the software LBR (--backend soft) has it"),
            (self.model, "--model: only the software LBR (--backend soft) has it"),
            (self.source != AUTO, "--source: only the software LBR (--backend soft) has it"),
        ])
    }
}

/// The instruction set of the program.
pub(super) fn isa(args: &Record) -> Isa {
    args.command.first().and_then(|program| target::isa(program)).unwrap_or_default()
}

/// The first refusal that applies.
fn refuse<const N: usize>(refusals: [(bool, &str); N]) -> Serves {
    applicable(refusals).next().map_or(Ok(()), |why| Err(why.to_owned()))
}
