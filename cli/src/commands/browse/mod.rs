//! `lbr browse`: walks through a recording on the terminal.

mod app;
mod draw;
mod filters;
mod keys;
mod lines;
mod listing;
mod page;
mod reading;
mod save;
mod views;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ratatui_crossterm::crossterm::event::KeyEvent;

use self::app::App;
use self::filters::Filters;
use self::reading::Reader;
use crate::exit::{DONE, Result, usage};
use crate::input::{self, Inputs};
use crate::present::terminal::{self, Input, Terminal, is_drawable};
use crate::select::{RowArgs, SelectArgs};
use crate::symbols::SymbolArgs;

/// How long a signal may go unnoticed; and new data, while a recording is read.
const LOOK: Duration = Duration::from_millis(100);
const BUSY: Duration = Duration::from_millis(20);
/// How long an error may take that is printed without the browser.
const FIRST: Duration = Duration::from_millis(150);

/// Walk through a recording on the terminal
///
/// Examples:
///   lbr browse                       perf.data, from its functions on
///   lbr browse -i other.data         another recording
///   lbr browse --comm cc1            only samples of threads with this name
///   lbr browse old.data perf.data    what changed, in the same places
///
/// Opens on functions. Enter opens a function's code and follows branches,
/// Backspace goes back, Tab turns to other views: branches, mispredicts,
/// outcomes, targets, blocks, loops, paths, call graph, lint. ? lists all keys.
/// The numbers are those of lbr report, annotate and hist. With two recordings,
/// functions, branches and loops show what lbr diff prints, and code is marked
/// where it changed; the rest is of the second one. -i A -i B counts both together.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Browse {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    rows: RowArgs,
    #[command(flatten)]
    symbols: SymbolArgs,
}

impl Browse {
    /// The recordings to compare with, if there are any, and those that are browsed.
    fn sides(&self) -> (&[PathBuf], &[PathBuf]) {
        match self.inputs.files[..] {
            [_, _] => self.inputs.paths().split_at(1),
            _ => (&[], self.inputs.paths()),
        }
    }
}

pub(crate) fn run(args: &Browse) -> Result {
    let (baseline, paths) = args.sides();
    let both = || baseline.iter().chain(paths);
    let free = !both().any(|path| path == Path::new("-"));
    if !is_drawable(free) {
        return Err(usage!("lbr browse needs a terminal; `lbr report` prints the same tables"));
    }
    both().filter(|path| *path != Path::new("-")).try_for_each(|path| {
        // A file that cannot be opened is reported before the screen is taken.
        input::open_whole(path, args.select.force).map(drop)
    })?;
    let mut app = app(args)?;
    while let (None, Some(told)) = (&app.model, app.reader.wait(FIRST)) {
        app.take(told)?;
    }
    play(&mut app)?;
    app.warn();
    Ok(DONE)
}

/// The browser, reading.
fn app(args: &Browse) -> std::io::Result<App> {
    let (baseline, paths) = args.sides();
    let reading = args.select.reading(&args.symbols);
    let reader = Reader::start(paths.to_vec(), baseline.to_vec(), reading)?;
    let inputs = paths.iter().chain(baseline).chain(args.symbols.files()).cloned().collect();
    Ok(App::new(reader, Filters::of(&args.select, &args.rows), inputs))
}

/// Shows it until its user has enough, or nothing can be read.
fn play(app: &mut App) -> Result<()> {
    let mut terminal = Terminal::take(true)?;
    let mut ended = Ok(());
    loop {
        terminal.show(&draw::draw(app, terminal.size()))?;
        if let Some(text) = app.copied.take() {
            terminal.copy(&text)?;
        }
        let input = terminal.wait(if app.reader.open > 0 { BUSY } else { LOOK })?;
        while let (true, Some(told)) = (ended.is_ok(), app.reader.wait(Duration::ZERO)) {
            ended = app.take(told);
        }
        if ended.is_err() || !keys::input(app, input) {
            break;
        }
    }
    terminal.end();
    ended
}

/// The browser without a terminal, for tests.
pub struct Browser(App);

impl Browser {
    /// Opens recordings, as `lbr browse` does with these arguments, and reads them to the end.
    ///
    /// # Errors
    /// The sentence that `lbr` would print.
    pub fn open(args: &[&str]) -> Result<Browser, String> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            browse: Browse,
        }
        let words = std::iter::once("browse").chain(args.iter().copied());
        let line: Line = clap::Parser::try_parse_from(words).map_err(|error| error.to_string())?;
        let mut browser = Browser(app(&line.browse).map_err(|error| error.to_string())?);
        browser.read()?;
        let size = browser.0.size;
        draw::draw(&mut browser.0, size);
        Ok(browser)
    }

    /// Waits until what was asked for is read.
    fn read(&mut self) -> Result<(), String> {
        while self.0.reader.open > 0 {
            let Some(told) = self.0.reader.wait(Duration::MAX) else { break };
            self.0.take(told).map_err(|failure| format!("{:#}", failure.error))?;
        }
        Ok(())
    }

    /// Presses a key; `false` if that ends the browser.
    ///
    /// # Errors
    /// The sentence with which it ends.
    pub fn press(&mut self, key: KeyEvent) -> Result<bool, String> {
        let goes_on = keys::input(&mut self.0, Input::Key(terminal::key_of(key)));
        self.read()?;
        let size = self.0.size;
        draw::draw(&mut self.0, size);
        Ok(goes_on)
    }

    /// Clicks on a line.
    pub fn click(&mut self, line: usize) {
        keys::input(&mut self.0, Input::Click(line));
    }

    /// The screen of a terminal with these columns and lines, drawn by `ratatui`.
    pub fn screen(&mut self, width: u16, height: u16) -> Vec<String> {
        use ratatui_core::{backend::TestBackend, terminal::Terminal};
        let rows = draw::draw(&mut self.0, (usize::from(width), usize::from(height)));
        let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
        let Ok(_) = terminal.draw(|frame| terminal::paint(&rows, frame.buffer_mut(), true));
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }
}

impl std::fmt::Debug for Browser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Browser").field(&self.0.page.title).finish()
    }
}
