//! `lbr dump --arm`: arms a ring, lets a program or the CPU run, freezes.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use lbr_msr::{BranchFilter, LbrCaps, filter::software_filter, snapshot::Snapshot};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use sampler::guard::Armed;
use sampler::interrupt::{Interrupts, Passing};
use sampler::keeper;
use sampler::source::Command;
use sampler::target::{self, Affinity, Held, Moved};

use super::DumpArgs;
use crate::commands::backend::{self, Hardware};
use crate::commands::record::hardware;
use crate::exit::{FAILED, OrExit, Result, USAGE, failure};
use crate::present::say;

/// How long to record if neither a time nor a program is given.
const DEFAULT: Duration = Duration::from_millis(10);
/// Interval at which the program, the clock and signals are checked.
const LOOK: Duration = Duration::from_millis(1);
/// How long the program has between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(1);

/// Arms, waits, freezes, reads and restores.
pub(super) fn snapshot(args: &DumpArgs, filter: BranchFilter) -> Result<(LbrCaps, Snapshot)> {
    args.rights.check()?;
    let plan = |caps: &LbrCaps| hardware::plan(filter, caps);
    let (caps, _, plan) = backend::look(args.backend, args.cpu, &args.machine, plan)?;
    if software_filter(filter, caps.filter).is_some() {
        say!("{} cannot record calls without jumps: jumps are printed too", caps.filter.name());
    }
    let root = args.machine.root();
    let registers = backend::open_for(&plan, args.backend, args.cpu, &root)?;
    // A signal ends the wait; the registers are then restored.
    let interrupts = Interrupts::listen().context("signals cannot be listened for")?;
    let affinity = Affinity::current()?;
    // Keeps the branches of lbr out of the LBR stack.
    let moved = Moved::off(&[args.cpu], &affinity);
    if moved.is_none() {
        say!("lbr may run on no other CPU: its own branches are among the records");
    }

    let notice = backend::taint_notice(&*registers, &root);
    let mut ready = [backend::ready(registers, plan)?];
    keeper::watch(&mut ready)?;
    let [ready] = ready;
    // Started after the watchdog process, which would otherwise hold its pipe open.
    let mut child = (!args.command.is_empty()).then(|| hold(args, &affinity)).transpose()?;
    if let Some(notice) = notice {
        say!("{notice}");
    }
    if child.is_some() {
        args.rights.announce();
    }
    let mut armed = ready.arm().map_err(backend::not_armed)?;
    if let Some(child) = &mut child {
        child.start()?;
    }
    let limit = args.time.map(Duration::from_millis).or(child.is_none().then_some(DEFAULT));
    let started = Instant::now();
    let mut signals = Passing::new(interrupts);
    let pid = child.as_ref().map(|child| child.held.pid().as_raw());
    while !signals.is_time_to_end(pid) && limit.is_none_or(|limit| started.elapsed() < limit) {
        if let Some(child) = &mut child
            && child.has_ended()?
        {
            break;
        }
        let rest = limit.map_or(LOOK, |limit| limit.saturating_sub(started.elapsed()));
        sleep(rest.min(LOOK));
    }
    let snapshot = read(&mut armed, &caps)?;
    hardware::restore(vec![armed])?;
    if let Some(child) = child {
        child.end();
    }
    Ok((caps, snapshot))
}

/// Freezes the ring and reads it.
fn read(armed: &mut Armed<Hardware>, caps: &LbrCaps) -> Result<Snapshot> {
    let frozen = armed.freeze().map_err(backend::refused)?;
    if frozen.stopped {
        say!(
            "recording had been switched off before (a debugger's exception, a performance \
             interrupt or another program): the records end there"
        );
    } else if frozen.foreign {
        say!("another program changed the control register meanwhile: the records may be wrong");
    }
    Snapshot::read(armed.registers(), caps).map_err(backend::refused)
}

/// The program that runs while recording.
struct Child {
    held: Held,
    name: String,
    ended: Option<WaitStatus>,
}

/// Makes the program's process, pinned, before its first instruction.
fn hold(args: &DumpArgs, affinity: &Affinity) -> Result<Child> {
    let command = args.rights.command(&args.command)?;
    let path = target::find(&command.program).or_exit(USAGE)?;
    let command = Command { cpu: Some(args.cpu), ..command };
    let pinned = affinity.only(args.cpu).or_exit(USAGE)?;
    let held = Held::spawn(&path, &command)?;
    pinned.apply(held.pid().as_raw())?;
    Ok(Child { held, name: command.program, ended: None })
}

impl Child {
    fn start(&mut self) -> Result<()> {
        self.held.release()?;
        match self.held.exec_error() {
            None => Ok(()),
            Some(cause) => {
                let _ = waitpid(self.held.pid(), None);
                Err(failure!(FAILED, "{} could not be started: {cause}", self.name))
            }
        }
    }

    fn has_ended(&mut self) -> Result<bool> {
        if self.ended.is_none() {
            match waitpid(self.held.pid(), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(nix::errno::Errno::EINTR) => {}
                Ok(status) => self.ended = Some(status),
                Err(errno) => return Err(failure!(FAILED, "waiting for {}: {errno}", self.name)),
            }
        }
        Ok(self.ended.is_some())
    }

    /// Ends the program if it still runs; otherwise reports how it ended.
    fn end(mut self) {
        match self.ended {
            Some(WaitStatus::Exited(_, 0)) => {}
            Some(WaitStatus::Exited(_, status)) => say!("{} ended with status {status}", self.name),
            Some(WaitStatus::Signaled(_, signal, _)) => say!("{} was ended by {signal}", self.name),
            Some(_) => {}
            None => {
                let _ = kill(self.held.pid(), Signal::SIGTERM);
                let asked = Instant::now();
                while asked.elapsed() < GRACE {
                    if self.has_ended().unwrap_or(true) {
                        return;
                    }
                    sleep(LOOK);
                }
                let _ = kill(self.held.pid(), Signal::SIGKILL);
                let _ = waitpid(self.held.pid(), None);
            }
        }
    }
}
