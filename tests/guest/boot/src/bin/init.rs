//! The first process of the test machine's guest: loads the modules, runs one command as root,
//! sends back its output and files, powers off.
#![allow(
    unsafe_code,
    reason = "the frames leave through an I/O port, which takes ioperm and OUTSB"
)]

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use lbr_test_machine::frame::{self, FrameKind};
use lbr_test_machine::{
    COMMAND_FILE, ENVIRONMENT_FILE, FRAME_PORT, MODULE_FOLDER, OUT_FOLDER, WORK_FOLDER,
};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::reboot::{RebootMode, reboot};
use nix::unistd::Pid;

/// The status of a command that could not be started, as in a shell.
const NOT_STARTED: i32 = 127;

fn main() {
    let status = match Port::open() {
        Ok(mut port) => {
            let status = run(&mut port).unwrap_or_else(|error| {
                port.notice(&error.to_string());
                NOT_STARTED
            });
            port.send(FrameKind::Status, &status.to_le_bytes());
            status
        }
        Err(error) => {
            // Goes to the console's log, which the host shows if no status arrives.
            eprintln!("guest init: no access to port {FRAME_PORT:#x}: {error}");
            NOT_STARTED
        }
    };
    nix::unistd::sync();
    // Returns only if it failed.
    let Err(error) = reboot(RebootMode::RB_POWER_OFF);
    eprintln!("guest init: cannot power off after status {status}: {error}");
}

fn run(port: &mut Port) -> io::Result<i32> {
    let mount =
        |source, target| mount(Some(source), target, Some(source), MsFlags::empty(), None::<&str>);
    for (source, target) in
        [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/tmp")]
    {
        fs::create_dir_all(target)?;
        mount(source, target)
            .map_err(|error| io::Error::other(format!("mounting {target}: {error}")))?;
    }
    fs::create_dir_all("/dev/shm")?;
    for folder in [OUT_FOLDER, WORK_FOLDER] {
        fs::create_dir_all(Path::new("/").join(folder))?;
    }
    if Path::new("/sys/kernel/security").exists() {
        // A kernel without lockdown is not an error.
        let _ = mount("securityfs", "/sys/kernel/security");
    }
    load_modules(port)?;
    if Path::new("/bin/busybox").exists() {
        Command::new("/bin/busybox").args(["--install", "-s", "/bin"]).status()?;
    }
    let words = words_of(COMMAND_FILE)?;
    let Some((program, arguments)) = words.split_first() else {
        return Err(io::Error::other("no command was given"));
    };
    let environment: BTreeMap<String, String> = words_of(ENVIRONMENT_FILE)?
        .iter()
        .filter_map(|word| word.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/bin:/work")
        .env("HOME", "/root")
        .env("TMPDIR", "/tmp")
        .envs(environment)
        .current_dir(Path::new("/").join(WORK_FOLDER))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let status = match child {
        Ok(mut child) => {
            stay_on_the_first_cpu(port);
            exit_code(forward(port, &mut child)?)
        }
        Err(error) => {
            port.notice(&format!("cannot run {program}: {error}"));
            NOT_STARTED
        }
    };
    send_files(port, &Path::new("/").join(OUT_FOLDER), "")?;
    Ok(status)
}

/// The zero-terminated words of a file; empty if the file does not exist.
fn words_of(file: &str) -> io::Result<Vec<String>> {
    match fs::read(Path::new("/").join(file)) {
        Ok(bytes) => Ok(bytes
            .split_inclusive(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).trim_end_matches('\0').to_owned())
            .collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn load_modules(port: &mut Port) -> io::Result<()> {
    let folder = Path::new("/").join(MODULE_FOLDER);
    let Ok(found) = fs::read_dir(folder) else { return Ok(()) };
    let mut modules: Vec<PathBuf> = found.filter_map(|e| e.ok().map(|e| e.path())).collect();
    modules.sort();
    for module in modules {
        let file = File::open(&module)?;
        if let Err(error) = finit_module(&file, &CString::default(), ModuleInitFlags::empty()) {
            port.notice(&format!("cannot load {}: {error}", module.display()));
        }
    }
    Ok(())
}

/// The status as a shell reports it: the status, or 128 + the signal.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(NOT_STARTED)
}

/// Branches of this process would displace the records of the other CPUs, which the tests read.
fn stay_on_the_first_cpu(port: &mut Port) {
    let mut first = CpuSet::new();
    if let Err(error) = first.set(0).and_then(|()| sched_setaffinity(Pid::from_raw(0), &first)) {
        port.notice(&format!("cannot stay on CPU 0: {error}"));
    }
}

/// Forwards the child's output until it has ended and both pipes are empty. Later output of
/// processes that it left running is ignored.
fn forward(port: &mut Port, child: &mut Child) -> io::Result<ExitStatus> {
    let (Some(mut out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else {
        return child.wait();
    };
    for fd in [out.as_fd(), err.as_fd()] {
        fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    }
    let (mut out_open, mut err_open) = (true, true);
    loop {
        // The child's end closes its pipes, unless its descendants hold them: then the timeout
        // notices.
        let mut fds = [
            PollFd::new(out.as_fd(), PollFlags::POLLIN),
            PollFd::new(err.as_fd(), PollFlags::POLLIN),
        ];
        let wanted = match (out_open, err_open) {
            (true, true) => &mut fds[..],
            (true, false) => &mut fds[..1],
            (false, true) => &mut fds[1..],
            (false, false) => return child.wait(),
        };
        match poll(wanted, PollTimeout::from(100u8)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ended = child.try_wait()?;
        out_open = out_open && drain(port, &mut out, FrameKind::Stdout)?;
        err_open = err_open && drain(port, &mut err, FrameKind::Stderr)?;
        if let Some(status) = ended {
            return Ok(status);
        }
    }
}

/// Forwards the available output. `false`: the stream has ended.
fn drain(port: &mut Port, stream: &mut impl Read, kind: FrameKind) -> io::Result<bool> {
    let mut bytes = [0; 1 << 16];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(false),
            Ok(n) => port.send(kind, bytes.get(..n).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn send_files(port: &mut Port, folder: &Path, prefix: &str) -> io::Result<()> {
    let mut found = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    found.sort_by_key(fs::DirEntry::file_name);
    for entry in found {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            send_files(port, &entry.path(), &format!("{name}/"))?;
        } else if kind.is_file() {
            port.send(FrameKind::FileName, name.as_bytes());
            port.send(FrameKind::FileData, &fs::read(entry.path())?);
        }
    }
    Ok(())
}

/// The port that frames leave through, once the kernel has granted access.
struct Port(());

impl Port {
    fn open() -> io::Result<Port> {
        // SAFETY: grants this process the port of QEMU's debug console; does not touch memory.
        if unsafe { libc::ioperm(u64::from(FRAME_PORT), 1, 1) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut port = Port(());
        port.write(&frame::PREAMBLE);
        Ok(port)
    }

    fn notice(&mut self, what: &str) {
        self.send(FrameKind::Notice, format!("guest init: {what}").as_bytes());
    }

    fn send(&mut self, kind: FrameKind, contents: &[u8]) {
        for part in contents.chunks(frame::LONGEST as usize) {
            // The length of a part is at most LONGEST, a u32.
            self.write(&frame::header(kind, part.len() as u32));
            self.write(part);
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        // SAFETY: `open` was granted the port; OUTSB reads exactly `bytes.len()` bytes from RSI
        // upward (the ABI clears DF) and writes no memory.
        unsafe {
            core::arch::asm!(
                "rep outsb",
                in("dx") FRAME_PORT,
                inout("rcx") bytes.len() => _,
                inout("rsi") bytes.as_ptr() => _,
                options(readonly, nostack, preserves_flags)
            );
        }
    }
}
