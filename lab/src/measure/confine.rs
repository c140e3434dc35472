//! What measured code may not do: it may be anybody's, and we may be root.
//!
//! Its process takes the rights of the user behind sudo, or of nobody, where we
//! are root; it gets no new ones by running other programs (PR_SET_NO_NEW_PRIVS);
//! and of the system calls it may make those that reach nothing but itself
//! ([`ALLOWED`], [`ON_DESCRIPTORS`]), and send signals to itself alone. Any other
//! raises SIGSYS. Of the descriptors that its process has to keep, that of the
//! registers serves the two writes of the bracket alone, and that of the keeper
//! nothing: to the code they are not open.
#![allow(unsafe_code, reason = "prctl and setuid in a forked child")]

use lbr_msr::environment;
use nix::libc::{self, c_long, sock_filter};

use super::bracket::{Layout, SwitchWrites};

/// Calls that reach nothing but the process itself; forks and new programs are
/// seen by its tracer, which ends it.
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
    libc::SYS_memfd_create,
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
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_execve,
    libc::SYS_execveat,
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
const NOT_OPEN: sock_filter = ret(libc::SECCOMP_RET_ERRNO | libc::EBADF as u32);

const fn ret(k: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k }
}

/// The lower half of a field; the upper one is four bytes further.
const fn load(offset: u32) -> sock_filter {
    sock_filter {
        code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
        jt: 0,
        jf: 0,
        k: offset,
    }
}

/// Skips so many instructions where what was loaded equals `k`, or does not.
const fn skip(k: u32, equal: usize, otherwise: usize) -> sock_filter {
    let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    sock_filter { code, jt: equal as u8, jf: otherwise as u8, k }
}

/// What a process confines itself with; made before the fork, because the child
/// may not allocate.
#[derive(Debug)]
pub(super) struct Confinement {
    filter: Vec<sock_filter>,
    /// Where the process puts its own number, which nobody knows before.
    own_pid: [usize; 3],
    /// User and group; `None` where we are not root, or root could not trace
    /// another user's process.
    user: Option<(u32, u32)>,
}

impl Confinement {
    /// For a process with this bracket, which keeps the descriptors of `switch`
    /// and `lifeline` (-1 for none).
    pub(super) fn new(layout: &Layout, switch: &SwitchWrites, lifeline: i32) -> Confinement {
        let mut filter = vec![load(ARCH), skip(X86_64, 1, 0), TRAP];
        if switch.descriptor >= 0 {
            guard(&mut filter, switch.descriptor, &bracket_alone(layout, switch));
        }
        if lifeline >= 0 {
            guard(&mut filter, lifeline, &[NOT_OPEN]);
        }
        filter.push(load(NUMBER));
        for &number in ALLOWED.iter().chain(ON_DESCRIPTORS) {
            filter.extend([skip(number as u32, 0, 1), ALLOW]);
        }
        let own_pid = [0, 1, 2].map(|nth| filter.len() + 5 * nth + 2);
        for number in SIGNALLING {
            let to_itself = [load(argument(0)), skip(0, 0, 1), ALLOW, TRAP];
            filter.push(skip(number as u32, 0, to_itself.len()));
            filter.extend(to_itself);
        }
        filter.push(TRAP);
        Confinement { filter, own_pid, user: user() }
    }

    /// Confines the calling process, which is to be a fork made for that. Whether
    /// it is.
    pub(super) fn apply(&mut self) -> bool {
        // SAFETY: system calls that take numbers, and a filter that outlives
        // them; they are async-signal-safe, and nothing is allocated.
        unsafe {
            if let Some((user, group)) = self.user {
                let changed = libc::setgroups(0, std::ptr::null()) == 0
                    && libc::setresgid(group, group, group) == 0
                    && libc::setresuid(user, user, user) == 0;
                // The change of user has taken it back.
                if !changed || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return false;
                }
            }
            for at in self.own_pid {
                if let Some(own) = self.filter.get_mut(at) {
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

/// Calls on `descriptor` go through `rule`, whose end lets them go on.
fn guard(filter: &mut Vec<sock_filter>, descriptor: i32, rule: &[sock_filter]) {
    let mut checked = vec![load(NUMBER)];
    for (nth, &number) in ON_DESCRIPTORS.iter().enumerate() {
        // To the rule; behind the last one, past it.
        let left = ON_DESCRIPTORS.len() - 1 - nth;
        checked.push(skip(number as u32, left, if left == 0 { rule.len() } else { 0 }));
    }
    checked.extend_from_slice(rule);
    filter.push(load(argument(0)));
    filter.push(skip(descriptor.cast_unsigned(), 0, checked.len()));
    filter.extend(checked);
}

/// Eight bytes to the control register, by the two system calls of the bracket.
fn bracket_alone(layout: &Layout, switch: &SwitchWrites) -> Vec<sock_filter> {
    let [on, off] = layout.switches;
    let mut rule = vec![load(NUMBER), skip(libc::SYS_pwrite64 as u32, 1, 0), NOT_OPEN];
    rule.extend([load(IP + 4), skip((on >> 32) as u32, 1, 0), NOT_OPEN]);
    // Both lie in one mapping, and the lower halves tell them apart.
    rule.extend([load(IP), skip(on as u32, 2, 0), skip(off as u32, 1, 0), NOT_OPEN]);
    rule.extend([load(argument(2)), skip(8, 1, 0), NOT_OPEN]);
    rule.extend([load(argument(3)), skip(switch.msr, 1, 0), NOT_OPEN]);
    rule
}

/// Whose rights the code gets: where we are root, and may trace other users'
/// processes, those of who started us, of the user behind sudo, or of nobody.
fn user() -> Option<(u32, u32)> {
    /// CAP_SYS_PTRACE, Linux include/uapi/linux/capability.h.
    const SYS_PTRACE: u64 = 1 << 19;
    const NOBODY: u32 = 65_534;
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let may_trace = u64::from_str_radix(effective.trim(), 16).ok()? & SYS_PTRACE != 0;
    if !nix::unistd::geteuid().is_root() || !may_trace {
        return None;
    }
    let (user, group) = (nix::unistd::getuid(), nix::unistd::getgid());
    if !user.is_root() {
        return Some((user.as_raw(), group.as_raw()));
    }
    let number = |name| environment::trusted(name)?.to_str()?.parse::<u32>().ok();
    let number = |name| number(name).filter(|id| *id != 0);
    let user = number("SUDO_UID").unwrap_or(NOBODY);
    Some((user, number("SUDO_GID").unwrap_or(NOBODY)))
}
