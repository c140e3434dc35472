//! `lbr decode`: register values in, branches out.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use lbr_msr::{
    BranchEntry, LbrFormat, RawEntry,
    caps::Layout,
    decode::{
        brbe::{self, BrbeRecord, RawBrbe},
        decode,
    },
    record::{BranchSpec, HwBranchType},
};
use serde_json::{Value, json};

use super::number::{NotHex, hex};
use crate::present::out::say;
use crate::{
    exit::{DONE, OrExit, Outcome, USAGE},
    present::json,
};

/// Decode raw branch-record registers
///
/// Reads one record a line: the values of FROM, TO and, where the layout has
/// it, INFO, in hexadecimal with or without 0x, separated by blanks. Packed
/// records (format 0, pm) are the one register, and further columns are
/// ignored. A BRBE record is INF SRC TGT. Empty lines and lines that start
/// with # are skipped.
///
/// A field that the record does not hold is `-` (JSON: null). A line that is
/// not a record is reported with its number; the others are decoded, and the
/// exit status is 2.
#[derive(Debug, Args)]
pub(crate) struct DecodeArgs {
    /// The LBR_FMT code, 0 to 7 (bits 5:0 of IA32_PERF_CAPABILITIES)
    #[arg(long, value_name = "N", value_parser = known_format, required_unless_present = "facility", conflicts_with = "facility")]
    format: Option<LbrFormat>,

    /// A facility without an LBR_FMT code
    #[arg(long, value_enum)]
    facility: Option<FacilityName>,

    /// The CPU announces neither HLE nor RTM: transaction flags mean nothing
    #[arg(long)]
    no_tsx: bool,

    /// Width of virtual addresses in bits, for amd_v2 and amd_brs
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u8).range(32..=58))]
    virt_bits: u8,

    /// CPUID leaf 1CH, which tells what INFO of arch holds; all fields are
    /// taken as valid without it
    #[arg(long, value_name = "EAX,EBX,ECX", value_parser = leaf_1c)]
    caps: Option<Leaf1c>,

    /// Print JSON Lines
    #[arg(long)]
    json: bool,

    /// Where to read; `-` is the standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
}

/// Layouts that LBR_FMT does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum FacilityName {
    /// Intel Architectural LBR
    Arch,
    /// AMD LbrExtV2 (Zen 4 and later)
    #[value(alias = "amd")]
    AmdV2,
    /// AMD Branch Sampling (Zen 3)
    AmdBrs,
    /// AMD's pair of registers with the last branch
    AmdSingle,
    /// Arm Branch Record Buffer Extension
    Brbe,
    /// P6: the pair of registers with the last branch
    P6,
    /// Pentium M, Core Solo and Duo, Pentium 4 models 0 to 2: packed records
    Pm,
    /// Pentium 4 models 3 and later
    Netburst,
}

/// CPUID leaf 1CH. Only ECX tells about records.
#[derive(Clone, Copy, Debug)]
struct Leaf1c {
    ecx: u32,
}

fn known_format(word: &str) -> Result<LbrFormat, String> {
    let code = hex(word).map_err(|e| e.to_string())?;
    match u8::try_from(code).map(LbrFormat) {
        Ok(LbrFormat::NONE) => {
            Err("0x3f says that there is no model-specific LBR; use --facility arch".to_owned())
        }
        Ok(format) if format.is_known() => Ok(format),
        _ => Err(format!("nobody documents LBR_FMT {code:#x}; 0 to 7 are known")),
    }
}

fn leaf_1c(words: &str) -> Result<Leaf1c, String> {
    let mut registers = [0; 3];
    let mut given = words.split(',');
    for register in &mut registers {
        let word = given.next().ok_or("three registers are needed: EAX,EBX,ECX")?;
        let value = hex(word.trim()).map_err(|e| e.to_string())?;
        *register =
            u32::try_from(value).map_err(|_| format!("{word} does not fit into 32 bits"))?;
    }
    if given.next().is_some() {
        return Err("three registers are needed: EAX,EBX,ECX".to_owned());
    }
    let [_, _, ecx] = registers;
    Ok(Leaf1c { ecx })
}

/// How the lines are to be read and decoded.
#[derive(Clone, Copy)]
enum Kind {
    Lbr(Layout),
    Brbe,
}

impl DecodeArgs {
    fn kind(&self) -> Result<Kind, anyhow::Error> {
        let (virt_bits, tsx) = (self.virt_bits, !self.no_tsx);
        if self.caps.is_some() && self.facility != Some(FacilityName::Arch) {
            anyhow::bail!("--caps describes Architectural LBR only; add --facility arch");
        }
        if let Some(format) = self.format {
            let layout = Layout::of_format(format, tsx)
                .with_context(|| format!("nobody documents LBR_FMT {format}"))?;
            return Ok(Kind::Lbr(layout));
        }
        Ok(Kind::Lbr(match self.facility.context("--format or --facility is needed")? {
            FacilityName::Arch => {
                // Leaf 1CH does not speak of transactions.
                let ecx = self.caps.map_or(0xF_0007, |leaf| leaf.ecx);
                Layout::of_leaf_1c(ecx, tsx)
            }
            FacilityName::AmdV2 => Layout::AmdV2 { virt_bits },
            FacilityName::AmdBrs => Layout::AmdBrs { virt_bits },
            FacilityName::AmdSingle => Layout::AmdSingle,
            FacilityName::Brbe => return Ok(Kind::Brbe),
            FacilityName::P6 | FacilityName::Netburst => Layout::Plain,
            FacilityName::Pm => Layout::Packed32,
        }))
    }
}

/// A record as a line gave it.
#[derive(Clone, Copy)]
enum Record {
    Lbr(RawEntry),
    Brbe(RawBrbe),
}

/// Why a line is not a record.
#[derive(Debug, thiserror::Error)]
enum BadLine {
    #[error(transparent)]
    Number(#[from] NotHex),
    #[error("{found} of {needed} columns ({columns})")]
    Missing { found: usize, needed: usize, columns: &'static str },
    #[error("more than the columns {columns}")]
    Extra { columns: &'static str },
    #[error("it is not text")]
    NotText,
    #[error("it is longer than {LONGEST_LINE} bytes")]
    TooLong,
}

/// Bytes of the longest line that is read: no record needs so many, and a file
/// without line ends must not fill the memory.
const LONGEST_LINE: usize = 1 << 16;

/// Runs `lbr decode`.
pub(crate) fn run(args: DecodeArgs) -> Outcome {
    let kind = args.kind().or_exit(USAGE)?;
    let mut input = open(&args.file).or_exit(USAGE)?;
    let mut out = BufWriter::new(io::stdout().lock());

    if !args.json {
        write_header(&mut out, kind)?;
    }
    let mut status = DONE;
    let mut line = Vec::new();
    let mut number: u64 = 0;
    loop {
        line.clear();
        let more = read_line(&mut input, &mut line)
            .with_context(|| format!("cannot read {}", args.file.display()))
            .or_exit(USAGE)?;
        if !more {
            break;
        }
        number += 1;
        match parse(&line, kind) {
            Ok(None) => {}
            Ok(Some(record)) if args.json => write_json(&mut out, kind, record)?,
            Ok(Some(record)) => write_row(&mut out, kind, record)?,
            Err(e) => {
                status = USAGE;
                // What came before stays before it where both go to one place.
                out.flush()?;
                say!("{}:{number}: {e}", name(&args.file));
            }
        }
    }
    out.flush()?;
    Ok(status)
}

fn open(file: &Path) -> Result<Box<dyn BufRead>, anyhow::Error> {
    if file.as_os_str() == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    Ok(Box::new(BufReader::new(opened)))
}

fn name(file: &Path) -> std::borrow::Cow<'_, str> {
    if file.as_os_str() == "-" { "standard input".into() } else { file.to_string_lossy() }
}

/// Reads the next line; `false` at the end. Of a line that is too long the
/// beginning is kept, one byte more than allowed, and the rest passed over.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    let allowed = LONGEST_LINE as u64 + 1;
    let read = input.by_ref().take(allowed).read_until(b'\n', line)?;
    if read > LONGEST_LINE && line.last() != Some(&b'\n') {
        input.skip_until(b'\n')?;
    }
    Ok(read != 0)
}

/// The record of a line; `None` for an empty line or a comment.
fn parse(line: &[u8], kind: Kind) -> Result<Option<Record>, BadLine> {
    if line.trim_ascii_start().starts_with(b"#") {
        return Ok(None);
    }
    if line.len() > LONGEST_LINE {
        return Err(BadLine::TooLong);
    }
    let line = str::from_utf8(line).map_err(|_| BadLine::NotText)?;
    let mut words = line.split_ascii_whitespace();
    let Some(first) = words.next() else { return Ok(None) };
    if let Kind::Lbr(layout) = kind
        && layout.is_packed()
    {
        return Ok(Some(Record::Lbr(RawEntry { from: hex(first)?, to: 0, info: None })));
    }

    let (columns, needed) = match kind {
        Kind::Lbr(_) => ("FROM TO [INFO]", 2),
        Kind::Brbe => ("INF SRC TGT", 3),
    };
    let first = hex(first)?;
    let second = words.next().ok_or(BadLine::Missing { found: 1, needed, columns })?;
    let second = hex(second)?;
    let third = match words.next() {
        None | Some("-") => None,
        Some(word) => Some(hex(word)?),
    };
    if words.next().is_some() {
        return Err(BadLine::Extra { columns });
    }
    Ok(Some(match kind {
        Kind::Lbr(_) => Record::Lbr(RawEntry { from: first, to: second, info: third }),
        Kind::Brbe => {
            let tgt = third.ok_or(BadLine::Missing { found: 2, needed, columns })?;
            Record::Brbe(RawBrbe { inf: first, src: second, tgt })
        }
    }))
}

fn type_name(branch: HwBranchType) -> &'static str {
    match branch {
        HwBranchType::Cond => "cond",
        HwBranchType::IndJmp => "ind_jmp",
        HwBranchType::RelJmp => "rel_jmp",
        HwBranchType::IndCall => "ind_call",
        HwBranchType::RelCall => "rel_call",
        HwBranchType::Ret => "ret",
        HwBranchType::Other => "other",
    }
}

/// What both outputs show of a record, whatever it came from.
struct Shown {
    from: Option<u64>,
    to: Option<u64>,
    mispredicted: Option<bool>,
    in_tx: Option<bool>,
    abort: Option<bool>,
    cycles: Option<u64>,
    cycles_saturated: Option<bool>,
    branch_type: Option<String>,
    spec: Option<String>,
    counters: Option<[Option<u8>; 4]>,
    /// BRBE: exception level, and whether a transaction failed before.
    brbe: Option<(u8, bool)>,
}

impl From<BranchEntry> for Shown {
    fn from(entry: BranchEntry) -> Shown {
        Shown {
            from: Some(entry.from),
            to: Some(entry.to),
            mispredicted: entry.mispredicted,
            in_tx: entry.in_tx,
            abort: entry.abort,
            cycles: entry.cycles.map(u64::from),
            cycles_saturated: entry.cycles_saturated,
            branch_type: entry.hw_type.map(type_name).map(str::to_owned),
            spec: entry.spec.map(BranchSpec::name).map(str::to_ascii_lowercase),
            counters: entry.counters,
            brbe: None,
        }
    }
}

impl From<BrbeRecord> for Shown {
    fn from(record: BrbeRecord) -> Shown {
        Shown {
            from: record.from,
            to: record.to,
            mispredicted: Some(record.mispredicted),
            in_tx: Some(record.transactional),
            abort: None,
            cycles: record.cycles,
            cycles_saturated: record.cycles_saturated,
            branch_type: record.branch_type.name().map(str::to_ascii_lowercase),
            spec: None,
            counters: None,
            brbe: Some((record.el, record.last_failed)),
        }
    }
}

fn shown(kind: Kind, record: Record) -> Option<Shown> {
    match (kind, record) {
        (Kind::Lbr(layout), Record::Lbr(raw)) => decode(layout, &raw).map(Shown::from),
        (_, Record::Brbe(raw)) => brbe::decode(&raw).map(Shown::from),
        (Kind::Brbe, Record::Lbr(_)) => None,
    }
}

fn write_json(out: &mut impl Write, kind: Kind, record: Record) -> io::Result<()> {
    json::line(out, &json_fields(kind, record))
}

/// The decoded fields of one register record, as `--json` prints them.
pub(super) fn fields_of(layout: Layout, raw: RawEntry) -> Vec<(&'static str, Value)> {
    json_fields(Kind::Lbr(layout), Record::Lbr(raw))
}

/// The heading of [`row_of`].
pub(super) fn heading_of(out: &mut impl Write, layout: Layout) -> io::Result<()> {
    write_header(out, Kind::Lbr(layout))
}

/// One register record, raw beside decoded.
pub(super) fn row_of(out: &mut impl Write, layout: Layout, raw: RawEntry) -> io::Result<()> {
    write_row(out, Kind::Lbr(layout), Record::Lbr(raw))
}

fn json_fields(kind: Kind, record: Record) -> Vec<(&'static str, Value)> {
    let Some(entry) = shown(kind, record) else {
        return vec![("empty", Value::Bool(true))];
    };
    let address = |ip: Option<u64>| ip.map_or(Value::Null, json::hex);
    let mut fields = vec![
        ("from", address(entry.from)),
        ("to", address(entry.to)),
        ("mispredicted", json!(entry.mispredicted)),
        ("in_tx", json!(entry.in_tx)),
        ("abort", json!(entry.abort)),
        ("cycles", json!(entry.cycles)),
        ("cycles_saturated", json!(entry.cycles_saturated)),
        ("type", json!(entry.branch_type)),
        ("spec", json!(entry.spec)),
        ("counters", json!(entry.counters)),
    ];
    if let Some((el, last_failed)) = entry.brbe {
        fields.push(("el", json!(el)));
        fields.push(("last_failed", json!(last_failed)));
    }
    fields
}

/// A raw register: its digits, so that columns align.
fn raw_column(value: u64) -> String {
    format!("{value:016x}")
}

fn raw_columns(record: Record, kind: Kind) -> Vec<String> {
    match (record, kind) {
        (Record::Lbr(raw), Kind::Lbr(layout)) if layout.is_packed() => vec![raw_column(raw.from)],
        (Record::Lbr(raw), Kind::Lbr(layout)) if layout.has_info() => {
            let info = raw.info.map_or_else(|| "-".to_owned(), raw_column);
            vec![raw_column(raw.from), raw_column(raw.to), info]
        }
        (Record::Lbr(raw), _) => vec![raw_column(raw.from), raw_column(raw.to)],
        (Record::Brbe(raw), _) => {
            vec![raw_column(raw.inf), raw_column(raw.src), raw_column(raw.tgt)]
        }
    }
}

/// The decoded columns: heading, width, and what stands there.
type Column = (&'static str, usize, fn(&Shown) -> String);

fn columns(kind: Kind) -> Vec<Column> {
    let mut columns: Vec<Column> = vec![
        ("from", 18, |e| address_column(e.from)),
        ("to", 18, |e| address_column(e.to)),
        ("mispredicted", 12, |e| yes_no(e.mispredicted)),
        ("in_tx", 5, |e| yes_no(e.in_tx)),
        ("abort", 5, |e| yes_no(e.abort)),
        ("cycles", 7, |e| match (e.cycles, e.cycles_saturated) {
            (None, _) => "-".to_owned(),
            // The true count may be larger.
            (Some(cycles), Some(true)) => format!("{cycles}+"),
            (Some(cycles), _) => cycles.to_string(),
        }),
    ];
    match kind {
        Kind::Lbr(Layout::Arch { .. }) => {
            columns.push(("type", 8, |e| word(e.branch_type.as_deref())));
            columns.push(("counters", 8, |e| match e.counters {
                None => "-".to_owned(),
                Some(counters) => counters
                    .map(|count| count.map_or_else(|| "-".to_owned(), |n| n.to_string()))
                    .join(" "),
            }));
        }
        Kind::Lbr(Layout::AmdV2 { .. }) => {
            columns.push(("spec", 21, |e| word(e.spec.as_deref())));
        }
        Kind::Brbe => {
            columns.push(("type", 15, |e| word(e.branch_type.as_deref())));
            columns.push(("el", 2, |e| {
                e.brbe.map_or_else(|| "-".to_owned(), |(el, _)| el.to_string())
            }));
            columns.push(("last_failed", 11, |e| yes_no(e.brbe.map(|(_, failed)| failed))));
        }
        Kind::Lbr(_) => {}
    }
    columns
}

fn word(word: Option<&str>) -> String {
    word.unwrap_or("-").to_owned()
}

fn yes_no(flag: Option<bool>) -> String {
    word(flag.map(|set| if set { "yes" } else { "no" }))
}

fn address_column(ip: Option<u64>) -> String {
    ip.map_or_else(|| "-".to_owned(), |ip| format!("{ip:#x}"))
}

fn write_header(out: &mut impl Write, kind: Kind) -> io::Result<()> {
    let raw: &[&str] = match kind {
        Kind::Lbr(layout) if layout.is_packed() => &["FROM/TO"],
        Kind::Lbr(layout) if layout.has_info() => &["FROM", "TO", "INFO"],
        Kind::Lbr(_) => &["FROM", "TO"],
        Kind::Brbe => &["INF", "SRC", "TGT"],
    };
    let raw = raw.iter().map(|heading| (*heading, 16));
    let decoded = columns(kind).into_iter().map(|(heading, width, _)| (heading, width));
    write_cells(out, raw, decoded)
}

fn write_row(out: &mut impl Write, kind: Kind, record: Record) -> io::Result<()> {
    let raw = raw_columns(record, kind);
    let raw = raw.iter().map(|cell| (cell.as_str(), 16));
    match shown(kind, record) {
        None => write_cells(out, raw, [("empty", 5)].into_iter()),
        Some(entry) => {
            let cells: Vec<(String, usize)> =
                columns(kind).into_iter().map(|(_, width, cell)| (cell(&entry), width)).collect();
            write_cells(out, raw, cells.iter().map(|(cell, width)| (cell.as_str(), *width)))
        }
    }
}

/// One line: the raw registers, a rule, what they mean.
fn write_cells<'a>(
    out: &mut impl Write,
    raw: impl Iterator<Item = (&'a str, usize)>,
    decoded: impl Iterator<Item = (&'a str, usize)>,
) -> io::Result<()> {
    let mut line = String::new();
    let all = raw.chain([("|", 1)]).chain(decoded);
    for (cell, width) in all {
        line.push_str(&format!("{cell:<width$}  "));
    }
    writeln!(out, "{}", line.trim_end())
}
