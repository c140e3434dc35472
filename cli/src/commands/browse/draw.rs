//! The screen: what is browsed, the page, and the keys.

use anstyle::{AnsiColor, Style};

use super::app::{App, Prompt};
use super::page::Body;
use super::views::View;
use crate::commands::annotate;
use crate::head::{self, Notes, Totals, share_trust};
use crate::present::{FAINT, Row, cells, escaped, joined, percent, without_middle};

const BOLD: Style = Style::new().bold();
const HERE: Style = Style::new().bold().invert();

/// The screen, no line wider and not more lines than it has.
pub(super) fn draw(app: &mut App, size: (usize, usize)) -> Vec<Row> {
    let (width, height) = size;
    app.size = size;
    let mut rows = head(app, width);
    let foot = foot(app, width);
    let room = height.saturating_sub(rows.len() + 1).max(2);
    app.room = room;
    app.head = rows.len();
    let App { model, page, .. } = app;
    match model {
        None => rows.push(vec![(FAINT, "Reading …".to_owned())]),
        Some(model) => match page.draw(model, width, room) {
            Ok(drawn) if page.len() == 0 => {
                rows.extend(drawn);
                rows.push(vec![(FAINT, page.nothing(model).to_owned())]);
            }
            Ok(drawn) => rows.extend(drawn),
            Err(error) => rows.push(vec![(BOLD, escaped(&error.to_string()).into_owned())]),
        },
    }
    rows.resize(height.saturating_sub(1), Row::new());
    rows.push(foot);
    rows.truncate(height);
    rows
}

/// The line of views, and at most two on what was recorded.
fn head(app: &App, width: usize) -> Vec<Row> {
    let mut rows = vec![title(app, width)];
    let compared = app.page.view().zip(app.model.as_ref());
    let compared = compared.and_then(|(view, model)| view.difference(model));
    let lines = match (&app.model, compared, app.page.code()) {
        (None, ..) => Vec::new(),
        (_, Some((compared, _)), _) => {
            std::iter::once(compared.verdict(None)).chain(compared.origins()).collect()
        }
        (Some(model), _, Some((annotated, _))) => {
            let origin = annotate::head(&model.overview.flow, Some(annotated), &model.sources);
            vec![origin.into_iter().next().unwrap_or_default(), annotate::title(annotated)]
        }
        (Some(model), ..) => {
            let flow = &model.overview.flow;
            let trust = share_trust(&flow.quality, std::iter::empty());
            let trust = trust.filter(|_| flow.is_complete() && model.share.is_none());
            let notes = Notes { trust, ..Notes::default() };
            let totals = Totals::from(flow);
            let mut lines = head::lines(&model.sources, &flow.quality, &totals, notes, false);
            lines.truncate(2);
            lines
        }
    };
    rows.extend(lines.iter().map(|line| vec![(Style::new(), clipped(line, width))]));
    let chips = app.chips();
    if !chips.is_empty() {
        let chips = joined(chips.iter().map(|chip| format!("[{chip}]")), " ");
        rows.push(vec![(AnsiColor::Cyan.on_default(), clipped(&chips, width))]);
    }
    rows
}

/// The views with the current one marked, or the way to the page.
fn title(app: &App, width: usize) -> Row {
    let Some(view) = app.page.view() else {
        let way = app.history.iter().chain([&app.page]).map(|page| &page.title);
        return vec![(BOLD, last(&joined(way, " > "), width))];
    };
    // If not all fit, those around the current one.
    let at = view as usize;
    let wide = |views: &[(View, &str)]| views.iter().map(|view| view.1.len() + 2).sum::<usize>();
    let mut shown = 0..View::ALL.len();
    while wide(&View::ALL[shown.clone()]) > width && shown.len() > 1 {
        if at - shown.start > shown.end - 1 - at { shown.start += 1 } else { shown.end -= 1 }
    }
    let word = |(other, name): &(View, &str)| {
        (if *other == view { HERE } else { FAINT }, format!(" {name} "))
    };
    View::ALL[shown].iter().map(word).collect()
}

/// The prompt, a message, or the keys.
fn foot(app: &App, width: usize) -> Row {
    let reading = match (app.reader.open, app.progress) {
        (0, _) => String::new(),
        (_, Some(done)) => format!("reading {} ", percent(done)),
        _ => "reading ".to_owned(),
    };
    let text = match (&app.prompt, app.message.is_empty()) {
        (Some((prompt, typed)), _) => {
            let what = match prompt {
                Prompt::Search => "/",
                Prompt::Save => "write to: ",
                Prompt::Filter => "filter (comm= pid= tid= event= dso= symbol= type=): ",
            };
            return vec![(BOLD, last(&format!("{what}{typed}_"), width))];
        }
        (None, false) => escaped(&app.message).into_owned(),
        (None, true) => keys(app).to_owned(),
    };
    let text = clipped(&text, width.saturating_sub(cells(&reading)));
    vec![(AnsiColor::Yellow.on_default(), reading), (FAINT, text)]
}

/// The keys that matter here.
fn keys(app: &App) -> &'static str {
    match &app.page.body {
        _ if app.page.code().is_some() => {
            "Enter follow  c cycles  g graph  p callers  n callees  s source  q back  ? keys"
        }
        Body::Text(_) => "w write  q back  ? keys",
        Body::Table(_) => {
            "Enter code  Tab view  / search  > sort  f filter  w write  q back  ? keys"
        }
    }
}

fn clipped(text: &str, width: usize) -> String {
    without_middle(&escaped(text), width)
}

/// The end of a text.
fn last(text: &str, width: usize) -> String {
    let text = escaped(text);
    let mut start = text.char_indices().map(|(at, _)| &text[at..]);
    start.find(|rest| cells(rest) <= width).unwrap_or_default().to_owned()
}
