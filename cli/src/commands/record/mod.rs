//! `lbr record`: run a program and record its branches.

mod check;
pub(super) mod hardware;
mod output;
mod overhead;
mod perf;
mod serve;
mod software;
mod spelling;
mod summary;

pub(crate) use software::{in_user_mode, names as software_sources};

use std::path::{Path, PathBuf};

use self::spelling::{PerfSpelling, Rate};
use super::backend::{Backend, Choice};
use super::{machine::HostArgs, rights::Rights, soft::CpuParser};
use crate::args::heading;
use crate::cpus::CpuList;
use crate::exit::{Failure, NO_LBR, Result, USAGE, usage};
use crate::output::{Output, recording};
use crate::present::say;
use anyhow::anyhow;
use clap::{Args, ValueEnum};
use lbr_msr::soft::SoftCpu;

/// Record the branches of a program into a perf.data file
///
/// Examples:
///   lbr record ls -l                 sampled, or every branch in software
///   lbr record --report ls           and print the hot branches
///   lbr record --from main -o main.data ./prog    from main on, in software
///
/// lbr uses the first of these that works:
///
/// 1. The CPU's LBR registers, through the msr driver or msr-safe. The program
///    is pinned to one CPU (-C), whose registers are read 997 times a second.
///    -p records a running process, -C without a program all that runs on these
///    CPUs. Registers do not name their process: stacks with branches of other
///    programs are recognized by address and dropped, and a mapping that comes
///    and goes without a branch into it is not seen.
/// 2. The kernel's perf events (--backend perf). The kernel reads the LBR at the
///    overflow of a branch counter, for ordinary users too if
///    kernel.perf_event_paranoid is at most 2. Threads may run on any CPU, each
///    stack names its process, and lbr writes no register. -F and -c are the
///    kernel's: samples per second, or branches per sample, taken or not.
/// 3. A software LBR. The program (of AArch64 too, with a software BRBE) runs
///    under ptrace or the QEMU plugin, and each
///    taken branch goes into registers that behave as those of --soft-cpu. What
///    such a source cannot know (predictions, cycles, the kernel) is absent from
///    the recording, not made up. --from, --source, --soft-cpu and -c below the
///    LBR depth always use it.
///
/// As in perf record, all words after the program belong to it. SIGINT (Ctrl-C)
/// and SIGTERM are passed on to the program; it is killed 10 seconds later, or
/// at the second signal. Its exit status is that of lbr.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, next_help_heading = heading::RECORDING)]
pub(crate) struct Record {
    /// CPUs to pin to and record, such as 0-3,6
    ///
    /// [default: one of them; with perf events all, and the program is not pinned]
    #[arg(short = 'C', long = "cpu", value_name = "LIST")]
    cpu: Option<CpuList>,

    /// Record this process (hardware)
    ///
    /// Registers need the process to be pinned to the recorded CPU until the end.
    #[arg(short = 'p', long = "pid", value_name = "PID", conflicts_with = "command",
          value_parser = spelling::pid)]
    pid: Option<u32>,

    /// Record for MS milliseconds (-p, or no program)
    ///
    /// [default: until it ends, or Ctrl-C]
    #[arg(long = "for", value_name = "MS", conflicts_with = "command",
          value_parser = clap::value_parser!(u64).range(1..))]
    time: Option<u64>,

    /// Branches to record
    ///
    /// perf's names separated by commas: any, any_call, any_ret, ind_call, ind_jmp, call, cond,
    /// stack (call-stack mode); u, k; no_far (no system calls, interrupts and their returns);
    /// save_type (the default).
    #[arg(short = 'j', long = "branch-filter", value_name = "FILTER", default_value = FILTER)]
    filter: String,

    /// Stacks per second [default on hardware: 997]
    ///
    /// Jittered by 25%. `max` is kernel.perf_event_max_sample_rate.
    #[arg(short = 'F', long = "freq", value_name = "HZ", conflicts_with = "count")]
    freq: Option<Rate>,

    /// A stack every N branches [software: depth - 1]
    ///
    /// Software LBR: up to depth - 1, every branch is recorded once and in order. perf events: a
    /// sample after N retired branches, taken or not. Registers cannot do this: they raise no
    /// interrupt that a program could wait for.
    #[arg(short = 'c', long = "count", value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Start when this function or place is first reached
    ///
    /// main, main+0x1a, file.c:12, or an address of the file (0x1149); the end of a function's name
    /// suffices.
    #[arg(long, value_name = "PLACE", requires = "command")]
    from: Option<String>,

    /// Record argument registers at this function
    ///
    /// At its entry, for lbr report --view args. The program is single-stepped.
    #[arg(long, value_name = "FUNCTION", requires = "command")]
    args: Option<String>,

    /// Record child processes too
    #[arg(long, requires = "command")]
    children: bool,

    #[command(flatten)]
    rights: Rights,

    /// How to reach the LBR
    #[arg(long, value_enum, default_value_t = Backend::Auto, help_heading = heading::MACHINE)]
    backend: Backend,

    /// Which CPU reads the LBR registers
    #[arg(long, value_enum, default_value_t = Placing::Auto, help_heading = heading::MACHINE,
          hide_short_help = true)]
    placement: Placing,

    /// Allow deep C-states, in which some CPUs lose their records
    #[arg(long, help_heading = heading::MACHINE, hide_short_help = true)]
    allow_cstates: bool,

    #[command(flatten)]
    host: HostArgs,

    /// CPU of the software LBR; `list` lists them
    ///
    /// FF_MMH of the CPU table, or a name such as skylake [default: 06_5E; for programs of AArch64
    /// neoverse-v2]
    #[arg(long, value_name = "CPU", value_parser = CpuParser, help_heading = heading::MACHINE)]
    soft_cpu: Option<SoftCpu>,

    /// Add modelled predictions and cycles
    ///
    /// They are labelled as modelled (software LBR). A two-bit counter predicts each conditional
    /// branch, the last target each indirect one. An instruction takes one cycle, a misprediction
    /// 15 more. This resembles no CPU: use it to try the views that show predictions and times.
    #[arg(long, requires = "command", help_heading = heading::MACHINE)]
    model: bool,

    /// Tracer of the software LBR
    #[arg(long, value_name = "SOURCE", default_value = AUTO, value_parser = software::names(),
          help_heading = heading::MACHINE)]
    source: String,

    /// File to write; - is standard output
    ///
    /// An existing recording becomes FILE.old; any other existing file is refused. Standard output,
    /// a pipe or a device gets perf's pipe format.
    #[arg(short = 'o', long = "output", value_name = "FILE", default_value = "perf.data",
          help_heading = heading::OUTPUT)]
    output: PathBuf,

    /// Compress with zstd: 1 (fastest) to 22 (smallest)
    #[arg(short = 'z', long = "compression-level", value_name = "N", num_args = 0..=1,
          default_missing_value = "1", value_parser = clap::value_parser!(i32).range(1..=22),
          hide_short_help = true, help_heading = heading::OUTPUT)]
    compression: Option<i32>,

    /// Print the hot branches when the program has ended
    #[arg(long, help_heading = heading::OUTPUT)]
    report: bool,

    /// Print how much longer the program takes with recording
    ///
    /// Runs it in turns with and without recording, PAIRS times each, without input and output, and
    /// keeps no recording.
    #[arg(long, value_name = "PAIRS", num_args = 0..=1, require_equals = true, requires = "command",
          default_missing_value = overhead::PAIRS, conflicts_with_all = ["output", "report"],
          value_parser = clap::value_parser!(u32).range(i64::from(overhead::FEWEST)..),
          help_heading = heading::OUTPUT)]
    overhead: Option<u32>,

    /// Print each sampler's counts and why this backend was used
    #[arg(short, long, help_heading = heading::OUTPUT)]
    verbose: bool,

    #[command(flatten)]
    spelling: PerfSpelling,

    /// The program and its arguments, after the options of lbr
    #[arg(trailing_var_arg = true, value_name = "CMD", help_heading = heading::RECORDING,
          required_unless_present_any = ["pid", "tid", "cpu", "all_cpus"])]
    command: Vec<String>,
}

/// The filter if none is given.
const FILTER: &str = "any,u,no_far";
/// The first source that is available.
const AUTO: &str = "auto";
/// The default CPU of the software LBR.
const SOFT_CPU: &str = "06_5E";
/// The same for programs of AArch64.
const SOFT_ARM_CPU: &str = "neoverse-v2";

/// The CPU that reads the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Placing {
    /// On the recorded CPU if SCHED_FIFO is permitted, otherwise on another
    Auto,
    /// On the recorded CPU: with SCHED_FIFO nothing is missing between two stacks
    Same,
    /// From another CPU: the program continues while its records are read
    Beside,
}

/// The output: it must not be a file that is run or read.
fn output_of(args: &Record) -> Result<Output> {
    let program = match (args.command.first(), args.pid) {
        // A missing program is reported when it is started.
        (Some(program), _) => sampler::target::find(program).ok(),
        (None, Some(pid)) => Some(PathBuf::from(format!("/proc/{pid}/exe"))),
        (None, None) => None,
    };
    let output = Output::new(&args.output, program.iter().chain(&args.host.cpuid))?;
    if args.report && !output.is_file() {
        return Err(usage!("--report reads the recording again: give -o FILE"));
    }
    recording::prepare(&output)?;
    Ok(output)
}

/// Prints the source of the branches, and a warning if the program runs as root.
fn announce(args: &Record, source: &str) {
    let as_root = !args.command.is_empty() && args.rights.are_roots();
    let rights =
        if as_root { "; the program runs as root (--user NAME: as another user)" } else { "" };
    say!("recording on {source}{rights}");
}

/// Records into an output, from branch records that were found.
type Recorder<'a> = Box<dyn FnOnce(Output) -> Result + 'a>;

pub(crate) fn run(mut args: Record) -> Result {
    args.resolve_spelling()?;
    let args = &args;
    args.rights.check()?;
    if let Some(pid) = args.pid.filter(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
        return Err(usage!("no process {pid} is running"));
    }
    if let Some(pairs) = args.overhead {
        return overhead::run(args, pairs);
    }
    let chosen = choose(args)?;
    let output = output_of(args)?;
    let why = match chosen {
        Choice::Hardware(record) => return record(output),
        Choice::Software(why) => why,
    };
    if let Err(refusal) = args.served_by_software() {
        return Err(match why {
            Some(Failure { code, error }) => {
                Failure { code, error: anyhow!("{refusal}; no hardware LBR: {error:#}") }
            }
            None => usage!(refusal),
        });
    }
    software::record(args, output, why.map(|why| format!("{:#}", why.error)).as_deref())
}

/// Chooses the first backend that is available and serves every option that was given.
fn choose(args: &Record) -> Result<Choice<Recorder<'_>>> {
    args.backend.choose(
        || {
            args.served_by_registers().map_err(|refusal| {
                // With auto another backend may serve it.
                let code = if args.backend == Backend::Auto { NO_LBR } else { USAGE };
                Failure { code, error: anyhow!(refusal) }
            })?;
            hardware::look(args)
        },
        || match args.served_by_perf() {
            Err(_) if args.backend == Backend::Auto => None,
            Err(refusal) => Some(Err(usage!(refusal))),
            Ok(()) => perf::look(args).transpose(),
        },
    )
}
