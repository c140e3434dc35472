//! `lbr explain`: the bits of a register.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use lbr_msr::explain::{self, BuildError, CpuKey, FindError, Register, SOURCES};
use lbr_msr::filter::to_register;
use lbr_msr::{BranchFilter, register};
use maud::html;
use serde_json::Value;

use super::number::number;
use crate::args::heading;
use crate::exit::{DONE, OrExit, Result, USAGE, done};
use crate::output::Output;
use crate::present::bits::{self, Drawn};
use crate::present::{Cell, Item, Out, Printer, Table, json, page, say, write_list};

/// Explain the bits of a register
///
/// Examples:
///   lbr explain IA32_PERF_CAPABILITIES 0x33c5
///   lbr explain 0x1d9 --cpu prescott
///   lbr explain --build LBR_SELECT any_call,u
///   lbr explain LBR_SELECT 0x3c5 --svg select.svg
///
/// REGISTER is a name as the SDM, AMD or Arm writes it (IA32_DEBUGCTL,
/// LBR_SELECT, MSR_LASTBRANCH_3_FROM_IP, BRBINF0_EL1), or an address such as
/// 0x1d9. Case and the prefixes MSR_ and IA32_ do not matter. Without VALUE lbr
/// prints the layout and the named values. Without REGISTER it lists the
/// registers, with --cpu those of that CPU.
///
/// With --build VALUE is a list of words, and lbr prints the value they make:
/// names of one-bit fields, or FIELD=HEX. For a filter register they may be
/// branches to record, by perf's names (lower case): any_call,u.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ExplainArgs {
    /// Name or address of the register [default: list them]
    #[arg(required_if_eq("build", "true"))]
    register: Option<String>,

    /// Its value: 0x3c5 or 0b1010_0101; with --build, words
    #[arg(required_if_eq("build", "true"))]
    value: Option<String>,

    /// The CPU, if registers of this name differ: skylake, zen4, 06_5E
    ///
    /// A name, or display family and model, FF_MMH.
    #[arg(long, value_name = "CPU", help_heading = heading::MACHINE)]
    cpu: Option<CpuKey>,

    /// Make a value from words separated by commas
    #[arg(long, help_heading = heading::OUTPUT)]
    build: bool,

    /// List the sources that are cited in brackets
    #[arg(long, conflicts_with_all = ["register", "value", "cpu", "build"],
          help_heading = heading::OUTPUT)]
    sources: bool,

    /// Draw it on a page; without REGISTER all of them
    ///
    /// `-` is standard output.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "sources", "svg"],
          help_heading = heading::OUTPUT)]
    html: Option<PathBuf>,

    /// Draw it as an SVG picture; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "sources"], requires = "register",
          help_heading = heading::OUTPUT)]
    svg: Option<PathBuf>,

    /// Print JSON
    #[arg(long, help_heading = heading::OUTPUT)]
    json: bool,
}

pub(crate) fn run(args: ExplainArgs) -> Result {
    let mut out = Out::stdout();
    let Some(name) = &args.register else {
        if args.sources {
            write_sources(&mut out, args.json)?;
        } else {
            let registers = match args.cpu {
                Some(cpu) => explain::all_of(cpu).or_exit(USAGE)?.collect(),
                None => explain::all().collect::<Vec<_>>(),
            };
            if let Some(path) = &args.html {
                return write_page(path, "Branch-record registers", &registers, None);
            }
            write_list_of(&mut out, &registers, args.json)?;
        }
        return done(&mut out);
    };
    let register = find(name, args.cpu).map_err(|error| match &error {
        FindError::NoSuchName { near, .. } if near.is_empty() => {
            anyhow!("{error}; lbr explain lists the registers")
        }
        _ => error.into(),
    });
    let register = register.or_exit(USAGE)?;
    let value = value(&args, &register).or_exit(USAGE)?;
    if let Some(path) = &args.html {
        return write_page(path, &title(&register, value), &[register], value);
    }
    if let Some(path) = &args.svg {
        let purpose = format!("{} [{}]", register.summary(), register.source());
        let on = format!("on: {}", register.variant());
        let fields = drawn(&register, value);
        let svg = bits::svg(&title(&register, value), &[&purpose, &on], value, &fields);
        Output::new(path, None::<&Path>)?.write(svg)?;
        return Ok(DONE);
    }
    if args.json {
        write_json(&mut out, &register, value)?;
    } else {
        write_text(&mut out, &register, value)?;
    }
    done(&mut out)
}

/// Finds a register by its name, or by the words of its name.
fn find(name: &str, cpu: Option<CpuKey>) -> Result<Register, FindError> {
    match explain::find(name, cpu) {
        Err(ref guessed @ FindError::OtherWords { ref other, .. }) => {
            say!("{guessed}");
            explain::find(other, cpu)
        }
        found => found,
    }
}

fn value(args: &ExplainArgs, register: &Register) -> Result<Option<u64>, anyhow::Error> {
    let Some(text) = &args.value else { return Ok(None) };
    if args.build {
        return build(register, text).map(Some);
    }
    number(text).map(Some).with_context(|| format!("no value of {}", register.name()))
}

/// Builds a value from words. All of them must be fields of the register.
fn build(register: &Register, words: &str) -> Result<u64, anyhow::Error> {
    let words: Vec<&str> =
        words.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        bail!("--build needs words: names of the fields of {}", register.name());
    }
    // Field names are upper case, branch filters lower case: `COND` is a bit, `cond` a filter.
    if let Some(filter_register) = register.filter()
        && let Ok(filter) = words.join(",").parse::<BranchFilter>()
    {
        return Ok(to_register(filter, filter_register)?);
    }
    match register.build(words) {
        Err(error @ BuildError::NoSuchField { .. }) if register.filter().is_some() => {
            Err(error).context("neither fields nor branches to record in perf's names (any_call,u)")
        }
        built => Ok(built?),
    }
}

fn drawn(register: &Register, value: Option<u64>) -> Vec<Drawn> {
    let fields = register.fields();
    fields
        .iter()
        .map(|field| Drawn {
            name: field.name.to_owned(),
            high: field.high,
            low: field.low,
            reserved: field.is_reserved(),
            value: value.map(|value| field.of(value)),
            meaning: value.map_or_else(|| field.about(), |value| field.meaning(value)),
            source: field.source.to_owned(),
            codes: match value {
                Some(_) => Vec::new(),
                None => field.known_codes().iter().map(code).collect(),
            },
        })
        .collect()
}

fn code(code: &register::Code) -> bits::CodeLegend {
    let register::Code { first, last, .. } = code;
    let value = if first == last { format!("{first}") } else { format!("{first} to {last}") };
    bits::CodeLegend { value, meaning: code.meaning() }
}

/// Name, address and value.
fn title(register: &Register, value: Option<u64>) -> String {
    let msr = register.msr().map_or_else(String::new, |msr| format!(" ({msr})"));
    let encoding = register.encoding().map_or_else(String::new, |of| format!(" ({of})"));
    let equals = value.map_or_else(String::new, |value| format!(" = {value:#x}"));
    format!("{}{msr}{encoding}{equals}", register.name())
}

fn write_page(path: &Path, name: &str, registers: &[Register], value: Option<u64>) -> Result {
    let content = html! {
        h1 { (name) }
        @for register in registers {
            section {
                @if registers.len() > 1 { h2 { (title(register, value)) } }
                p { (register.summary()) " [" (register.source()) "]" }
                p.faint { "on: " (register.variant()) }
                (bits::markup(&register.name(), value, &drawn(register, value)))
            }
        }
    };
    Output::new(path, None::<&Path>)?.write(page::page(name, &content, ""))?;
    Ok(DONE)
}

fn write_text(out: &mut Out<'_>, register: &Register, value: Option<u64>) -> io::Result<()> {
    out.line(format_args!("{}  [{}]", title(register, value), register.source()))?;
    out.line(register.summary())?;
    let assumed = if register.is_certain() { "" } else { " (assumed; --cpu CPU selects another)" };
    out.line(format_args!("on: {}{assumed}", register.variant()))?;
    out.gap()?;
    bits::draw(out, value, &drawn(register, value), register.source())
}

/// A register for programs, its keys in the order in which they are documented.
#[derive(serde::Serialize)]
struct Explained<'a> {
    msr: Option<Value>,
    name: &'a str,
    value: Option<Value>,
    variant: &'a str,
    fields: Vec<Drawn>,
}

fn write_json(out: &mut Out<'_>, register: &Register, value: Option<u64>) -> io::Result<()> {
    let explained = Explained {
        msr: register.msr().map(|msr| json::hex(u64::from(msr.0))),
        name: &register.name(),
        value: value.map(json::hex),
        variant: register.variant(),
        fields: drawn(register, value),
    };
    json::value(out, &explained)
}

/// One row for each register and kind of CPU.
fn write_list_of(out: &mut Out<'_>, registers: &[Register], json: bool) -> io::Result<()> {
    let table = Table::<(), Register>::new()
        .word("at", "at", |(), register| Cell::Word(at(register).into()))
        .word("name", "name", |(), register| Cell::Word(register.template().into()))
        .only("count", |(), register| Cell::number(register.count()))
        .only("on", |(), register| Cell::Word(register.variant().into()))
        .only("summary", |(), register| Cell::Word(register.summary().into()))
        .prose("", "purpose [on]", |(), register| {
            Cell::Word(format!("{} [{}]", register.summary(), register.variant()).into())
        })
        .only("source", |(), register| Cell::Word(register.source().into()));
    table.write(Printer::of(json, false), out, &mut (), registers.iter().copied())
}

/// Its address, or the first and last for a register of each record; the encoding of an Arm
/// register.
fn at(register: &Register) -> String {
    match (register.msr(), register.last().msr()) {
        (Some(first), Some(last)) if first != last => format!("{first}-{last}"),
        (Some(only), _) => only.to_string(),
        _ => register.encoding().unwrap_or_default(),
    }
}

/// The documents that the tags in brackets cite.
fn write_sources(out: &mut Out<'_>, json: bool) -> io::Result<()> {
    if json {
        return SOURCES.iter().try_for_each(
            |(tag, document)| json::object!(out, { "tag": tag, "document": document }),
        );
    }
    let items =
        SOURCES.iter().map(|(tag, document)| (Cell::Empty, (*tag).into(), (*document).into()));
    write_list(out, &items.collect::<Vec<Item>>())
}
