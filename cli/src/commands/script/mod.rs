//! `lbr script`: the branches of a recording as text, as perf prints them.

mod order;

use std::io::{BufWriter, Write};

use clap::{Args, ValueEnum};
use lbr_msr::record::{Head, Integrity};
use order::Ordered;
use profile::brstack::{Printed, type_name};
use profile::names::Symbols;
use profile::{Item, RawBranch, SampleHead, Stack, Symbol};
use serde_json::{Value, json};

use crate::args::heading;
use crate::exit::{DONE, Result, usage};
use crate::input::{self, Inputs, Recordings, selected};
use crate::present::json::{self, hex};
use crate::present::{escaped, pager, say};
use crate::select::SelectArgs;
use crate::symbols::SymbolArgs;

/// Print the branch stacks of a recording as text, one sample a line
///
/// Examples:
///   lbr script                       stacks, newest branch first
///   lbr script -F pid,time,brstack   more fields, as in perf script
///   lbr script --json                every field
///
/// The format is that of `perf script -F brstack` (perf 6.12). Samples are in
/// the order of the file; perf's are in the order of time. If the recording is
/// text with symbols, so is the output (`-F brstacksym`).
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Script {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    select: SelectArgs,
    /// Fields to print, always in perf's order
    #[arg(short = 'F', long, value_name = "FIELDS", value_delimiter = ',',
          default_value = "brstack", help_heading = heading::OUTPUT)]
    fields: Vec<Field>,
    /// Sort samples of several buffers by time, as perf does
    ///
    /// Samples without a time keep their position.
    #[arg(long, help_heading = heading::OUTPUT)]
    time_order: bool,
    /// Print JSON Lines: one object a sample, with every field
    #[arg(long, help_heading = heading::OUTPUT)]
    json: bool,
}

/// A part of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Field {
    /// Process.
    Pid,
    /// Thread.
    Tid,
    /// CPU.
    Cpu,
    /// Seconds of the recording's clock.
    Time,
    /// The sampled instruction address.
    Ip,
    /// How far the stack can be trusted, as `{label,head,cut}`.
    Quality,
    /// The branches.
    Brstack,
    /// Event counters of each branch (Linux 6.8, Sierra Forest)
    /// after the branches and in their order: `br_cntr: 2,0,-,- 3,1,-,-`,
    /// the first for the first counted event; 3 is three or more, `-` is not counted.
    /// perf prints them with brstackinsn only.
    Brcntr,
}

pub(crate) fn run(args: &Script) -> Result {
    let [path] = args.inputs.paths() else {
        return Err(usage!("one recording at a time: lbr script FILE"));
    };
    let reading = args.select.reading(&SymbolArgs::default());
    let recordings = Recordings::once(args.inputs.paths(), reading)?;
    let mut recording = recordings.open(0)?;
    let out = BufWriter::with_capacity(256 * 1024, pager::stdout());
    let mut ordered = Ordered::new(out);
    let mut waits = Vec::new();
    // Text without one branch is refused at its end, with nothing printed.
    let mut early = Early::default();
    let mut symbols = Symbols::default();
    loop {
        let item = recording.next_item().map_err(|e| input::failure(path, e))?;
        match item {
            Some(Item::Stack(stack)) => match stack.head.time.filter(|_| args.time_order) {
                Some(time) => {
                    waits.clear();
                    print(&mut waits, &stack, &symbols, args)?;
                    ordered.line(time, stack.head.round, &waits)?;
                }
                None if early.waits(&stack, &mut ordered.out)? => {
                    print(&mut early.lines, &stack, &symbols, args)?;
                }
                None => print(&mut ordered.out, &stack, &symbols, args)?,
            },
            Some(Item::Event(_) | Item::Straight(_) | Item::LeftOut) => {}
            Some(Item::Symbol(symbol)) => symbols.add(symbol),
            None => break,
        }
    }
    ordered.flush()?;
    ordered.out.write_all(&early.lines)?;
    ordered.out.flush()?;
    let source = input::Source::of(path, &recording);
    selected::check(std::slice::from_ref(&source))?;
    input::warn(&source);
    // Standard output is for who reads it as perf's.
    let left = recording.left_out();
    if let Some(line) = selected::line(std::slice::from_ref(&source), source.samples(), &left) {
        say!("{}: {line}", source.name);
    }
    if ordered.late > 0 {
        say!(
            "{}: {} samples are too much older than their neighbors to be sorted by time",
            source.name,
            ordered.late
        );
    }
    Ok(DONE)
}

/// Samples before the first that has branches.
#[derive(Debug, Default)]
struct Early {
    lines: Vec<u8>,
    over: bool,
}

impl Early {
    const MOST: usize = 1 << 20;

    /// Whether a sample must be buffered. If not, those before it are printed.
    fn waits(&mut self, stack: &Stack<'_>, out: &mut impl Write) -> std::io::Result<bool> {
        if !self.over && (!stack.entries.is_empty() || self.lines.len() > Early::MOST) {
            self.over = true;
            out.write_all(&std::mem::take(&mut self.lines))?;
        }
        Ok(!self.over)
    }
}

/// Prints a sample.
fn print(
    out: &mut impl Write,
    stack: &Stack<'_>,
    symbols: &Symbols,
    args: &Script,
) -> std::io::Result<()> {
    if !args.json {
        return line(out, stack, symbols, &args.fields);
    }
    json::value(out, &object(stack, symbols))
}

/// Prints a sample with perf's columns.
pub(crate) fn line(
    out: &mut impl Write,
    stack: &Stack<'_>,
    symbols: &Symbols,
    fields: &[Field],
) -> std::io::Result<()> {
    let head = &stack.head;
    let wants = |field| fields.contains(&field);
    // In aggregated text, the previous line has the number of stacks.
    if head.weight != 1 {
        writeln!(out, "{}", head.weight)?;
    }
    match (wants(Field::Pid), wants(Field::Tid)) {
        (true, true) => write!(out, "{:>7}/{:<7} ", shown(head.pid), shown(head.tid))?,
        (true, false) => write!(out, "{:>7} ", shown(head.pid))?,
        (false, true) => write!(out, "{:>7} ", shown(head.tid))?,
        (false, false) => {}
    }
    if wants(Field::Cpu) {
        match head.cpu {
            Some(cpu) => write!(out, "[{cpu:03}] ")?,
            None => write!(out, "[-] ")?,
        }
    }
    if wants(Field::Time) {
        match head.time {
            Some(time) => {
                let (seconds, micros) = (time / 1_000_000_000, time % 1_000_000_000 / 1000);
                write!(out, "{:>12}: ", format!("{seconds:5}.{micros:06}"))?;
            }
            None => write!(out, "{:>12}: ", "-")?,
        }
    }
    if wants(Field::Ip) {
        match head.ip {
            Some(ip) => write!(out, " {ip:>16x}")?,
            None => write!(out, " {:>16}", "-")?,
        }
    }
    if wants(Field::Quality) {
        write!(out, " {}", quality(head))?;
    }
    if wants(Field::Brstack) {
        let mut text = Vec::with_capacity(stack.entries.len().min(1 << 10) * 64);
        if stack.entries.iter().any(|branch| has_name(branch, symbols)) {
            by_name(&mut text, stack, symbols);
        } else {
            stack.entries.for_each(|branch| {
                text.push(b' ');
                Printed(branch).append(&mut text);
                text.push(b' ');
            });
        }
        out.write_all(&text)?;
    }
    if wants(Field::Brcntr) {
        write!(out, " br_cntr:")?;
        for at in 0..stack.entries.len() {
            let counts = stack.counters.and_then(|counters| counters.get(at)).unwrap_or_default();
            for (i, count) in counts.iter().enumerate() {
                let before = if i == 0 { ' ' } else { ',' };
                match count {
                    Some(count) => write!(out, "{before}{count}")?,
                    None => write!(out, "{before}-")?,
                }
            }
        }
    }
    out.write_all(b"\n")
}

fn has_name(branch: RawBranch, symbols: &Symbols) -> bool {
    [branch.from, branch.to].into_iter().any(|end| symbols.find(end).is_some())
}

/// Branches as `perf script -F brstacksym` prints them. perf prints no space between them and the
/// previous field; lbr does.
fn by_name(text: &mut Vec<u8>, stack: &Stack<'_>, symbols: &Symbols) {
    text.extend_from_slice(b"  ");
    stack.entries.for_each(|branch| {
        for (end, behind) in [(branch.from, "/"), (branch.to, "")] {
            let place = match symbols.find(end) {
                Some((Symbol { name: Some(name), .. }, offset)) => {
                    format!("{}+{offset:#x}", escaped(name))
                }
                Some((Symbol { is_file: true, .. }, offset)) => format!("{offset:#x}"),
                Some((Symbol { name: None, .. }, _)) => "[unknown]".to_owned(),
                None => format!("{end:#x}"),
            };
            text.extend_from_slice(place.as_bytes());
            if let Some(file) = symbols.find(end).and_then(|(symbol, _)| symbol.file) {
                text.extend_from_slice(format!("({})", escaped(file)).as_bytes());
            }
            text.extend_from_slice(behind.as_bytes());
        }
        Printed(branch).append_fields(text);
        text.push(b' ');
    });
}

fn shown(number: Option<u32>) -> String {
    number.map_or_else(|| "-".to_owned(), |n| (n as i32).to_string())
}

/// `{label,head,cut}`; `{-}` if unknown.
fn quality(head: &SampleHead) -> String {
    if head.integrity == Integrity::UNKNOWN {
        return "{-}".to_owned();
    }
    let cut = if head.integrity.cut { "cut" } else { "whole" };
    let label = head.integrity.label.name();
    format!("{{{label},{},{cut}}}", head_name(head.integrity.head))
}

fn head_name(head: Head) -> &'static str {
    match head {
        Head::Joined => "joined",
        Head::Lost => "lost",
        Head::Unknown => "unknown",
    }
}

/// A sample as JSON.
fn object(stack: &Stack<'_>, symbols: &Symbols) -> Value {
    let head = &stack.head;
    let is_known = head.integrity != Integrity::UNKNOWN;
    let entries: Vec<Value> = stack
        .entries
        .iter()
        .enumerate()
        .map(|(at, branch)| entry(stack, symbols, at, branch))
        .collect();
    json!({
        "time": head.time,
        "pid": head.pid,
        "tid": head.tid,
        "cpu": head.cpu,
        "ip": head.ip.map(hex),
        "period": head.period,
        "count": head.weight,
        "label": is_known.then(|| head.integrity.label.name()),
        "head": is_known.then(|| head_name(head.integrity.head)),
        "cut": is_known.then_some(head.integrity.cut),
        "exact": is_known.then(|| head.integrity.is_exact()),
        "entries": entries,
    })
}

fn entry(stack: &Stack<'_>, symbols: &Symbols, at: usize, branch: RawBranch) -> Value {
    let decoded = branch.decode(stack.head.tsx_known);
    let mut entry = json!({
        "from": hex(decoded.from),
        "to": hex(decoded.to),
        "mispredicted": decoded.mispredicted,
        "in_tx": decoded.in_tx,
        "abort": decoded.abort,
        "cycles": decoded.cycles,
        "cycles_saturated": decoded.cycles_saturated,
        "type": decoded.branch_type.map(type_name),
        "spec": decoded.spec.map(|spec| spec.name().to_lowercase()),
        "counters": stack.counters.and_then(|counters| counters.get(at)),
    });
    if has_name(branch, symbols) {
        for (end, number) in [("from", branch.from), ("to", branch.to)] {
            let (symbol, offset) = symbols.find(number).unzip();
            let name = symbol.and_then(|symbol| symbol.name);
            entry[end] = json!(symbol.is_none().then(|| hex(number)));
            entry[format!("{end}_symbol")] = json!(name);
            let counts = name.is_some() || symbol.is_some_and(|symbol| symbol.is_file);
            entry[format!("{end}_offset")] = json!(offset.filter(|_| counts));
            entry[format!("{end}_file")] = json!(symbol.and_then(|symbol| symbol.file));
        }
    }
    entry
}
