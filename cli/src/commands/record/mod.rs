//! `lbr record`: run a program and record its branches.

mod check;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod hardware;
mod output;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod perf;
mod serve;
mod software;
mod spelling;
mod summary;

pub(crate) use software::{in_user_mode, names as software_sources};

use std::path::{Path, PathBuf};

use self::spelling::{PerfSpelling, Rate};
use super::backend::{Backend, Choice};
use super::{cpus::CpuList, machine::HostArgs, rights::Rights, soft::CpuParser};
use crate::exit::{Failure, NO_LBR, OrExit, Outcome, USAGE};
use crate::output::{Output, recording};
use crate::present::out::say;
use anyhow::anyhow;
use clap::{Args, ValueEnum};
use lbr_msr::soft::SoftCpu;

/// Record the branches of a program into a perf.data file
///
/// From the CPU's own branch records, through the msr driver or msr-safe: the program is started on
/// one CPU (-C), whose registers are read 997 times a second. -p records a process that runs already,
/// -C without a program everything that runs on these CPUs. Registers do not say whose branch they
/// hold: stacks with branches of other programs are recognised by their addresses and left out, and
/// a mapping that comes and goes without being branched into is not seen.
///
/// Where the registers are out of reach (no driver, no rights, lockdown), the kernel's perf events stand
/// in (--backend perf): the kernel reads the records at the interrupt of a counter of branches, for
/// ordinary users too where kernel.perf_event_paranoid is 2 or less. The program is followed thread by
/// thread on any CPU, each stack says whose it is, and lbr writes no register. -F and -c are the
/// kernel's: a sample so many times a second, or after so many branches, taken or not.
///
/// SIGINT (Ctrl-C) and SIGTERM are passed on to the program, which may finish its own handlers; it is
/// killed 10 seconds later, or at the second signal. Its exit status is that of lbr.
///
/// As with perf record, all words after the program belong to it: lbr record ls -l.
///
/// Where the CPU's own branch records cannot be used at all, nor for what is asked (--from, --source,
/// --soft-cpu, -c below the depth: every branch), a software LBR stands in: the program runs
/// under ptrace (or the QEMU plugin), every branch it takes is fed to registers that behave like
/// those of --soft-cpu, and these registers are read as the CPU's would be. What such a source cannot
/// know (predictions, cycles, the kernel) is left out of the recording, not made up.
#[derive(Debug, Args)]
pub(crate) struct Record {
    /// Logical CPUs to pin the program to and record, such as 0-3,6 [default: one of them; with
    /// perf events all, and the program is not pinned]
    #[arg(short = 'C', long = "cpu", value_name = "LIST")]
    cpu: Option<CpuList>,

    /// Record this process (hardware); registers need it to be moved to the CPU meanwhile
    #[arg(short = 'p', long = "pid", value_name = "PID", conflicts_with = "command",
          value_parser = spelling::pid)]
    pid: Option<u32>,

    /// Record for so many milliseconds [default: until it ends, or Ctrl-C] (-p, or no program)
    #[arg(long = "for", value_name = "MS", conflicts_with = "command",
          value_parser = clap::value_parser!(u64).range(1..))]
    time: Option<u64>,

    /// Branches to record, perf's names separated by commas
    ///
    /// any, any_call, any_ret, ind_call, ind_jmp, call, cond, stack (call-stack mode); u, k;
    /// no_far (leave out system calls, interrupts and their returns); save_type, which
    /// goes without saying (--no-save-type).
    #[arg(
        short = 'j',
        long = "branch-filter",
        value_name = "FILTER",
        default_value = FILTER
    )]
    filter: String,

    /// Leave the types of branches out of the file, as perf does without save_type in -j
    #[arg(long)]
    no_save_type: bool,

    /// Stacks per second, jittered by 25%; max: kernel.perf_event_max_sample_rate [hardware: 997]
    #[arg(short = 'F', long = "freq", value_name = "HZ", conflicts_with = "count")]
    freq: Option<Rate>,

    /// Drain the ring after so many recorded branches [software LBR: depth - 1]
    ///
    /// Up to depth - 1 every branch is recorded once and in order. Registers cannot do this: they
    /// raise no interrupt that a program could wait for. perf events take a sample after
    /// so many retired branches, taken or not.
    #[arg(short = 'c', long = "count", value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Seed of the jitter of -F [default: random; -v prints it]
    #[arg(long, value_name = "N", requires = "freq")]
    seed: Option<u64>,

    /// File to write; - is standard output, in perf's pipe format
    ///
    /// An existing recording becomes FILE.old; any other existing file is refused. A pipe or
    /// a device is written in the pipe format too.
    #[arg(short = 'o', long = "output", value_name = "FILE", default_value = "perf.data")]
    output: PathBuf,

    /// Compress the recording with zstd, as perf record does: 1 is the fastest level, 22 the smallest
    #[arg(short = 'z', long = "compression-level", value_name = "N", num_args = 0..=1,
          default_missing_value = "1", value_parser = clap::value_parser!(i32).range(1..=22))]
    compression: Option<i32>,

    /// What records the branches
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,

    /// Where the registers of hardware are read
    #[arg(long, value_enum, default_value_t = Placing::Auto)]
    placement: Placing,

    /// Let CPUs go into deep C-states, where some lose their records
    #[arg(long)]
    allow_cstates: bool,

    #[command(flatten)]
    host: HostArgs,

    /// CPU whose registers the software LBR has: FF_MMH of the CPU table, or a name [default: 06_5E]
    #[arg(long, value_name = "CPU", value_parser = CpuParser)]
    soft_cpu: Option<SoftCpu>,

    /// Record predictions and cycles of a simple model, labelled as modelled (software LBR)
    ///
    /// A two-bit counter predicts each conditional branch, the last target each indirect one; an
    /// instruction takes one cycle and a misprediction 15 more. They resemble no CPU's: use them to
    /// try the views that show predictions and times.
    #[arg(long, requires = "command")]
    model: bool,

    /// What runs the program under the software LBR
    #[arg(long, value_name = "SOURCE", default_value = AUTO, value_parser = software::names())]
    source: String,

    /// Start recording when this function of the program is first reached; the end of its name
    /// will do
    #[arg(long, value_name = "SYMBOL", requires = "command")]
    from: Option<String>,

    /// Record the registers that hold the arguments of this function of the program each time it is
    /// entered, for lbr report --view args; the program is single-stepped then
    #[arg(long, value_name = "FUNCTION", requires = "command")]
    args: Option<String>,

    /// Record child processes too
    #[arg(long, requires = "command")]
    children: bool,

    #[command(flatten)]
    rights: Rights,

    /// Print the hot branches when the program has ended
    #[arg(long)]
    report: bool,

    /// Also print what each CPU's sampler did, what the source cannot know, and why the software
    /// LBR was chosen
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    spelling: PerfSpelling,

    /// The program and its arguments; options of lbr come before it
    #[arg(trailing_var_arg = true, value_name = "CMD",
          required_unless_present_any = ["pid", "tid", "cpu", "all_cpus"])]
    command: Vec<String>,
}

/// The filter if none is given.
const FILTER: &str = "any,u,no_far";
/// The first source that is available.
const AUTO: &str = "auto";
/// The CPU of the software LBR where none is named.
const SOFT_CPU: &str = "06_5E";

/// Where the registers of hardware are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Placing {
    /// On the recorded CPU where SCHED_FIFO is permitted, else beside it
    Auto,
    /// On the recorded CPU: with SCHED_FIFO nothing is missing between two stacks
    Same,
    /// From another CPU: the program goes on while its records are read
    Beside,
}

/// Where the recording goes: into nothing that is being run or read.
fn output_of(args: &Record) -> Result<Output, Failure> {
    let program = match (args.command.first(), args.pid) {
        // One that is not there is refused when it is started.
        (Some(program), _) => sampler::target::find(program).ok(),
        (None, Some(pid)) => Some(PathBuf::from(format!("/proc/{pid}/exe"))),
        (None, None) => None,
    };
    let output = Output::new(&args.output, program.iter().chain(&args.host.cpuid))?;
    if args.report && !output.is_file() {
        let error = anyhow!("--report reads the recording again: give -o FILE");
        return Err(Failure { code: USAGE, error });
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

/// How the branch records of the CPUs are reached.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
enum HardwareBackend {
    Registers(hardware::Chosen),
    Perf(Box<perf::Chosen>),
}

/// Runs the command.
pub(crate) fn run(mut args: Record) -> Outcome {
    args.resolve_spelling()?;
    let args = &args;
    args.rights.check()?;
    if let Some(pid) = args.pid.filter(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
        return Err(anyhow!("no process {pid} is running")).or_exit(USAGE);
    }
    let chosen = choose(args)?;
    let output = output_of(args)?;
    let why = match chosen {
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Choice::Hardware(HardwareBackend::Registers(chosen)) => {
            return hardware::record(args, output, chosen);
        }
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Choice::Hardware(HardwareBackend::Perf(chosen)) => {
            return perf::record(args, output, *chosen);
        }
        #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
        Choice::Hardware(()) => None,
        Choice::Software(why) => why,
    };
    if let Err(refusal) = args.served_by_software() {
        return Err(match why {
            Some(Failure { code, error }) => {
                Failure { code, error: anyhow!("{refusal}; no hardware LBR: {error:#}") }
            }
            None => Failure { code: USAGE, error: anyhow!(refusal) },
        });
    }
    software::record(args, output, why.map(|why| format!("{:#}", why.error)).as_deref())
}

/// Chooses the first backend that is available and serves every option that was given.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn choose(args: &Record) -> Result<Choice<HardwareBackend>, Failure> {
    args.backend.choose(
        || {
            args.served_by_registers().map_err(|refusal| {
                // Under auto another backend may serve it.
                let code = if args.backend == Backend::Auto { NO_LBR } else { USAGE };
                Failure { code, error: anyhow!(refusal) }
            })?;
            hardware::look(args).map(HardwareBackend::Registers)
        },
        || match args.served_by_perf() {
            Err(_) if args.backend == Backend::Auto => None,
            Err(refusal) => Some(Err(anyhow!(refusal)).or_exit(USAGE)),
            Ok(()) => Some(perf::look(args)?.map(|chosen| HardwareBackend::Perf(Box::new(chosen)))),
        },
    )
}

/// There is no other backend on this platform.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn choose(_: &Record) -> Result<Choice<()>, Failure> {
    Ok(Choice::Software(None))
}
