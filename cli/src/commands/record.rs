//! `lbr record`: run a program and record its branches.

mod backend;
mod sink;
mod software;
mod summary;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::exit::Outcome;

/// Record the branches of a program into a perf.data file
///
/// Where the CPU's own branch records cannot be used, a software LBR stands in: the program runs
/// under ptrace (or the QEMU plugin), every branch it takes is fed to registers that behave like
/// those of --soft-cpu, and these registers are read as the CPU's would be. What such a source cannot
/// know (predictions, cycles, the kernel) is left out of the recording, not made up.
#[derive(Debug, Args)]
pub(crate) struct Record {
    /// Logical CPU to pin the program to
    #[arg(short = 'C', long = "cpu", value_name = "CPU")]
    cpu: Option<u32>,

    /// Branches to record, perf's names separated by commas
    ///
    /// any, any_call, any_ret, ind_call, ind_jmp, call, cond, stack (call-stack mode); u, k;
    /// no_far (leave out system calls, interrupts and their returns); save_type.
    #[arg(
        short = 'j',
        long = "branch-filter",
        value_name = "FILTER",
        default_value = "any,u,no_far"
    )]
    filter: String,

    /// Drain the ring so many times a second, jittered by a quarter to either side [hardware: 997]
    #[arg(short = 'F', long = "freq", value_name = "HZ", conflicts_with = "count",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    freq: Option<u32>,

    /// Drain the ring after so many recorded branches [software LBR: depth - 1]
    ///
    /// Up to depth - 1 every branch is recorded once and in order. Hardware cannot do this: it
    /// raises no interrupt that a program could wait for.
    #[arg(short = 'c', long = "count", value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Seed of the jitter of -F [default: drawn anew and reported]
    #[arg(long, value_name = "N", requires = "freq")]
    seed: Option<u64>,

    /// File to write
    #[arg(short = 'o', long = "output", value_name = "FILE", default_value = "perf.data")]
    output: PathBuf,

    /// What records the branches
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,

    /// CPU whose registers the software LBR has: FF_MMH of the CPU table, or a name
    #[arg(long, value_name = "CPU", default_value = "06_5E")]
    soft_cpu: String,

    /// What runs the program under the software LBR
    #[arg(long, value_enum, default_value_t = Source::Auto)]
    source: Source,

    /// Start recording when this function of the program is first reached
    #[arg(long, value_name = "SYMBOL")]
    from: Option<String>,

    /// Record child processes too
    #[arg(long)]
    children: bool,

    /// Print the hot branches when the program has ended
    #[arg(long)]
    report: bool,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// What records the branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// The CPU's registers where they can be used, else the software LBR
    Auto,
    /// The CPU's registers through /dev/cpu/N/msr
    Msr,
    /// The CPU's registers through msr-safe
    MsrSafe,
    /// The software LBR
    Soft,
}

/// What runs the program under the software LBR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Source {
    /// The QEMU plugin where it can be had, else ptrace
    Auto,
    /// Single-stepping: any program, about 30,000 instructions a second and up
    Ptrace,
    /// qemu-x86_64 with this project's plugin: hundreds of times faster
    Qemu,
}

/// Runs the command.
pub(crate) fn run(args: &Record) -> Outcome {
    let why_soft = backend::choose(args.backend)?;
    software::record(args, why_soft.as_deref())
}
