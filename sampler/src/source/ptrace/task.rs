//! What is known of each thread and process of the target.

use lbr_msr::text::AsText;
use std::collections::HashSet;
use std::fs;
use std::sync::Arc;

use lbr_msr::insn::BranchInsn;
use nix::libc::user_regs_struct;

use super::code::{Decoded, Path, TracedCode};
use crate::maps::Mapping;
use crate::target::ThreadId;

/// How far a system call that is run from stop to stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    /// Stepped like any other instruction.
    Stepped,
    /// Its entry stop comes next.
    Entering,
    /// Its exit stop comes next.
    Leaving,
}

/// A system call that is about to execute: number and first three arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) number: u64,
    pub(super) args: [u64; 3],
    /// The trap flag is in the flags that rt_sigreturn is going to restore.
    pub(super) restores_trap_flag: bool,
}

/// The step that a thread is to take, or is taking.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) decoded: Decoded,
    /// A conditional branch to the next instruction, where the address reached
    /// says nothing: whether its condition holds.
    pub(super) taken: Option<bool>,
    /// SYSCALL or INT 80H.
    pub(super) call: Option<Call>,
}

/// Instructions that a thread runs through, up to a breakpoint.
#[derive(Debug)]
pub(super) struct Run {
    /// Where it began.
    pub(super) start: u64,
    /// A conditional branch that comes first, and whether its condition holds.
    pub(super) first: Option<(BranchInsn, bool)>,
    /// What comes then; the breakpoint stands at its end.
    pub(super) path: Arc<Path>,
}

/// A thread.
#[derive(Debug)]
pub(super) struct Task<Ring> {
    pub(super) id: ThreadId,
    pub(super) parent: ThreadId,
    /// `None` while nothing is recorded.
    pub(super) ring: Option<Ring>,
    pub(super) pending: Option<Pending>,
    /// It runs; nothing is pending then.
    pub(super) run: Option<Run>,
    /// Where its breakpoint is.
    pub(super) breakpoint: Option<u64>,
    /// It stands inside a system call that is not `pending`: its exit will be
    /// reported as a step without an instruction.
    pub(super) in_syscall: bool,
    pub(super) passage: Passage,
    /// A child that is left alone as soon as it no longer shares memory with
    /// a process that has a breakpoint in it.
    pub(super) leaving: bool,
    /// The program has set the trap flag itself: the traps that it makes are
    /// the program's too.
    pub(super) traps_itself: bool,
}

impl<Ring> Task<Ring> {
    pub(super) fn new(id: ThreadId, parent: ThreadId) -> Task<Ring> {
        Task {
            id,
            parent,
            ring: None,
            pending: None,
            run: None,
            breakpoint: None,
            in_syscall: false,
            passage: Passage::Stepped,
            leaving: false,
            traps_itself: false,
        }
    }
}

/// A process.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) code: TracedCode,
    /// The executable mappings that events told of.
    pub(super) told: HashSet<Mapping>,
}

/// Whether `tid` is a thread of process `pid`.
pub(super) fn is_thread_of(tid: i32, pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap_or(false)
}

/// The name of a thread, at most 15 bytes; `None` where it has gone.
pub(super) fn comm(thread: ThreadId) -> Option<String> {
    let bytes = fs::read(format!("/proc/{}/task/{}/comm", thread.pid, thread.tid)).ok()?;
    Some((bytes.strip_suffix(b"\n").unwrap_or(&bytes)).as_text().into_owned())
}

/// Where a stopped thread goes on: behind an interrupted system call that the
/// kernel will restart, at the call once more (`ERESTART*` in RAX, Linux
/// include/linux/errno.h).
pub(super) fn next_ip(regs: &user_regs_struct) -> u64 {
    let restarts = matches!(regs.rax.wrapping_neg(), 512 | 513 | 514 | 516);
    let in_call = (regs.orig_rax as i64) >= 0;
    // SYSCALL and INT 80H are two bytes long.
    if in_call && restarts { regs.rip.wrapping_sub(2) } else { regs.rip }
}
