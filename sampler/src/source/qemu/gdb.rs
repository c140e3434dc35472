//! QEMU's GDB stub: shows a thread's registers when a signal is about to be delivered.
//!
//! The GDB Remote Serial Protocol (gdb manual, appendix E): `$packet#checksum`, acknowledged by
//! `+`. Plugins of QEMU 7.2 can read no registers.

use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use lbr_msr::insn::{self, Insn};
use lbr_msr::record::HwBranchType;
use lbr_msr::soft::Retired;
use nix::libc;

use super::super::ptrace::code;
use crate::target::{SignalStop, User};

/// How long QEMU may take to start, or to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// GDB's numbers of the signals whose Linux numbers differ (include/gdb/signals.def).
const NUMBERS: [(i32, i32); 11] = [
    (10, libc::SIGBUS),
    (12, libc::SIGSYS),
    (16, libc::SIGURG),
    (17, libc::SIGSTOP),
    (18, libc::SIGTSTP),
    (19, libc::SIGCONT),
    (20, libc::SIGCHLD),
    (23, libc::SIGIO),
    (30, libc::SIGUSR1),
    (31, libc::SIGUSR2),
    (32, libc::SIGPWR),
];

/// A report of the stub.
pub(super) enum News {
    /// A thread has stopped at a signal.
    Signal(u32, Box<SignalStop>),
    /// The last signal has ended the program.
    Died,
}

/// The connection to the stub. Its folder is removed on drop.
#[derive(Debug)]
pub(super) struct Gdb {
    folder: PathBuf,
    stream: Option<UnixStream>,
    received: Vec<u8>,
}

impl Drop for Gdb {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Gdb {
    /// Makes a folder for the socket, which only `user` (`None`: this process's) may enter.
    pub(super) fn new(user: Option<&User>) -> io::Result<Gdb> {
        let time = crate::clock::monotonic_ns();
        let name = format!("lbr-{}-{time}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let gdb = Gdb { folder, stream: None, received: Vec::new() };
        if let Some(user) = user {
            chown(&gdb.folder, Some(user.uid), Some(user.gid))?;
        }
        Ok(gdb)
    }

    /// The value of QEMU's option `-g`.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.join("gdb")
    }

    /// Connects to the starting emulator, and lets the program run. Nothing happens if the emulator
    /// ends instead.
    pub(super) fn connect(&mut self, child: &mut Child) -> io::Result<()> {
        let since = Instant::now();
        while self.stream.is_none() && child.try_wait()?.is_none() {
            match UnixStream::connect(self.path()) {
                Ok(stream) => self.stream = Some(stream),
                Err(error) if since.elapsed() > PATIENCE => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        self.send("c")
    }

    /// The reports since the last call; does not wait.
    pub(super) fn news(&mut self, pid: u32) -> io::Result<Option<News>> {
        let Some(packet) = self.packet(Duration::ZERO)? else { return Ok(None) };
        let number = |text: &str| i32::from_str_radix(text, 16).ok();
        match packet.split_at_checked(1) {
            Some(("X", _)) => Ok(Some(News::Died)),
            Some(("T", rest)) => {
                let signal = rest.get(..2).and_then(number).unwrap_or(0);
                let thread = rest.split("thread:").nth(1).and_then(|rest| rest.split(';').next());
                // With a process: `pPID.TID`.
                let thread = thread.and_then(|thread| thread.rsplit('.').next()).and_then(number);
                let stop = self.registers(pid, signal)?;
                Ok(Some(News::Signal(thread.unwrap_or(0).unsigned_abs(), Box::new(stop))))
            }
            _ => Ok(None),
        }
    }

    /// Delivers the signal that a thread has stopped at.
    pub(super) fn deliver(&mut self, stop: &SignalStop) -> io::Result<()> {
        let of_gdb = NUMBERS.iter().find(|(_, linux)| *linux == stop.signal);
        let signal = of_gdb.map_or(stop.signal, |(gdb, _)| *gdb);
        self.send(&format!("C{signal:02x}"))
    }

    fn registers(&mut self, pid: u32, signal: i32) -> io::Result<SignalStop> {
        self.send("g")?;
        let hex = self.packet(PATIENCE)?.unwrap_or_default();
        let value = |at: usize, digits: usize| {
            let bytes = hex.get(at..at + digits)?;
            u64::from_str_radix(bytes, 16).ok().map(|value| value.swap_bytes() >> (64 - 4 * digits))
        };
        // RAX to R15, RIP, EFLAGS.
        let registers: Option<Vec<u64>> =
            (0..18).map(|at| value(16 * at, if at == 17 { 8 } else { 16 })).collect();
        let registers = registers.and_then(|values| <[u64; 18]>::try_from(values).ok());
        let ip = registers.map_or(0, |registers| registers[16]);
        let linux =
            NUMBERS.iter().find(|(gdb, _)| *gdb == signal).map_or(signal, |(_, linux)| *linux);
        let code_bytes = code::bytes_at(pid.cast_signed(), ip, code::LONGEST);
        Ok(SignalStop { signal: linux, ip, registers, code_bytes, ..SignalStop::default() })
    }

    fn send(&mut self, packet: &str) -> io::Result<()> {
        let sum = packet.bytes().fold(0u8, u8::wrapping_add);
        match &mut self.stream {
            Some(stream) => match write!(stream, "${packet}#{sum:02x}") {
                // It has ended.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                done => done,
            },
            None => Ok(()),
        }
    }

    /// The next packet, if it comes in time.
    fn packet(&mut self, patience: Duration) -> io::Result<Option<String>> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        stream.set_nonblocking(patience.is_zero())?;
        stream.set_read_timeout(Some(patience).filter(|patience| !patience.is_zero()))?;
        loop {
            let start = self.received.iter().position(|&byte| byte == b'$');
            let end = self.received.iter().position(|&byte| byte == b'#');
            if let (Some(start), Some(end)) = (start, end)
                && self.received.len() >= end + 3
            {
                let packet = self.received.get(start + 1..end).unwrap_or_default();
                let packet = String::from_utf8_lossy(packet).into_owned();
                self.received.drain(..end + 3);
                stream.set_nonblocking(false)?;
                // It may have ended.
                let _ = stream.write_all(b"+");
                return Ok(Some(packet));
            }
            let mut bytes = [0; 4096];
            match stream.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(read) => self.received.extend(bytes.iter().take(read)),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && patience.is_zero() => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The branch by which a thread left the block that starts at `start` for `ip`, where nothing has
/// executed yet: the plugin sees a branch only when its target executes. `None` if `ip` is in the
/// block.
pub(super) fn unseen_branch(pid: u32, start: u64, ip: u64) -> Option<Retired> {
    /// Maximum number of instructions of a block.
    const LONGEST: usize = 512;
    let mut at = start;
    for _ in 0..LONGEST {
        if at == ip {
            return None;
        }
        let code = code::bytes_at(pid.cast_signed(), at, code::LONGEST);
        let len = match insn::decode(&code, at) {
            Insn::Straight { len } => len,
            Insn::Branch(branch) if branch.class == HwBranchType::Other => branch.len,
            Insn::Branch(branch) => {
                let taken =
                    branch.can_reach(ip) && !(branch.is_conditional() && ip == branch.next());
                return taken.then(|| Retired::user(branch.ip, ip, branch.class));
            }
            Insn::Invalid => return None,
        };
        at = at.wrapping_add(u64::from(len));
    }
    None
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/qemu/gdb.rs"]
mod tests;
