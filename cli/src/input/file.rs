//! Files that a command reads. None is waited for in a way that a signal does
//! not end, and none is read without a bound into memory.

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

/// Between two looks at whether to stop.
const LOOK: u16 = 100;
/// Somebody has to write into a pipe with a name before so long.
const WRITER: Duration = Duration::from_secs(10);
/// Nobody waits longer for the next bytes of a file that is read whole.
const NEXT: Duration = Duration::from_secs(60);

/// Opens a file; a pipe too, without waiting for whoever writes it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// A pipe or a device that is read until it ends or `stop` is set.
#[derive(Debug)]
pub(crate) struct Stream {
    file: File,
    stop: Arc<AtomicBool>,
    /// It has a name, and nobody was seen to have it open for writing.
    unwritten: bool,
    /// Ends waiting for the next bytes.
    patience: Option<Duration>,
}

impl Stream {
    /// Standard input.
    pub(crate) fn stdin(stop: Arc<AtomicBool>) -> io::Result<Stream> {
        let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        Ok(Stream { file, stop, unwritten: false, patience: None })
    }

    /// Of a file that [`open`] opened.
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
                    // Nobody has it open for writing: not yet, unless it was hung up.
                    Ok(0) if self.unwritten && !ready => {
                        if began.elapsed() > WRITER {
                            return late("a pipe that nobody writes");
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

/// All that a file holds, at most `limit` bytes; `-` is standard input. Nobody
/// is waited for without end.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let never = Arc::new(AtomicBool::new(false));
    let stream = match path == Path::new("-") {
        true => Stream::stdin(never)?,
        false => Stream::new(open(path)?, never)?,
    };
    let mut bytes = Vec::new();
    let mut stream = Stream { patience: Some(NEXT), ..stream };
    (&mut stream).take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let what = format!("it is longer than {} MiB", limit >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// Whether root or this process owns a file. What others leave for us to read
/// may be made to deceive: perf refuses it too.
pub(crate) fn is_owned(file: &File) -> io::Result<bool> {
    Ok(is_trusted(file.metadata()?.uid()))
}

/// Whether a user is root or the one who runs this process.
pub(crate) fn is_trusted(user: u32) -> bool {
    user == 0 || user == nix::unistd::geteuid().as_raw()
}
