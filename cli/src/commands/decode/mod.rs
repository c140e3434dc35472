//! `lbr decode`: register values in, branches out.

mod line;
pub(super) mod record;

use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::{ArgGroup, Args, ValueEnum};
use lbr_msr::{LbrFormat, caps::Layout, decode::pebs::PebsLayout};

use super::number::hex;
use crate::args::heading;
use crate::exit::{DONE, OrExit, Result, USAGE};
use crate::input;
use crate::input::file::Stream;
use crate::present::{Out, json, say};
use record::RecordRow;

/// Decode raw LBR registers
///
/// Examples:
///   lbr decode --format 3 8000000000401000 401020
///   lbr decode --facility arch 401000 401020 1000000000000005 --json
///   echo 401000 401020 | lbr decode --format 0
///
/// The arguments, or each line of a file, are a record: FROM, TO and, if the
/// layout has it, INFO, in hexadecimal with or without 0x. Packed records (format
/// 0, pm) are one register; further columns are ignored. A BRBE record is INF
/// SRC TGT. A PEBS line is a whole record, its 64-bit words in order; lbr prints
/// its LBR entries, newest first. Empty lines and lines that start with # are
/// skipped.
///
/// `lbr probe` prints the format of a CPU. A field that the record does not
/// have is `-` (JSON: null). A line that is not a record is reported with its
/// number; the others are decoded, and the exit status is 2.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[command(group = ArgGroup::new("layout").required(true).args(["format", "facility"]))]
pub(crate) struct DecodeArgs {
    /// The LBR_FMT code, 0 to 7, as lbr probe prints it
    ///
    /// Bits 5:0 of IA32_PERF_CAPABILITIES.
    #[arg(long, value_name = "N", value_parser = known_format, help_heading = heading::MACHINE)]
    format: Option<LbrFormat>,

    /// A facility without an LBR_FMT code
    #[arg(long, value_enum, help_heading = heading::MACHINE)]
    facility: Option<FacilityName>,

    /// The CPU has neither HLE nor RTM: transaction flags mean nothing
    #[arg(long, help_heading = heading::MACHINE)]
    no_tsx: bool,

    /// Width of virtual addresses in bits, for amd_v2 and amd_brs
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u8).range(32..=58),
          help_heading = heading::MACHINE)]
    virt_bits: u8,

    /// CPUID leaf 1CH, which defines the fields of INFO (arch)
    ///
    /// Without it all fields are taken as valid.
    #[arg(long, value_name = "EAX,EBX,ECX", value_parser = leaf_1c, help_heading = heading::MACHINE)]
    caps: Option<u32>,

    /// Print JSON Lines
    #[arg(long, help_heading = heading::OUTPUT)]
    json: bool,

    /// The registers of a record, or a file with a record on each line
    ///
    /// `-`, or no argument, is standard input.
    #[arg(value_name = "REGISTERS|FILE", default_value = "-")]
    input: Vec<PathBuf>,
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
    /// Adaptive PEBS records, with Architectural LBR
    Pebs,
    /// Adaptive PEBS records of Ice Lake and Tremont (LBR_FMT 5 and 7)
    PebsInfo,
    /// Architectural PEBS records
    ArchPebs,
}

fn known_format(word: &str) -> Result<LbrFormat, String> {
    let code = hex(word).map_err(|e| e.to_string())?;
    match u8::try_from(code).map(LbrFormat) {
        Ok(LbrFormat::NONE) => {
            Err("0x3f means: no model-specific LBR; use --facility arch".to_owned())
        }
        Ok(format) if format.is_known() => Ok(format),
        _ => Err(format!("unknown LBR_FMT {code:#x}; 0 to 7 are documented")),
    }
}

/// ECX of CPUID leaf 1CH, the register that describes records.
fn leaf_1c(words: &str) -> Result<u32, anyhow::Error> {
    let word = |word: &str| {
        let value = hex(word.trim())?;
        u32::try_from(value).ok().with_context(|| format!("{word} does not fit into 32 bits"))
    };
    let registers: Vec<u32> = words.split(',').map(word).collect::<Result<_, _>>()?;
    match registers[..] {
        [_, _, ecx] => Ok(ecx),
        _ => anyhow::bail!("three registers are needed: EAX,EBX,ECX"),
    }
}

/// How records are laid out.
#[derive(Clone, Copy)]
pub(super) enum Records {
    Lbr(Layout),
    Pebs(PebsLayout, Layout),
    Brbe,
}

impl DecodeArgs {
    /// The record that the arguments are; `None` for a file.
    fn record(&self) -> Option<String> {
        let words: Vec<_> = self.input.iter().map(|word| word.to_string_lossy()).collect();
        let is_file =
            matches!(&words[..], [one] if hex(one).is_err() || Path::new(&**one).exists());
        (!is_file).then(|| words.join(" "))
    }

    fn records(&self) -> Result<Records, anyhow::Error> {
        let (virt_bits, tsx) = (self.virt_bits, !self.no_tsx);
        let is_arch = matches!(
            self.facility,
            Some(FacilityName::Arch | FacilityName::Pebs | FacilityName::ArchPebs)
        );
        if self.caps.is_some() && !is_arch {
            anyhow::bail!("--caps describes Architectural LBR only; add --facility arch");
        }
        if let Some(format) = self.format {
            let layout = Layout::of_format(format, tsx)
                .with_context(|| format!("unknown LBR_FMT {format}"))?;
            return Ok(Records::Lbr(layout));
        }
        // Leaf 1CH does not describe transaction flags.
        let arch = Layout::of_leaf_1c(self.caps.unwrap_or(0xF_0007), tsx);
        Ok(Records::Lbr(match self.facility.context("--format or --facility is needed")? {
            FacilityName::Arch => arch,
            FacilityName::Pebs => return Ok(Records::Pebs(PebsLayout::Adaptive, arch)),
            FacilityName::ArchPebs => return Ok(Records::Pebs(PebsLayout::Arch, arch)),
            FacilityName::PebsInfo => {
                let info = Layout::Legacy { format: LbrFormat(5), tsx };
                return Ok(Records::Pebs(PebsLayout::Adaptive, info));
            }
            FacilityName::AmdV2 => Layout::AmdV2 { virt_bits },
            FacilityName::AmdBrs => Layout::AmdBrs { virt_bits },
            FacilityName::AmdSingle => Layout::AmdSingle,
            FacilityName::Brbe => return Ok(Records::Brbe),
            FacilityName::P6 | FacilityName::Netburst => Layout::Plain,
            FacilityName::Pm => Layout::Packed32,
        }))
    }
}

pub(crate) fn run(args: DecodeArgs) -> Result {
    let records = args.records().or_exit(USAGE)?;
    let parse = |line: &[u8]| line::parse(line, records);
    let given = args.record().map(|record| parse(record.as_bytes())).transpose().or_exit(USAGE)?;
    let path = args.input.first().map_or(Path::new("-"), PathBuf::as_path);
    let file = input::name(path);
    let mut input = match given {
        Some(_) => None,
        None => {
            let opened = Stream::of(path, Arc::default());
            let opened = opened.with_context(|| format!("cannot open {file}")).or_exit(USAGE)?;
            Some(BufReader::new(opened))
        }
    };
    let mut out = Out::stdout();
    let table = record::table(records, false);
    // Rows are printed as they come, so the widths cannot depend on them.
    let layout = table.layout(&out, &mut (), std::iter::empty(), 0);
    if !args.json {
        layout.headings(&mut out)?;
    }
    let print = |out: &mut Out<'_>, rows: Vec<RecordRow>| {
        rows.iter().try_for_each(|row| match args.json {
            true => json::line(out, &row.fields),
            false => table.write_row(&layout, out, &mut (), row),
        })
    };
    if let Some(rows) = given {
        print(&mut out, rows)?;
    }
    let mut status = DONE;
    let mut line = Vec::new();
    let mut number: u64 = 0;
    while let Some(input) = &mut input {
        line.clear();
        let more = line::read(input, &mut line)
            .with_context(|| format!("cannot read {file}"))
            .or_exit(USAGE)?;
        if !more {
            break;
        }
        number += 1;
        match parse(&line) {
            Ok(rows) => print(&mut out, rows)?,
            Err(e) => {
                status = USAGE;
                // Keeps the order of output and errors on one terminal.
                out.flush()?;
                say!("{file}:{number}: {e}");
            }
        }
    }
    out.flush()?;
    Ok(status)
}
