//! Pipes and devices as outputs: they may have no reader, and waiting for one ends with a signal.
//! A recording's file is a [`Stream`] too; writing it does not wait.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::SFlag;
use sampler::interrupt::Interrupts;

use super::directory::DirEntry;
use crate::input::file::is_owned;

/// Between two looks at whether to stop.
const LOOK: u16 = 100;
/// How long a reader may take for a piece after a signal.
const LAST: Duration = Duration::from_secs(2);
/// The size that a pipe accepts atomically: PIPE_BUF.
const PIECE: usize = 4096;

/// A pipe or device, written in pieces that do not block; or a recording's file.
pub(crate) struct Stream {
    pub(super) file: File,
    /// It is a recording's file, which becomes seekable.
    pub(super) is_file: bool,
    /// The signals that end a wait, if they do not end the process.
    interrupts: Option<Interrupts>,
}

/// Whether a signal has asked lbr to end.
fn is_stopped(interrupts: Option<Interrupts>) -> bool {
    interrupts.is_some_and(|interrupts| interrupts.count() > 0) || crate::input::is_interrupted()
}

impl Stream {
    /// For an open descriptor.
    pub(crate) fn new(file: File, interrupts: Option<Interrupts>) -> Stream {
        Stream { file, is_file: false, interrupts }
    }

    /// For a recording's file.
    pub(super) fn of_file(file: File) -> Stream {
        Stream { file, is_file: true, interrupts: None }
    }

    /// Opens a device, or a pipe once it has a reader.
    pub(super) fn open(entry: &DirEntry, interrupts: Option<Interrupts>) -> io::Result<Stream> {
        let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        loop {
            let file = match entry.open(flags, 0) {
                Err(Errno::ENXIO) => {
                    let mode = SFlag::from_bits_truncate(entry.status()?.st_mode);
                    if mode & SFlag::S_IFMT != SFlag::S_IFIFO {
                        return Err(Errno::ENXIO.into());
                    }
                    if is_stopped(interrupts) {
                        return Err(io::Error::other("stopped before anybody read it"));
                    }
                    std::thread::sleep(Duration::from_millis(LOOK.into()));
                    continue;
                }
                opened => opened?,
            };
            // Another file may have taken the name since it was looked at.
            let kind = file.metadata()?.file_type();
            let is_pipe = kind.is_fifo() && is_owned(&file)?;
            if !is_pipe && !kind.is_char_device() {
                return Err(io::Error::other("it was replaced after lbr looked at it"));
            }
            return Ok(Stream::new(file, interrupts));
        }
    }

    /// Waits until a piece can be written.
    fn wait(&self) -> io::Result<()> {
        let mut last = None;
        loop {
            let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLOUT)];
            match poll(&mut fds, PollTimeout::from(LOOK)) {
                Ok(0) | Err(nix::Error::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            let stopped = is_stopped(self.interrupts);
            if stopped && last.get_or_insert_with(Instant::now).elapsed() > LAST {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "nobody reads it"));
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_file {
            return self.file.write(bytes);
        }
        let piece = bytes.get(..PIECE).unwrap_or(bytes);
        loop {
            self.wait()?;
            match self.file.write(piece) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Stream {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}
