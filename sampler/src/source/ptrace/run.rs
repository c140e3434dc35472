//! Running up to the next branch that may go to several places, by a breakpoint
//! of the thread in a debug register: fewer stops than a step for each
//! instruction.
//!
//! Only through code whose bytes stay as they are. What comes first may be a
//! conditional branch: the flags tell where it goes. Whatever stops a thread in
//! between, such as a signal, its address tells how far it has come. One that
//! is somewhere else was moved by the kernel; it has run past its breakpoint
//! then, and stops at its next system call.

use lbr_msr::insn::{BranchInsn, Insn};
use lbr_msr::record::HwBranchType;
use lbr_msr::soft::Retired;
use nix::libc::user_regs_struct;

use super::Recorder;
use super::step::USER_CS;
use super::sys::{self, RESUME_FLAG};
use super::task::{Passage, Run};
use super::tracer::{Stop, Tracer, os};

/// Whether breakpoints can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breakpoints {
    Unknown,
    /// This thread has one where it stands: a step of it must not get on.
    Tried(i32),
    Work,
    Missing,
}

impl<R: Recorder> Tracer<'_, R> {
    /// Runs a stopped thread, if that gets further than a step does.
    pub(super) fn run_on(&mut self, tid: i32, regs: &user_regs_struct) -> Result<bool, Stop> {
        let ip = regs.rip;
        let Some(task) = self.tasks.get_mut(&tid) else { return Ok(false) };
        if task.in_syscall || task.traps_itself || regs.cs != USER_CS {
            return Ok(false);
        }
        match self.breakpoints {
            Breakpoints::Work => {}
            Breakpoints::Unknown if regs.eflags & RESUME_FLAG == 0 => {
                let armed = sys::break_at(tid, None, ip).is_ok();
                task.breakpoint = Some(ip).filter(|_| armed);
                self.breakpoints =
                    if armed { Breakpoints::Tried(tid) } else { Breakpoints::Missing };
                return Ok(false);
            }
            _ => return Ok(false),
        }
        let (pid, before) = (task.id.pid, task.breakpoint);
        let function = self.function.filter(|_| pid == self.main);
        let sites = &self.shared.sites;
        let tell = |branch: &BranchInsn| {
            sites.insert(pid, branch.ip, branch.branch_type);
        };
        let code = &mut self.processes.entry(pid).or_default().code;
        let mut first = None;
        let mut start = ip;
        if code.stays(tid, ip) {
            let (decoded, is_new) = code.at(tid, ip);
            if let Insn::Branch(branch) = decoded.insn {
                if is_new {
                    tell(&branch);
                }
                if let (Some(taken), Some(target)) =
                    (branch.taken(regs.eflags, regs.rcx), branch.target)
                {
                    first = Some((branch, taken));
                    start = if taken { target } else { branch.next() };
                }
            }
        }
        if start != ip && function == Some(start) {
            // Its arguments are seen at a stop only.
            return Ok(false);
        }
        let path = code.path(tid, start, function, tell);
        let steps = path.instructions.len() + usize::from(first.is_some());
        let comes_back = path.end == ip && regs.eflags & RESUME_FLAG == 0;
        if steps < 2 || comes_back || sys::break_at(tid, before, path.end).is_err() {
            return Ok(false);
        }
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.breakpoint = Some(path.end);
            task.pending = None;
            task.passage = Passage::Stepped;
            task.run = Some(Run { start: ip, first, path });
        }
        // Not simply on: a thread that was moved must stop some time.
        sys::to_syscall(tid).map_err(|e| os("running the program", e))?;
        Ok(true)
    }

    /// A thread that runs has stopped, at its breakpoint or elsewhere: retires
    /// what it has executed.
    pub(super) fn settle(
        &mut self,
        tid: i32,
        regs: &user_regs_struct,
        at_breakpoint: bool,
    ) -> Result<(), Stop> {
        let run = self.tasks.get_mut(&tid).and_then(|task| task.run.take());
        let Some(Run { start, first, path }) = run else { return Ok(()) };
        let lead = usize::from(first.is_some());
        let has_moved = at_breakpoint || regs.eflags & RESUME_FLAG == 0;
        let executed = if regs.rip == path.end && (start != path.end || has_moved) {
            lead + path.instructions.len()
        } else if regs.rip == start {
            0
        } else if let Some(place) = path.instructions.iter().position(|&ip| ip == regs.rip) {
            lead + place
        } else {
            self.notes.undecoded += 1;
            return Ok(());
        };
        self.notes.instructions += executed as u64;
        if let Some((branch, true)) = first
            && executed > 0
        {
            let to = branch.target.unwrap_or_default();
            self.retire(tid, &Retired::user(branch.ip, to, HwBranchType::Cond))?;
        }
        for (_, jump) in path.jumps.iter().filter(|(place, _)| lead + place < executed) {
            let retired = Retired::user(jump.ip, jump.target.unwrap_or_default(), jump.class);
            let zero_length_call = jump.is_zero_length_call();
            self.retire_to(tid, &Retired { zero_length_call, ..retired }, regs)?;
        }
        Ok(())
    }
}
