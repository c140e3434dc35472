//! `lbr dump --soft-cpu --arm`: records a program on a software LBR.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lbr_msr::BranchFilter;
use lbr_msr::caps::FilterRegister;
use lbr_msr::insn::Isa;
use lbr_msr::record::Event;
use lbr_msr::snapshot::Snapshot;
use lbr_msr::soft::{Retired, SoftCpu, SoftLbr};
use sampler::gate::{Closed, Recorder, Retire};
use sampler::interrupt::Interrupts;
use sampler::source::ptrace::Ptrace;
use sampler::source::qemu::Qemu;
use sampler::source::{Exit, SourceError};
use sampler::target::{self, ThreadId};

use super::DumpArgs;
use crate::commands::backend::{not_here, not_started, refused};
use crate::commands::record::in_user_mode;
use crate::commands::soft::runs;
use crate::exit::{Result, usage};
use crate::present::say;

/// The LBR stack of the program's first thread, if a program is run.
pub(super) fn snapshot(args: &DumpArgs, soft: &SoftCpu) -> Result<Snapshot> {
    let mut ring = SoftLbr::new(&soft.caps, soft.perf_capabilities).on_cpu(args.cpu);
    if let Some(filter) = args.arm {
        if args.command.is_empty() {
            return Err(usage!("nothing runs on a software CPU by itself: give a program, -- CMD"));
        }
        let filter = in_user_mode(filter)?;
        // Without a filter every branch is recorded; the kernel's are never seen.
        let everything = soft.caps.filter == FilterRegister::None && filter.classes().is_all();
        let filter = if everything { filter | BranchFilter::KERNEL } else { filter };
        ring.arm(filter).map_err(not_here)?;
        ring = run(args, soft, ring)?;
        ring.disarm();
    }
    Snapshot::read(&mut ring, &soft.caps).map_err(refused)
}

/// Runs the program to its end, or until its time is up.
fn run(args: &DumpArgs, soft: &SoftCpu, ring: SoftLbr) -> Result<SoftLbr> {
    args.rights.check()?;
    let command = args.rights.command(&args.command)?;
    let program = command.program.clone();
    let isa = target::isa(&program).unwrap_or_default();
    runs(soft, isa)?;
    let first = First {
        ring: Arc::new(Mutex::new(ring)),
        started: AtomicBool::new(false),
        until: args.time.map(|time| Instant::now() + Duration::from_millis(time)),
        interrupts: Interrupts::listen()?,
    };
    args.rights.announce();
    let emulated = Qemu::find_for(isa)
        .map_err(SourceError::from)
        .and_then(|qemu| qemu.program(command.clone()));
    let (ran, through) = match emulated {
        Err(SourceError::Unavailable { .. }) if isa == Isa::X86_64 => {
            let stepped = Ptrace::new(command).and_then(|mut source| source.run_into(&first));
            (stepped, "single-stepping")
        }
        emulated => (emulated.and_then(|mut source| source.run_into(&first)), "QEMU running"),
    };
    let ended = first.is_closed();
    let ring = first.ring.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match ran {
        Ok((Exit::Code(0), _)) => {}
        Ok(_) | Err(_) if ended && first.started.load(Ordering::Relaxed) => {
            say!("{program} was ended: its time was up, or a signal came");
        }
        Ok((exit, _)) => say!("{program} ended with status {}", exit.status()),
        Err(error) => return Err(not_started(error)),
    }
    say!(
        "a software LBR, fed by {through} the first thread of {program}: the kernel, predictions \
         and cycles are not seen"
    );
    Ok(ring)
}

/// Takes the branches of the first thread.
struct First {
    ring: Arc<Mutex<SoftLbr>>,
    started: AtomicBool,
    until: Option<Instant>,
    interrupts: Interrupts,
}

/// A thread; `None` if it is not recorded.
struct Thread(Option<Arc<Mutex<SoftLbr>>>);

impl Recorder for First {
    type Ring = Thread;

    fn start(&self, _: ThreadId) -> Result<Thread, Closed> {
        let is_first = !self.started.swap(true, Ordering::Relaxed);
        Ok(Thread(is_first.then(|| Arc::clone(&self.ring))))
    }

    fn emit(&self, _: Event) -> Result<(), Closed> {
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.interrupts.count() > 0 || self.until.is_some_and(|until| Instant::now() > until)
    }
}

impl Retire for Thread {
    fn retire(&mut self, branch: &Retired) -> Result<(), Closed> {
        // The target of a branch into the kernel is unknown.
        if let Some(ring) = self.0.as_ref().filter(|_| branch.cpl_after != 0) {
            ring.lock().unwrap_or_else(PoisonError::into_inner).retire(branch);
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Closed> {
        Ok(())
    }
}
