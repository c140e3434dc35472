//! Text on standard output and standard error: width, colors, and escaping. No line contains
//! control characters, and none is wider than the terminal.

use std::fmt::{Display, Write as _};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::escape::escaped;
use super::pager;

/// A check that passed.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// A warning.
pub(crate) const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
/// An error.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// Secondary text.
pub(crate) const FAINT: Style = Style::new().dimmed();

/// Indent of continuation lines, cells.
const INDENT: usize = 4;
/// Default width.
const USUAL: usize = 80;
/// Minimum width of a folded line.
const LEAST: usize = 40;

/// `--wide`: lines are not cut to the terminal. Set once, from the command line.
static WIDE: OnceLock<bool> = OnceLock::new();

/// Applies `--color`, `--wide` and `--no-pager`.
pub(crate) fn set(color: ColorChoice, wide: bool, no_pager: bool) {
    color.write_global();
    if no_pager {
        pager::unwanted();
    }
    // Set once, by `main`.
    let _ = WIDE.set(wide);
}

/// A line, in pieces of one style.
pub(crate) type Row = Vec<(Style, String)>;

/// Adds text to a line.
pub(crate) fn add(row: &mut Row, style: Style, text: &str) {
    match row.last_mut() {
        Some((last, words)) if *last == style => words.push_str(text),
        _ if text.is_empty() => {}
        _ => row.push((style, text.to_owned())),
    }
}

enum To<'a> {
    Text(BufWriter<Box<dyn Write + 'a>>),
    /// Lines for a screen.
    Rows(&'a mut Vec<Row>),
}

/// Text on its way to a terminal, a pipe, a file or a screen.
pub(crate) struct Out<'a> {
    to: To<'a>,
    /// Width of a line in cells; `None` if unlimited.
    pub(crate) width: Option<usize>,
    /// Styles are shown.
    color: bool,
    /// Predictions and cycles are modelled: CSV, which has no head, marks each row.
    pub(crate) modelled: bool,
}

impl<'a> Out<'a> {
    /// Standard output, or a pager before it.
    pub(crate) fn stdout() -> Out<'static> {
        Out::as_wide_as_stdout(Box::new(pager::stdout()))
    }

    /// Standard output, without a pager.
    pub(crate) fn unpaged() -> Out<'static> {
        Out::as_wide_as_stdout(Box::new(io::stdout()))
    }

    fn as_wide_as_stdout(to: Box<dyn Write>) -> Out<'static> {
        let stdout = io::stdout();
        let width = width_of(&stdout);
        let color = AutoStream::choice(&stdout) != ColorChoice::Never;
        let to = To::Text(BufWriter::with_capacity(64 * 1024, to));
        Out { to, width, color, modelled: false }
    }

    /// A file or a text in memory: as wide as its lines are.
    pub(crate) fn plain(to: impl Write + 'a) -> Out<'a> {
        let to = To::Text(BufWriter::new(Box::new(to)));
        Out { to, width: None, color: false, modelled: false }
    }

    /// A screen, of which these are the lines.
    pub(crate) fn rows(width: usize, rows: &'a mut Vec<Row>) -> Out<'a> {
        Out { to: To::Rows(rows), width: Some(width), color: true, modelled: false }
    }

    /// Writes a line, folded between words on a terminal.
    pub(crate) fn line(&mut self, text: impl Display) -> io::Result<()> {
        self.styled(Style::new(), text)
    }

    /// Writes several lines.
    pub(crate) fn lines(&mut self, texts: &[String]) -> io::Result<()> {
        texts.iter().try_for_each(|text| self.line(text))
    }

    /// As [`line`](Self::line), styled.
    pub(crate) fn styled(&mut self, style: Style, text: impl Display) -> io::Result<()> {
        let text = text.to_string();
        let indent = INDENT + text.len() - text.trim_start_matches(' ').len();
        let lines = folded(&escaped(&text), self.width, indent.min(LEAST / 2));
        lines.into_iter().try_for_each(|line| self.row(vec![(style, line)]))
    }

    /// Writes a line as it is, but for spaces at its end.
    pub(crate) fn row(&mut self, mut row: Row) -> io::Result<()> {
        while let Some((_, text)) = row.last_mut() {
            text.truncate(text.trim_end_matches(' ').len());
            if !text.is_empty() {
                break;
            }
            row.pop();
        }
        let to = match &mut self.to {
            To::Rows(rows) => {
                rows.push(row);
                return Ok(());
            }
            To::Text(to) => to,
        };
        for (style, text) in &row {
            match style.is_plain() || !self.color {
                true => to.write_all(text.as_bytes())?,
                false => write!(to, "{style}{text}{style:#}")?,
            }
        }
        to.write_all(b"\n")
    }

    /// An empty line.
    pub(crate) fn gap(&mut self) -> io::Result<()> {
        self.row(Row::new())
    }
}

/// Bytes as they are, such as JSON and what was laid out already; for a screen, whole lines.
impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.to {
            To::Text(to) => to.write(bytes),
            To::Rows(rows) => {
                let text = String::from_utf8_lossy(bytes);
                rows.extend(text.lines().map(|line| vec![(Style::new(), line.to_owned())]));
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            To::Text(to) => to.flush(),
            To::Rows(_) => Ok(()),
        }
    }
}

/// Width at which lines are folded: a terminal's, unless `--wide`.
fn width_of(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    if !stream.is_terminal() || WIDE.get().copied().unwrap_or(false) {
        return None;
    }
    Some(columns(stream).unwrap_or(USUAL).max(LEAST))
}

/// Columns of a terminal, or those that the environment sets.
pub(crate) fn columns(stream: &impl AsFd) -> Option<usize> {
    let size = terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0));
    size.or_else(|| std::env::var("COLUMNS").ok()?.parse().ok())
}

/// Prints a message on standard error. Failures are ignored: a full or closed standard error must
/// not end a recording.
pub(crate) fn tell(text: impl Display) {
    message(Style::new().bold(), &text.to_string(), "");
}

/// Prints on standard error why the command failed, and a list that belongs to it.
pub(crate) fn fail(text: &str, list: &str) {
    message(BAD, text, list);
}

fn message(style: Style, text: &str, list: &str) {
    let stderr = io::stderr();
    let color = AutoStream::choice(&stderr) != ColorChoice::Never;
    let style = if color { style } else { Style::new() };
    let text = format!("lbr: {}", without_numbers(text));
    let mut message = String::new();
    for (at, line) in folded(&escaped(&text), width_of(&stderr), INDENT).iter().enumerate() {
        let rest = line.strip_prefix("lbr:").filter(|_| at == 0);
        // Writing to a String cannot fail.
        let _ = match rest {
            Some(rest) => writeln!(message, "{style}lbr:{style:#}{rest}"),
            None => writeln!(message, "{line}"),
        };
    }
    for line in list.lines() {
        message += &escaped(line);
        message.push('\n');
    }
    let Some(message) = pager::hold(message) else { return };
    let _ = stderr.lock().write_all(message.as_bytes());
}

/// A message without the numbers that Rust adds to the system's errors: `(os error 2)`.
fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, after)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                plain += after;
            }
            _ => plain = format!("{plain} (os error {part}"),
        }
    }
    plain
}

/// Prints a message on standard error; takes the arguments of `format!`.
macro_rules! say {
    ($($text:tt)*) => { $crate::present::tell(format_args!($($text)*)) };
}
pub(crate) use say;

/// Cells that a text takes.
pub(crate) fn cells(text: &str) -> usize {
    if super::escape::is_plain(text) { text.len() } else { text.width() }
}

/// Cells that a character takes.
pub(crate) fn cells_of(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Folds a text into lines of `width` cells, between words, or within a word that is longer than a
/// line; all but the first are indented.
pub(crate) fn folded(text: &str, width: Option<usize>, indent: usize) -> Vec<String> {
    let Some(width) = width.filter(|width| cells(text) > *width) else {
        return vec![text.replace('\u{a0}', " ")];
    };
    let (mut lines, mut line, mut used) = (Vec::new(), String::new(), 0);
    for word in text.split_inclusive(' ') {
        let bare = cells(word.trim_end_matches(' '));
        if used + bare > width && used > indent && bare <= width - indent {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            used = indent;
        }
        for c in word.chars() {
            if used + cells_of(c) > width {
                lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
                used = indent;
                if c == ' ' {
                    continue;
                }
            }
            line.push(c);
            used += cells_of(c);
        }
    }
    lines.push(line);
    lines.iter().map(|line| line.replace('\u{a0}', " ").trim_end().to_owned()).collect()
}

#[cfg(test)]
#[path = "../../../tests/cli/unit/present/out.rs"]
mod tests;
