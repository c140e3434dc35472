//! A virtual machine whose CPU has an LBR.
//!
//! QEMU's software emulation has no LBR: it answers 0 for its registers and
//! drops writes. This plugin stands behind RDMSR, WRMSR and CPUID of the guest
//! and follows what the guest executes, so that a software LBR
//! ([`lbr_msr::soft::SoftLbr`]) of a chosen CPU sits there, one per virtual
//! CPU, fed with every branch, interrupt, exception and return of kernel and
//! user alike.
//!
//! - RDMSR and WRMSR of a register that belongs to an LBR facility are answered
//!   by the software LBR; one that the chosen CPU lacks, or a reserved bit,
//!   raises a real #GP. All other registers are QEMU's.
//! - The CPU's performance monitor ([`pmu`]) counts instructions, cycles and
//!   branches, and interrupts by the emulator's local APIC: an unmodified
//!   kernel's driver finds both, and `perf record -b` works.
//! - CPUID is patched, not replaced: a guest that is told of features the
//!   emulator lacks dies of them.
//! - A virtual CPU that does not record costs one test per block of code, and
//!   where it could count, three additions.
//!
//! Arguments:
//! - `cpu=FF_MM`, a preset of [`lbr_msr::soft`];
//! - `lie=NAME`, a departure from its documents ([`lbr_msr::soft::Fault`]);
//!   more than one may be given, and [`lbr_msr::soft::machine`] tells how a
//!   guest switches them;
//! - `threads=N`, the virtual CPUs of a core (1 by default), which share
//!   MSR_LBR_SELECT where the chosen CPU's do;
//! - `idle=deep`: HLT stands for a C-state deeper than C1;
//! - `pmu=off`: there is no performance monitor.
//!
//! It needs QEMU 11 (plugins that write registers) and
//! `-accel tcg,thread=multi`: with one thread QEMU tells the wrong virtual CPU.
//!
//! What is modelled, not measured: cycles ([`instruction`]; of the first record
//! after recording was turned on they are not known), mispredictions
//! ([`predict`]), transactions ([`transaction`]).
//!
//! What it cannot do: a conditional branch to the next instruction counts as
//! not taken, as QEMU computes the flags only when it needs them. Code is taken
//! for 64-bit code. RDPMC of a counter that is not there raises #UD, as does
//! XTEST. The interrupt of the performance monitor needs a local APIC that is
//! reached through memory. What the CPU lacks beside these facilities is
//! answered as QEMU does, with 0.

mod api;
mod callbacks;
mod cpuid;
mod entry;
mod install;
mod instruction;
mod interrupt;
mod machine;
mod model;
mod pmu;
mod predict;
mod registers;
mod sharing;
mod state;
mod transaction;
mod translate;
mod vcpu;
