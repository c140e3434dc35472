//! State of the target's threads and processes.

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;

use lbr_msr::insn::BranchInsn;
use lbr_msr::record::Task as TaskEvent;
use lbr_msr::soft::{Model, Retired};
use nix::libc::{self, user_regs_struct as Registers};

use super::code::{Decoded, Path, TracedCode};
use crate::clock::monotonic_ns;
use crate::maps::Mapping;
use crate::target::{SignalStop, ThreadId};

/// Progress of a system call that runs from stop to stop.
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
    /// Whether the flags that rt_sigreturn will restore include the trap flag.
    pub(super) restores_trap_flag: bool,
}

impl Call {
    /// Whether it is rt_sigreturn, by which a signal handler returns.
    pub(super) fn returns_from_signal(&self) -> bool {
        self.number.cast_signed() == libc::SYS_rt_sigreturn
    }
}

/// The instruction that a thread is about to execute, or is executing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) decoded: Decoded,
    /// For a conditional branch to the next instruction, where the next address does not tell:
    /// whether its condition holds.
    pub(super) taken: Option<bool>,
    /// SYSCALL or INT 80H.
    pub(super) call: Option<Call>,
}

/// Instructions that a thread executes up to a breakpoint.
#[derive(Debug)]
pub(super) struct Run {
    /// Its start address.
    pub(super) start: u64,
    /// A leading conditional branch, and whether its condition holds.
    pub(super) first: Option<(BranchInsn, bool)>,
    /// The following instructions; the breakpoint is at their end.
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
    /// Its start address is recorded.
    pub(super) is_placed: bool,
    /// Its next instruction when the last signal arrived.
    pub(super) at_signal: u64,
    /// The last delivered signal, if the recorder wants signals.
    pub(super) signal: Option<Box<SignalStop>>,
    /// Its current run; nothing is pending meanwhile.
    pub(super) run: Option<Run>,
    /// Its breakpoint's address.
    pub(super) breakpoint: Option<u64>,
    /// It is inside a system call other than `pending`: its exit will be reported as a step without
    /// an instruction.
    pub(super) in_syscall: bool,
    pub(super) passage: Passage,
    /// A child that is detached as soon as it no longer shares memory with a process that contains
    /// a breakpoint.
    pub(super) leaving: bool,
    /// The program has set the trap flag itself, so that it also gets its traps.
    pub(super) traps_itself: bool,
    /// Predicts and times its branches, if that was asked for.
    pub(super) model: Option<Box<Model>>,
}

impl<Ring> Task<Ring> {
    pub(super) fn new(id: ThreadId, parent: ThreadId) -> Task<Ring> {
        Task {
            id,
            parent,
            ring: None,
            pending: None,
            is_placed: false,
            at_signal: 0,
            signal: None,
            run: None,
            breakpoint: None,
            in_syscall: false,
            passage: Passage::Stepped,
            leaving: false,
            traps_itself: false,
            model: None,
        }
    }

    /// The model's clock: this many instructions have executed.
    pub(super) fn tick(&mut self, instructions: usize) {
        if let Some(model) = &mut self.model {
            model.tick(u32::try_from(instructions).unwrap_or(u32::MAX));
        }
    }

    /// A taken branch with what the model makes of it.
    pub(super) fn modelled(&mut self, branch: &BranchInsn, retired: Retired) -> Retired {
        match &mut self.model {
            Some(model) => {
                model.taken(branch.ip, branch.next(), branch.class, retired.to).of(retired)
            }
            None => retired,
        }
    }

    /// A conditional branch was not taken.
    pub(super) fn not_taken(&mut self, branch: &BranchInsn) {
        if let Some(model) = &mut self.model {
            model.not_taken(branch.ip, branch.next());
        }
    }
}

/// A process.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) code: TracedCode,
    /// The executable mappings already reported.
    pub(super) told: HashSet<Mapping>,
}

/// Whether `tid` is a thread of process `pid`.
pub(super) fn is_thread_of(tid: i32, pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap_or(false)
}

/// The address where a stopped thread continues: after an interrupted system call that the kernel
/// will restart, the call itself (`ERESTART*` in RAX, Linux include/linux/errno.h).
pub(super) fn next_ip(regs: &Registers) -> u64 {
    let restarts = matches!(regs.rax.wrapping_neg(), 512 | 513 | 514 | 516);
    let in_call = (regs.orig_rax as i64) >= 0;
    // SYSCALL and INT 80H are two bytes long.
    if in_call && restarts { regs.rip.wrapping_sub(2) } else { regs.rip }
}

/// A thread and its parent, with the current time.
pub(super) fn task_event(id: ThreadId, parent: ThreadId) -> TaskEvent {
    TaskEvent { time: monotonic_ns(), pid: id.pid, tid: id.tid, ppid: parent.pid, ptid: parent.tid }
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/ptrace/task.rs"]
mod tests;
