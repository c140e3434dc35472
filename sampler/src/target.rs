//! The program that is recorded: finding it, starting it held back before its
//! first instruction, pinning it, and how it ended.
#![allow(unsafe_code, reason = "fork and execve, so that the child can be held before exec")]

use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::libc;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2};
use object::read::elf::FileHeader;

use crate::source::{Command, SourceError};

/// What kind of file a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// An x86-64 ELF file with this entry address, before relocation.
    Elf {
        /// `e_entry`.
        entry: u64,
    },
    /// A script: the kernel runs the interpreter that its first line names.
    Script,
}

/// Finds the file of a program as a shell would: as a path where the name has
/// a slash, in PATH otherwise.
///
/// # Errors
/// [`SourceError::NotFound`], [`SourceError::NotExecutable`].
pub fn find(program: &str) -> Result<PathBuf, SourceError> {
    if program.contains('/') {
        let path = PathBuf::from(program);
        return executable(&path)
            .map(|()| path.clone())
            .map_err(|cause| SourceError::NotExecutable { path, cause });
    }
    let mut refused = None;
    // What execvp(3) takes where PATH is not set.
    let search = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    for folder in std::env::split_paths(&search).filter(|_| !program.is_empty()) {
        let path = folder.join(program);
        match executable(&path) {
            Ok(()) => return Ok(path),
            Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
                refused.get_or_insert(SourceError::NotExecutable { path, cause });
            }
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| SourceError::NotFound { program: program.to_owned() }))
}

fn executable(path: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(io::Error::from_raw_os_error(libc::EACCES));
    }
    Ok(())
}

/// Looks at the first bytes of a program: x86-64 ELF, a script, or nothing
/// that can be traced.
///
/// # Errors
/// [`SourceError::NotX86_64`], [`SourceError::NotExecutable`] where the file
/// cannot be read.
pub fn inspect(path: &Path) -> Result<Program, SourceError> {
    let refuse =
        |what: &str| SourceError::NotX86_64 { path: path.to_owned(), what: what.to_owned() };
    let unreadable = |cause| SourceError::NotExecutable { path: path.to_owned(), cause };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut header = [0u8; 64];
    let mut filled = 0;
    while let Some(rest) = header.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, filled as u64).map_err(unreadable)? {
            0 => break,
            read => filled += read,
        }
    }
    let header = header.get(..filled).unwrap_or_default();
    if header.starts_with(b"#!") {
        return Ok(Program::Script);
    }
    if !header.starts_with(&object::elf::ELFMAG) {
        return Err(refuse("neither an ELF program nor a script with #!"));
    }
    if header.get(4) == Some(&object::elf::ELFCLASS32.0) {
        return Err(refuse("a 32-bit ELF file"));
    }
    let elf = object::elf::FileHeader64::<object::Endianness>::parse(header)
        .map_err(|_| refuse("a damaged ELF file"))?;
    let endian = elf.endian().map_err(|_| refuse("a damaged ELF file"))?;
    let machine = elf.e_machine(endian);
    if machine != object::elf::EM_X86_64 {
        return Err(refuse(&format!("an ELF file for machine {}", machine.0)));
    }
    match elf.e_type(endian) {
        object::elf::ET_EXEC | object::elf::ET_DYN => {
            Ok(Program::Elf { entry: elf.e_entry(endian) })
        }
        _ => Err(refuse("an ELF file that is no program")),
    }
}

/// A child that waits before its `execve`, so that it can be pinned and seized
/// first. Dropping it before [`release`](Held::release) ends it.
#[derive(Debug)]
pub struct Held {
    pid: Pid,
    go: Option<std::fs::File>,
    failure: std::fs::File,
}

impl Held {
    /// Forks a child that will run `path` with the arguments of `command`; the
    /// standard streams and the environment are ours.
    ///
    /// # Errors
    /// [`SourceError::NotExecutable`] for an argument with a NUL byte,
    /// [`SourceError::Os`].
    pub fn spawn(path: &Path, command: &Command) -> Result<Held, SourceError> {
        let os = |what: &str, cause: nix::Error| SourceError::Os {
            what: what.to_owned(),
            cause: cause.into(),
        };
        let image = Image::new(path, command)
            .map_err(|cause| SourceError::NotExecutable { path: path.to_owned(), cause })?;
        let (go_read, go_write) =
            pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|e| os("opening a pipe", e))?;
        let (failure_read, failure_write) =
            pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|e| os("opening a pipe", e))?;
        // SAFETY: the child of a process with threads may call nothing but
        // async-signal-safe functions until execve; `Image::execute` calls
        // close, read, signal, sigprocmask, execve, write and _exit, and
        // allocates nothing.
        let forked = unsafe { fork() }.map_err(|e| os("forking", e))?;
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
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets the child go on to its `execve`. Reaping it is the caller's from
    /// here on.
    ///
    /// # Errors
    /// [`SourceError::Os`] where the child is gone already.
    pub fn release(&mut self) -> Result<(), SourceError> {
        let Some(mut go) = self.go.take() else { return Ok(()) };
        go.write_all(&[1])
            .map_err(|cause| SourceError::Os { what: "starting the program".to_owned(), cause })
    }

    /// Why `execve` failed; `None` where it did not. Blocks until one is known.
    pub fn exec_error(&mut self) -> Option<io::Error> {
        let mut errno = [0u8; 4];
        self.failure.read_exact(&mut errno).ok()?;
        Some(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.go.take().is_some() {
            // The child's read ends with nothing read, and it exits.
            let _ = waitpid(self.pid, Some(WaitPidFlag::__WALL));
        }
    }
}

/// The arguments of execve, laid out before the fork.
struct Image {
    path: CString,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    /// What the pointers point to.
    _strings: Vec<CString>,
}

impl Image {
    fn new(path: &Path, command: &Command) -> io::Result<Image> {
        let string = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::from);
        let mut argv = vec![string(command.program.as_bytes())?];
        for arg in &command.args {
            argv.push(string(arg.as_bytes())?);
        }
        let mut envp = Vec::new();
        for (name, value) in std::env::vars_os() {
            envp.push(string(&[name.as_bytes(), b"=", value.as_bytes()].concat())?);
        }
        let pointers = |strings: &[CString]| {
            strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
        };
        let (argv_pointers, envp_pointers) = (pointers(&argv), pointers(&envp));
        argv.extend(envp);
        Ok(Image {
            path: string(path.as_os_str().as_bytes())?,
            argv: argv_pointers,
            envp: envp_pointers,
            _strings: argv,
        })
    }

    /// The child's life between fork and execve.
    fn execute(&self, [go_read, go_write, failure_read, failure_write]: [&OwnedFd; 4]) -> ! {
        use std::os::fd::AsRawFd;
        let mut go = [0u8; 1];
        // SAFETY: only async-signal-safe functions, on descriptors that the
        // fork copied, on buffers of this frame, and on strings that `self`
        // keeps alive and that end in NUL; both pointer lists end in null.
        unsafe {
            // Our copy of the writing end would keep the read below waiting
            // for ever once the parent has died.
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
            libc::execve(self.path.as_ptr(), self.argv.as_ptr(), self.envp.as_ptr());
            let errno = (*libc::__errno_location()).to_ne_bytes();
            libc::write(failure_write.as_raw_fd(), errno.as_ptr().cast(), errno.len());
            libc::_exit(127)
        }
    }
}

/// The CPUs a task may run on.
#[derive(Clone, Copy, Debug)]
pub struct Affinity(CpuSet);

impl Affinity {
    /// The mask of the calling thread.
    ///
    /// # Errors
    /// [`SourceError::Os`].
    pub fn current() -> Result<Affinity, SourceError> {
        sched_getaffinity(Pid::from_raw(0)).map(Affinity).map_err(|cause| SourceError::Os {
            what: "reading the CPU affinity".to_owned(),
            cause: cause.into(),
        })
    }

    /// The mask with that CPU alone, if `self` has it.
    ///
    /// # Errors
    /// [`SourceError::NoSuchCpu`].
    pub fn only(&self, cpu: u32) -> Result<Affinity, SourceError> {
        let refuse = || SourceError::NoSuchCpu { cpu, allowed: self.list() };
        let index = usize::try_from(cpu).map_err(|_| refuse())?;
        if !self.0.is_set(index).unwrap_or(false) {
            return Err(refuse());
        }
        let mut set = CpuSet::new();
        set.set(index).map_err(|_| refuse())?;
        Ok(Affinity(set))
    }

    /// The mask of a thread.
    ///
    /// # Errors
    /// [`SourceError::Os`].
    pub fn of(tid: i32) -> Result<Affinity, SourceError> {
        sched_getaffinity(Pid::from_raw(tid)).map(Affinity).map_err(|cause| SourceError::Os {
            what: format!("reading the CPU affinity of thread {tid}"),
            cause: cause.into(),
        })
    }

    /// The mask with these CPUs alone, if `self` has them all.
    ///
    /// # Errors
    /// [`SourceError::NoSuchCpu`].
    pub fn only_these(&self, cpus: &[u32]) -> Result<Affinity, SourceError> {
        let mut set = CpuSet::new();
        for &cpu in cpus {
            let refuse = || SourceError::NoSuchCpu { cpu, allowed: self.list() };
            let index = usize::try_from(cpu).map_err(|_| refuse())?;
            if !self.0.is_set(index).unwrap_or(false) {
                return Err(refuse());
            }
            set.set(index).map_err(|_| refuse())?;
        }
        Ok(Affinity(set))
    }

    /// The mask without these CPUs; `None` where nothing is left.
    #[must_use]
    pub fn without(&self, cpus: &[u32]) -> Option<Affinity> {
        let mut set = self.0;
        for &cpu in cpus {
            // What lies beyond the set is not in it.
            let _ = set.unset(cpu as usize);
        }
        let left = (0..CpuSet::count()).any(|cpu| set.is_set(cpu).unwrap_or(false));
        left.then_some(Affinity(set))
    }

    /// Gives a thread this mask; 0 is the calling thread.
    ///
    /// # Errors
    /// [`SourceError::Os`].
    pub fn apply(&self, tid: i32) -> Result<(), SourceError> {
        sched_setaffinity(Pid::from_raw(tid), &self.0).map_err(|cause| SourceError::Os {
            what: format!("pinning to CPU {}", self.list()),
            cause: cause.into(),
        })
    }

    /// The CPUs as a list of ranges: `0-3,8`.
    #[must_use]
    pub fn list(&self) -> String {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for cpu in (0..CpuSet::count()).filter(|&cpu| self.0.is_set(cpu).unwrap_or(false)) {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let words = ranges.iter().map(|&(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        });
        words.collect::<Vec<_>>().join(",")
    }
}
