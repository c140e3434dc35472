//! A page of the browser: a table, or lines of text.

use std::io;
use std::rc::Rc;

use anstyle::Style;
use anyhow::{Context, anyhow};
use profile::Flow;
use profile::annotate::{Annotated, Stretch, Syntax, annotate};
use profile::flow::Block;
use profile::maps::Location;

use super::lines::{Content, Lines};
use super::listing::Listing;
use super::reading::Model;
use super::views::{Rows, View};
use crate::commands::annotate::graph;
use crate::commands::annotate::text::Options;
use crate::commands::functions::moved;
use crate::exit::Result;
use crate::present::chart::{Histogram, Series};
use crate::present::{Place, Row};
use crate::select::RowArgs;

/// Keys and what they do.
const HELP: &[(&str, &str)] = &[
    ("j k, arrows", "move; also Ctrl-D Ctrl-U, Page Down, Page Up, Home, End, G, wheel"),
    ("Enter, Right", "open the code of a row; follow a branch, or list its targets"),
    ("Backspace, Left", "back; also Esc, and q, which ends on the first page"),
    ("Tab, Shift-Tab", "next and previous view"),
    ("g", "edges of the function's control-flow graph (elsewhere: the top)"),
    ("c", "cycles of a block, as a chart"),
    ("s", "source lines between the instructions (needs -g)"),
    ("p, n", "callers and callees: branches into and out of the function"),
    ("/", "search: rows with these letters in this order; in text a word"),
    ("<, >, 1 to 9", "sort by the previous, next or n-th column; again: reverse"),
    ("f", "filter: process, thread, event, file, symbol, type; take off"),
    ("w", "write to FILE.txt, .csv, .json, .html; code also .svg, .dot"),
    ("y", "copy the symbol or address to the clipboard (OSC 52)"),
    ("Ctrl-Z, Ctrl-C", "suspend, end"),
    ("?", "this list"),
];

/// What is on the screen, and where.
pub(super) struct Page {
    pub(super) subject: Subject,
    pub(super) title: String,
    pub(super) body: Body,
    /// The selected row or line.
    pub(super) cursor: usize,
    /// The first one on the screen.
    pub(super) top: usize,
    /// It was made from an earlier reading.
    pub(super) stale: bool,
}

pub(super) enum Body {
    Table(Listing),
    Text(Lines),
}

/// The subject of a page, independent of the data read so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    View(View),
    /// The function at a place, and whether source lines are shown.
    Code(Location, bool),
    /// Its control-flow graph.
    Graph(Location),
    /// Branches into the function at a place, or out of it.
    Calls {
        into: bool,
        at: Location,
    },
    /// Targets of the branch at a place.
    Targets(Location),
    /// Cycles of the block with these ends.
    Cycles(Location, Location),
    Keys,
    Filters,
}

impl Page {
    /// A page without content, until it is refreshed.
    pub(super) fn of(subject: Subject) -> Page {
        let body = Body::Text(Lines::default());
        Page { subject, title: String::new(), body, cursor: 0, top: 0, stale: true }
    }

    pub(super) fn view(&self) -> Option<View> {
        let Subject::View(view) = self.subject else { return None };
        Some(view)
    }

    /// The code that it shows, and the instruction that the cursor is on.
    pub(super) fn code(&self) -> Option<(&Annotated, Option<usize>)> {
        let Body::Text(Lines { content: Content::Code(code, _), about, .. }) = &self.body else {
            return None;
        };
        Some((code, about.get(self.cursor).copied().flatten()))
    }

    /// Takes its content from what was read last.
    pub(super) fn refresh(&mut self, model: &mut Model, shown: &RowArgs) -> Result<()> {
        let (title, made) = self.subject.make(model)?;
        self.title = title;
        match (made, &mut self.body) {
            (Made::Rows(rows), Body::Table(listing)) => {
                if std::mem::discriminant(&listing.rows) != std::mem::discriminant(&rows) {
                    // Other columns.
                    listing.sort = None;
                }
                listing.rows = rows;
            }
            (Made::Rows(rows), body) => *body = Body::Table(Listing::of(rows)),
            (Made::Text(content), Body::Text(lines)) => {
                lines.content = content;
                lines.remake(self.cursor);
            }
            (Made::Text(content), body) => *body = Body::Text(Lines::of(content)),
        }
        if let Body::Table(listing) = &mut self.body {
            listing.refresh(model, shown)?;
        }
        self.stale = false;
        Ok(())
    }

    /// Why it has no rows.
    pub(super) fn nothing(&self, model: &Model) -> &'static str {
        match (&self.subject, &self.body) {
            (Subject::View(view), _) if view.needs(model).is_some() => "Being read …",
            (_, Body::Table(listing)) if !listing.search.is_empty() => "Nothing matches.",
            (Subject::View(View::Blocks | View::Loops | View::Paths), _)
                if model.overview.flow.block_quality.filtered > 0 =>
            {
                "None: not every branch was recorded (record with -j any,u)."
            }
            _ => "None.",
        }
    }

    /// Number of rows or lines.
    pub(super) fn len(&self) -> usize {
        match &self.body {
            Body::Table(listing) => listing.order.len(),
            Body::Text(lines) => lines.rows.len(),
        }
    }

    pub(super) fn move_by(&mut self, by: isize) {
        self.cursor = self.cursor.saturating_add_signed(by).min(self.len().saturating_sub(1));
    }

    /// Headings, and as many rows as there is room for.
    pub(super) fn draw(
        &mut self,
        model: &mut Model,
        width: usize,
        room: usize,
    ) -> io::Result<Vec<Row>> {
        if let Body::Text(lines) = &mut self.body {
            lines.make(model, width, &mut self.cursor)?;
        }
        self.cursor = self.cursor.min(self.len().saturating_sub(1));
        let heads = match &self.body {
            Body::Table(_) => 1,
            Body::Text(lines) => usize::from(lines.head.is_some()),
        };
        let room = room.saturating_sub(heads).max(1);
        self.top = self.top.min(self.cursor).max((self.cursor + 1).saturating_sub(room));
        let shown = self.top..self.len().min(self.top + room);
        let mut rows = match &mut self.body {
            Body::Table(listing) => listing.draw(model, width, shown)?,
            Body::Text(lines) => {
                let shown = lines.rows.get(shown).unwrap_or_default();
                lines.head.iter().chain(shown).cloned().collect()
            }
        };
        if let Some(row) = rows.get_mut(heads + self.cursor - self.top) {
            *row = selected(row, width);
        }
        Ok(rows)
    }
}

/// The line with the cursor, as wide as the screen.
fn selected(row: &Row, width: usize) -> Row {
    let text: String = row.iter().map(|(_, text)| text.as_str()).collect();
    let used = crate::present::cells(&text);
    let blanks = " ".repeat(width.saturating_sub(used));
    vec![(Style::new().invert(), text + &blanks)]
}

enum Made {
    Rows(Rows),
    Text(Content),
}

impl Subject {
    /// Its title and its content.
    fn make(&self, model: &mut Model) -> Result<(String, Made)> {
        if let Subject::View(view) = self
            && view.difference(model).is_some()
        {
            return Ok((view.name().to_owned(), Made::Rows(Rows::Compared(*view))));
        }
        let flow = &mut model.overview.flow;
        let (title, made) = match self {
            Subject::View(View::CallGraph) => ("call graph", Made::Text(Content::Tree)),
            Subject::View(View::Lint) => ("lint", Made::Text(Content::Lint)),
            Subject::View(view) => (view.name(), Made::Rows(Rows::View(*view))),
            Subject::Code(at, source) => {
                let annotated = annotated(flow, *at)?;
                let name = annotated.function.name.clone();
                let marks = model.marks(&annotated);
                let options = Options { source: *source, marks, ..Options::default() };
                return Ok((name, Made::Text(Content::Code(Rc::new(annotated), options))));
            }
            Subject::Graph(at) => {
                let annotated = annotated(flow, *at)?;
                let rows = Rows::Edges(graph::edges(&annotated));
                return Ok((format!("graph of {}", annotated.function.name), Made::Rows(rows)));
            }
            Subject::Calls { into, at } => {
                let (function, into) = (function(flow, *at)?, *into);
                let title = if into { "callers of" } else { "callees of" };
                let title = format!("{title} {}", function.name);
                return Ok((title, Made::Rows(Rows::Calls { into, function })));
            }
            Subject::Targets(at) => {
                let site = flow.sites.iter().position(|site| site.location == *at);
                let site = site.context("the recording has no branch from there")?;
                ("targets", Made::Rows(Rows::TargetsOf(site)))
            }
            Subject::Cycles(entry, exit) => {
                ("cycles", Made::Text(Content::Chart(chart(model, *entry, *exit)?)))
            }
            Subject::Keys => ("keys", Made::Text(Content::Choices(list_of_keys()))),
            Subject::Filters => ("filters", Made::Text(Content::Choices(Vec::new()))),
        };
        Ok((title.to_owned(), made))
    }
}

/// The function at a place.
pub(super) fn function(flow: &mut Flow, at: Location) -> Result<Stretch> {
    let function = Stretch::at(flow, at);
    Ok(function.context("no symbol covers this code: --symfs or --debug-dir may have its file")?)
}

fn annotated(flow: &mut Flow, at: Location) -> Result<Annotated> {
    let function = function(flow, at)?;
    Ok(annotate(flow, &function, Syntax::Intel)?.at_file_addresses(Syntax::Intel))
}

/// The distribution of a block's cycles, as `lbr hist` draws it, and that in the baseline.
fn chart(model: &mut Model, entry: Location, exit: Location) -> Result<Histogram> {
    let Flow { blocks, maps, .. } = &mut model.overview.flow;
    let is = |block: &&Block| (block.entry_location, block.exit_location) == (entry, exit);
    let block = blocks.iter().find(is).context("no such block")?;
    if block.cycles.n() == 0 {
        return Err(anyhow!("the recording has no cycle counts of this block").into());
    }
    let mut name = |location, address| Place::of(maps, location, address).to_string();
    let title = format!("{} .. {}", name(entry, block.entry), name(exit, block.exit));
    let mut series = vec![Series::of(String::new(), block)];
    if let Some(baseline) = &mut model.baseline {
        let named = [entry, exit].map(|end| maps.name(end));
        let there = [entry, exit].map(|end| moved(maps, &baseline.maps, end));
        let is = |old: &&Block| {
            let ends = [old.entry_location, old.exit_location];
            old.exit.wrapping_sub(old.entry) == block.exit.wrapping_sub(block.entry)
                && match &named {
                    // Code moves from version to version.
                    [Some(_), Some(_)] => ends.map(|end| baseline.maps.name(end)) == named,
                    _ => ends.map(Some) == there,
                }
        };
        let timed = baseline.blocks.iter().filter(|old| old.cycles.n() > 0).find(is);
        if let Some(old) = timed {
            series.insert(0, Series::of("baseline".to_owned(), old));
            series[1].label = "new".to_owned();
        }
    }
    Ok(Histogram { title, series, ..Histogram::default() })
}

/// The list of keys.
fn list_of_keys() -> Vec<String> {
    let width = HELP.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    HELP.iter().map(|(key, what)| format!("{key:width$}  {what}")).collect()
}
