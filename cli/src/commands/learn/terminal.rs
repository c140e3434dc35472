//! The terminal of the course: set up, and restored however the course ends.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use anstyle::Style;
use anyhow::bail;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use termion::event::Key;
use termion::input::TermRead;
use termion::raw::{IntoRawMode, RawTerminal};
use termion::screen::{AlternateScreen, IntoAlternateScreen};
use termion::{clear, cursor};

use crate::present::out::say;

/// How soon a new size and a signal are noticed.
const LOOK: Duration = Duration::from_millis(100);
/// Default size of a terminal.
const USUAL: (u16, u16) = (80, 24);

/// A line of the screen, in pieces of one style.
pub(super) type Row = Vec<(Style, String)>;

/// Checks that standard input and output are a terminal.
pub(super) fn check() -> anyhow::Result<()> {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if dumb || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        bail!(
            "the course is drawn on a terminal, and this is none; `lbr learn --list` lists the \
             lessons, --transcript LESSON prints one, --html FILE writes them for a browser"
        );
    }
    Ok(())
}

/// The event that woke the course.
pub(super) enum Woken {
    /// A key was pressed.
    Key(Key),
    /// Nothing but time.
    Nothing,
    /// A signal, or the end of the input.
    End,
}

/// The terminal, until it is dropped.
pub(super) struct Terminal {
    screen: AlternateScreen<RawTerminal<File>>,
    /// Behind the screen, which is dropped before.
    #[allow(dead_code, reason = "it speaks when it is dropped")]
    last_words: LastWords,
    keys: Receiver<Key>,
    signal: Arc<AtomicUsize>,
    color: bool,
}

impl Terminal {
    /// Takes standard input and output.
    pub(super) fn take() -> io::Result<Terminal> {
        let color = AutoStream::choice(&io::stdout()) != ColorChoice::Never;
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGHUP, SIGINT, SIGTERM] {
            flag::register_usize(number, Arc::clone(&signal), number as usize)?;
        }
        // A panic message is printed after the screen is restored.
        let last_words = LastWords::default();
        let words = Arc::downgrade(&last_words.0);
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |what| match words.upgrade() {
            Some(words) => *words.lock().unwrap_or_else(PoisonError::into_inner) = what.to_string(),
            None => before(what),
        }));
        let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let mut screen = output.into_raw_mode()?.into_alternate_screen()?;
        write!(screen, "{}", cursor::Hide)?;
        screen.flush()?;
        let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let (pressed, keys) = channel();
        // The thread ends with the process, or with its input.
        std::thread::Builder::new().spawn(move || {
            for key in input.keys().map_while(Result::ok) {
                if pressed.send(key).is_err() {
                    break;
                }
            }
        })?;
        Ok(Terminal { screen, last_words, keys, signal, color })
    }

    /// Columns and lines.
    pub(super) fn size(&self) -> (usize, usize) {
        let size = terminal_size::terminal_size_of(io::stdout());
        let (width, height) = size.map_or(USUAL, |(width, height)| (width.0, height.0));
        (usize::from(width.max(1)), usize::from(height.max(1)))
    }

    /// Shows these lines, from the top.
    pub(super) fn show(&mut self, rows: &[Row]) -> io::Result<()> {
        let mut text = String::new();
        for (at, row) in (1..).zip(rows) {
            text += &cursor::Goto(1, at).to_string();
            for (style, words) in row {
                let style = if self.color { *style } else { Style::new() };
                text += &format!("{style}{words}{style:#}");
            }
            text += clear::UntilNewline.as_ref();
        }
        if rows.len() < self.size().1 {
            text += clear::AfterCursor.as_ref();
        }
        self.screen.write_all(text.as_bytes())?;
        self.screen.flush()
    }

    /// Waits for a key, a little while.
    pub(super) fn wait(&self) -> Woken {
        let key = self.keys.recv_timeout(LOOK);
        match key {
            _ if self.signal.load(Ordering::Relaxed) != 0 => Woken::End,
            Ok(key) => Woken::Key(key),
            Err(RecvTimeoutError::Timeout) => Woken::Nothing,
            Err(RecvTimeoutError::Disconnected) => Woken::End,
        }
    }

    /// Gives the terminal back, and ends as the signal that came would have.
    pub(super) fn end(self) {
        let signal = self.signal.load(Ordering::Relaxed);
        drop(self);
        if signal != 0 {
            let _ = low_level::emulate_default_handler(signal as i32);
        }
    }
}

/// The message of a panic.
#[derive(Default)]
struct LastWords(Arc<Mutex<String>>);

impl Drop for LastWords {
    fn drop(&mut self) {
        let words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !words.is_empty() {
            say!("{words}");
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The screen and the mode give themselves back.
        let _ = write!(self.screen, "{}", cursor::Show);
        let _ = self.screen.flush();
    }
}
