//! One step of one thread: the pending instruction and its effect.

use lbr_msr::insn::{BranchInsn, Insn, UnderTrapFlag};
use lbr_msr::record::{BranchType, Event, HwBranchType, MoveKind};
use lbr_msr::soft::Retired;
use nix::libc::{self, user_regs_struct as Registers};
use nix::sys::ptrace;
use nix::unistd::Pid;

use super::Handled;
use super::code::Decoded;
use super::sys::{self, SAVED_FLAGS, TRAP_FLAG, USER_CS, put_trap_flag};
use super::task::{Call, Passage, Pending, next_ip};
use super::tracer::{Breakpoints, Tracer};
use crate::clock::monotonic_ns;
use crate::gate::{Recorder, Retire};
use crate::maps;
use crate::target::{Doing, SignalStop, ThreadId};

/// The page of emulated system calls, Documentation/arch/x86/x86_64/mm.rst.
const VSYSCALL: std::ops::Range<u64> = 0xffff_ffff_ff60_0000..0xffff_ffff_ff60_1000;
/// `si_code` of the stop that the kernel makes at the first instruction of a signal handler when
/// the thread is stepped: SIGTRAP, while a step has TRAP_TRACE and the exit of a system call
/// TRAP_BRKPT.
const AT_HANDLER: i32 = libc::SIGTRAP;

impl<R: Recorder> Tracer<'_, R> {
    /// Handles a SIGTRAP of a stepped thread. `false` if the signal is the program's own and must
    /// be delivered.
    pub(super) fn stepped(&mut self, tid: i32, code: i32, regs: &Registers) -> Handled<bool> {
        self.settle(tid, regs, code == libc::TRAP_HWBKPT)?;
        let Some(task) = self.tasks.get_mut(&tid) else { return Ok(true) };
        let pending = task.pending;
        if self.breakpoints == Breakpoints::Tried(tid) {
            let holds = code == libc::TRAP_HWBKPT && task.breakpoint == Some(regs.rip);
            self.breakpoints = if holds { Breakpoints::Work } else { Breakpoints::Missing };
        }
        let traps = pending.is_some_and(|p| p.call.is_none() && p.decoded.is_interrupt());
        match code {
            // The end of a run, or a step at the address of its breakpoint.
            libc::TRAP_HWBKPT => Ok(true),
            libc::TRAP_TRACE => {
                task.in_syscall = false;
                let is_ours = !task.traps_itself;
                self.complete(tid, regs)?;
                Ok(is_ours)
            }
            AT_HANDLER => {
                let is_set = std::mem::take(&mut task.traps_itself);
                put_trap_flag(tid, regs.rsp.wrapping_add(SAVED_FLAGS), is_set);
                let from = task.at_signal;
                if pending.is_some_and(|pending| pending.decoded.ip != from) {
                    // The signal interrupted the system call.
                    self.retire_call(tid)?;
                }
                self.tasks.get_mut(&tid).into_iter().for_each(|task| task.pending = None);
                self.moved(tid, MoveKind::Signal, from, regs.rip)?;
                self.notes.kernel_returns_omitted += 1;
                // The handler's own mask, often all signals, is now in effect.
                sys::unblock_sigtrap(tid).doing("changing the signal mask")?;
                Ok(true)
            }
            libc::TRAP_BRKPT if !traps => {
                if std::mem::take(&mut task.in_syscall) {
                    task.pending = None;
                    self.notes.kernel_returns_omitted += 1;
                } else {
                    self.complete(tid, regs)?;
                }
                Ok(true)
            }
            _ => {
                // A SIGTRAP that the program sent itself replaces the step's: the call that sent it
                // has executed.
                if pending.is_some_and(|p| p.decoded.ip != regs.rip) {
                    self.complete(tid, regs)?;
                }
                Ok(false)
            }
        }
    }

    /// Decodes the next instruction, and runs it.
    pub(super) fn advance(&mut self, tid: i32, regs: &Registers, signal: i32) -> Handled {
        let ip = next_ip(regs);
        let Some(task) = self.tasks.get_mut(&tid) else { return Ok(()) };
        if let Some(start) = &mut self.start {
            // Not when recording starts: until its own stop, a process would run past it.
            start.disarm(task.id.pid);
        }
        if signal != 0 {
            task.at_signal = regs.rip;
        }
        if !std::mem::replace(&mut task.is_placed, true) {
            self.moved(tid, MoveKind::Start, 0, ip)?;
        }
        if signal == 0 && ip == regs.rip && self.run_on(tid, regs)? {
            return Ok(());
        }
        let pending = self.plan(tid, ip, regs);
        let Some(task) = self.tasks.get_mut(&tid) else { return Ok(()) };
        task.pending = Some(pending);
        // Where a mask with SIGTRAP takes effect, the step's SIGTRAP would unblock itself and reset
        // the handler.
        let masks =
            pending.call.is_some_and(|call| call.number.cast_signed() == libc::SYS_rt_sigprocmask);
        if masks && signal == 0 && !task.in_syscall && ip == regs.rip {
            task.passage = Passage::Entering;
            return Ok(sys::to_syscall(tid).doing("running a system call")?);
        }
        task.passage = Passage::Stepped;
        Ok(sys::step(tid, signal).doing("stepping the program")?)
    }

    fn plan(&mut self, tid: i32, ip: u64, regs: &Registers) -> Pending {
        let mut decoded = self.decode(tid, ip, regs);
        if VSYSCALL.contains(&ip) {
            // The kernel emulates the call and returns from it before a trap is possible; the trap
            // comes at the instruction it returns to.
            let mut back = [0u8; 8];
            if super::code::read(tid, regs.rsp, &mut back) == back.len() {
                decoded = self.decode(tid, u64::from_ne_bytes(back), regs);
                self.notes.kernel_returns_omitted += 1;
            }
        }
        if let (UnderTrapFlag::DelaysTrap, Insn::Straight { len }) =
            (decoded.under_trap_flag, decoded.insn)
        {
            self.notes.instructions += 1;
            self.tasks.get_mut(&tid).into_iter().for_each(|task| task.tick(1));
            decoded = self.decode(tid, decoded.ip.wrapping_add(u64::from(len)), regs);
        }
        let mut pending = Pending { decoded, taken: None, call: None };
        if let Insn::Branch(branch) = decoded.insn {
            if branch.target == Some(branch.next()) {
                pending.taken = branch.taken(regs.eflags, regs.rcx);
            }
            if branch.branch_type == BranchType::SYSCALL || decoded.int80 {
                let restores_trap_flag = regs.rax.cast_signed() == libc::SYS_rt_sigreturn
                    && sys::saved_trap_flag(tid, regs.rsp);
                let args = [regs.rdi, regs.rsi, regs.rdx];
                pending.call = Some(Call { number: regs.rax, args, restores_trap_flag });
            }
        }
        pending
    }

    fn decode(&mut self, tid: i32, ip: u64, regs: &Registers) -> Decoded {
        let Some(task) = self.tasks.get(&tid) else { return Decoded::new(&[], ip) };
        let pid = task.id.pid;
        if regs.cs != USER_CS {
            return Decoded::new(&[], ip);
        }
        let (decoded, new) = self.processes.entry(pid).or_default().code.at(tid, ip);
        if let (true, Insn::Branch(branch)) = (new, decoded.insn) {
            self.source.sites.insert(pid, ip, branch.branch_type);
        }
        decoded
    }

    /// The pending instruction has executed; retires it if it branched.
    pub(super) fn complete(&mut self, tid: i32, regs: &Registers) -> Handled {
        let Some(task) = self.tasks.get_mut(&tid) else { return Ok(()) };
        let Some(pending) = task.pending.take() else { return Ok(()) };
        self.notes.instructions += 1;
        let (from, to) = (pending.decoded.ip, regs.rip);
        let traps_itself = task.traps_itself;
        // A repeated string instruction traps at each of its iterations.
        task.tick(usize::from(from != to));
        if pending.decoded.under_trap_flag == UnderTrapFlag::PopsFlags {
            // The kernel shows the flag if the program set it, and hides the tracer's.
            task.traps_itself = regs.eflags & TRAP_FLAG != 0;
        }
        match pending.decoded.insn {
            Insn::Branch(branch) if pending.call.is_some() => {
                self.retire(tid, &entering_kernel(&branch))?;
                self.notes.kernel_returns_omitted += 1;
                if let Some(call) = pending.call {
                    if call.returns_from_signal() {
                        self.moved(tid, MoveKind::Return, branch.next(), to)?;
                    }
                    self.called(tid, call, &branch, regs)?;
                }
            }
            Insn::Branch(branch) if pending.decoded.is_interrupt() => {
                self.retire(tid, &entering_kernel(&branch))?;
            }
            Insn::Branch(branch) => {
                let taken = match pending.taken {
                    Some(taken) => taken,
                    None => !(branch.is_conditional() && to == branch.next()),
                };
                if !branch.can_reach(to) && taken {
                    // The kernel moved the thread (an aborted restartable sequence): its path is
                    // unknown.
                    self.notes.undecoded += 1;
                } else if taken {
                    let mut retired = Retired::user(from, to, branch.class);
                    retired.zero_length_call = branch.is_zero_length_call();
                    let retired = task.modelled(&branch, retired);
                    self.retire_to(tid, &retired, regs)?;
                } else {
                    task.not_taken(&branch);
                }
            }
            Insn::Straight { len } => {
                let next = from.wrapping_add(u64::from(len));
                if pending.decoded.abort_target == Some(to) && to != next {
                    let mut retired = Retired::user(from, to, HwBranchType::Other);
                    retired.abort = true;
                    self.retire(tid, &retired)?;
                } else if to != next && to != from {
                    self.notes.undecoded += 1;
                }
                if pending.decoded.under_trap_flag == UnderTrapFlag::PushesFlags && !traps_itself {
                    put_trap_flag(tid, regs.rsp, false);
                }
            }
            Insn::Invalid => self.notes.undecoded += 1,
        }
        Ok(())
    }

    /// Retires a branch that the thread has just taken; at the function's entry also its arguments.
    pub(super) fn retire_to(&mut self, tid: i32, branch: &Retired, regs: &Registers) -> Handled {
        let enters = self.function == Some(branch.to) && regs.rip == branch.to;
        let task = if enters { self.tasks.get_mut(&tid) } else { None };
        match task.filter(|task| task.id.pid == self.main).and_then(|task| task.ring.as_mut()) {
            Some(ring) => {
                let arguments = [regs.rdi, regs.rsi, regs.rdx, regs.rcx, regs.r8, regs.r9];
                Ok(ring.retire_entry(branch, arguments)?)
            }
            None => self.retire(tid, branch),
        }
    }

    pub(super) fn retire(&mut self, tid: i32, branch: &Retired) -> Handled {
        Ok(self.ring(tid).map_or(Ok(()), |ring| ring.retire(branch))?)
    }

    /// A signal is about to be delivered.
    pub(super) fn interrupted(&mut self, tid: i32) -> Handled {
        let regs = self.regs(tid)?;
        let Some(task) = self.tasks.get_mut(&tid) else { return Ok(()) };
        task.at_signal = regs.rip;
        let before = task.pending.filter(|pending| pending.decoded.ip != regs.rip);
        // The handler's return has executed, and the next signal was pending.
        match before.and_then(|before| before.call).is_some_and(|call| call.returns_from_signal()) {
            true => self.complete(tid, &regs),
            false => Ok(()),
        }
    }

    /// Shows the recorder a signal that is about to be delivered.
    pub(super) fn signalled(&mut self, tid: i32, signal: i32) -> Handled {
        if !self.recorder.wants_signals() {
            return Ok(());
        }
        let stop = sys::signal_stop(tid, signal)?;
        let Some(task) = self.tasks.get_mut(&tid) else { return Ok(()) };
        task.ring.iter_mut().for_each(|ring| ring.signalled(&stop));
        task.signal = Some(Box::new(stop));
        Ok(())
    }

    /// A thread's process ends. If a signal to this thread ended it, shows that to the recorder.
    pub(super) fn died(&mut self, tid: i32) -> Handled {
        let status = ptrace::getevent(Pid::from_raw(tid)).unwrap_or(0) as i32;
        if !self.recorder.wants_signals() || !libc::WIFSIGNALED(status) {
            return Ok(());
        }
        let now = sys::state(tid, libc::WTERMSIG(status))?;
        let Some(task) = self.tasks.get_mut(&tid) else { return Ok(()) };
        // Every thread of the process ends with this status. SIGKILL is never delivered.
        let is_this = |stop: &SignalStop| (stop.signal, stop.ip) == (now.signal, now.ip);
        let stop = match task.signal.take() {
            Some(stop) if is_this(&stop) => *stop,
            _ if now.signal == libc::SIGKILL => now,
            _ => return Ok(()),
        };
        task.ring.iter_mut().for_each(|ring| ring.died(stop.clone()));
        Ok(())
    }

    /// Records that the kernel moves a thread.
    pub(super) fn moved(&mut self, tid: i32, kind: MoveKind, from: u64, to: u64) -> Handled {
        Ok(self.ring(tid).map_or(Ok(()), |ring| ring.moved(kind, from, to))?)
    }

    fn ring(&mut self, tid: i32) -> Option<&mut R::Ring> {
        self.tasks.get_mut(&tid)?.ring.as_mut()
    }

    /// Retires a system call that does not return.
    pub(super) fn retire_call(&mut self, tid: i32) -> Handled {
        let Some(task) = self.tasks.get_mut(&tid) else { return Ok(()) };
        let Some(pending) = task.pending.take_if(|pending| pending.call.is_some()) else {
            return Ok(());
        };
        let Insn::Branch(branch) = pending.decoded.insn else { return Ok(()) };
        self.notes.instructions += 1;
        self.retire(tid, &entering_kernel(&branch))
    }

    /// Retires the call by which a thread ended itself. A thread that another thread's exit ended
    /// may not have executed its pending instruction.
    pub(super) fn retire_exit(&mut self, tid: i32) -> Handled {
        let call = self.tasks.get(&tid).and_then(|task| task.pending?.call);
        match call.map(|call| call.number.cast_signed()) {
            Some(libc::SYS_exit | libc::SYS_exit_group) => self.retire_call(tid),
            _ => Ok(()),
        }
    }

    /// Handles the side effects of a finished system call.
    fn called(&mut self, tid: i32, call: Call, branch: &BranchInsn, regs: &Registers) -> Handled {
        const PR_SET_NAME: u64 = libc::PR_SET_NAME as u64;
        const PTRACE_TRACEME: u64 = libc::PTRACE_TRACEME as u64;
        let executable = call.args[2] & libc::PROT_EXEC as u64 != 0;
        let is_syscall = branch.branch_type == BranchType::SYSCALL;
        let (changes, maps) = match call.number.cast_signed() {
            // A number of the 32-bit table: assume anything.
            _ if !is_syscall => (true, true),
            libc::SYS_mmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect => (true, executable),
            libc::SYS_mremap | libc::SYS_remap_file_pages | libc::SYS_shmat => (true, true),
            libc::SYS_munmap
            | libc::SYS_madvise
            | libc::SYS_shmdt
            | libc::SYS_brk
            | libc::SYS_process_madvise => (true, false),
            _ => (false, false),
        };
        if changes {
            // In every process, because some may share memory.
            for process in self.processes.values_mut() {
                process.code.forget();
            }
        }
        if maps {
            self.tell_mappings(tid)?;
        }
        let Some(id) = self.tasks.get(&tid).map(|task| task.id) else { return Ok(()) };
        let number = call.number.cast_signed();
        if number == libc::SYS_prctl && call.args[0] == PR_SET_NAME {
            self.tell_comm(id, false)?;
        }
        let Some(task) = self.tasks.get_mut(&tid) else { return Ok(()) };
        if number == libc::SYS_rt_sigreturn && is_syscall {
            task.traps_itself = call.restores_trap_flag;
        }
        let write = |offset: usize, value: u64| {
            let offset = offset as ptrace::AddressType;
            ptrace::write_user(Pid::from_raw(tid), offset, value.cast_signed())
                .doing("writing registers")
        };
        let asks_to_be_traced = number == libc::SYS_ptrace && call.args[0] == PTRACE_TRACEME;
        let refused = regs.rax.cast_signed() == -i64::from(libc::EPERM);
        if is_syscall && asks_to_be_traced && refused && id.pid == self.main {
            // It asks its parent to trace it; it is already traced.
            write(std::mem::offset_of!(Registers, rax), 0)?;
        }
        let is_traced = !task.traps_itself;
        if is_traced && is_syscall && number != libc::SYS_rt_sigreturn && regs.r11 & TRAP_FLAG != 0
        {
            // SYSCALL copies RFLAGS to R11, including the tracer's trap flag.
            write(std::mem::offset_of!(Registers, r11), regs.r11 & !TRAP_FLAG)?;
        }
        Ok(())
    }

    /// Reports new executable mappings.
    pub(super) fn tell_mappings(&mut self, tid: i32) -> Handled {
        let Some(id) = self.tasks.get(&tid).map(|task| task.id) else { return Ok(()) };
        let Ok(mut mappings) = maps::read(tid) else { return Ok(()) };
        mappings.retain(|m| m.is_executable() && !VSYSCALL.contains(&m.start));
        let told = &mut self.processes.entry(id.pid).or_default().told;
        for mapping in mappings.iter().filter(|&mapping| !told.contains(mapping)) {
            self.recorder.emit(Event::Mmap(Box::new(mapping.event(monotonic_ns(), id))))?;
        }
        *told = mappings.into_iter().collect();
        Ok(())
    }

    /// Reports a thread's name.
    pub(super) fn tell_comm(&mut self, id: ThreadId, exec: bool) -> Handled {
        let named = maps::comm(id, monotonic_ns(), exec).filter(|_| self.recording);
        Ok(named.map_or(Ok(()), |named| self.recorder.emit(named))?)
    }
}

/// A branch into the kernel. Its target is not visible: `to` is 0, and the filter for ring 0
/// suppresses its record.
fn entering_kernel(branch: &BranchInsn) -> Retired {
    Retired { cpl_after: 0, ..Retired::user(branch.ip, 0, branch.class) }
}
