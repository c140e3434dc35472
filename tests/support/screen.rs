//! A program on a private terminal, and the screen of that terminal.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};

use super::lbr::{PROGRAM, alone};

/// `lbr` on a terminal.
pub(crate) struct Terminal {
    pub(crate) child: Child,
    pub(crate) keys: File,
    pub(crate) slave: OwnedFd,
    seen: Receiver<Vec<u8>>,
    bytes: String,
    screen: Screen,
}

impl Terminal {
    pub(crate) fn start(size: (u16, u16), args: &[&str]) -> Terminal {
        let (ws_col, ws_row) = size;
        let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut command = alone(Command::new(PROGRAM));
        command.args(args).env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().unwrap();
        let mut read = File::from(pty.master.try_clone().unwrap());
        let (said, seen) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok(n @ 1..) = read.read(&mut buffer) {
                if said.send(buffer[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        let screen = Screen::new(ws_col, ws_row);
        let (keys, slave, bytes) = (File::from(pty.master), pty.slave, String::new());
        Terminal { child, keys, slave, seen, bytes, screen }
    }

    /// Waits until a line of the screen has these words.
    pub(crate) fn wait_for(&mut self, words: &str) {
        self.wait(words, |terminal| terminal.screen.text().contains(words));
    }

    /// Waits for bytes after those that were waited for.
    pub(crate) fn wait_for_bytes(&mut self, bytes: &str) {
        self.wait(bytes, |terminal| {
            let found = terminal.bytes.find(bytes);
            found.inspect(|at| drop(terminal.bytes.drain(..at + bytes.len()))).is_some()
        });
    }

    fn wait(&mut self, what: &str, is_there: impl Fn(&mut Terminal) -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !is_there(self) {
            let left = until.saturating_duration_since(Instant::now());
            match self.seen.recv_timeout(left) {
                Ok(more) => {
                    self.bytes += &String::from_utf8_lossy(&more);
                    self.screen.feed(&more);
                }
                Err(_) => panic!("no {what:?} in {}", self.screen.text()),
            }
        }
    }
}

/// The cells of a terminal, as far as `lbr` uses one.
struct Screen {
    cells: Vec<Vec<char>>,
    /// Line and column of the next character.
    at: (usize, usize),
    /// Bytes that do not end a character or a sequence yet.
    rest: Vec<u8>,
}

impl Screen {
    fn new(width: u16, height: u16) -> Screen {
        let cells = vec![vec![' '; usize::from(width)]; usize::from(height)];
        Screen { cells, at: (0, 0), rest: Vec::new() }
    }

    fn text(&self) -> String {
        let lines = self.cells.iter().map(|line| line.iter().collect::<String>() + "\n");
        lines.collect()
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Ok(text) => text.to_owned(),
            Err(error) => String::from_utf8_lossy(&self.rest[..error.valid_up_to()]).into_owned(),
        };
        let mut text = whole.as_str();
        while let Some(c) = text.chars().next() {
            if let Some(sequence) = text.strip_prefix("\x1b[") {
                let Some(end) = sequence.find(|c: char| ('@'..='~').contains(&c)) else { break };
                self.control(&sequence[..end], sequence.as_bytes()[end]);
                text = &sequence[end + 1..];
                continue;
            }
            if text == "\x1b" {
                break;
            }
            self.put(c);
            text = &text[c.len_utf8()..];
        }
        let left = text.len() + self.rest.len() - whole.len();
        self.rest.drain(..self.rest.len() - left);
    }

    fn put(&mut self, c: char) {
        match c {
            '\n' => self.at.0 += 1,
            '\r' => self.at.1 = 0,
            c if c.is_control() => {}
            c => {
                let cell = self.cells.get_mut(self.at.0).and_then(|line| line.get_mut(self.at.1));
                cell.into_iter().for_each(|cell| *cell = c);
                self.at.1 += 1;
            }
        }
    }

    fn control(&mut self, numbers: &str, end: u8) {
        let mut numbers = numbers.split(';').map(|number| number.parse().unwrap_or(1_usize));
        let mut number = || numbers.next().unwrap_or(1).max(1) - 1;
        match end {
            b'H' => self.at = (number(), number()),
            b'C' => self.at.1 += number() + 1,
            b'J' => self.cells.iter_mut().flatten().for_each(|cell| *cell = ' '),
            _ => {}
        }
    }
}
