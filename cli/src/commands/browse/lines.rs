//! Lines of text, made again for each width.

use std::io;
use std::rc::Rc;

use profile::annotate::Annotated;
use profile::overview::Overview;

use super::reading::Model;
use crate::commands::annotate::text;
use crate::commands::{lint, report::callgraph};
use crate::present::chart::{Histogram, Terminal};
use crate::present::{Out, Row, without_middle};

/// The source of a page's lines.
#[derive(Default)]
pub(super) enum Content {
    #[default]
    Lint,
    /// The call graph as a tree.
    Tree,
    /// A function, with source lines and marks.
    Code(Rc<Annotated>, text::Options),
    Chart(Histogram),
    /// Lines to choose from.
    Choices(Vec<String>),
}

/// Lines of text.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) content: Content,
    /// A line that stays.
    pub(super) head: Option<Row>,
    pub(super) rows: Vec<Row>,
    /// For each line, the index of its instruction, function or choice.
    pub(super) about: Vec<Option<usize>>,
    /// The width that they were laid out for.
    made: Option<usize>,
    /// The index that the cursor moves to.
    pub(super) goal: Option<usize>,
}

impl Lines {
    pub(super) fn of(content: Content) -> Lines {
        Lines { content, ..Lines::default() }
    }

    /// Has the lines made again.
    pub(super) fn remake(&mut self, cursor: usize) {
        self.goal = self.goal.or_else(|| self.about.get(cursor).copied().flatten());
        self.made = None;
    }

    pub(super) fn make(
        &mut self,
        model: &mut Model,
        width: usize,
        cursor: &mut usize,
    ) -> io::Result<()> {
        if self.made != Some(width) {
            self.remake(*cursor);
            self.rows.clear();
            let mut out = Out::rows(width, &mut self.rows);
            let about = write(&self.content, model, &mut out, width)?;
            drop(out);
            self.head = matches!(self.content, Content::Code(..)).then(|| self.rows.remove(0));
            self.about = about;
            self.about.resize(self.rows.len(), None);
            self.made = Some(width);
        }
        if let Some(goal) = self.goal.take() {
            *cursor = self.about.iter().position(|it| *it == Some(goal)).unwrap_or(*cursor);
        }
        Ok(())
    }
}

/// Writes lines as the commands do.
pub(super) fn write(
    content: &Content,
    model: &mut Model,
    out: &mut Out<'_>,
    width: usize,
) -> io::Result<Vec<Option<usize>>> {
    let mut about = Vec::new();
    match content {
        Content::Code(annotated, options) => return text::code(out, annotated, options),
        Content::Chart(chart) => {
            let unicode = Terminal::of_stdout().unicode;
            io::Write::write_all(out, chart.text(Terminal { width, unicode }).as_bytes())?;
        }
        Content::Choices(choices) => {
            for (at, choice) in choices.iter().enumerate() {
                about.push(Some(at));
                out.line(without_middle(choice, width))?;
            }
        }
        Content::Tree => match &model.graph {
            None => out.line("The call graph is still being read.")?,
            Some(graph) if graph.total() == 0 => out.line(callgraph::NO_CALLS)?,
            Some(graph) => {
                let leads = vec![true; graph.nodes.len()];
                let least = callgraph::LEAST / 100.0;
                callgraph::tree(graph, &leads, least, Some(width), &mut |line, function| {
                    about.push(Some(function));
                    out.line(line)
                })?;
            }
        },
        Content::Lint => {
            let Overview { judged, .. } = &model.overview;
            for (judged, source) in judged.iter().zip(&model.sources) {
                let verdict = format!("{}: {}", source.name, judged.verdict.name());
                out.styled(lint::look(judged.verdict), verdict)?;
                if judged.findings.is_empty() {
                    out.line("no problems found")?;
                }
                for finding in &judged.findings {
                    lint::print(out, finding)?;
                }
                out.gap()?;
            }
        }
    }
    Ok(about)
}
