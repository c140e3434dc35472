//! The action of each key.

use profile::annotate::Annotated;

use super::app::{App, Prompt};
use super::lines::Lines;
use super::page::{Body, Subject};
use super::save::save;
use super::views::View;
use crate::present::terminal::{Input, Key, control};

/// Rows that a turn of the wheel moves.
const WHEEL: isize = 3;
/// Letters typed at most.
const TYPED: usize = 200;

/// Does what is asked for; `false` at the end.
pub(super) fn input(app: &mut App, input: Input) -> bool {
    match input {
        Input::Key(Key::Char(control::C)) | Input::End => return false,
        Input::Key(key) if app.prompt.is_some() => typed(app, key),
        Input::Key(key) => {
            app.message.clear();
            return press(app, key);
        }
        Input::Wheel(by) => app.page.move_by(by * WHEEL),
        Input::Click(line) => click(app, line),
        Input::Redraw | Input::Nothing => {}
    }
    true
}

/// Selects a line, and opens the one that is selected.
fn click(app: &mut App, line: usize) {
    let heads = usize::from(!matches!(app.page.body, Body::Text(Lines { head: None, .. })));
    let Some(line) = line.checked_sub(app.head + heads) else { return };
    let at = app.page.top + line;
    if at >= app.page.len() || line + heads >= app.room {
        return;
    }
    if at == app.page.cursor { app.enter() } else { app.page.cursor = at }
}

fn press(app: &mut App, key: Key) -> bool {
    let room = app.room.saturating_sub(2).max(1).cast_signed();
    // The graph of a function is one key away.
    let has_graph = matches!(app.page.subject, Subject::Code(..) | Subject::View(View::Functions));
    match key {
        Key::Char('j') | Key::Down => app.page.move_by(1),
        Key::Char('k') | Key::Up => app.page.move_by(-1),
        Key::Char(control::D) => app.page.move_by(room / 2),
        Key::Char(control::U) => app.page.move_by(-room / 2),
        Key::Char(' ' | control::F) | Key::PageDown => app.page.move_by(room),
        Key::Char('b' | control::B) | Key::PageUp => app.page.move_by(-room),
        Key::Char('g') if has_graph => app.about(Subject::Graph),
        Key::Home | Key::Char('g') => app.page.cursor = 0,
        Key::End | Key::Char('G') => app.page.move_by(isize::MAX),
        Key::Enter | Key::Right | Key::Char('l' | 'a') => app.enter(),
        Key::Char('q') => return app.back(),
        Key::Esc if unsearch(app) => {}
        Key::Backspace | Key::Left | Key::Char('h') | Key::Esc => drop(app.back()),
        Key::Tab => app.turn(false),
        Key::BackTab => app.turn(true),
        Key::Char('c') => app.cycles(),
        Key::Char('p') => app.about(|at| Subject::Calls { into: true, at }),
        Key::Char('n') => app.about(|at| Subject::Calls { into: false, at }),
        Key::Char('s') => source(app),
        Key::Char('/') => {
            let before = match &app.page.body {
                Body::Table(listing) => listing.search.clone(),
                Body::Text(_) => String::new(),
            };
            app.prompt = Some((Prompt::Search, before));
        }
        Key::Char('<') => sort(app, |column| column.map_or(0, |column| column.saturating_sub(1))),
        Key::Char('>') => sort(app, |column| column.map_or(0, |column| column + 1)),
        Key::Char(digit @ '1'..='9') => sort(app, |_| digit as usize - '1' as usize),
        Key::Char('f') if app.page.subject != Subject::Filters => app.open(Subject::Filters, None),
        Key::Char('w') => app.prompt = Some((Prompt::Save, String::new())),
        Key::Char('y') => app.copy(),
        Key::Char('?') if app.page.subject != Subject::Keys => app.open(Subject::Keys, None),
        _ => {}
    }
    true
}

/// Takes a search off.
fn unsearch(app: &mut App) -> bool {
    let Body::Table(listing) = &mut app.page.body else { return false };
    let is_searched = !listing.search.is_empty();
    if let Some(model) = app.model.as_mut().filter(|_| is_searched) {
        listing.search(model, "");
    }
    is_searched
}

fn sort(app: &mut App, column: impl FnOnce(Option<usize>) -> usize) {
    let (Body::Table(listing), Some(model)) = (&mut app.page.body, &mut app.model) else { return };
    listing.sort_by(model, column(listing.sort.map(|(column, _)| column)));
}

/// Shows source lines, or hides them.
fn source(app: &mut App) {
    let Subject::Code(_, source) = &mut app.page.subject else {
        app.message = "source lines are shown between instructions: Enter opens them".to_owned();
        return;
    };
    *source = !*source;
    let is_shown = *source;
    let has_source = |code: &Annotated| code.instructions.iter().any(|insn| insn.source.is_some());
    if is_shown && app.page.code().is_some_and(|(code, _)| !has_source(code)) {
        app.message = "no source lines: the file was built without them (-g)".to_owned();
    }
    app.page.stale = true;
    app.refresh();
}

/// A key while something is typed.
fn typed(app: &mut App, key: Key) {
    let Some((prompt, typed)) = &mut app.prompt else { return };
    let prompt = *prompt;
    match key {
        Key::Char(control::U) => typed.clear(),
        Key::Char(c) if typed.len() < TYPED && !c.is_control() => typed.push(c),
        Key::Backspace if typed.is_empty() => app.prompt = None,
        Key::Backspace => drop(typed.pop()),
        Key::Esc => {
            app.prompt = None;
            if prompt == Prompt::Search {
                unsearch(app);
            }
            return;
        }
        Key::Enter => {
            let typed = std::mem::take(typed);
            app.prompt = None;
            match prompt {
                Prompt::Search => find(app, &typed),
                Prompt::Save => match save(app, &typed) {
                    Ok(()) => app.message = format!("written to {typed}"),
                    Err(failure) => app.message = format!("{:#}", failure.error),
                },
                Prompt::Filter => app.filter(&typed),
            }
            return;
        }
        Key::Down | Key::Up => app.page.move_by(if key == Key::Down { 1 } else { -1 }),
        _ => {}
    }
    // Rows narrow while letters are typed.
    let search = match &app.prompt {
        Some((Prompt::Search, typed)) => typed.clone(),
        None if prompt == Prompt::Search => String::new(),
        _ => return,
    };
    if let (Body::Table(listing), Some(model)) = (&mut app.page.body, &mut app.model)
        && listing.search != search
    {
        listing.search(model, &search);
        app.page.cursor = 0;
    }
}

/// In text, goes to the next line with a word; the last word if there is none.
fn find(app: &mut App, typed: &str) {
    let Body::Text(lines) = &app.page.body else { return };
    if !typed.is_empty() {
        app.searched = typed.to_lowercase();
    }
    let count = lines.rows.len();
    let from = app.page.cursor + 1;
    let has = |at: &usize| {
        let row = lines.rows.get(*at).map(Vec::as_slice).unwrap_or_default();
        let text: String = row.iter().map(|(_, text)| text.as_str()).collect();
        text.to_lowercase().contains(&app.searched)
    };
    match (from..count).chain(0..from.min(count)).find(has) {
        Some(at) => app.page.cursor = at,
        None => app.message = format!("not found: {}", app.searched),
    }
}
