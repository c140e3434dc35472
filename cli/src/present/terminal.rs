//! Full-screen use of the terminal: set up, and restored however the command ends.

use std::io::{self, IsTerminal, Stdout, Write};
use std::os::fd::AsFd as _;
use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use ratatui_core::buffer::Buffer;
use ratatui_crossterm::CrosstermBackend;
pub(crate) use ratatui_crossterm::crossterm::event::KeyCode as Key;
use ratatui_crossterm::crossterm::event::{
    DisableMouseCapture, EnableMouseCapture, Event, KeyEvent, KeyEventKind, KeyModifiers,
    MouseButton, MouseEvent, MouseEventKind, poll, read,
};
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui_crossterm::crossterm::{cursor, execute};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::{flag, low_level};

use super::out::{Row, say};
use super::pager;

/// The characters of letters that are typed with Control.
pub(crate) mod control {
    pub(crate) const B: char = '\x02';
    pub(crate) const C: char = '\x03';
    pub(crate) const D: char = '\x04';
    pub(crate) const F: char = '\x06';
    pub(crate) const U: char = '\x15';
    pub(crate) const Z: char = '\x1A';
}

/// An event of the terminal.
pub(crate) enum Input {
    /// A key was pressed.
    Key(Key),
    /// The mouse was clicked on a line.
    Click(usize),
    /// The wheel was turned, downwards if positive.
    Wheel(isize),
    /// The screen has to be drawn again: another size, or the process continued.
    Redraw,
    /// Time passed without input.
    Nothing,
    /// A signal, or the end of the input.
    End,
}

/// Whether standard output, and the keyboard that belongs to it, can be drawn on. Standard input
/// may be a recording.
pub(crate) fn is_drawable(input_is_free: bool) -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !dumb && io::stdout().is_terminal() && (!input_is_free || io::stdin().is_terminal())
}

/// The terminal, until it is dropped.
pub(crate) struct Terminal {
    screen: ratatui_core::terminal::Terminal<CrosstermBackend<Stdout>>,
    /// Declared after the screen: it prints once that is restored.
    _last_words: LastWords,
    /// The last signal that ends the command, SIGTSTP, and SIGCONT; 0 for none.
    signals: [Arc<AtomicUsize>; 3],
    mouse: bool,
    color: bool,
}

impl Terminal {
    /// Takes standard input and output.
    pub(crate) fn take(mouse: bool) -> io::Result<Terminal> {
        let color = AutoStream::choice(&io::stdout()) != ColorChoice::Never;
        let signals: [Arc<AtomicUsize>; 3] = Default::default();
        for (number, to) in [(SIGHUP, 0), (SIGINT, 0), (SIGTERM, 0), (SIGTSTP, 1), (SIGCONT, 2)] {
            flag::register_usize(number, Arc::clone(&signals[to]), number as usize)?;
        }
        // A panic message is printed after the screen is restored.
        let last_words = LastWords::default();
        let words = Arc::downgrade(&last_words.0);
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |what| match words.upgrade() {
            Some(words) => *words.lock().unwrap_or_else(PoisonError::into_inner) = what.to_string(),
            None => before(what),
        }));
        let screen = ratatui_core::terminal::Terminal::new(CrosstermBackend::new(io::stdout()))?;
        let terminal = Terminal { screen, _last_words: last_words, signals, mouse, color };
        pager::hold_all();
        end_with_the_terminal()?;
        terminal.enter()?;
        Ok(terminal)
    }

    fn enter(&self) -> io::Result<()> {
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        if self.mouse { execute!(io::stdout(), EnableMouseCapture) } else { Ok(()) }
    }

    fn leave(&self) -> io::Result<()> {
        if self.mouse {
            execute!(io::stdout(), DisableMouseCapture)?;
        }
        execute!(io::stdout(), cursor::Show, LeaveAlternateScreen)?;
        disable_raw_mode()
    }

    /// Columns and lines.
    pub(crate) fn size(&self) -> (usize, usize) {
        let size = self.screen.size().unwrap_or_default();
        (usize::from(size.width.max(1)), usize::from(size.height.max(1)))
    }

    /// Shows these lines, from the top.
    pub(crate) fn show(&mut self, rows: &[Row]) -> io::Result<()> {
        self.screen.draw(|frame| paint(rows, frame.buffer_mut(), self.color))?;
        Ok(())
    }

    /// Waits for input, up to this time.
    pub(crate) fn wait(&mut self, most: Duration) -> io::Result<Input> {
        // crossterm may hold events that it has read already.
        let gone = |most| is_gone(PollFlags::POLLIN, most);
        let most = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
        let gone = gone(PollTimeout::ZERO) || (!poll(Duration::ZERO)? && gone(most));
        let is_input = !gone && poll(Duration::ZERO)?;
        let [end, stop, continued] = self.signals.each_ref().map(|it| it.load(Ordering::Relaxed));
        if end != 0 || gone {
            return Ok(Input::End);
        }
        if stop != 0 {
            return self.suspend();
        }
        if continued != 0 {
            // The shell may have set other modes meanwhile.
            disable_raw_mode()?;
            return self.resume();
        }
        if !is_input {
            return Ok(Input::Nothing);
        }
        match read() {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => match key_of(key) {
                Key::Char(control::Z) => self.suspend(),
                key => Ok(Input::Key(key)),
            },
            Ok(Event::Mouse(MouseEvent { kind, row, .. })) => Ok(match kind {
                MouseEventKind::ScrollUp => Input::Wheel(-1),
                MouseEventKind::ScrollDown => Input::Wheel(1),
                MouseEventKind::Down(MouseButton::Left) => Input::Click(usize::from(row)),
                _ => Input::Nothing,
            }),
            Ok(Event::Resize(..)) => Ok(Input::Redraw),
            Ok(_) => Ok(Input::Nothing),
            Err(_) => Ok(Input::End),
        }
    }

    /// Stops as Ctrl-Z does elsewhere, and goes on afterwards.
    fn suspend(&mut self) -> io::Result<Input> {
        self.leave()?;
        low_level::emulate_default_handler(SIGTSTP)?;
        self.resume()
    }

    fn resume(&mut self) -> io::Result<Input> {
        self.signals[1..].iter().for_each(|signal| signal.store(0, Ordering::Relaxed));
        self.enter()?;
        // Draws every cell; `clear` would ask the terminal for its cursor.
        let size = self.screen.size()?;
        self.screen.resize(size.into())?;
        Ok(Input::Redraw)
    }

    /// Sends a text to the terminal's clipboard (OSC 52).
    pub(crate) fn copy(&self, text: &str) -> io::Result<()> {
        let mut stdout = io::stdout();
        write!(stdout, "\x1b]52;c;{}\x07", base64(text.as_bytes()))?;
        stdout.flush()
    }

    /// Gives the terminal back, and ends as the signal that came would have.
    pub(crate) fn end(self) {
        let signal = self.signals[0].load(Ordering::Relaxed);
        drop(self);
        if signal != 0 {
            let _ = low_level::emulate_default_handler(signal as i32);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.leave();
        pager::print_held();
    }
}

/// Waits for one of these events, up to this time. Whether the terminal is gone.
fn is_gone(events: PollFlags, most: PollTimeout) -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(stdout.as_fd(), events)];
    // An interruption is a signal, which the caller looks at.
    let _ = nix::poll::poll(&mut fds, most);
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    fds[0].revents().is_some_and(|events| events.intersects(gone))
}

/// crossterm 0.29 reads for ever from a terminal that goes away just before it looks, and no signal
/// interrupts it. The process ends as by SIGHUP if it has not ended by itself.
fn end_with_the_terminal() -> io::Result<()> {
    std::thread::Builder::new().spawn(|| {
        while !is_gone(PollFlags::empty(), PollTimeout::NONE) {}
        std::thread::sleep(Duration::from_secs(1));
        low_level::emulate_default_handler(SIGHUP)
    })?;
    Ok(())
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

/// Writes lines into a screen. Without colours, bold and inverse text remain.
pub(crate) fn paint(rows: &[Row], screen: &mut Buffer, color: bool) {
    let area = screen.area;
    for (y, row) in (area.top()..area.bottom()).zip(rows) {
        let mut x = area.left();
        for (style, text) in row {
            let left = usize::from(area.right().saturating_sub(x));
            let style = if color { *style } else { style.fg_color(None) };
            x = screen.set_stringn(x, y, text, left, style).0;
        }
    }
}

/// The key; a letter with Control as its control character, and Delete as Backspace.
pub(crate) fn key_of(key: KeyEvent) -> Key {
    match key.code {
        Key::Char(c) if key.modifiers.contains(KeyModifiers::CONTROL) => match c {
            'a'..='z' => Key::Char(char::from(c as u8 & 0x1F)),
            _ => Key::Null,
        },
        Key::Delete => Key::Backspace,
        code => code,
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | usize::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(if digit <= three.len() { char::from(DIGITS[value]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]
#[path = "../../../tests/cli/unit/present/terminal.rs"]
mod tests;
