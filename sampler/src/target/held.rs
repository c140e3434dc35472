//! A program that is started and held before its first instruction.
#![allow(unsafe_code, reason = "fork and execve, so that the child can be held before exec")]

use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::libc;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2};

use super::Doing;
use super::{Command, SourceError, User};

/// A child that waits before its `execve`, so that it can be pinned and seized first. Dropping it
/// before [`release`](Held::release) ends it.
#[derive(Debug)]
pub struct Held {
    pid: Pid,
    go: Option<std::fs::File>,
    failure: std::fs::File,
}

impl Held {
    /// Forks a child that will run `path` with the arguments of `command`, and inherits the
    /// standard streams and the environment.
    ///
    /// # Errors
    /// [`SourceError::NotExecutable`] for an argument with a NUL byte,
    /// [`SourceError::Os`].
    pub fn spawn(path: &Path, command: &Command) -> Result<Held, SourceError> {
        let image = ExecArguments::new(path, command)
            .map_err(|cause| SourceError::NotExecutable { path: path.to_owned(), cause })?;
        let pipe = || pipe2(nix::fcntl::OFlag::O_CLOEXEC).doing("opening a pipe");
        let ((go_read, go_write), (failure_read, failure_write)) = (pipe()?, pipe()?);
        // SAFETY: until execve, the child of a multi-threaded process may only call
        // async-signal-safe functions. `ExecArguments::execute` calls close, read, signal,
        // sigprocmask, setgroups, setresgid, setresuid, execve, write and _exit, and does not
        // allocate.
        let forked = unsafe { fork() }.doing("forking")?;
        match forked {
            ForkResult::Child => {
                image.execute([&go_read, &go_write, &failure_read, &failure_write])
            }
            ForkResult::Parent { child } => {
                Ok(Held { pid: child, go: Some(go_write.into()), failure: failure_read.into() })
            }
        }
    }

    /// The child.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets the child continue to its `execve`. The caller must reap it from then on.
    ///
    /// # Errors
    /// [`SourceError::Os`] if the child is gone.
    pub fn release(&mut self) -> Result<(), SourceError> {
        let Some(mut go) = self.go.take() else { return Ok(()) };
        go.write_all(&[1]).doing("starting the program")
    }

    /// Why `execve` failed; `None` if it succeeded. Blocks until the result is known.
    pub fn exec_error(&mut self) -> Option<io::Error> {
        let mut errno = [0u8; 4];
        self.failure.read_exact(&mut errno).ok()?;
        Some(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.go.take().is_some() {
            // The child's read returns without data, and it exits.
            let _ = waitpid(self.pid, Some(WaitPidFlag::__WALL));
        }
    }
}

/// The arguments of execve, allocated before the fork.
struct ExecArguments {
    path: CString,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    user: Option<User>,
    /// The strings that the pointers refer to.
    _strings: Vec<CString>,
}

impl ExecArguments {
    fn new(path: &Path, command: &Command) -> io::Result<ExecArguments> {
        let string = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::from);
        let words = [&command.program].into_iter().chain(&command.args);
        let argv: io::Result<Vec<_>> = words.map(|word| string(word.as_bytes())).collect();
        let mut argv = argv?;
        let mut envp = Vec::new();
        for (name, value) in std::env::vars_os() {
            envp.push(string(&[name.as_bytes(), b"=", value.as_bytes()].concat())?);
        }
        let pointers = |strings: &[CString]| {
            strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
        };
        let (argv_pointers, envp_pointers) = (pointers(&argv), pointers(&envp));
        argv.extend(envp);
        Ok(ExecArguments {
            path: string(path.as_os_str().as_bytes())?,
            argv: argv_pointers,
            envp: envp_pointers,
            user: command.rights(),
            _strings: argv,
        })
    }

    /// The child's code between fork and execve.
    fn execute(&self, [go_read, go_write, failure_read, failure_write]: [&OwnedFd; 4]) -> ! {
        use std::os::fd::AsRawFd;
        let mut go = [0u8; 1];
        // SAFETY: only async-signal-safe functions, on descriptors that the fork copied, buffers of
        // this frame, and NUL-terminated strings that `self` keeps alive; both pointer lists end in
        // null.
        unsafe {
            // This copy of the writing end would make the read below wait forever after the
            // parent's death.
            libc::close(go_write.as_raw_fd());
            libc::close(failure_read.as_raw_fd());
            if libc::read(go_read.as_raw_fd(), go.as_mut_ptr().cast(), 1) != 1 {
                libc::_exit(127);
            }
            // Rust ignores SIGPIPE, and ignored signals survive execve.
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            let is_user = self.user.as_ref().is_none_or(|User { uid, gid, groups }| {
                libc::setgroups(groups.len(), groups.as_ptr()) == 0
                    && libc::setresgid(*gid, *gid, *gid) == 0
                    && libc::setresuid(*uid, *uid, *uid) == 0
            });
            if is_user {
                libc::execve(self.path.as_ptr(), self.argv.as_ptr(), self.envp.as_ptr());
            }
            let errno = (*libc::__errno_location()).to_ne_bytes();
            libc::write(failure_write.as_raw_fd(), errno.as_ptr().cast(), errno.len());
            libc::_exit(127)
        }
    }
}
