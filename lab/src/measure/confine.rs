//! A sandbox for the code under test, which may be hostile while we are root.
//!
//! - As root, its process drops to the user who called sudo, or to `nobody` ([`CodeRights`]). It
//!   cannot gain privileges (PR_SET_NO_NEW_PRIVS).
//! - It may only make system calls that affect nothing but itself ([`ALLOWED`],
//!   [`ON_DESCRIPTORS`]), and send signals only to itself. Any other call raises SIGSYS.
//! - It has one thread: calls that start a thread, a process or a program ([`STARTING`]) stop it
//!   before they take effect. clone3, whose flags a filter cannot see, fails with ENOSYS.
//! - Its memory, its descriptors and its processes have [limits](limits).
//! - It has to keep two descriptors open: the MSR device and the watchdog's. The first accepts only
//!   the bracket's two writes, whose [values](SealedSwitch) it cannot change; the second accepts
//!   nothing.
#![allow(unsafe_code, reason = "prctl and setuid in a forked child")]

use std::io;

use lbr_msr::access::Root;
use lbr_msr::environment;
use nix::libc::{self, c_long, rlimit, sock_filter};
use nix::sys::mman::ProtFlags;

use super::bracket::{Layout, SwitchWrites};
use crate::code::memory::{Mapping, PAGE};

/// Calls that affect only the process itself.
const ALLOWED: &[c_long] = &[
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_msync,
    libc::SYS_mincore,
    libc::SYS_brk,
    libc::SYS_membarrier,
    libc::SYS_pkey_mprotect,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_pause,
    libc::SYS_alarm,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_time,
    libc::SYS_times,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getpgrp,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrandom,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_arch_prctl,
    libc::SYS_pipe,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Allowed calls whose first argument is a descriptor.
const ON_DESCRIPTORS: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
];

/// Calls that start a thread, a process or a program. The tracer is notified
/// (PTRACE_EVENT_SECCOMP), and lets none of them through.
const STARTING: [c_long; 5] =
    [libc::SYS_fork, libc::SYS_vfork, libc::SYS_clone, libc::SYS_execve, libc::SYS_execveat];

/// The same and clone3, as INT 80H numbers them. Linux arch/x86/entry/syscalls/syscall_32.tbl.
const STARTING_I386: [u32; 6] = [2, 190, 120, 11, 358, 435];

/// Whether one of these calls starts a program.
pub(super) fn is_exec(number: c_long) -> bool {
    [libc::SYS_execve, libc::SYS_execveat, 11, 358].contains(&(number & !(1 << 30)))
}

/// Calls that change the mapping at the address of their first argument.
const MAPPING: [c_long; 5] = [
    libc::SYS_mprotect,
    libc::SYS_pkey_mprotect,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
];

/// Memory in bytes that the code may map in addition to its initial mappings.
const MEMORY: u64 = 1 << 30;
/// Maximum number of open descriptors.
const DESCRIPTORS: u64 = 256;

/// Calls that send a signal to the process or thread of their first argument.
const SIGNALLING: [c_long; 3] = [libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill];

/// AUDIT_ARCH_X86_64, Linux include/uapi/linux/audit.h: 64-bit, little-endian.
const X86_64: u32 = 0xC000_003E;
/// Offsets in `struct seccomp_data`, Linux include/uapi/linux/seccomp.h.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const IP: u32 = 8;
const fn argument(n: u32) -> u32 {
    16 + 8 * n
}

const ALLOW: sock_filter = ret(libc::SECCOMP_RET_ALLOW);
const TRAP: sock_filter = ret(libc::SECCOMP_RET_TRAP);
const ASK_TRACER: sock_filter = ret(libc::SECCOMP_RET_TRACE);
const NOT_OPEN: sock_filter = ret(libc::SECCOMP_RET_ERRNO | libc::EBADF as u32);
const NO_SUCH_CALL: sock_filter = ret(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);

const fn ret(k: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k }
}

/// Loads the lower half of a field; the upper half is four bytes further.
const fn load(offset: u32) -> sock_filter {
    let code = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    sock_filter { code, jt: 0, jf: 0, k: offset }
}

/// Skips `equal` instructions if the loaded value equals `k`, else `otherwise`.
const fn skip(k: u32, equal: usize, otherwise: usize) -> sock_filter {
    jump(libc::BPF_JEQ, k, equal, otherwise)
}

/// A conditional jump.
const fn jump(condition: u32, k: u32, met: usize, otherwise: usize) -> sock_filter {
    let code = (libc::BPF_JMP | condition | libc::BPF_K) as u16;
    sock_filter { code, jt: met as u8, jf: otherwise as u8, k }
}

/// `SUDO_UID` or `SUDO_GID` is not a valid id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{variable} is {value:?}, which is not the id of a user or group: the code would run with the rights of root; unset {variable}, or set it to a number below 4294967295"
)]
pub struct InvalidId {
    variable: &'static str,
    value: String,
}

/// User and group of the code under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeRights {
    /// User and group; `None` if we are not root, or as root may not trace another user's process.
    user: Option<(u32, u32)>,
}

impl CodeRights {
    /// For root that may trace other users' processes: the user who called sudo, or `nobody`.
    /// Otherwise the caller.
    ///
    /// # Errors
    /// [`InvalidId`], if root's environment has an invalid id.
    pub fn of_caller() -> Result<CodeRights, InvalidId> {
        /// CAP_SYS_PTRACE, Linux include/uapi/linux/capability.h.
        const SYS_PTRACE: u64 = 1 << 19;
        let capabilities = environment::capabilities(&Root::default()).unwrap_or(0);
        if !nix::unistd::geteuid().is_root() || capabilities & SYS_PTRACE == 0 {
            return Ok(CodeRights { user: None });
        }
        let (user, group) = (nix::unistd::getuid(), nix::unistd::getgid());
        if !user.is_root() {
            return Ok(CodeRights { user: Some((user.as_raw(), group.as_raw())) });
        }
        let (user, group) = (id("SUDO_UID")?, id("SUDO_GID")?);
        Ok(CodeRights { user: Some((user.unwrap_or(NOBODY), group.unwrap_or(NOBODY))) })
    }
}

/// User and group `nobody`.
const NOBODY: u32 = 65_534;

/// Parses the id in a variable; `None` if it is unset or root's.
fn id(variable: &'static str) -> Result<Option<u32>, InvalidId> {
    let Some(value) = environment::trusted(variable) else { return Ok(None) };
    let value = value.to_string_lossy();
    // setresuid(2) interprets u32::MAX as "unchanged".
    match value.parse() {
        Ok(id) if id != u32::MAX => Ok(Some(id).filter(|id| *id != 0)),
        _ => Err(InvalidId { variable, value: value.into_owned() }),
    }
}

/// The sandbox of one process, prepared before the fork because the child must not allocate.
#[derive(Debug)]
pub(super) struct Confinement {
    filter: Vec<sock_filter>,
    /// Filter instructions that take the process's own pid, which is unknown before the fork.
    own_pid: Vec<usize>,
    limits: Vec<(u32, u64)>,
    rights: CodeRights,
}

impl Confinement {
    /// For a process with this bracket that keeps the descriptors of `switch` and `lifeline`.
    pub(super) fn new(
        rights: CodeRights,
        layout: &Layout,
        switch: Option<&SealedSwitch>,
        lifeline: Option<i32>,
    ) -> Confinement {
        let mut filter = vec![load(ARCH), skip(X86_64, 1, 0), TRAP];
        if let Some(switch) = switch {
            guard(&mut filter, switch.writes.descriptor, &bracket_alone(layout, switch));
            keep_sealed(&mut filter, switch);
        }
        if let Some(lifeline) = lifeline {
            guard(&mut filter, lifeline, &[NOT_OPEN]);
        }
        // A file mapping could overwrite the sealed values.
        let is_anonymous = jump(libc::BPF_JSET, libc::MAP_ANONYMOUS as u32, 1, 0);
        on_call(&mut filter, libc::SYS_mmap, &[load(argument(3)), is_anonymous, NOT_OPEN]);
        filter.push(load(NUMBER));
        filter.extend([skip(libc::SYS_clone3 as u32, 0, 1), NO_SUCH_CALL]);
        for number in STARTING {
            filter.extend([skip(number as u32, 0, 1), ASK_TRACER]);
        }
        for &number in ALLOWED.iter().chain(ON_DESCRIPTORS) {
            filter.extend([skip(number as u32, 0, 1), ALLOW]);
        }
        let own_pid = [0, 1, 2].map(|nth| filter.len() + 5 * nth + 2).to_vec();
        for number in SIGNALLING {
            let to_itself = [load(argument(0)), skip(0, 0, 1), ALLOW, TRAP];
            filter.push(skip(number as u32, 0, to_itself.len()));
            filter.extend(to_itself);
        }
        filter.push(TRAP);
        Confinement { filter, own_pid, limits: limits().to_vec(), rights }
    }

    /// For a process that keeps all rights, but starts no other: CLONE_UNTRACED would hide it
    /// from the tracer.
    pub(super) fn one_process() -> Confinement {
        /// The bit of calls with 32-bit pointers. Linux uapi/asm/unistd.h.
        const X32: u32 = 1 << 30;
        let starting = STARTING.into_iter().chain([libc::SYS_clone3]);
        let x64: Vec<u32> = starting.flat_map(|n| [n as u32, n as u32 | X32]).collect();
        let rule = |numbers: &[u32]| {
            let asked = numbers.iter().flat_map(|number| [skip(*number, 0, 1), ASK_TRACER]);
            [load(NUMBER)].into_iter().chain(asked).chain([ALLOW]).collect::<Vec<_>>()
        };
        let i386 = rule(&STARTING_I386);
        let mut filter = vec![load(ARCH), skip(X86_64, i386.len(), 0)];
        filter.extend(i386);
        filter.extend(rule(&x64));
        let rights = CodeRights { user: None };
        Confinement { filter, own_pid: Vec::new(), limits: Vec::new(), rights }
    }

    /// Confines the calling process, which must be a dedicated fork; returns whether that worked.
    pub(super) fn apply(&mut self) -> bool {
        // SAFETY: system calls with numbers and pointers to numbers, and a filter that outlives
        // them; they are async-signal-safe, and nothing allocates.
        unsafe {
            for (resource, most) in &self.limits {
                if !limit(*resource, *most) {
                    return false;
                }
            }
            if let Some((user, group)) = self.rights.user {
                // The change of user cleared the parent-death signal.
                if !become_user(user, group)
                    || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0
                {
                    return false;
                }
            }
            for at in &self.own_pid {
                if let Some(own) = self.filter.get_mut(*at) {
                    own.k = libc::getpid().cast_unsigned();
                }
            }
            let program = libc::sock_fprog {
                len: self.filter.len() as u16,
                filter: self.filter.as_mut_ptr(),
            };
            let program = &raw const program;
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, program) == 0
        }
    }
}

/// Resource limits. A fork starts with its parent's address space.
fn limits() -> [(u32, u64); 4] {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let mapped = pages.unwrap_or(0).saturating_mul(PAGE);
    [
        (libc::RLIMIT_AS, mapped.saturating_add(MEMORY)),
        (libc::RLIMIT_NOFILE, DESCRIPTORS),
        (libc::RLIMIT_NPROC, 0),
        (libc::RLIMIT_CORE, 0),
    ]
}

/// Lowers a hard limit; returns whether it is now at most that.
///
/// # Safety
/// Makes system calls that are async-signal-safe.
pub(super) unsafe fn limit(resource: u32, most: u64) -> bool {
    let mut now = rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes and reads the structure.
    unsafe {
        if libc::getrlimit(resource, &raw mut now) != 0 {
            return false;
        }
        now = rlimit { rlim_cur: now.rlim_cur.min(most), rlim_max: now.rlim_max.min(most) };
        libc::setrlimit(resource, &raw const now) == 0
    }
}

/// Drops root's rights; returns whether that worked: asks the kernel for the ids, and tries to
/// become root again.
///
/// # Safety
/// Makes system calls that are async-signal-safe.
unsafe fn become_user(user: u32, group: u32) -> bool {
    let (mut users, mut groups) = ([u32::MAX; 3], [u32::MAX; 3]);
    let [real, effective, saved] = &mut users;
    let [real_group, effective_group, saved_group] = &mut groups;
    // SAFETY: the kernel writes the six numbers.
    unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(group, group, group) == 0
            && libc::setresuid(user, user, user) == 0
            && libc::getresuid(real, effective, saved) == 0
            && libc::getresgid(real_group, effective_group, saved_group) == 0
            && users == [user; 3]
            && groups == [group; 3]
            && libc::getgroups(0, std::ptr::null_mut()) == 0
            && libc::setresuid(0, 0, 0) != 0
            && (group == 0 || libc::setresgid(0, 0, 0) != 0)
    }
}

/// Checks calls on `descriptor` with `rule`, which allows the call if execution reaches its end.
fn guard(filter: &mut Vec<sock_filter>, descriptor: i32, rule: &[sock_filter]) {
    let mut checked = vec![load(NUMBER)];
    for (nth, &number) in ON_DESCRIPTORS.iter().enumerate() {
        // Jumps to the rule; after the last number, past it.
        let left = ON_DESCRIPTORS.len() - 1 - nth;
        checked.push(skip(number as u32, left, if left == 0 { rule.len() } else { 0 }));
    }
    checked.extend_from_slice(rule);
    filter.push(load(argument(0)));
    filter.push(skip(descriptor.cast_unsigned(), 0, checked.len()));
    filter.extend(checked);
}

/// Checks one call with `rule`, which allows the call if execution reaches its end.
fn on_call(filter: &mut Vec<sock_filter>, number: c_long, rule: &[sock_filter]) {
    filter.extend([load(NUMBER), skip(number as u32, 0, rule.len())]);
    filter.extend_from_slice(rule);
}

/// Allows the bracket's two system calls, and only to write one of the two values into the control
/// register. Compares all 64 bits of each argument, except for the descriptor, of which the kernel
/// uses the lower half.
fn bracket_alone(layout: &Layout, switch: &SealedSwitch) -> Vec<sock_filter> {
    let [on, off] = layout.switches;
    let [on_value, off_value] = switch.values_at();
    let mut rule = vec![load(NUMBER), skip(libc::SYS_pwrite64 as u32, 1, 0), NOT_OPEN];
    // Both pointers of a pair are in one mapping: their upper halves are equal.
    for (field, values) in [
        (IP, [on, off]),
        (argument(1), [on_value, off_value]),
        (argument(2), [8, 8]),
        (argument(3), [switch.writes.msr.into(), switch.writes.msr.into()]),
    ] {
        let [one, other] = values;
        rule.extend([load(field + 4), skip((one >> 32) as u32, 1, 0), NOT_OPEN]);
        rule.extend([load(field), skip(one as u32, 2, 0), skip(other as u32, 1, 0), NOT_OPEN]);
    }
    rule
}

/// Keeps the mapping of the two values: refuses calls whose start address is below its end.
fn keep_sealed(filter: &mut Vec<sock_filter>, switch: &SealedSwitch) {
    let refuse_low = |at: u32| {
        let is_above = jump(libc::BPF_JGE, switch.end(), 1, 0);
        [load(at + 4), skip(0, 0, 3), load(at), is_above, TRAP]
    };
    let refuse_fixed = |flag: i32, at: u32| {
        let rule = refuse_low(at);
        let is_fixed = jump(libc::BPF_JSET, flag.cast_unsigned(), 0, rule.len());
        [&[load(argument(3)), is_fixed][..], &rule].concat()
    };
    for number in MAPPING {
        on_call(filter, number, &refuse_low(argument(0)));
    }
    on_call(filter, libc::SYS_mmap, &refuse_fixed(libc::MAP_FIXED, argument(0)));
    on_call(filter, libc::SYS_mremap, &refuse_fixed(libc::MREMAP_FIXED, argument(4)));
}

/// Candidate addresses of the page: from the default of vm.mmap_min_addr up to the usual start of
/// non-PIE programs.
const LOWEST: u64 = 0x1_0000;
const HIGHEST: u64 = 0x40_0000;

/// The control register values that a bracket writes, sealed against changes by the code inside it.
///
/// They are in a page that becomes read-only before the code's process is forked. Nothing is mapped
/// below that page, so a call that could change its mapping is recognised by its address alone. The
/// filter refuses calls that start below its end, and lets the bracket write only the two values.
#[derive(Debug)]
pub(super) struct SealedSwitch {
    mapping: Mapping,
    pub(super) writes: SwitchWrites,
}

impl SealedSwitch {
    /// Maps the page, to be inherited by processes forked later.
    pub(super) fn new(writes: SwitchWrites) -> io::Result<SealedSwitch> {
        let mut addresses = (LOWEST..HIGHEST).step_by(PAGE as usize);
        let mut mapping = addresses
            .find_map(|address| Mapping::at(address, PAGE).ok())
            .ok_or_else(|| io::Error::other("no address below 4 MiB can be mapped"))?;
        let values = [writes.on, writes.off].map(u64::to_le_bytes).concat();
        mapping.fill(0, PAGE, &values, ProtFlags::PROT_READ)?;
        Ok(SealedSwitch { mapping, writes })
    }

    /// The addresses of the two values.
    pub(super) fn values_at(&self) -> [u64; 2] {
        [self.mapping.address(), self.mapping.address() + 8]
    }

    /// The end of the page; below 4 GiB.
    pub(super) fn end(&self) -> u32 {
        self.mapping.end() as u32
    }
}
