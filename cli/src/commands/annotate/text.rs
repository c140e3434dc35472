//! Annotated code for a terminal.

use std::collections::HashMap;
use std::io;

use anstyle::Style;
use profile::annotate::{Annotated, BasicBlock, Instruction, Timed};
use profile::lines::SourceLine;

use super::arrows::Arrows;
use super::cells::{Columns, ipc, remark, words};
use crate::input::source_text::Sources;
use crate::present::{
    Cell, FAINT, Out, Table, add, cells, counted, escaped, grouped, shortened, without_middle,
};

/// Maximum number of blocks in the table below the code.
const BLOCKS: usize = 20;

/// By instruction: a word in front of it and its style, and a remark after it.
pub(crate) type Marks = HashMap<usize, (&'static str, Style, String)>;

#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) source: bool,
    pub(crate) hottest: bool,
    pub(crate) marks: Marks,
}

/// Prints head and code.
pub(crate) fn print(
    out: &mut Out<'_>,
    head: &[String],
    annotated: &Annotated,
    options: &Options,
) -> io::Result<()> {
    out.lines(head)?;
    out.gap()?;
    out.line(super::title(annotated))?;
    out.gap()?;
    let arrows = (!options.hottest).then(|| Arrows::of(annotated));
    let mut page = Listing::new(out, annotated, arrows, options);
    page.headings(out)?;
    if options.hottest {
        let mut blocks = annotated.basic_blocks();
        blocks.sort_by_key(|block| std::cmp::Reverse(block.count));
        for (rank, block) in blocks.iter().enumerate() {
            out.line(block_title(annotated, rank + 1, block))?;
            page.rows(out, block.first..block.end)?;
        }
    } else {
        page.rows(out, 0..annotated.instructions.len())?;
    }
    if options.source && !annotated.instructions.iter().any(|insn| insn.source.is_some()) {
        let path = &annotated.function.path;
        out.gap()?;
        out.line(format_args!("no source lines: {path} was built without them (-g)"))?;
    }
    let omitted = page.arrows.as_ref().map_or(0, |arrows| arrows.omitted);
    if omitted > 0 {
        let jumps = counted(omitted as u64, "jump", "jumps");
        out.gap()?;
        out.line(format_args!("{jumps} drawn without an arrow: too many overlap"))?;
    }
    blocks(out, annotated)
}

/// Writes the code alone, headings first. Returns for each line below them the index of its
/// instruction.
pub(crate) fn code(
    out: &mut Out<'_>,
    annotated: &Annotated,
    options: &Options,
) -> io::Result<Vec<Option<usize>>> {
    let mut page = Listing::new(out, annotated, Some(Arrows::of(annotated)), options);
    page.headings(out)?;
    page.rows(out, 0..annotated.instructions.len())?;
    Ok(page.lines)
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

struct Listing<'a> {
    /// For each line, the index of its instruction.
    lines: Vec<Option<usize>>,
    /// The source line above.
    line: Option<&'a SourceLine>,
    columns: Columns<'a>,
    arrows: Option<Arrows>,
    marks: &'a Marks,
    /// Width of the marks, if there are any.
    mark: usize,
    /// Widths of the columns; `None` for hidden ones.
    widths: Vec<Option<usize>>,
    /// Width of addresses.
    address: usize,
    source: Option<Sources>,
}

/// Columns in the order in which they are dropped on a narrow terminal: IPC, p90, p50, mispredict,
/// taken. The count stays.
const SPARE: [usize; 5] = [5, 4, 3, 2, 1];
/// Heading of the marks.
const CHANGE: &str = "change";
/// Minimum width of an instruction.
const CODE: usize = 28;

impl<'a> Listing<'a> {
    fn new(
        out: &Out<'_>,
        annotated: &'a Annotated,
        arrows: Option<Arrows>,
        Options { source, marks, .. }: &'a Options,
    ) -> Listing<'a> {
        let columns = Columns::of(annotated);
        let mut widths: Vec<Option<usize>> =
            columns.headings().iter().map(|heading| Some(cells(heading))).collect();
        for (at, insn) in annotated.instructions.iter().enumerate() {
            for (width, cell) in widths.iter_mut().zip(columns.cells(at, insn)) {
                *width = (*width).max(Some(cells(&cell)));
            }
        }
        let last = annotated.instructions.last().map_or(0, |insn| insn.address);
        let address = format!("{last:x}").len().max("address".len());
        let source = source.then(Sources::default);
        let (lines, line) = (Vec::new(), None);
        let words = marks.values().map(|(word, ..)| word.len().max(CHANGE.len()));
        let mark = words.max().map_or(0, |width| width + 2);
        let mut page =
            Listing { lines, line, columns, arrows, marks, mark, widths, address, source };
        for at in SPARE {
            let fits = out.width.is_none_or(|room| page.before() + CODE <= room);
            if let Some(width) = page.widths.get_mut(at).filter(|_| !fits) {
                *width = None;
            }
        }
        page
    }

    /// Cells in front of an instruction.
    fn before(&self) -> usize {
        let arrows = self.arrows.as_ref().map_or(0, Arrows::width);
        let arrows = if arrows > 0 { arrows + 1 } else { 0 };
        let columns: usize = self.widths.iter().flatten().map(|width| width + 2).sum();
        self.mark + columns + arrows + self.address + 2
    }

    fn headings(&self, out: &mut Out<'_>) -> io::Result<()> {
        let mark = if self.mark > 0 { CHANGE } else { "" };
        let gutter = format!("{mark:0$}{1}", self.mark, self.gutter(self.columns.headings()));
        let rest = self.before() - cells(&gutter) - 2;
        out.row(vec![(Style::new().bold(), format!("{gutter}{:>rest$}  instruction", "address"))])
    }

    fn gutter(&self, row: &[&str]) -> String {
        let shown = row.iter().zip(&self.widths);
        let shown = shown.filter_map(|(cell, width)| Some((cell, (*width)?)));
        shown.map(|(cell, width)| format!("{cell:>width$}  ")).collect()
    }

    /// Rows of instructions, with their labels and source lines before them.
    fn rows(&mut self, out: &mut Out<'_>, range: std::ops::Range<usize>) -> io::Result<()> {
        for at in range {
            let annotated = self.columns.annotated;
            let Some(insn) = annotated.instructions.get(at) else { break };
            if let Some(label) = &insn.label {
                self.between(out, at, &format!("{label}:"))?;
            }
            if insn.source.is_some() && insn.source.as_ref() != self.line {
                self.line = insn.source.as_ref();
                if let (Some(sources), Some(line)) = (&mut self.source, self.line) {
                    let text = sources.line(line);
                    self.between(out, at, &text)?;
                }
            }
            self.row(out, at, insn)?;
        }
        Ok(())
    }

    /// A row without an instruction.
    fn between(&mut self, out: &mut Out<'_>, at: usize, text: &str) -> io::Result<()> {
        self.lines.push(None);
        let gutter = " ".repeat(self.mark) + &self.gutter(&[""; 7]);
        let drawn = self.drawn(|arrows| arrows.above(at));
        let room = out.width.map(|width| width.saturating_sub(cells(&gutter) + cells(&drawn)));
        let text = shortened(&escaped(text), room.unwrap_or(usize::MAX));
        out.row(vec![(Style::new(), gutter + &drawn), (FAINT, text)])
    }

    fn drawn(&self, row: impl Fn(&Arrows) -> String) -> String {
        match &self.arrows {
            Some(arrows) if arrows.width() > 0 => format!("{} ", row(arrows)),
            _ => String::new(),
        }
    }

    fn row(&mut self, out: &mut Out<'_>, at: usize, insn: &Instruction) -> io::Result<()> {
        self.lines.push(Some(at));
        let row = self.columns.cells(at, insn);
        let heat = self.columns.heat(insn.count).style;
        let drawn = self.drawn(|arrows| arrows.row(at));
        let remark = remark(self.columns.annotated, at, insn, self.arrows.as_ref());
        let (mut code, mut remark) = (words(insn), remark.unwrap_or_default());
        let (mark, look) = match self.marks.get(&at) {
            Some((word, style, change)) => {
                remark = format!("{change}  {remark}");
                (*word, *style)
            }
            None => ("", Style::new()),
        };
        if let Some(room) = out.width.map(|width| width.saturating_sub(self.before())) {
            code = without_middle(&code, room);
            let left = room.saturating_sub(cells(&code) + 2);
            // A shorter remark would be useless.
            remark = if left < 8 { String::new() } else { without_middle(&remark, left) };
        }
        let mut line = vec![(look, format!("{mark:0$}", self.mark))];
        add(&mut line, heat, &self.gutter(&row.each_ref().map(String::as_str)));
        let width = self.address;
        add(&mut line, Style::new(), &format!("{drawn}{:>width$x}  ", insn.address));
        add(&mut line, heat, &code);
        add(&mut line, Style::new(), &format!("  {remark}"));
        out.row(line)
    }
}

/// The blocks with cycles, by how often they ran.
fn blocks(out: &mut Out<'_>, annotated: &Annotated) -> io::Result<()> {
    let timed = annotated.blocks.iter().filter(|block| block.cycles.n() > 0);
    let all = timed.clone().count();
    if all == 0 {
        return Ok(());
    }
    out.gap()?;
    let table = Table::<(), &Timed>::new()
        .number("", "count", |(), block| Cell::Count(block.count))
        .heat()
        .number("", "with cycles", |(), block| Cell::Count(block.cycles.n()))
        .number("", "instructions", |(), block| Cell::count(block.instructions))
        .number("", "p50", |(), block| Cell::number(block.cycles.quantile(0.5)))
        .number("", "p90", |(), block| Cell::number(block.cycles.quantile(0.9)))
        .number("", "mean", |(), block| Cell::decimal(block.mean(), 1))
        .number("", "IPC", |(), block| Cell::Stated(ipc(block), block.ipc()))
        .number("", "saturated", |(), block| Cell::Count(block.cycles.saturated()))
        .word("", "block", |(), block| {
            Cell::Word(format!("{:#x}..{:#x}", block.entry, block.exit).into())
        })
        .spares(&["saturated", "with cycles", "instructions", "mean"]);
    table.write_text(out, &mut (), timed.take(BLOCKS))?;
    let more = all.saturating_sub(BLOCKS);
    if more > 0 {
        let more = counted(more as u64, "block", "blocks");
        out.line(format_args!("{more} more (--json has them all)"))?;
    }
    Ok(())
}
