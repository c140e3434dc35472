//! Runs a thread up to the next branch with several possible targets, with a breakpoint in a debug
//! register: fewer stops than single-stepping.
//!
//! Only through code whose bytes do not change. The first instruction may be a conditional branch,
//! whose direction the flags tell. If something such as a signal stops a thread earlier, its
//! address shows how far it has run. A thread at any other address was moved by the kernel past its
//! breakpoint; it stops at its next system call.
//!
//! PTRACE_SINGLEBLOCK (DEBUGCTL.BTF) is not used. It would stop at each taken branch: `ls /usr/bin`
//! took 425,250, and 564,000 stops here (25 November 2026). But its stop does not show which of
//! several branches to one target was taken, and virtual machines accept it and step instructions.

use lbr_msr::insn::{BranchInsn, Insn};
use lbr_msr::record::HwBranchType;
use lbr_msr::soft::Retired;
use nix::libc::user_regs_struct as Registers;

use super::Handled;
use super::sys::{self, RESUME_FLAG, USER_CS};
use super::task::{Passage, Run};
use super::tracer::{Breakpoints, Tracer};
use crate::gate::Recorder;
use crate::target::Doing;

impl<R: Recorder> Tracer<'_, R> {
    /// Runs a stopped thread, if that gets further than a step.
    pub(super) fn run_on(&mut self, tid: i32, regs: &Registers) -> Handled<bool> {
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
        let sites = &self.source.sites;
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
            // Its arguments are only visible at a stop.
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
        // With stops at system calls, so that a thread that was moved past its breakpoint stops at
        // all.
        sys::to_syscall(tid).doing("running the program")?;
        Ok(true)
    }

    /// A running thread has stopped, at its breakpoint or elsewhere: retires the branches it
    /// executed.
    pub(super) fn settle(&mut self, tid: i32, regs: &Registers, at_breakpoint: bool) -> Handled {
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
        let mut ticked = 0;
        if let Some((branch, taken)) = first
            && executed > 0
            && let Some(task) = self.tasks.get_mut(&tid)
        {
            ticked = 1;
            task.tick(1);
            if taken {
                let to = branch.target.unwrap_or_default();
                let retired = Retired::user(branch.ip, to, HwBranchType::Cond);
                let retired = task.modelled(&branch, retired);
                self.retire(tid, &retired)?;
            } else {
                task.not_taken(&branch);
            }
        }
        for (place, jump) in path.jumps.iter().filter(|(place, _)| lead + place < executed) {
            let Some(task) = self.tasks.get_mut(&tid) else { return Ok(()) };
            let upto = lead + place + 1;
            task.tick(upto - ticked);
            ticked = upto;
            let mut retired = Retired::user(jump.ip, jump.target.unwrap_or_default(), jump.class);
            retired.zero_length_call = jump.is_zero_length_call();
            let retired = task.modelled(jump, retired);
            self.retire_to(tid, &retired, regs)?;
        }
        self.tasks.get_mut(&tid).into_iter().for_each(|task| task.tick(executed - ticked));
        Ok(())
    }
}
