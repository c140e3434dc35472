//! A CPU whose registers are a software LBR, for programs under test: accesses to the node
//! `dev/cpu/0/msr` of a made-up root are answered here (through seccomp's user notification, which
//! also covers inline system calls), and any access can be made to fail.
#![allow(unsafe_code, reason = "seccomp(2) and the ioctls of its listener")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use lbr_msr::caps::RegisterMap;
use lbr_msr::record::HwBranchType;
use lbr_msr::soft::{Retired, SoftCpu, SoftLbr};
use lbr_msr::{Msr, MsrRead, MsrWrite};
use nix::libc::{self, c_long, seccomp_notif, seccomp_notif_resp, sock_filter};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::skip::skipped;

const DEBUGCTL: Msr = Msr(0x1D9);

/// The fault injected at an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It fails with this errno; the next one succeeds.
    Errno(i32),
    /// Four bytes are transferred instead of eight.
    Short,
    /// The CPU is offline from now on.
    Offline,
    /// The program is killed.
    Kill,
}

/// The longest time that a short program may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long processes that a program left running may take to end.
const GRACE: Duration = Duration::from_secs(60);

/// The distance between two branch sites.
pub(crate) const STEP: u64 = 16;

/// The CPU, and the root folder with its node.
pub(crate) struct Registers {
    root: tempfile::TempDir,
    pub(crate) soft: SoftLbr,
    map: RegisterMap,
    depth: u32,
    /// The branch sites: first address, and number.
    pub(crate) code: (u64, u64),
    /// Branches retired so far.
    retired: u64,
    accesses: u32,
    is_offline: bool,
}

/// The end of a program.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) output: Output,
    /// Register accesses, and opens of the node.
    pub(crate) accesses: u32,
    /// The program, or a process that it left running, had to be killed.
    pub(crate) hung: bool,
}

impl Registers {
    /// A CPU with a software LBR in reset state.
    pub(crate) fn new(cpu: &SoftCpu) -> Registers {
        let root = tempfile::tempdir().unwrap();
        let registers = Registers {
            soft: SoftLbr::new(&cpu.caps, cpu.perf_capabilities),
            map: cpu.caps.registers,
            depth: cpu.caps.depth,
            root,
            code: (0x40_1000, 0x1000),
            retired: 0,
            accesses: 0,
            is_offline: false,
        };
        std::fs::create_dir_all(registers.node().parent().unwrap()).unwrap();
        std::fs::write(registers.node(), []).unwrap();
        let mut text = String::from("CPU:\n");
        for ((leaf, subleaf), value) in cpu.cpuid.iter() {
            let (eax, ebx, ecx, edx) = (value.eax, value.ebx, value.ecx, value.edx);
            text += &format!(
                "   {leaf:#010x} {subleaf:#04x}: eax={eax:#010x} ebx={ebx:#010x} \
                 ecx={ecx:#010x} edx={edx:#010x}\n"
            );
        }
        std::fs::write(registers.root().join("cpuid"), text).unwrap();
        registers.set_online(true);
        registers
    }

    /// The root, for `--msr-root`.
    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    fn node(&self) -> PathBuf {
        self.root().join("dev/cpu/0/msr")
    }

    fn set_online(&self, online: bool) {
        let cpus = self.root().join("sys/devices/system/cpu");
        std::fs::create_dir_all(cpus.join("cpu0")).unwrap();
        std::fs::write(cpus.join("cpu0/online"), if online { "1\n" } else { "0\n" }).unwrap();
        std::fs::write(cpus.join("online"), if online { "0\n" } else { "\n" }).unwrap();
    }

    /// The registers shared with others, and the records, by address.
    pub(crate) fn held(&mut self) -> [BTreeMap<u32, u64>; 2] {
        let map = self.map;
        let shared = [Some(DEBUGCTL), Some(map.control), map.select, map.depth];
        let records = (0..self.depth)
            .flat_map(|slot| [Some(map.from_at(slot)), map.to_at(slot), map.info_at(slot)]);
        let mut read = |list: Vec<Option<Msr>>| {
            let list = list.into_iter().flatten();
            list.filter_map(|msr| Some((msr.0, self.soft.read(msr).ok()?))).collect()
        };
        [read(shared.to_vec()), read(records.collect())]
    }

    /// Runs a program until it and its descendants have ended. `fault`: the access, counted from 1,
    /// and its fault. `None`, after a skip message, if seccomp notification is not permitted.
    pub(crate) fn run(&mut self, mut command: Command, fault: Option<(u32, Fault)>) -> Option<Ran> {
        (self.accesses, self.is_offline) = (0, false);
        self.set_online(true);
        let (tell, told) = mpsc::channel();
        let (start, started) = mpsc::channel();
        // The filter applies to this thread and its descendants.
        let runner = std::thread::spawn(move || {
            let listener = listen();
            let is_there = listener.is_ok();
            let _ = tell.send(listener);
            is_there.then(|| {
                let child = command.spawn().unwrap();
                let _ = start.send(Pid::from_raw(child.id().cast_signed()));
                child.wait_with_output().unwrap()
            })
        });
        let listener = match told.recv().unwrap() {
            Ok(listener) => listener,
            Err(error) => {
                skipped(format_args!("system calls cannot be answered here: {error}"));
                return None;
            }
        };
        let hung = self.serve(&listener, &started, fault, || runner.is_finished());
        drop(listener);
        let output = runner.join().unwrap()?;
        Some(Ran { output, accesses: self.accesses, hung })
    }

    /// Answers until all processes have ended. Returns whether it timed out.
    fn serve(
        &mut self,
        listener: &OwnedFd,
        started: &Receiver<Pid>,
        fault: Option<(u32, Fault)>,
        has_ended: impl Fn() -> bool,
    ) -> bool {
        let since = Instant::now();
        let mut ended = None;
        loop {
            let mut polled = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
            poll(&mut polled, PollTimeout::from(50_u8)).unwrap();
            let events = polled[0].revents().unwrap();
            if events.contains(PollFlags::POLLIN) {
                self.answer(listener.as_raw_fd(), started, fault);
            } else if events.contains(PollFlags::POLLHUP) {
                return false;
            }
            if ended.is_none() && has_ended() {
                ended = Some(Instant::now());
            }
            if since.elapsed() > PATIENCE {
                // Remaining processes get no answer any more, and end.
                if let Ok(child) = started.try_recv() {
                    let _ = kill(child, Signal::SIGKILL);
                }
                return true;
            }
            if ended.is_some_and(|ended| ended.elapsed() > GRACE) {
                return true;
            }
        }
    }

    fn answer(&mut self, listener: RawFd, started: &Receiver<Pid>, fault: Option<(u32, Fault)>) {
        // SAFETY: a structure of integers; the kernel wants it zeroed.
        let mut asked: seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills the structure, whose size the request names.
        if unsafe { receive(listener, &raw mut asked) }.is_err() {
            // The caller was killed.
            return;
        }
        let mut reply = seccomp_notif_resp { id: asked.id, val: 0, error: 0, flags: 0 };
        if !self.is_access(&asked) {
            reply.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        } else {
            self.accesses += 1;
            let fault = fault.filter(|(at, _)| *at == self.accesses).map(|(_, fault)| fault);
            if fault == Some(Fault::Offline) {
                self.is_offline = true;
                self.set_online(false);
            }
            match fault {
                Some(Fault::Kill) => {
                    let child = started.recv_timeout(PATIENCE).unwrap();
                    kill(child, Signal::SIGKILL).unwrap();
                    return;
                }
                Some(Fault::Errno(errno)) => reply.error = -errno,
                Some(Fault::Short) if asked.data.nr != libc::SYS_openat as i32 => reply.val = 4,
                _ if self.is_offline => reply.error = -libc::ENXIO,
                _ => match self.access(&asked) {
                    Some(value) => reply.val = value,
                    None => reply.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
                },
            }
            if reply.val < 0 {
                (reply.val, reply.error) = (0, reply.val as i32);
            }
        }
        // SAFETY: the kernel reads the structure, whose size the request names. This fails if the
        // caller was killed.
        let _ = unsafe { send(listener, &raw mut reply) };
    }

    /// Whether this call accesses the node.
    fn is_access(&self, asked: &seccomp_notif) -> bool {
        let [first, second, ..] = asked.data.args;
        if asked.data.nr == libc::SYS_openat as i32 {
            let mut path = [0; 256];
            let read = memory(asked).and_then(|memory| memory.read_at(&mut path, second));
            let path = &path[..read.unwrap_or(0)];
            return path.split(|byte| *byte == 0).next() == self.node().to_str().map(str::as_bytes);
        }
        let open = format!("/proc/{}/fd/{}", asked.pid, first as i32);
        std::fs::read_link(open).is_ok_and(|path| path == self.node())
    }

    /// The call's result; `None` if the kernel should execute it.
    fn access(&mut self, asked: &seccomp_notif) -> Option<i64> {
        let [_, buffer, length, register, ..] = asked.data.args;
        if asked.data.nr == libc::SYS_openat as i32 {
            return None;
        }
        assert_eq!(length, 8, "registers are read and written whole");
        // Killed on purpose: nothing waits for an answer.
        let Ok(memory) = memory(asked) else { return Some(0) };
        let msr = Msr(u32::try_from(register).unwrap());
        let mut bytes = [0; 8];
        let done = if asked.data.nr == libc::SYS_pread64 as i32 {
            self.soft.read(msr).map(|value| {
                let _ = memory.write_at(&value.to_le_bytes(), buffer);
            })
        } else {
            if memory.read_exact_at(&mut bytes, buffer).is_err() {
                return Some(0);
            }
            self.soft.write(msr, u64::from_le_bytes(bytes))
        };
        let value = u64::from_le_bytes(bytes);
        if msr == self.map.control && done.is_ok() && value & self.map.enable != 0 {
            self.retire();
        }
        // The driver returns this for every #GP.
        Some(done.map_or(i64::from(-libc::EIO), |()| 8))
    }

    /// Retires branches: sometimes fewer than there are records, sometimes more, each at the site
    /// after the previous one.
    fn retire(&mut self) {
        let more = self.retired * 7 % 45;
        for _ in 0..=more {
            let (first, places) = self.code;
            let from = first + self.retired % places * STEP;
            self.soft.retire(&Retired::user(from, from + STEP, HwBranchType::RelJmp));
            self.retired += 1;
        }
    }
}

/// The memory of the caller.
fn memory(asked: &seccomp_notif) -> io::Result<File> {
    File::options().read(true).write(true).open(format!("/proc/{}/mem", asked.pid))
}

nix::ioctl_readwrite!(receive, b'!', 0, seccomp_notif);
nix::ioctl_readwrite!(send, b'!', 1, seccomp_notif_resp);

/// Redirects the system calls of this thread and its descendants to the holder of the listener.
fn listen() -> io::Result<OwnedFd> {
    const NUMBER: u32 = 0;
    const CALLS: [c_long; 3] = [libc::SYS_openat, libc::SYS_pread64, libc::SYS_pwrite64];
    let statement = |code: u32, k| sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NUMBER)];
    for (left, &call) in (0..CALLS.len()).rev().zip(&CALLS) {
        let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        filter.push(sock_filter { code: equal, jt: left as u8 + 1, jf: 0, k: call as u32 });
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // A signal does not repeat a call.
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: the filter outlives the call that reads it; only this code has the returned
    // descriptor.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        match libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) {
            descriptor @ 0.. => Ok(OwnedFd::from_raw_fd(descriptor as RawFd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Whether the recorder has a CPU other than the recorded one; prints a skip message if not.
pub(crate) fn may_record_beside() -> bool {
    let several = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
    if !several {
        skipped("there is no second CPU for the recorder");
    }
    several
}
