//! Single-steps the code in a bracket, to count what it executes.

use std::time::Instant;

use lbr_msr::insn::{BranchInsn, Insn, UnderTrapFlag};
use lbr_msr::record::BranchType;
use lbr_msr::soft::Retired;
use nix::libc::user_regs_struct;
use nix::sys::ptrace;

use super::child::{Child, StepCounts, Stopped};
use super::fault::{Fault, FaultKind, NoResult, os};
use sampler::source::ptrace::code::TracedCode;
use sampler::source::ptrace::sys::{self, TRAP_FLAG, hide_trap_flag};

impl Child {
    /// Steps from the opening jump to after the closing one.
    pub(super) fn walk(
        &mut self,
        deadline: Instant,
        retire: &mut impl FnMut(&Retired),
    ) -> Result<StepCounts, NoResult> {
        let pid = self.pid.as_raw();
        let (mut counts, mut code, mut steps) =
            (StepCounts::default(), TracedCode::default(), 0u32);
        let mut regs = self.regs()?;
        while regs.rip != self.layout.tail {
            steps = steps.wrapping_add(1);
            if steps.is_multiple_of(1024) {
                self.go_on()?;
                if Instant::now() > deadline {
                    self.dead = true;
                    let kind = FaultKind::Hang { in_call: false };
                    return Err(NoResult::Fault(Fault { kind, at: Some(regs.rip) }));
                }
            }
            let (mut decoded, _) = code.at(pid, regs.rip);
            if let (UnderTrapFlag::DelaysTrap, Insn::Straight { len }) =
                (decoded.under_trap_flag, decoded.insn)
            {
                counts.instructions += u64::from(!self.layout.is_ours(decoded.ip));
                (decoded, _) = code.at(pid, decoded.ip.wrapping_add(u64::from(len)));
            }
            let call = match decoded.insn {
                Insn::Branch(branch) => branch.branch_type == BranchType::SYSCALL || decoded.int80,
                _ => false,
            };
            sys::step(pid, 0).map_err(os("stepping through the code"))?;
            let status = match self.look_until(deadline)? {
                Some(status) => status,
                None => match self.overdue()? {
                    Stopped::Fault(fault) => return Err(NoResult::Fault(fault)),
                    Stopped::At(at) => return Err(self.own_trap(at)),
                },
            };
            match self.judge(status)? {
                Some(Stopped::At(at)) if decoded.is_interrupt() => return Err(self.own_trap(at)),
                Some(Stopped::At(_)) => {}
                Some(Stopped::Fault(fault)) => return Err(NoResult::Fault(fault)),
                // A signal to ignore: the step was not made.
                None => continue,
            }
            let before = regs;
            regs = self.regs()?;
            if regs.eflags & TRAP_FLAG != 0 {
                // POPF makes the kernel forget that it set the flag (Linux arch/x86/kernel/step.c):
                // it would stay set.
                regs.eflags &= !TRAP_FLAG;
                ptrace::setregs(self.pid, regs).map_err(os("writing registers"))?;
            }
            let ours = self.layout.is_ours(decoded.ip);
            match decoded.insn {
                // The next iteration of REP.
                Insn::Straight { .. } if regs.rip == decoded.ip => continue,
                Insn::Straight { len } => {
                    let next = decoded.ip.wrapping_add(u64::from(len));
                    counts.undecoded += u64::from(regs.rip != next);
                    if decoded.under_trap_flag == UnderTrapFlag::PushesFlags {
                        hide_trap_flag(pid, regs.rsp);
                    }
                }
                Insn::Branch(_) if call => {
                    counts.system_calls += 1;
                    // Mappings may have changed.
                    code.forget();
                    if regs.r11 & TRAP_FLAG != 0 && !decoded.int80 {
                        // SYSCALL copies RFLAGS, with the trap flag, into R11.
                        regs.r11 &= !TRAP_FLAG;
                        ptrace::setregs(self.pid, regs).map_err(os("writing registers"))?;
                    }
                }
                Insn::Branch(branch) => {
                    let taken = is_taken(&branch, &before, regs.rip);
                    counts.branches += u64::from(taken && !ours);
                    counts.not_taken += u64::from(!taken && !ours);
                    if self.layout.around == Some(decoded.ip) {
                        counts.rounds += 1;
                    }
                    if taken {
                        let mut retired = Retired::user(decoded.ip, regs.rip, branch.class);
                        retired.zero_length_call = branch.is_zero_length_call();
                        retire(&retired);
                    }
                }
                Insn::Invalid => counts.undecoded += 1,
            }
            counts.instructions += u64::from(!ours);
        }
        Ok(counts)
    }
}

fn is_taken(branch: &BranchInsn, before: &user_regs_struct, to: u64) -> bool {
    if branch.target == Some(branch.next()) {
        // Taken or not, the next instruction is the same: only the flags tell.
        return branch.taken(before.eflags, before.rcx).unwrap_or(true);
    }
    !(branch.is_conditional() && to == branch.next())
}
