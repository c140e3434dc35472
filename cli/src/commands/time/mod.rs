//! `lbr time`: how many cycles, instructions and branches a piece of code takes.

mod assemble;
mod code;
mod compare;
mod figures;
mod machine;
mod output;
mod place;
mod text;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{ArgGroup, Args};
use lab::measure::{MeasureError, Options};
use lbr_msr::BranchFilter;
use lbr_msr::soft::SoftCpu;

use code::TimedCode;
use figures::Figures;

use crate::commands::backend::Backend;
use crate::commands::machine::HostArgs;
use crate::exit::{DONE, FAILED, Failure, NO_LBR, OrExit, Outcome, USAGE};
use crate::present::out::{Out, say};

/// Time a piece of code by its own branches
///
/// The code is put between two jumps whose addresses are known and runs in a process of its own, with
/// a time limit. It is tried at full speed first, then single-stepped, which counts its instructions
/// and branches exactly, then run at full speed many times.
///
/// Where the CPU's own branch records can be used, they are switched on right before the first jump
/// and off right after the second: each record counts the core cycles since the one before. A run
/// with an interrupt in it is dropped and counted. Without them the code's counters of the kernel's
/// perf events are read at both jumps (RDPMC): core cycles, instructions, branches and those that were
/// mispredicted. Without those either core cycles are not known (-); the
/// ticks of the time stamp counter are measured either way, which counts at a fixed rate whatever the
/// frequency of the core.
///
/// At the start RSP points into a stack of 8 MiB, RBP, RSI, RDI and R14 each into the middle of 64
/// KiB of memory, all other registers are 0, and those of x87, SSE and AVX are as in a new process.
/// Memory keeps from one run to the next what the code writes. The loop of --loop counts in R15. An instruction
/// with a REP prefix counts as one, however often it repeats.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["code", "hex", "object"]))]
pub(crate) struct TimeArgs {
    /// Assembly, Intel syntax: instructions separated by `;` or lines; `-` reads it from stdin
    ///
    /// Several pieces of code are measured in turns and told side by side, with how many times as
    /// long each takes as the first. Each is put in a loop of its own unless --loop or --unroll says
    /// otherwise.
    #[arg(value_name = "CODE")]
    code: Vec<String>,

    /// The assembly (and that of --init) is in AT&T syntax
    #[arg(long)]
    att: bool,

    /// Machine code as hexadecimal bytes, such as "48 ff c8"; may be given several times
    #[arg(long, value_name = "BYTES")]
    hex: Vec<String>,

    /// Call a function of this object file or shared library
    #[arg(long, value_name = "FILE", requires = "symbol")]
    object: Option<PathBuf>,

    /// The function's name; the end of it will do (push for `Vec<T>::push`)
    #[arg(long, value_name = "NAME", requires = "object")]
    symbol: Option<String>,

    /// Assembly that sets up registers and memory before each run
    #[arg(long, value_name = "CODE", allow_hyphen_values = true)]
    init: Option<String>,

    /// Execute the code so many times in a loop of ours (DEC R15, JNZ); `auto` finds out how often it
    /// takes to be measured well
    #[arg(long = "loop", value_name = "N|auto", value_parser = Rounds::new)]
    rounds: Option<Rounds>,

    /// Put so many copies of the code behind each other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    unroll: u32,

    /// Runs before those that count
    #[arg(long, value_name = "N", default_value_t = 10)]
    warm_up: u32,

    /// Runs at full speed
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Runs that are single-stepped; 0 leaves instructions and branches uncounted
    #[arg(long, value_name = "N", default_value_t = 2)]
    stepped: u32,

    /// Time limit of one run in seconds; a stepped run has ten times as long
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    timeout: Duration,

    /// Logical CPU to run on [default: the last one allowed]
    #[arg(short = 'C', long = "cpu", value_name = "CPU")]
    cpu: Option<u32>,

    /// Let the code make any system call, with all of our rights
    ///
    /// Without it the code runs as the user behind sudo, or as nobody, where lbr is root
    /// (CAP_SYS_PTRACE is needed for that), gets no new rights (no_new_privs), and may make the system
    /// calls that reach nothing but itself: memory, time, its own signals, pipes, reading and writing
    /// what it has open. Any other raises SIGSYS.
    #[arg(long)]
    unconfined: bool,

    /// Branches that end a block, perf's names separated by commas, as in lbr record
    #[arg(short = 'j', long = "branch-filter", value_name = "FILTER", default_value = "any,u")]
    filter: String,

    /// What records the branches
    #[arg(long, value_enum, default_value = "auto")]
    backend: Backend,

    /// CPU whose filters a single-stepped run is recorded with: FF_MMH, or a name
    #[arg(long, value_name = "CPU", default_value = "06_5E", value_parser = SoftCpu::preset)]
    soft_cpu: SoftCpu,

    #[command(flatten)]
    host: HostArgs,

    /// Blocks to show
    #[arg(short = 'n', long, alias = "rows", value_name = "N", default_value_t = 20)]
    limit: usize,

    /// Print as comma-separated values
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Print as JSON Lines, with every distribution whole
    #[arg(long)]
    json: bool,

    /// Draw the distributions: into FILE (.svg or .png), or as text
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    plot: Option<Option<PathBuf>>,
}

/// How often a loop goes round.
#[derive(Clone, Copy, Debug)]
enum Rounds {
    Auto,
    Times(u32),
}

impl Rounds {
    fn new(text: &str) -> Result<Rounds, String> {
        match text {
            "auto" => Ok(Rounds::Auto),
            _ => match text.parse() {
                Ok(times) if times > 0 => Ok(Rounds::Times(times)),
                _ => Err(format!("1 to {}, or auto", u32::MAX)),
            },
        }
    }
}

impl TimeArgs {
    /// The rounds of the loop are found out.
    fn calibrates(&self) -> bool {
        match self.rounds {
            Some(rounds) => matches!(rounds, Rounds::Auto),
            None => self.code.len() + self.hex.len() > 1 && self.unroll == 1,
        }
    }
}

/// Ticks of the time stamp counter that a calibrated run takes: hundreds of times
/// what the bracket around it varies by.
const ENOUGH: u64 = 20_000;

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|limit| !limit.is_zero() && limit.as_secs() <= 86_400)
        .ok_or_else(|| "more than 0 and up to 86400 seconds".to_owned())
}

/// Runs the command.
pub(crate) fn run(args: &TimeArgs) -> Outcome {
    let filter = filter(&args.filter)?;
    let plot = args.plot.as_ref().map(|path| {
        path.as_ref().map(|path| output::picture(path, args.object.as_ref())).transpose()
    });
    let plot = plot.transpose()?;
    let mut codes = TimedCode::all(args)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("signals cannot be listened for")?;
    }
    let options = Options {
        warm_up: args.warm_up,
        repeat: args.repeat,
        stepped: args.stepped,
        limit: args.timeout,
        filter,
        confined: !args.unconfined,
        stop,
        ..Options::new(args.soft_cpu.clone())
    };
    let [code] = &mut codes[..] else {
        if plot.is_some() {
            return Err(anyhow!("--plot draws one piece of code at a time")).or_exit(USAGE);
        }
        return compare::run(args, options, &mut codes);
    };
    let mut body = code.body.clone();
    let (measured, source) = machine::measure(args, options, &code.body, |session| {
        if args.calibrates() {
            body.rounds = Some(session.calibrate(&body, ENOUGH)?);
        }
        session.measure_code(&body)
    })?;
    let measured = measured.map_err(|error| failed(error, code))?;
    code.body = body;
    let counted = Figures::new(&measured, code, source);
    let mut out = Out::stdout();
    if args.json {
        output::json(&mut out, &counted)?;
    } else if args.csv {
        output::csv(&mut out, &counted)?;
    } else {
        text::print(&mut out, &counted, args)?;
    }
    if let Some(plot) = &plot {
        output::plot(&mut out, &counted, plot.as_ref())?;
    }
    std::io::Write::flush(&mut out)?;
    if measured.runs.is_empty() {
        let dropped = measured.interrupted + measured.unreadable + measured.foreign;
        if dropped > 0 {
            say!(
                "no run counts: each was interrupted, or its records could not be used; shorter \
                 code, or more runs (--repeat), may help"
            );
        }
        return Ok(FAILED);
    }
    Ok(DONE)
}

fn filter(text: &str) -> Result<BranchFilter, Failure> {
    let filter: BranchFilter = text.parse().or_exit(USAGE)?;
    if filter.contains(BranchFilter::STACK) {
        let error = anyhow!("call-stack mode records no stretches of code: leave out `stack`");
        return Err(Failure { code: USAGE, error });
    }
    if filter.contains(BranchFilter::KERNEL) {
        let error = anyhow!(
            "the kernel's branches on the way into and out of the measurement would overwrite the \
             records: ask for `u` alone"
        );
        return Err(Failure { code: USAGE, error });
    }
    Ok(filter | BranchFilter::USER)
}

/// The sentence of a measurement that failed.
fn failed(error: MeasureError, code: &TimedCode) -> Failure {
    match error {
        MeasureError::Fault { fault, layout, stepped, needs } => {
            let what = place::fault(&fault, &layout, code, stepped, &needs);
            Failure { code: FAILED, error: anyhow!("{what}") }
        }
        MeasureError::Filter(error) => Failure { code: NO_LBR, error: error.into() },
        MeasureError::Register(error) => crate::commands::backend::refused(error),
        error => Failure { code: FAILED, error: error.into() },
    }
}
