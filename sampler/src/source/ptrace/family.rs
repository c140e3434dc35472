//! Threads and processes that start, end, and execute other programs.

use lbr_msr::insn::Insn;
use lbr_msr::record::{Event, MoveKind};
use nix::libc;
use nix::sys::ptrace;
use nix::unistd::Pid;

use super::Handled;
use super::sys;
use super::task::{Process, Task, is_thread_of, task_event};
use super::tracer::{Tracer, inspect};
use crate::gate::{Recorder, Retire, lock};
use crate::source::{Exit, SourceError};
use crate::target::{Doing, ThreadId};

impl<R: Recorder> Tracer<'_, R> {
    /// Detaches from a stopped child, and delivers `signal` (0: none). The child may use every CPU
    /// again.
    pub(super) fn let_go(&mut self, tid: i32, signal: i32) -> Handled {
        let _ = self.source.allowed.apply(tid);
        self.notes.children_left += 1;
        Ok(sys::unless_gone(sys::detach(tid, signal), "leaving a child alone")?)
    }

    /// A thread has created another, which is already traced.
    pub(super) fn bore(&mut self, tid: i32) -> Handled {
        let Some(parent) = self.tasks.get(&tid).map(|task| task.id) else { return Ok(()) };
        let message = ptrace::getevent(Pid::from_raw(tid)).doing("asking for a new thread's id")?;
        let Ok(child) = i32::try_from(message) else { return Ok(()) };
        let stopped = self.early.remove(&child);
        let number = child.unsigned_abs();
        if is_thread_of(child, parent.pid) {
            self.adopt(ThreadId { pid: parent.pid, tid: number }, parent)?;
        } else {
            let shares_memory = self.shares_memory(tid)?;
            let leave = !self.source.command.follow_children;
            if let Some(start) = &mut self.start {
                start.inherited(parent.pid, number);
            }
            if leave && (self.recording || !shares_memory) {
                if let Some(start) = &mut self.start {
                    start.disarm(number);
                }
                if stopped {
                    return self.let_go(child, 0);
                }
                self.strangers.insert(child);
                return Ok(());
            }
            // It has its parent's mappings, which readers of the recording copy at FORK.
            let told = self.processes.get(&parent.pid).map(|process| process.told.clone());
            let told = told.unwrap_or_default();
            self.processes.insert(number, Process { told, ..Process::default() });
            lock(self.running).insert(number);
            self.adopt(ThreadId { pid: number, tid: number }, parent)?;
            if let Some(task) = self.tasks.get_mut(&child) {
                task.leaving = leave;
            }
        }
        if stopped { self.go_on(child, 0) } else { Ok(()) }
    }

    fn adopt(&mut self, id: ThreadId, parent: ThreadId) -> Handled {
        let mut task = Task::new(id, parent);
        task.in_syscall = self.recording;
        if self.recording {
            self.recorder.emit(Event::Fork(task_event(id, parent)))?;
            task.ring = Some(self.recorder.start(id)?);
            task.model = self.source.command.model.then(Box::default);
        }
        self.tasks.insert(id.tid as i32, task);
        Ok(())
    }

    /// Whether the process that a thread is creating will share its memory: vfork, or clone with
    /// CLONE_VM.
    fn shares_memory(&self, tid: i32) -> Result<bool, SourceError> {
        let regs = self.regs(tid)?;
        let flags = match regs.orig_rax.cast_signed() {
            libc::SYS_vfork => return Ok(true),
            libc::SYS_clone => regs.rdi,
            libc::SYS_clone3 => {
                let mut flags = [0u8; 8];
                super::code::read(tid, regs.rdi, &mut flags);
                u64::from_ne_bytes(flags)
            }
            _ => 0,
        };
        Ok(flags & libc::CLONE_VM as u64 != 0)
    }

    /// A process has executed another program.
    pub(super) fn executed(&mut self, tid: i32) -> Handled {
        let pid = tid.unsigned_abs();
        let former = ptrace::getevent(Pid::from_raw(tid))
            .ok()
            .and_then(|id| i32::try_from(id).ok())
            .unwrap_or(tid);
        if let Some(start) = &mut self.start {
            start.dropped(pid);
        }
        if self.tasks.get(&tid).is_some_and(|task| task.leaving) {
            self.tasks.remove(&tid);
            lock(self.running).remove(&pid);
            return self.let_go(tid, 0);
        }
        // The thread that is now `tid` made the exec call.
        let call = self.tasks.get(&former).and_then(|task| task.pending);
        self.retire_call(former)?;
        if let Some(Insn::Branch(call)) = call.map(|call| call.decoded.insn) {
            self.moved(former, MoveKind::End, call.next(), 0)?;
        }
        let others: Vec<i32> = self
            .tasks
            .iter()
            .filter(|&(&id, task)| task.id.pid == pid && (id != tid || former != tid))
            .map(|(&id, _)| id)
            .collect();
        for other in others {
            self.forget_task(other)?;
        }
        let id = ThreadId { pid, tid: pid };
        let task = self.tasks.entry(tid).or_insert_with(|| Task::new(id, id));
        // The same addresses are other code from now on.
        task.ring.take().map_or(Ok(()), Retire::finish)?;
        task.ring = self.recording.then(|| self.recorder.start(id)).transpose()?;
        if self.source.command.model && self.recording {
            task.model.get_or_insert_default();
        }
        task.is_placed = false;
        task.pending = None;
        // Exec removes it.
        task.breakpoint = None;
        task.in_syscall = true;
        self.processes.insert(pid, Process::default());
        if let Err(error) = inspect(pid) {
            if pid == self.main {
                return Err(error.into());
            }
            self.forget_task(tid)?;
            lock(self.running).remove(&pid);
            return self.let_go(tid, 0);
        }
        if self.recording {
            self.tell_comm(id, true)?;
            self.tell_mappings(tid)?;
        }
        self.go_on(tid, 0)
    }

    /// A thread has ended: drains its LBR and reports the end.
    fn forget_task(&mut self, tid: i32) -> Handled {
        let Some(task) = self.tasks.remove(&tid) else { return Ok(()) };
        if let Some(ring) = task.ring {
            ring.finish()?;
            self.recorder.emit(Event::Exit(task_event(task.id, task.parent)))?;
        }
        Ok(())
    }

    /// A thread is about to end: the last stop with readable registers.
    pub(super) fn ends(&mut self, tid: i32) -> Handled {
        let recorded = self.record_end(tid);
        // Also if the recorder has closed: no signal ends this stop.
        sys::cont(tid, 0).doing("ending a thread")?;
        recorded
    }

    fn record_end(&mut self, tid: i32) -> Handled {
        let regs = self.regs(tid)?;
        self.settle(tid, &regs, false)?;
        let pending = self.tasks.get(&tid).and_then(|task| task.pending);
        if pending.is_some_and(|pending| pending.decoded.ip != regs.rip) {
            self.retire_call(tid)?;
        }
        self.tasks.get_mut(&tid).into_iter().for_each(|task| task.pending = None);
        self.died(tid)?;
        self.moved(tid, MoveKind::End, regs.rip, 0)
    }

    pub(super) fn ended(&mut self, tid: i32, status: i32) -> Handled {
        self.early.remove(&tid);
        self.strangers.remove(&tid);
        let pid = tid.unsigned_abs();
        if pid == self.main {
            self.exit = Some(Exit::of(status));
        }
        if lock(self.running).remove(&pid) {
            self.processes.remove(&pid);
        }
        if let Some(start) = &mut self.start {
            start.dropped(pid);
        }
        if libc::WIFEXITED(status) {
            self.retire_exit(tid)?;
        }
        self.forget_task(tid)
    }
}
