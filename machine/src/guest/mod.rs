//! A virtual machine whose CPU has an LBR.
//!
//! QEMU's software emulation has no LBR: it reads 0 for its registers and ignores writes. This
//! plugin intercepts RDMSR, WRMSR and CPUID of the guest and follows its execution. A software LBR
//! ([`lbr_msr::soft::SoftLbr`]) of a chosen CPU, one per virtual CPU, records every branch,
//! interrupt, exception and return in kernel and user mode.
//!
//! - The software LBR answers RDMSR and WRMSR of registers that belong to an LBR facility; a
//!   register that the chosen CPU lacks, or a reserved bit, raises a real #GP. QEMU handles all
//!   other registers.
//! - The CPU's performance monitor ([`pmu`]) counts instructions, cycles and branches, and
//!   interrupts through the emulator's local APIC: an unmodified kernel's driver finds both, and
//!   `perf record -b` works.
//! - CPUID is patched, not replaced: a guest that sees features which the emulator lacks would
//!   crash.
//! - A virtual CPU that does not record costs one test per block of code and, if it could count,
//!   three additions.
//!
//! Arguments:
//! - `cpu=FF_MM`, a preset of [`lbr_msr::soft`];
//! - `lie=NAME`, an injected fault ([`lbr_msr::soft::Fault`]), which may be repeated;
//!   [`lbr_msr::soft::machine`] describes how a guest switches faults;
//! - `threads=N`, the virtual CPUs per core (1 by default), which share MSR_LBR_SELECT if the
//!   chosen CPU's do;
//! - `idle=deep`: HLT means a C-state deeper than C1;
//! - `pmu=off`: no performance monitor.
//!
//! It needs QEMU 11 (plugins that write registers) and `-accel tcg,thread=multi`: with one thread
//! QEMU reports the wrong virtual CPU.
//!
//! Modelled, not measured: cycles ([`instruction`]; unknown for the first record after recording
//! was enabled), mispredictions ([`Predictor`](lbr_msr::soft::Predictor)), transactions ([`instruction`]).
//!
//! Limits: a conditional branch to the next instruction counts as not taken, because QEMU computes
//! the flags only when it needs them. All code is assumed to be 64-bit. RDPMC of a missing counter
//! raises #UD, as does XTEST. The performance monitor's interrupt needs a memory-mapped local APIC.
//! Other features that the emulator lacks read as 0, as in QEMU.

mod api;
mod callbacks;
mod cpuid;
mod install;
mod instruction;
mod machine;
mod model;
mod pmu;
mod registers;
mod sharing;
mod state;
mod translate;
mod vcpu;
