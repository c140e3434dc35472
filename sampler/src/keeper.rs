//! The keeper: a child process that puts registers back when the recorder
//! cannot any more.
//!
//! It is forked after the registers were read and before any is written. It
//! has its own copy of the plans and of what was read, and it inherits the
//! descriptors: the `msr` driver asks for CAP_SYS_RAWIO when a node is opened,
//! not when it is written (Linux msr.c), so that it can write whatever becomes
//! of its rights.
//!
//! A pipe leads to it. Each ring is named there by its number before it is
//! armed, and again when the recorder has put it back. When the pipe ends,
//! which it does however the recorder dies, the keeper puts back what was
//! armed and not put back, and exits. It sits in a session of its own and
//! ignores the signals that end programs, because those of a terminal and of
//! `timeout` go to the whole process group.
#![allow(unsafe_code, reason = "fork, _exit, and ignoring signals in the child")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, pipe2, setsid};

/// Why nothing watches over the registers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeeperError {
    /// The process has threads, and a fork of it could do next to nothing.
    #[error(
        "the keeper has to be forked before there are threads, and this process has {0}; this is a defect, please report it"
    )]
    Threads(usize),
    /// More rings than a ticket can number.
    #[error("{0} CPUs at once are too many for the keeper")]
    TooMany(usize),
    /// The operating system refused.
    #[error(
        "the keeper, which would put the registers back if this process were killed, is not there: {what}: {cause}"
    )]
    Os {
        /// What was tried.
        what: &'static str,
        /// The system's words.
        cause: io::Error,
    },
}

/// What a message of three bytes begins with; the ring's number follows.
const ARMING: u8 = b'a';
const SETTLED: u8 = b's';
/// The recorder needs the keeper no more, whoever else holds the pipe.
const FAREWELL: [u8; 3] = [b'f', 0, 0];

/// The recorder's end of the pipe, and the child to reap. It ends with the
/// last ticket.
#[derive(Debug)]
struct Lifeline {
    /// `None` only while it is dropped.
    pipe: Option<File>,
    keeper: Pid,
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        // A process that holds the pipe too may live on.
        if let Some(mut pipe) = self.pipe.take() {
            let _ = pipe.write_all(&FAREWELL);
        }
        while waitpid(self.keeper, None) == Err(Errno::EINTR) {}
    }
}

/// Registers that a keeper can put back.
pub trait Restorable {
    /// Takes what tells the keeper when something is owed, and when not.
    fn give(&mut self, ticket: Ticket);

    /// Puts back what was read before; called in the keeper alone. Whether
    /// all of it is as it was.
    fn put_back(&mut self) -> bool;
}

/// A ring's number with its keeper.
#[derive(Clone, Debug)]
pub struct Ticket {
    line: Arc<Lifeline>,
    number: u16,
}

impl Ticket {
    /// Tells the keeper that this ring is going to be written.
    ///
    /// # Errors
    /// [`KeeperError::Os`] where it has ended.
    pub fn arming(&self) -> Result<(), KeeperError> {
        self.tell(ARMING).map_err(|cause| KeeperError::Os { what: "it has ended", cause })
    }

    /// Tells the keeper that this ring needs no restoring.
    pub fn settle(self) {
        // A keeper that is gone restores nothing.
        let _ = self.tell(SETTLED);
    }

    /// The recorder's end of the pipe. The keeper puts nothing back as long as
    /// a process has it open: a child that writes the registers is to keep it.
    pub(crate) fn lifeline(&self) -> Option<RawFd> {
        self.line.pipe.as_ref().map(AsRawFd::as_raw_fd)
    }

    fn tell(&self, what: u8) -> io::Result<()> {
        let [low, high] = self.number.to_le_bytes();
        match self.line.pipe.as_ref() {
            Some(mut pipe) => pipe.write_all(&[what, low, high]),
            None => Ok(()),
        }
    }
}

/// Lets a keeper watch over rings that are about to be armed. It lives until
/// the last of them is dropped.
///
/// To be called while the process has one thread. The child of a process with
/// several may call nothing but async-signal-safe functions, and restoring is
/// more than that.
///
/// # Errors
/// [`KeeperError`]. Nothing is armed yet: not to go on is safe.
pub fn watch<R: Restorable>(rings: &mut [R]) -> Result<(), KeeperError> {
    let count = rings.len();
    if u16::try_from(count).is_err() {
        return Err(KeeperError::TooMany(count));
    }
    let os = |what| move |cause: io::Error| KeeperError::Os { what, cause };
    let threads = threads().map_err(os("listing threads"))?;
    if threads != 1 {
        return Err(KeeperError::Threads(threads));
    }
    let pipe = pipe2(nix::fcntl::OFlag::O_CLOEXEC);
    let (read, write) = pipe.map_err(|errno| os("opening a pipe")(errno.into()))?;
    let pipe = pipe2(nix::fcntl::OFlag::O_CLOEXEC);
    let (hears, ready) = pipe.map_err(|errno| os("opening a pipe")(errno.into()))?;
    // SAFETY: the process has this thread alone, so that the child finds no
    // lock held by a thread that does not exist there. The child leaves by
    // `_exit` only: it runs no destructor of the parent and never returns.
    match unsafe { fork() }.map_err(|errno| os("forking")(errno.into()))? {
        ForkResult::Child => {
            drop((write, hears));
            let kept = catch_unwind(AssertUnwindSafe(|| be_keeper(read, ready, rings)));
            // SAFETY: ends the process; nothing of the parent's is flushed or
            // dropped a second time.
            unsafe { libc::_exit(i32::from(!matches!(kept, Ok(true)))) }
        }
        ForkResult::Parent { child } => {
            let line = Arc::new(Lifeline { pipe: Some(write.into()), keeper: child });
            drop((read, ready));
            let heard = File::from(hears).read_exact(&mut [0]);
            heard.map_err(os("it did not answer"))?;
            for (number, ring) in (0..=u16::MAX).zip(rings) {
                ring.give(Ticket { line: Arc::clone(&line), number });
            }
            Ok(())
        }
    }
}

/// The number of threads of this process. A thread that was joined is listed
/// until it has had the CPU once more, so that more than one is looked at again.
fn threads() -> io::Result<usize> {
    let patience = Instant::now();
    loop {
        let threads = std::fs::read_dir("/proc/self/task")?.count();
        if threads == 1 || patience.elapsed() > Duration::from_secs(2) {
            return Ok(threads);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The child's life. Whether everything is as it was.
fn be_keeper<R: Restorable>(pipe: OwnedFd, ready: OwnedFd, rings: &mut [R]) -> bool {
    // Both fail only where they change nothing: a new child leads no group,
    // and the signals exist.
    let _ = setsid();
    let ends = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGPIPE];
    for end in ends {
        // SAFETY: ignoring a signal installs no handler.
        let _ = unsafe { signal(end, SigHandler::SigIgn) };
    }
    // For `ps`.
    let _ = nix::sys::prctl::set_name(c"lbr-keeper");
    // From here on no signal but SIGKILL ends it. A recorder that does not hear
    // is dead, which the other pipe says as well.
    let _ = File::from(ready).write_all(&[1]);
    keep(&mut File::from(pipe), rings)
}

/// Listens until the line ends, then puts back what is armed.
fn keep<R: Restorable>(line: &mut impl Read, rings: &mut [R]) -> bool {
    let mut armed = vec![false; rings.len()];
    let mut message = [0; 3];
    // A line that fails is a line that ended.
    while line.read_exact(&mut message).is_ok() && message != FAREWELL {
        let [what, low, high] = message;
        if let Some(armed) = armed.get_mut(usize::from(u16::from_le_bytes([low, high]))) {
            *armed = what == ARMING;
        }
    }
    let mut all = true;
    for (ring, _) in rings.iter_mut().zip(armed).filter(|(_, armed)| *armed) {
        all &= ring.put_back();
    }
    all
}
