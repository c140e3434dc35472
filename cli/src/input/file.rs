//! Opens and reads input files. A signal ends every wait, and the memory for a file is bounded.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Interval at which `stop` is checked, in milliseconds.
const LOOK: u16 = 100;
/// How long to wait for a writer of a named pipe.
const WRITER: Duration = Duration::from_secs(10);
/// How long to wait for the next bytes of a file that is read whole.
const NEXT: Duration = Duration::from_secs(60);

/// Opens a file or a pipe, without waiting for the pipe's writer.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// A pipe or a device that is read until it ends or `stop` is set.
pub(crate) struct Stream {
    file: File,
    stop: Arc<AtomicBool>,
    /// It is a named pipe, and no writer was seen yet.
    unwritten: bool,
    /// Ends waiting for the next bytes.
    patience: Option<Duration>,
}

impl Stream {
    /// A file; `-` is standard input.
    pub(crate) fn of(path: &Path, stop: Arc<AtomicBool>) -> io::Result<Stream> {
        if path == Path::new("-") { Stream::stdin(stop) } else { Stream::new(open(path)?, stop) }
    }

    pub(crate) fn stdin(stop: Arc<AtomicBool>) -> io::Result<Stream> {
        let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        Ok(Stream { file, stop, unwritten: false, patience: None })
    }

    /// For a file that [`open`] opened.
    pub(crate) fn new(file: File, stop: Arc<AtomicBool>) -> io::Result<Stream> {
        let unwritten = file.metadata()?.file_type().is_fifo();
        Ok(Stream { file, stop, unwritten, patience: None })
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let late = |what: &str| Err(io::Error::new(io::ErrorKind::TimedOut, what));
        let began = Instant::now();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(0);
            }
            let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
            let ready = match poll(&mut fds, PollTimeout::from(LOOK)) {
                Err(nix::Error::EINTR) => continue,
                ready => ready? > 0,
            };
            if ready || self.unwritten {
                match self.file.read(buffer) {
                    // No writer has opened it yet, unless it was hung up.
                    Ok(0) if self.unwritten && !ready => {
                        if began.elapsed() > WRITER {
                            return late("a pipe without a writer");
                        }
                        continue;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.unwritten = false;
                    }
                    read => {
                        self.unwritten = false;
                        return read;
                    }
                }
            }
            if self.patience.is_some_and(|patience| began.elapsed() > patience) {
                return late("nothing more comes out of it");
            }
        }
    }
}

/// Reads at most `limit` bytes of a file; `-` is standard input. Every wait has a limit.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut stream = Stream { patience: Some(NEXT), ..Stream::of(path, Arc::default())? };
    (&mut stream).take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let what = format!("it is longer than {} MiB", limit >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// Whether root or this process owns a file. Files of other users may be forged; perf refuses them
/// too.
pub(crate) fn is_owned(file: &File) -> io::Result<bool> {
    Ok(is_trusted(file.metadata()?.uid()))
}

/// Whether a user is root or the one who runs this process.
pub(crate) fn is_trusted(user: u32) -> bool {
    user == 0 || user == nix::unistd::geteuid().as_raw()
}
