//! `lbr crash`: the branches that led to a program's death.

mod cause;
mod registers;

use std::borrow::Cow;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path as FilePath, PathBuf};

use anyhow::Context;
use clap::Args;
use lbr_msr::disasm::{Disassembler, Syntax};
use lbr_msr::record::{
    BranchEntry, BranchStack, Event, Head, Integrity, Label, Mmap, MoveKind, Sample, Sink,
    ThreadMove,
};
use profile::brstack::type_name;
use profile::maps::Maps;
use profile::note::Source;
use profile::perf_data::{Meta, Rate};
use profile::symbols::Module;
use sampler::flight::{Flight, FlightRecorder, Path, Step, StepKind, Trigger};
use sampler::interrupt::Interrupts;
use sampler::source::qemu::Qemu;
use sampler::source::{Command, SourceError};
use sampler::target::{self, REGISTERS, SignalStop};
use serde_json::{Map, Value, json};

use super::backend::{Backend, not_started};
use super::machine::HostArgs;
use super::record::software_sources;
use super::rights::Rights;
use crate::args::heading;
use crate::exit::{FAILED, Result, usage};
use crate::output::{Output, recording};
use crate::present::{Cell, Out, Part, Place, Printer, Table, counted, grouped, json, say};
use crate::symbols::SymbolArgs;
use cause::Cause;

/// Run a program and print the branches that led to its death
///
/// Examples:
///   lbr crash ./prog                 the path, if a signal kills it
///   lbr crash --at exit ./prog       the path at the end too
///   lbr crash --children -o crash.data ./prog
///
/// A flight recorder: it keeps the last branches of each thread on the software
/// LBR. When a signal kills the program, it prints the path that led there,
/// newest last, the instruction, its registers and the address that it
/// accessed. The path survives what defeats a backtrace: a smashed stack, a
/// jump through a null or dangling pointer, an overwritten return address.
///
/// The exit status is the program's; 128 + N if signal N killed it.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, next_help_heading = heading::RECORDING)]
pub(crate) struct Crash {
    /// Branches to keep for each thread
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    last: u16,
    /// Also print at exit, signal:NAME or call:FUNCTION
    ///
    /// When threads exit, when the signal first arrives, or when the function is first called.
    #[arg(long, value_name = "WHEN", default_value = "death", hide_default_value = true,
          value_parser = when)]
    at: When,
    /// auto, soft: the software LBR; msr: the registers of a CPU
    ///
    /// The registers of one CPU, to which the program is pinned, are read while a signal holds its
    /// main thread.
    #[arg(long, value_enum, default_value_t = Backend::Auto, hide_possible_values = true)]
    backend: Backend,
    /// What runs the program
    #[arg(long, value_name = "SOURCE", default_value = "auto", value_parser = software_sources())]
    source: String,
    /// Follow child processes (single-stepping)
    #[arg(long)]
    children: bool,
    #[command(flatten)]
    rights: Rights,
    /// The CPU of --backend msr [default: the last one allowed]
    #[arg(short = 'C', long, value_name = "CPU", help_heading = heading::MACHINE)]
    cpu: Option<u32>,
    #[command(flatten)]
    host: HostArgs,
    /// Also write the branches to this perf.data file
    #[arg(short = 'o', long = "output", value_name = "FILE", help_heading = heading::OUTPUT)]
    output: Option<PathBuf>,
    /// Print JSON Lines: one object a branch, then one a death
    ///
    /// The program's standard output goes to standard error.
    #[arg(long, help_heading = heading::OUTPUT)]
    json: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD",
          help_heading = heading::RECORDING)]
    command: Vec<String>,
}

/// The argument of `--at`.
#[derive(Clone, Debug)]
struct When {
    trigger: Trigger,
    function: String,
}

fn when(text: &str) -> Result<When, String> {
    let (trigger, function) = match text.split_once(':') {
        None if text == "death" => (Trigger::Death, ""),
        None if text == "exit" => (Trigger::Exit, ""),
        Some(("signal", name)) => {
            let signal = cause::number(name).ok_or_else(|| format!("there is no signal {name}"))?;
            (Trigger::Signal(signal), "")
        }
        Some(("call", function)) if !function.is_empty() => (Trigger::Call, function),
        _ => return Err("exit, signal:NAME or call:FUNCTION".to_owned()),
    };
    Ok(When { trigger, function: function.to_owned() })
}

pub(crate) fn run(args: Crash) -> Result {
    if args.backend == Backend::Perf {
        return Err(usage!(
            "perf events deliver branches at a counter's interrupt, not at the signal: the last \
             ones would be missing; --backend soft records every branch"
        ));
    }
    args.rights.check()?;
    let command = args.rights.command(&args.command)?;
    let command = Command { follow_children: args.children, ..command };
    let path = target::find(&command.program).map_err(not_started)?;
    let output = args.output.as_ref().map(|to| Output::new(to, [&path])).transpose()?;
    output.as_ref().map_or(Ok(()), recording::prepare)?;
    let interrupts = Interrupts::listen().context("signals cannot be listened for")?;
    let stdout = args.json.then(|| io::stdout().as_fd().try_clone_to_owned()).transpose()?;
    if stdout.is_some() {
        nix::unistd::dup2_stdout(io::stderr().as_fd()).context("standard output")?;
    }
    let (flight, cpu) = match args.backend {
        Backend::Msr | Backend::MsrSafe => {
            let (flight, cpu) = registers::fly(&args, &path, &command, interrupts)?;
            (flight, Some(cpu))
        }
        _ => (fly(&args, command, interrupts)?, None),
    };
    if let Some(stdout) = stdout {
        nix::unistd::dup2_stdout(stdout).context("standard output")?;
    }
    if let Some(output) = output {
        write(&flight, cpu.clone(), output, interrupts)?;
    }
    print(&args, &flight, cpu.as_deref())?;
    Ok(u8::try_from(flight.exit.status()).unwrap_or(FAILED))
}

fn recorder(args: &Crash, interrupts: Interrupts) -> FlightRecorder {
    let function = args.at.function.clone();
    let find = Box::new(move |map: &Mmap| function_in(map, &function));
    FlightRecorder::new(args.last.into(), args.at.trigger, find, interrupts)
}

/// Runs the program on the first software source that is available.
fn fly(args: &Crash, command: Command, interrupts: Interrupts) -> Result<Flight> {
    let recorder = || recorder(args, interrupts);
    let unavailable = match args.source.as_str() {
        "ptrace" => None,
        source => {
            let qemu = Qemu::find().map_err(SourceError::from);
            match qemu.and_then(|qemu| recorder().emulate(qemu, command.clone())) {
                Err(SourceError::Unavailable { .. }) if source == "auto" => None,
                flown => Some(flown),
            }
        }
    };
    unavailable.unwrap_or_else(|| recorder().step(command)).map_err(not_started)
}

/// The run-time address of a function of a mapped file.
fn function_in(map: &Mmap, name: &str) -> Option<u64> {
    let module = Module::open(FilePath::new(&map.path)).ok()?;
    let offset = module.offset_of_address(module.find(name).ok()?)?;
    let within = offset.checked_sub(map.pgoff).filter(|within| *within < map.len)?;
    Some(map.addr + within)
}

/// Writes the kept branches as a recording; `cpu`: of that CPU's registers.
fn write(
    flight: &Flight,
    cpu: Option<String>,
    output: Output,
    interrupts: Interrupts,
) -> Result<()> {
    let meta = Meta {
        source: if cpu.is_some() { Source::Hardware } else { Source::Software },
        cpudesc: cpu.or_else(|| Some("software LBR (flight recorder), not measured".to_owned())),
        rate: Rate::Period(1),
        ..Meta::of_this_machine()
    };
    let path = output.path().to_owned();
    let (mut writer, has_moved) = recording::begin(output, meta, interrupts)?;
    if has_moved {
        say!("the older recording is {}.old now", path.display());
    }
    let mut events = flight.events.iter();
    let mut written = 0;
    for path in &flight.paths {
        for event in events.by_ref().take(path.events - written) {
            writer.event(event).context("cannot write the recording")?;
        }
        written = path.events;
        writer.event(&Event::Sample(sample(path))).context("cannot write the recording")?;
    }
    recording::finish(writer, &path, Ok(()))?;
    Ok(())
}

fn sample(path: &Path) -> Sample {
    let (mut entries, mut moves) = (Vec::new(), Vec::new());
    for step in path.steps.iter().rev() {
        let (from, to, newer) = (step.from, step.to, entries.len() as u32);
        match step.kind {
            StepKind::Branch(class) => entries.push(BranchEntry {
                from,
                to,
                branch_type: class.branch_type(),
                ..BranchEntry::default()
            }),
            StepKind::Kernel(kind) => moves.push(ThreadMove { newer, kind, from, to }),
        }
    }
    moves.reverse();
    if let Some(stop) = &path.signal {
        moves.push(ThreadMove { newer: 0, kind: MoveKind::End, from: stop.ip, to: 0 });
    }
    let head = if path.taken == Some(entries.len() as u64) { Head::Joined } else { Head::Lost };
    let integrity = Integrity { head, cut: false, label: Label::Stream, ..Integrity::UNKNOWN };
    Sample {
        time: 0,
        pid: path.thread.pid,
        tid: path.thread.tid,
        cpu: 0,
        ip: entries.first().map_or(0, |newest| newest.to),
        period: 1,
        arguments: None,
        stack: BranchStack { entries, integrity, moves },
    }
}

/// A step with the code that follows it.
#[derive(Clone)]
struct StepRow<'a> {
    rank: usize,
    step: &'a Step,
    /// The next branch, or where the path ends, and the instructions executed there: 0 or 1.
    next: Option<(u64, u64)>,
}

/// A path, and where its addresses are.
pub(super) struct Scene<'a> {
    pub(super) path: &'a Path,
    pub(super) maps: Maps,
    pub(super) space: usize,
    /// Executable mappings of the process.
    mapped: Vec<&'a Mmap>,
}

impl<'a> Scene<'a> {
    fn new(path: &'a Path, events: &'a [Event]) -> Scene<'a> {
        let mut maps = Maps::with_sources(SymbolArgs::default().sources(Maps::default().sources()));
        let mut mapped = Vec::new();
        let events = events.get(..path.events).unwrap_or_default();
        for event in events.iter().filter(|event| !matches!(event, Event::Exit(_))) {
            maps.event(event);
            match event {
                Event::Mmap(map) if map.pid == path.thread.pid => mapped.push(&**map),
                Event::Comm(comm) if comm.exec && comm.pid == path.thread.pid => mapped.clear(),
                _ => {}
            }
        }
        let space = maps.space(Some(path.thread.pid));
        Scene { path, maps, space, mapped }
    }

    pub(super) fn place(&mut self, address: u64) -> Place {
        let location = self.maps.locate(self.space, address);
        Place::of(&mut self.maps, location, address)
    }

    /// Whether code is mapped there.
    pub(super) fn is_code(&self, address: u64) -> bool {
        self.mapped.iter().any(|map| address.wrapping_sub(map.addr) < map.len)
    }

    /// Whether the address is in a procedure linkage table, whose first entry has no name.
    pub(super) fn is_stub(&mut self, address: u64) -> bool {
        let symbol = self.place(address).symbol;
        symbol.is_none_or(|symbol| symbol.name.ends_with("@plt"))
    }

    /// Whether the address is in the program's own file.
    fn is_in_program(&self, address: u64) -> bool {
        let own = self.mapped.first().map(|map| map.path.as_str());
        own.is_some() && self.maps.path_of(self.maps.locate(self.space, address)) == own
    }

    /// Whether the address is in the program's own file and has a source line.
    pub(super) fn has_line(&mut self, address: u64) -> bool {
        let location = self.maps.locate(self.space, address);
        self.is_in_program(address) && self.maps.source(location).is_some()
    }

    /// Whether the address is in the program's own code. In a program `with_lines`, code without a
    /// source line is that of libraries that it was linked with.
    pub(super) fn is_own(&mut self, address: u64, with_lines: bool) -> bool {
        if with_lines { self.has_line(address) } else { self.is_in_program(address) }
    }

    fn rows(&self) -> Vec<StepRow<'a>> {
        let steps = &self.path.steps;
        let end = self.path.signal.as_ref().map(|stop| (stop.ip, 0));
        let next = |at: usize| match steps.get(at + 1) {
            Some(next) => Some((next.from, matches!(next.kind, StepKind::Branch(_)).into())),
            None => end,
        };
        let row = |(at, step)| StepRow { rank: at + 1, step, next: next(at) };
        steps.iter().enumerate().map(row).collect()
    }

    /// The number of instructions executed after a step.
    fn straight(&mut self, row: &StepRow<'_>) -> Option<u64> {
        let (next, executed) = row.next?;
        if next == row.step.to && executed == 0 {
            return Some(0);
        }
        Some(self.maps.straight_line(self.space, row.step.to, next)? - 1 + executed)
    }
}

fn kind(step: &Step) -> Cow<'static, str> {
    match step.kind {
        StepKind::Branch(class) => class.branch_type().map_or("abort".into(), type_name),
        StepKind::Kernel(MoveKind::Return) => "SIGRETURN".into(),
        StepKind::Kernel(_) => "SIGNAL".into(),
    }
}

fn table<'a>() -> Table<'a, Scene<'a>, StepRow<'a>> {
    Table::<Scene<'_>, StepRow<'_>>::new()
        .constant("view", "crash")
        .constant("kind", "branch")
        .only("pid", |scene, _| Cell::Number(scene.path.thread.pid.into()))
        .only("tid", |scene, _| Cell::Number(scene.path.thread.tid.into()))
        .number("rank", "", |_, row| Cell::Number(row.rank as u64))
        .word("type", "type", |_, row| Cell::Word(kind(row.step)))
        .number("instructions", "then runs", |scene, row| Cell::count(scene.straight(row)))
        .place("from", "from", Part::ALL, |scene, row| Some(scene.place(row.step.from)))
        .place("to", "to", Part::ALL, |scene, row| {
            let from = scene.maps.locate(scene.space, row.step.from);
            Some(scene.place(row.step.to).reached_from(&mut scene.maps, from))
        })
        .behind(" -> ")
}

fn print(args: &Crash, flight: &Flight, cpu: Option<&str>) -> Result<()> {
    let mut out = Out::unpaged();
    let printer = Printer::of(args.json, false);
    if flight.paths.iter().all(|path| !path.deadly) && printer == Printer::Text {
        out.line(no_crash(args, flight))?;
    }
    // The program's own death first.
    let main = flight.events.iter().find_map(|event| match event {
        Event::Comm(comm) => Some(comm.pid),
        _ => None,
    });
    let mut paths: Vec<&Path> = flight.paths.iter().collect();
    paths.sort_by_key(|path| (!path.deadly, Some(path.thread.pid) != main));
    for path in paths {
        let mut scene = Scene::new(path, &flight.events);
        let cause = path.signal.as_ref().map(|stop| Cause::new(&mut scene, stop));
        let rows = scene.rows();
        if printer == Printer::Json {
            table().write(printer, &mut out, &mut scene, rows.into_iter())?;
            json::value(&mut out, &end(&mut scene, cause.as_ref()))?;
            continue;
        }
        let tid = path.thread.tid;
        out.line(match (&cause, args.at.trigger) {
            (Some(cause), _) => cause.headline(&mut scene),
            (None, Trigger::Call) => format!("call of {} by thread {tid}", args.at.function),
            (None, _) => format!("exit by thread {tid}"),
        })?;
        let kept = path.steps.iter().filter(|s| matches!(s.kind, StepKind::Branch(_))).count();
        let kept = counted(kept as u64, "branch", "branches");
        out.line(match (path.taken, cpu) {
            (Some(taken), _) => {
                format!("the last {kept} of {} of this thread, newest last", grouped(taken))
            }
            (None, cpu) => format!("the last {kept}, newest last, on {}", cpu.unwrap_or("the CPU")),
        })?;
        out.gap()?;
        table().write(printer, &mut out, &mut scene, rows.into_iter())?;
        if let Some(stop) = &path.signal {
            out.gap()?;
            registers(&mut out, &mut scene, stop)?;
        }
        out.gap()?;
    }
    out.flush()?;
    if args.at.trigger == Trigger::Call && flight.paths.iter().all(|path| path.signal.is_some()) {
        say!("--at call:{0}: no function {0} was called", args.at.function);
    }
    let left = flight.notes.children_left + u64::from(flight.notes.replaced);
    if left > 0 {
        let left = counted(left, "child process", "child processes");
        say!("{left} or executed programs were not recorded: --children --source ptrace does");
    }
    Ok(())
}

/// The first line if no recorded thread died.
fn no_crash(args: &Crash, flight: &Flight) -> String {
    let program = args.command.first().map_or("the program", String::as_str);
    match flight.exit {
        target::Exit::Code(code) => format!("no crash: {program} exited with status {code}"),
        target::Exit::Signal(signal) => {
            let signal = cause::name(signal);
            format!("crash: {signal} killed {program} outside of the recorded code: no path")
        }
    }
}

fn instruction(stop: &SignalStop) -> Option<String> {
    let text = Disassembler::new(Syntax::Intel).text(&stop.code_bytes, stop.ip)?;
    Some(format!("{} {}", text.mnemonic, text.operands).trim_end().to_owned())
}

/// The instruction at the end of a path, and the registers before it.
fn registers(out: &mut Out<'_>, scene: &mut Scene<'_>, stop: &SignalStop) -> io::Result<()> {
    let text = instruction(stop).unwrap_or_else(|| "no code can be read there".to_owned());
    let place = scene.is_code(stop.ip).then(|| format!(", {}", scene.place(stop.ip)));
    out.line(format_args!("at {:#x}{}: {text}", stop.ip, place.unwrap_or_default()))?;
    let values: Vec<String> = REGISTERS
        .iter()
        .zip(stop.registers.iter().flatten())
        .map(|(name, value)| format!("{name:>6} {value:<#19x}"))
        .collect();
    for line in values.chunks(3) {
        out.line(line.concat().trim_end())?;
    }
    Ok(())
}

/// The last object of a path.
fn end(scene: &mut Scene<'_>, cause: Option<&Cause>) -> Value {
    let path = scene.path;
    let mut end = json!({
        "view": "crash",
        "kind": "end",
        "pid": path.thread.pid,
        "tid": path.thread.tid,
        "deadly": path.deadly,
        "branches": path.taken,
        "signal": Value::Null,
    });
    let (Some(stop), Some(cause)) = (&path.signal, cause) else { return end };
    end["signal"] = cause::name(stop.signal).into();
    end["code"] = json!(stop.code);
    end["sender"] = json!(stop.sender);
    end["access"] = json!(cause.access.map(|(access, _)| access));
    end["access_address"] = json!(cause.access.map(|(_, address)| json::hex(address)));
    scene.place(stop.ip).put_json(&mut end, "ip", Part::ALL);
    end["instruction"] = json!(instruction(stop));
    let named = |values| REGISTERS.iter().zip(values).map(|(n, v)| ((*n).to_owned(), json::hex(v)));
    end["registers"] = json!(stop.registers.map(|values| named(values).collect::<Map<_, _>>()));
    end
}
