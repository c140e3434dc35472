//! The state of the browser, and its reactions to keys.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use profile::brstack::type_name;
use profile::maps::Location;
use profile::overview::Overview;
use profile::types::by_type;

use super::filters::{self, Chip, Filters};
use super::lines::{Content, Lines};
use super::listing::Listing;
use super::page::{Body, Page, Subject};
use super::reading::{Ask, Model, Reader, Told};
use super::views::{At, Rows, View};
use crate::commands::functions::moved;
use crate::exit::Result;
use crate::input;
use crate::present::{Place, counted, percent};
use crate::symbols;

/// The purpose of the line that is typed at the bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    Search,
    Save,
    Filter,
}

/// The state of the browser.
pub(super) struct App {
    /// The data read so far; `None` before the first samples.
    pub(super) model: Option<Model>,
    pub(super) page: Page,
    /// The pages that Backspace leads back to.
    pub(super) history: Vec<Page>,
    pub(super) prompt: Option<(Prompt, String)>,
    /// The last word searched for in text.
    pub(super) searched: String,
    pub(super) message: String,
    pub(super) reader: Reader,
    /// The share of the present reading that is done.
    pub(super) progress: Option<f64>,
    pub(super) filters: Filters,
    /// Those of the page of filters: present ones, then others.
    choices: Vec<Choice>,
    pub(super) inputs: Vec<PathBuf>,
    /// Text for the terminal's clipboard.
    pub(super) copied: Option<String>,
    /// Columns and lines of the screen.
    pub(super) size: (usize, usize),
    /// Lines of the page on the screen, and those above it.
    pub(super) room: usize,
    pub(super) head: usize,
    /// Views whose reading was asked for.
    asked: Vec<View>,
}

/// A line of the page of filters.
enum Choice {
    Remove(Chip),
    Add(String),
    Type,
}

impl App {
    pub(super) fn new(reader: Reader, filters: Filters, inputs: Vec<PathBuf>) -> App {
        let mut app = App {
            model: None,
            page: Page::of(Subject::View(View::Functions)),
            history: Vec::new(),
            prompt: None,
            searched: String::new(),
            message: String::new(),
            reader,
            progress: None,
            filters,
            choices: Vec::new(),
            inputs,
            copied: None,
            size: (80, 24),
            room: 1,
            head: 0,
            asked: Vec::new(),
        };
        app.read();
        app
    }

    fn read(&mut self) {
        self.asked.clear();
        self.reader.ask(Ask::All(Arc::clone(&self.filters.selection), self.filters.rows.clone()));
    }

    /// Takes an answer. An error without anything to show ends the command.
    pub(super) fn take(&mut self, told: Told) -> Result<()> {
        match (told, &mut self.model) {
            (Told::Progress(share), _) => self.progress = Some(share),
            (Told::Done, _) => self.progress = None,
            (Told::Failed(failure), None) => return Err(failure),
            (Told::Failed(failure), Some(_)) => self.message = format!("{:#}", failure.error),
            (Told::Model(model), _) => {
                self.model = Some(*model);
                self.outdate();
            }
            (Told::More(add), Some(model)) => {
                add(model);
                self.outdate();
            }
            (Told::More(_), None) => {}
        }
        Ok(())
    }

    /// Has all pages made again.
    fn outdate(&mut self) {
        self.history.iter_mut().for_each(|page| page.stale = true);
        self.page.stale = true;
        self.refresh();
    }

    /// Makes the page from what was read, if that has changed.
    pub(super) fn refresh(&mut self) {
        let (Some(model), true) = (&mut self.model, self.page.stale) else { return };
        let view = self.page.view().filter(|view| !self.asked.contains(view));
        if let Some((view, ask)) = view.and_then(|view| Some((view, view.needs(model)?))) {
            self.asked.push(view);
            self.reader.ask(ask);
        }
        if let Err(failure) = self.page.refresh(model, &self.filters.rows) {
            self.message = format!("{:#}", failure.error);
            self.page.stale = false;
        }
        if self.page.subject == Subject::Filters {
            self.choose();
        }
    }

    /// Goes to a page, unless there is none.
    pub(super) fn open(&mut self, subject: Subject, goal: Option<Location>) {
        let Some(model) = &mut self.model else { return };
        let mut page = Page::of(subject);
        if let Err(failure) = page.refresh(model, &self.filters.rows) {
            self.message = format!("{:#}", failure.error);
            return;
        }
        if let (Body::Text(lines), Some(goal)) = (&mut page.body, goal)
            && let Content::Code(code, _) = &lines.content
        {
            let offset = code.function.distance(goal).unwrap_or(0);
            let is = |insn: &profile::annotate::Instruction| {
                insn.address.wrapping_sub(code.function.address) >= offset
            };
            lines.goal = code.instructions.iter().position(is);
        }
        self.history.push(std::mem::replace(&mut self.page, page));
        if self.page.subject == Subject::Filters {
            self.choose();
        }
    }

    /// Opens the code at a place.
    pub(super) fn code(&mut self, at: Location) {
        self.open(Subject::Code(at, false), Some(at));
    }

    /// Goes back; `false` on the first page.
    pub(super) fn back(&mut self) -> bool {
        let Some(page) = self.history.pop() else { return false };
        self.page = page;
        self.refresh();
        true
    }

    /// Shows another view, from wherever this is.
    pub(super) fn turn(&mut self, back: bool) {
        let pages = std::iter::once(&self.page).chain(self.history.iter().rev());
        let view = pages.filter_map(Page::view).next().unwrap_or(View::Functions);
        let next = if self.page.view().is_some() { view.next(back) } else { view };
        self.history.clear();
        self.page = Page::of(Subject::View(next));
        self.refresh();
    }

    /// The code that the cursor is on.
    pub(super) fn at(&self) -> Option<At> {
        self.at_of(&self.page)
    }

    fn at_of(&self, page: &Page) -> Option<At> {
        let model = self.model.as_ref()?;
        match &page.body {
            Body::Table(listing) => listing.rows.at(model, listing.id(page.cursor)?),
            Body::Text(Lines { content, about, .. }) => {
                let about = (*about.get(page.cursor)?)?;
                match content {
                    Content::Code(code, _) => {
                        let insn = code.instructions.get(about)?;
                        Some((code.function.location(insn.address), insn.address))
                    }
                    Content::Tree => {
                        let graph = model.graph.as_ref()?;
                        let function = graph.functions.get(about)?;
                        let to = &model.overview.flow.maps;
                        let location = moved(&graph.maps, to, function.location?)?;
                        Some((location, function.addr.unwrap_or(0)))
                    }
                    _ => None,
                }
            }
        }
    }

    /// Follows what the cursor is on.
    pub(super) fn enter(&mut self) {
        let at = self.at();
        match (&self.page.body, &self.page.subject, at) {
            (_, Subject::Filters, _) => self.choice(),
            (Body::Table(_), Subject::View(View::Targets), Some((at, _))) => {
                self.open(Subject::Targets(at), None);
            }
            (Body::Text(_), Subject::Code(..), Some((at, _))) => self.follow(at),
            (_, _, Some((at, _))) => self.code(at),
            (Body::Table(Listing { rows: Rows::Compared(_), .. }), ..) => {
                self.message = "this code is only in the baseline".to_owned();
            }
            _ => {}
        }
    }

    /// Follows the branch at a place.
    fn follow(&mut self, at: Location) {
        let Some(model) = &self.model else { return };
        let site = model.overview.flow.sites.iter().find(|site| site.location == at);
        match site.map_or(&[][..], |site| site.targets.as_slice()) {
            [] => {
                let branch = self.page.code().and_then(|(code, at)| {
                    let branch = code.instructions.get(at?)?.branch.as_ref()?;
                    let target = branch.target.as_ref().and_then(|target| target.inside);
                    let target = target.and_then(|at| code.instructions.get(at));
                    Some(target.map(|insn| code.function.location(insn.address)))
                });
                let what = match branch {
                    Some(Some(to)) => return self.code(to),
                    Some(None) => "never taken in this recording: its target is unknown",
                    None => "not a branch: Enter follows branches",
                };
                self.message = what.to_owned();
            }
            [one] => self.code(one.location),
            _ => self.open(Subject::Targets(at), None),
        }
    }

    /// Draws the cycles of the block that the cursor is on.
    pub(super) fn cycles(&mut self) {
        match self.block() {
            Some((entry, exit)) => self.open(Subject::Cycles(entry, exit), None),
            None => self.message = "no block with cycle counts here".to_owned(),
        }
    }

    fn block(&self) -> Option<(Location, Location)> {
        let Some((code, at)) = self.page.code() else {
            let Body::Table(listing) = &self.page.body else { return None };
            let id = listing.id(self.page.cursor)?;
            let block = listing.rows.block(self.model.as_ref()?, id)?;
            return Some((block.entry_location, block.exit_location));
        };
        let at = at?;
        let timed = || code.blocks.iter().filter(|block| block.cycles.n() > 0);
        let through = || timed().filter(|block| block.first.unwrap_or(0) <= at && at <= block.last);
        let ending = timed().filter(|block| block.last == at);
        let most = ending.max_by_key(|block| block.cycles.n());
        let block = most.or_else(|| through().max_by_key(|block| block.cycles.n()))?;
        Some((code.function.location(block.entry), code.function.location(block.exit)))
    }

    /// Opens a page about the function that the cursor is in.
    pub(super) fn about(&mut self, subject: impl FnOnce(Location) -> Subject) {
        match self.at() {
            Some((at, _)) => self.open(subject(at), None),
            None => self.message = "no function here".to_owned(),
        }
    }

    /// Copies the symbol or the address that the cursor is on.
    pub(super) fn copy(&mut self) {
        let Some((at, address)) = self.at() else {
            self.message = "no address here".to_owned();
            return;
        };
        let Some(model) = &mut self.model else { return };
        let place = Place::of(&mut model.overview.flow.maps, at, address);
        let text = match (place.symbol, place.address) {
            (Some(symbol), _) if self.page.subject == Subject::View(View::Functions) => symbol.name,
            (Some(symbol), _) => format!("{}+{:#x}", symbol.name, symbol.offset),
            (None, address) => format!("{:#x}", address.unwrap_or_default()),
        };
        self.message = format!("copied {text}");
        self.copied = Some(text);
    }

    /// What is selected, searched and sorted, in words.
    pub(super) fn chips(&self) -> Vec<String> {
        let chips = self.filters.chips().into_iter();
        let mut chips: Vec<String> = chips.map(|(name, value)| format!("{name}={value}")).collect();
        if let Some(share) = self.model.as_ref().and_then(|model| model.share) {
            chips.insert(0, format!("the first {} so far", percent(share)));
        }
        let is_compared = |model: &Model| model.compared.iter().all(Option::is_some);
        if let Some(baseline) = &self.reader.baseline
            && !self.model.as_ref().is_some_and(is_compared)
        {
            let is_open = self.reader.open > 0;
            let what = if is_open { "comparing with" } else { "not compared with" };
            chips.insert(0, format!("{what} {baseline}"));
        }
        if let Body::Table(listing) = &self.page.body {
            if listing.own {
                chips.push("the program's own files".to_owned());
            }
            if !listing.search.is_empty() {
                chips.push(format!("/{}", listing.search));
            }
            if let Some(sorted) = &listing.sorted {
                chips.push(sorted.clone());
            }
        }
        chips
    }

    /// The lines of the page of filters.
    fn choose(&mut self) {
        let (mut choices, mut lines) = (Vec::new(), Vec::new());
        let mut add = |line: String, choice: Choice| {
            lines.push(line);
            choices.push(choice);
        };
        let before = self.history.last();
        let own = before.is_some_and(|page| matches!(&page.body, Body::Table(of) if of.own));
        let at = before.and_then(|page| self.at_of(page));
        for chip in self.filters.chips() {
            add(format!("take off {}={}", chip.0, chip.1), Choice::Remove(chip));
        }
        if own {
            let all = Choice::Add("dso=all".to_owned());
            add("take off the program's own files: show all".to_owned(), all);
        }
        if let (Some((at, address)), Some(model)) = (at, &mut self.model) {
            let place = Place::of(&mut model.overview.flow.maps, at, address);
            let typed = [
                place.file.map(|file| format!("dso={file}")),
                place.symbol.map(|symbol| format!("symbol={}", symbol.name)),
            ];
            for typed in typed.into_iter().flatten() {
                add(format!("only {typed}"), Choice::Add(typed));
            }
        }
        if let Some(model) = &self.model {
            let events = model.sources.iter().flat_map(|source| &source.names.events);
            for (typed, samples) in filters::tasks(&model.overview.tasks) {
                let samples = counted(samples, "sample", "samples");
                add(format!("only {typed}: {samples}"), Choice::Add(typed));
            }
            for typed in events.map(|name| format!("event={name}")) {
                add(format!("only {typed}"), Choice::Add(typed));
            }
        }
        if let Some(Model { overview: Overview { branches, flow, .. }, .. }) = &mut self.model {
            for of in by_type(branches, &mut flow.maps) {
                let Some(branch_type) = of.branch_type else { continue };
                let typed = format!("type={}", type_name(branch_type));
                let count = counted(of.count, "branch", "branches");
                add(format!("only {typed}: {count}"), Choice::Add(typed));
            }
        }
        add("another: NAME=VALUE".to_owned(), Choice::Type);
        self.choices = choices;
        let mut page = Page::of(Subject::Filters);
        page.title = "filters".to_owned();
        page.stale = false;
        page.cursor = self.page.cursor;
        page.body = Body::Text(Lines::of(Content::Choices(lines)));
        self.page = page;
    }

    fn choice(&mut self) {
        let before = self.filters.clone();
        let done = match self.choices.get(self.page.cursor) {
            Some(Choice::Remove(chip)) => {
                self.filters.remove(chip);
                Ok(())
            }
            Some(Choice::Add(typed)) => self.filters.add(typed),
            Some(Choice::Type) => {
                self.prompt = Some((Prompt::Filter, String::new()));
                return;
            }
            None => Err(anyhow!("no filter there")),
        };
        self.filtered(before, done);
    }

    /// Adds a filter that was typed.
    pub(super) fn filter(&mut self, typed: &str) {
        let (before, done) = (self.filters.clone(), self.filters.add(typed));
        self.filtered(before, done);
    }

    /// Reads again if other samples are selected, and shows the page that was filtered.
    fn filtered(&mut self, before: Filters, done: anyhow::Result<()>) {
        if let Err(error) = done {
            self.message = format!("{error:#}");
            return;
        }
        if self.page.subject == Subject::Filters {
            self.back();
        }
        if let Some(model) = &mut self.model
            && let Err(failure) =
                Page::of(self.page.subject.clone()).refresh(model, &self.filters.rows)
        {
            self.message = format!("{:#}", failure.error);
            self.filters = before;
            return;
        }
        let is_same = self.filters.selection == before.selection;
        if is_same && self.reader.baseline.is_none() {
            self.outdate();
        } else {
            self.read();
        }
    }

    /// Says on standard error what `lbr report` says at its end.
    pub(super) fn warn(&self) {
        let Some(model) = &self.model else { return };
        model.sources.iter().filter(|source| !source.notes.stopped).for_each(input::warn);
        symbols::warn(&[&model.overview.flow.maps]);
    }
}
