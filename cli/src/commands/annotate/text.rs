//! Annotated code for a terminal.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use anstyle::{AnsiColor, Style};
use profile::annotate::{Annotated, BasicBlock, Instruction};
use profile::lines::SourceLine;

use super::arrows::Arrows;
use super::cells::{Columns, HEADINGS, Heat, dash, ipc, remark, words};
use crate::present::number::{counted, grouped};

/// Blocks with cycles that the table below the code shows.
const BLOCKS: usize = 20;

/// What to print.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) source: bool,
    pub(super) hottest: bool,
}

/// Prints head and code.
pub(super) fn print(
    out: &mut impl Write,
    head: &[String],
    annotated: &Annotated,
    options: Options,
) -> io::Result<()> {
    for line in head {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "\n{}\n", super::title(annotated))?;
    let arrows = (!options.hottest).then(|| Arrows::of(annotated));
    let mut page = Page::new(annotated, arrows, options.source);
    page.headings(out)?;
    if options.hottest {
        let mut blocks = annotated.basic_blocks();
        blocks.sort_by_key(|block| std::cmp::Reverse(block.count));
        for (rank, block) in blocks.iter().enumerate() {
            let rank = rank + 1;
            writeln!(out, "{}", block_title(annotated, rank, block))?;
            page.rows(out, block.first..block.end)?;
        }
    } else {
        page.rows(out, 0..annotated.instructions.len())?;
    }
    if options.source && !annotated.instructions.iter().any(|insn| insn.source.is_some()) {
        writeln!(
            out,
            "\nno source lines: {} was built without them (-g)",
            annotated.function.path
        )?;
    }
    let omitted = page.arrows.as_ref().map_or(0, |arrows| arrows.omitted);
    if omitted > 0 {
        writeln!(
            out,
            "\n{} without an arrow: too many lie over each other",
            counted(omitted as u64, "jump", "jumps")
        )?;
    }
    blocks(out, annotated)
}

fn block_title(annotated: &Annotated, rank: usize, block: &BasicBlock) -> String {
    let start = annotated.instructions.get(block.first).map_or(0, |insn| insn.address);
    let start = start.wrapping_sub(annotated.function.address);
    let count = match block.count {
        Some(count) => format!("{} times", grouped(count)),
        None => "not seen".to_owned(),
    };
    format!("block {rank}, +{start:#x}: {count}")
}

struct Page<'a> {
    columns: Columns<'a>,
    arrows: Option<Arrows>,
    /// Of the columns.
    widths: [usize; 6],
    /// Of addresses.
    address: usize,
    source: Option<Sources>,
}

impl<'a> Page<'a> {
    fn new(annotated: &'a Annotated, arrows: Option<Arrows>, source: bool) -> Page<'a> {
        let columns = Columns::of(annotated);
        let mut widths = HEADINGS.map(str::len);
        for (at, insn) in annotated.instructions.iter().enumerate() {
            let cells = columns.cells(at, insn);
            for (width, cell) in widths.iter_mut().zip(cells.all()) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let last = annotated.instructions.last().map_or(0, |insn| insn.address);
        let address = format!("{last:x}").len();
        let source = source.then(Sources::default);
        Page { columns, arrows, widths, address, source }
    }

    fn headings(&self, out: &mut impl Write) -> io::Result<()> {
        let arrows = self.arrows.as_ref().map_or(0, Arrows::width);
        let arrows = if arrows > 0 { arrows + 1 } else { 0 };
        writeln!(
            out,
            "{}  {:arrows$}{:>address$}  instruction",
            self.gutter(HEADINGS),
            "",
            "address",
            address = self.address.max("address".len()),
        )
    }

    fn gutter(&self, cells: [&str; 6]) -> String {
        let cells: Vec<String> =
            cells.iter().zip(self.widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        cells.join("  ")
    }

    /// Rows of instructions, with their labels and source lines before them.
    fn rows(&mut self, out: &mut impl Write, range: std::ops::Range<usize>) -> io::Result<()> {
        let mut line: Option<&SourceLine> = None;
        for at in range {
            let Some(insn) = self.columns.annotated.instructions.get(at) else { break };
            if let Some(label) = &insn.label {
                self.between(out, at, &format!("{label}:"))?;
            }
            if insn.source.is_some() && insn.source.as_ref() != line {
                line = insn.source.as_ref();
                let text = match (&mut self.source, line) {
                    (Some(sources), Some(line)) => Some(sources.line(line)),
                    _ => None,
                };
                if let Some(text) = text {
                    self.between(out, at, &text)?;
                }
            }
            self.row(out, at, insn)?;
        }
        Ok(())
    }

    /// A row that is no instruction.
    fn between(&self, out: &mut impl Write, at: usize, text: &str) -> io::Result<()> {
        let drawn = self.drawn(|arrows| arrows.above(at));
        let dim = Style::new().dimmed();
        writeln!(out, "{}  {drawn}{dim}{text}{dim:#}", self.gutter([""; 6]))
    }

    fn drawn(&self, row: impl Fn(&Arrows) -> String) -> String {
        match &self.arrows {
            Some(arrows) if arrows.width() > 0 => format!("{} ", row(arrows)),
            _ => String::new(),
        }
    }

    fn row(&self, out: &mut impl Write, at: usize, insn: &Instruction) -> io::Result<()> {
        let cells = self.columns.cells(at, insn);
        let style = match self.columns.heat(insn) {
            Heat::Hot => AnsiColor::Red.on_default().bold(),
            Heat::Warm => AnsiColor::Yellow.on_default(),
            Heat::Cool => Style::new(),
            Heat::Cold => Style::new().dimmed(),
        };
        let drawn = self.drawn(|arrows| arrows.row(at));
        let width = self.address.max("address".len());
        let remark = remark(self.columns.annotated, at, insn, self.arrows.as_ref());
        let remark = remark.map(|remark| format!("  {remark}")).unwrap_or_default();
        let row = format!(
            "{style}{}{style:#}  {drawn}{:>width$x}  {style}{}{style:#}{remark}",
            self.gutter(cells.all()),
            insn.address,
            words(insn),
        );
        writeln!(out, "{}", row.trim_end())
    }
}

/// No source is longer, bytes.
const LONGEST_SOURCE: u64 = 64 << 20;

/// A source file: debug information may name anything, such as a pipe that
/// nobody writes or a device without end.
fn source(path: &Path) -> io::Result<Vec<u8>> {
    let found = std::fs::metadata(path)?;
    if !found.is_file() || found.len() > LONGEST_SOURCE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    std::fs::read(path)
}

/// The files of source lines, as far as they are there.
#[derive(Debug, Default)]
struct Sources {
    files: HashMap<Arc<str>, Option<Vec<String>>>,
}

impl Sources {
    /// A line with its text, where its file can be read.
    fn line(&mut self, line: &SourceLine) -> String {
        let read = || {
            let bytes = source(Path::new(&*line.file)).ok()?;
            Some(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
        };
        let lines = self.files.entry(Arc::clone(&line.file)).or_insert_with(read);
        let index = (line.line as usize).checked_sub(1);
        let text = lines.as_ref().zip(index).and_then(|(lines, index)| lines.get(index));
        let name = line.file.rsplit('/').next().unwrap_or(&line.file);
        match text {
            Some(text) => format!("{name}:{}  {}", line.line, text.trim()),
            None => format!("{name}:{}", line.line),
        }
    }
}

/// The blocks with cycles, by how often they ran.
fn blocks(out: &mut impl Write, annotated: &Annotated) -> io::Result<()> {
    let timed = annotated.blocks.iter().filter(|block| block.cycles.n() > 0);
    let all = timed.clone().count();
    if all == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "\n{:>10}  {:>11}  {:>12}  {:>5}  {:>5}  {:>8}  {:>6}  {:>9}  block",
        "count", "with cycles", "instructions", "p50", "p90", "mean", "IPC", "saturated"
    )?;
    for block in timed.take(BLOCKS) {
        let cell = |value: Option<u32>| value.map_or_else(dash, |value| value.to_string());
        writeln!(
            out,
            "{:>10}  {:>11}  {:>12}  {:>5}  {:>5}  {:>8}  {:>6}  {:>9}  {:#x}..{:#x}",
            grouped(block.count),
            grouped(block.cycles.n()),
            block.instructions.map_or_else(dash, grouped),
            cell(block.cycles.quantile(0.5)),
            cell(block.cycles.quantile(0.9)),
            block.mean().map_or_else(dash, |mean| format!("{mean:.1}")),
            ipc(block),
            grouped(block.cycles.saturated()),
            block.entry,
            block.exit,
        )?;
    }
    let more = all.saturating_sub(BLOCKS);
    if more > 0 {
        writeln!(out, "{} more (--json has them all)", counted(more as u64, "block", "blocks"))?;
    }
    Ok(())
}
