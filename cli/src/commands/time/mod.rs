//! `lbr time`: how many cycles, instructions and branches a piece of code takes.

mod assemble;
mod code;
mod compare;
mod figures;
mod layouts;
mod machine;
mod mca;
mod output;
mod place;
mod text;

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use lab::measure::{CodeRights, MeasureError, Options};
use lbr_msr::BranchFilter;
use lbr_msr::soft::SoftCpu;

use code::TimedCode;
use figures::Figures;

use crate::args::heading;
use crate::commands::backend::Backend;
use crate::commands::machine::HostArgs;
use crate::commands::soft::CpuParser;
use crate::exit::{DONE, FAILED, Failure, NO_LBR, OrExit, Result, USAGE, failure, usage};
use crate::input;
use crate::present::{Out, say};

/// Time a snippet, or compare several: cycles, instructions, branches
///
/// Examples:
///   lbr time 'imul rax, rax'
///   lbr time 'imul rax, rax' 'lea rax, [rax+rax]'        which is faster?
///   lbr time 'mov rax, [r14]; add rax, 1' --init 'mov qword ptr [r14], 6'
///
/// The code runs between two jumps at known addresses, in a process of its own
/// with a time limit: first once at full speed, then single-stepped, which
/// counts its instructions and branches exactly, then many times at full speed.
///
/// Cycles come from the first of these that works:
///
/// 1. The CPU's LBR, enabled right before the first jump and disabled right
///    after the second. Each record counts the core cycles since the previous
///    one. A run with an interrupt in it is dropped and counted.
/// 2. The kernel's perf events, read at both jumps (RDPMC): core cycles,
///    instructions, branches and mispredicted branches.
/// 3. Neither: cycles are unknown (-). Ticks of the time stamp counter, whose
///    rate is fixed, are always measured.
///
/// At the start RSP points into a stack of 8 MiB; RBP, RSI, RDI and R14 each
/// point into the middle of 64 KiB of memory. All other registers are 0; those
/// of x87, SSE and AVX are as in a new process. Memory keeps what the code
/// writes from one run to the next. The loop of --loop counts in R15, which the
/// code must not change, or in memory if --init sets up each round. An
/// instruction with a REP prefix counts as one, however often it repeats.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, next_help_heading = "Runs")]
#[command(mut_arg("cpuid", |arg| arg.hide_short_help(true)))]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["code", "hex", "object"]))]
pub(crate) struct TimeArgs {
    /// Assembly, Intel syntax, separated by `;`; or a file; `-` for stdin
    ///
    /// An argument with a `.` or `/` in it that is a file is read: `nop` is an instruction, ./nop a
    /// file. Several snippets (CODE, then --hex, then --symbol) are measured in turns and compared
    /// with the first.
    #[arg(value_name = "CODE", help_heading = None::<&str>)]
    code: Vec<String>,

    /// The assembly (and that of --init) is in AT&T syntax
    #[arg(long, help_heading = "Code")]
    att: bool,

    /// Machine code as hexadecimal bytes, such as "48 ff c8"
    #[arg(long, value_name = "BYTES", help_heading = "Code")]
    hex: Vec<String>,

    /// Call functions of this object file or shared library
    ///
    /// One --object for all of --symbol, or one for each.
    #[arg(long, value_name = "FILE", requires = "symbol", help_heading = "Code")]
    object: Vec<PathBuf>,

    /// The function; the end of its name suffices
    ///
    /// push for `Vec<T>::push`.
    #[arg(long, value_name = "NAME", requires = "object", help_heading = "Code")]
    symbol: Vec<String>,

    /// Assembly that sets up each run and each round of the loop
    ///
    /// Each round of the loop then starts with the registers of a run, and this code runs again;
    /// the time that both take around empty code is subtracted. --init '' sets up the registers
    /// alone. Functions (--object) are always set up for each call. Copies (--unroll) follow each
    /// other without setup.
    #[arg(long, value_name = "CODE", allow_hyphen_values = true, help_heading = "Code")]
    init: Option<String>,

    /// Rounds of a loop around the code; 1 is no loop [default: auto]
    ///
    /// The loop is DEC R15, JNZ. `auto` copies short code and chooses N so that a run takes long
    /// enough to be measured well; with --unroll there is no loop by default.
    #[arg(long = "loop", value_name = "N|auto", value_parser = Rounds::new)]
    rounds: Option<Rounds>,

    /// Copies of the code, one after another
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    unroll: u32,

    /// Time the code at N alignments within 64 bytes, each at a page's start and across its end
    ///
    /// Shows how much of a time, or of a difference, is only the code's address. Short code is not
    /// copied. With several pieces of code, a difference is named only if it is larger than what
    /// layout changes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64), conflicts_with = "object")]
    layouts: Option<u8>,

    /// Compare with the cycles that llvm-mca predicts
    ///
    /// PATH is the program; without it, the newest llvm-mca in PATH. It predicts straight-line code
    /// in a steady state: no branch, cache miss or misprediction.
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = mca::ANY, conflicts_with = "object")]
    mca: Option<PathBuf>,

    /// CPU that llvm-mca models, by LLVM's name [default: the one at hand]
    #[arg(long, value_name = "NAME", requires = "mca", hide_short_help = true)]
    mcpu: Option<String>,

    /// Runs before those that count
    #[arg(long, value_name = "N", default_value_t = 10, hide_short_help = true)]
    warm_up: u32,

    /// Runs at full speed
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Single-stepped runs, which count instructions
    #[arg(long, value_name = "N", default_value_t = 2, hide_short_help = true)]
    stepped: u32,

    /// Time limit of a run in seconds; ten times as long for a stepped one
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds, hide_short_help = true)]
    timeout: Duration,

    /// CPU to run on [default: the last one allowed]
    #[arg(short = 'C', long = "cpu", value_name = "CPU")]
    cpu: Option<u32>,

    /// Let the code make any system call, with all our rights
    ///
    /// By default the code runs as the user who called sudo, or as nobody, if lbr is root (this
    /// needs CAP_SYS_PTRACE). It gets no new rights (no_new_privs), and may make only system calls
    /// that affect itself: memory, time, its own signals, pipes, reading and writing open files.
    /// Any other raises SIGSYS.
    #[arg(long)]
    unconfined: bool,

    /// What counts cycles and branches
    #[arg(long, value_enum, default_value = "auto", help_heading = heading::MACHINE)]
    backend: Backend,

    /// Branches that end a block, as in lbr record
    #[arg(short = 'j', long = "branch-filter", value_name = "FILTER", default_value = "any,u",
          help_heading = heading::MACHINE, hide_short_help = true)]
    filter: String,

    /// CPU whose filters a single-stepped run is recorded with: FF_MMH, or a name
    #[arg(long, value_name = "CPU", default_value = "06_5E", value_parser = CpuParser, help_heading = heading::MACHINE, hide_short_help = true)]
    soft_cpu: SoftCpu,

    #[command(flatten)]
    host: HostArgs,

    /// Print the method too: counts, overhead, all blocks
    #[arg(short, long, conflicts_with_all = ["json", "csv"], help_heading = heading::OUTPUT)]
    verbose: bool,

    /// Blocks to show
    #[arg(short = 'n', long, alias = "rows", value_name = "N", default_value_t = 20,
          help_heading = heading::OUTPUT)]
    limit: usize,

    /// Print comma-separated values
    #[arg(long, conflicts_with = "json", help_heading = heading::OUTPUT)]
    csv: bool,

    /// Print JSON Lines, with every distribution
    #[arg(long, help_heading = heading::OUTPUT)]
    json: bool,
}

/// Rounds of the loop.
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
    /// The rounds of the loop are chosen so that a run takes long enough.
    fn calibrates(&self) -> bool {
        match self.rounds {
            Some(rounds) => matches!(rounds, Rounds::Auto),
            None => self.unroll == 1,
        }
    }
}

/// Ticks of the time stamp counter of a calibrated run: hundreds of times the harness's own
/// variation.
const ENOUGH: u64 = 20_000;

/// Executions in a stepped run of a calibrated loop: stepping takes thousands of times as long.
const STEPPED: u32 = 64;

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|limit| !limit.is_zero() && limit.as_secs() <= 86_400)
        .ok_or_else(|| "more than 0 and up to 86400 seconds".to_owned())
}

pub(crate) fn run(args: &TimeArgs) -> Result {
    let filter = filter(&args.filter)?;
    if !args.unconfined {
        CodeRights::of_caller().or_exit(USAGE)?;
    }
    let mut codes = TimedCode::all(args)?;
    mca::predict(args, &mut codes)?;
    let options = Options {
        warm_up: args.warm_up,
        repeat: args.repeat,
        stepped: args.stepped,
        limit: args.timeout,
        filter,
        confined: !args.unconfined,
        stepped_iterations: if args.calibrates() { STEPPED } else { u32::MAX },
        stop: input::stop_flag()?,
        ..Options::new(args.soft_cpu.clone())
    };
    if let Some(layouts) = args.layouts {
        return layouts::run(args, options, &codes, layouts);
    }
    let [code] = &mut codes[..] else {
        return compare::run(args, options, &mut codes);
    };
    let mut body = code.body.clone();
    let (measured, source) =
        machine::measure(args, options, std::slice::from_ref(&code.body), |session| {
            if args.calibrates() {
                body = session.calibrate(&body, ENOUGH)?;
            }
            let measured = session.measure_code(&body)?;
            let estimates = args.mca.is_some() && !measured.stopped;
            let ticks = if estimates { session.ticks_per_cycle()? } else { None };
            Ok((measured, ticks))
        })?;
    let (measured, ticks_per_cycle) = measured.map_err(|error| failed(error, code))?;
    code.body = body;
    let counted = Figures { ticks_per_cycle, ..Figures::new(&measured, code, source) };
    let mut out = Out::stdout();
    if args.json {
        output::json(&mut out, &counted)?;
    } else if args.csv {
        output::csv(&mut out, &counted)?;
    } else {
        text::print(&mut out, &counted, args)?;
    }
    std::io::Write::flush(&mut out)?;
    if measured.runs.is_empty() {
        if measured.interrupted + measured.unreadable + measured.foreign > 0 {
            say!(
                "no run counts: each was interrupted, or its records could not be used; shorter \
                 code, or more runs (--repeat), may help"
            );
        }
        return Ok(FAILED);
    }
    Ok(DONE)
}

fn filter(text: &str) -> Result<BranchFilter> {
    let filter: BranchFilter = text.parse().or_exit(USAGE)?;
    if filter.contains(BranchFilter::STACK) {
        return Err(usage!("call-stack mode records no fall-through ranges: omit `stack`"));
    }
    if filter.contains(BranchFilter::KERNEL) {
        return Err(usage!(
            "the kernel's branches on the way into and out of the measurement would overwrite the \
             records: ask for `u` alone"
        ));
    }
    Ok(filter | BranchFilter::USER)
}

/// The sentence of a measurement that failed.
fn failed(error: MeasureError, code: &TimedCode) -> Failure {
    match error {
        MeasureError::Fault { fault, layout, stepped, needs, again } => {
            let mut what = place::fault(&fault, &layout, code, stepped, &needs);
            if again {
                what += ", when it ran again with the registers that it had left: --init '' sets \
                         them up for each round, --loop 1 runs it once";
            }
            failure!(FAILED, "{what}")
        }
        error @ MeasureError::Counter => {
            failure!(
                FAILED,
                "{error}: use another register, let --init set up each round (--init '' is enough; \
                 the rounds are counted in memory then), or do without the loop (--loop 1)"
            )
        }
        MeasureError::Filter(error) => Failure { code: NO_LBR, error: error.into() },
        MeasureError::Register(error) => crate::commands::backend::refused(error),
        error => Failure { code: FAILED, error: error.into() },
    }
}
