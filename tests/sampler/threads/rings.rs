//! Recordings of a program whose threads hand over their branches, as under an emulator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lbr_msr::access::{Access, Op};
use lbr_msr::filter::{BranchFilter, to_register_disarmed};
use lbr_msr::record::{MoveKind, SourceKnowledge};
use lbr_msr::soft::{Retired, SoftCpu};
use lbr_msr::{Msr, MsrError, MsrRead, MsrWrite};

use crate::checked::{Disk, Ring, Truth, branch, check, exit};
use crate::config::{Queue, RecordConfig, Sampling, WhenFull};
use crate::gate::{BranchRegisters, Gate, Recorder, Retire};
use crate::random::Random;
use crate::source::{Exit, Source, SourceError, SourceNotes};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::target::ThreadId;
use crate::{Played, engine, sync};

/// A thread's registers, one of whose accesses may fail.
struct Disturbed {
    registers: Box<dyn BranchRegisters>,
    fails_after: Option<u64>,
    has_failed: Arc<AtomicBool>,
}

impl Disturbed {
    fn access(&mut self, msr: Msr, access: Access) -> Result<(), MsrError> {
        sync::thread::sleep(Duration::ZERO);
        if let Some(left) = &mut self.fails_after {
            *left = left.wrapping_sub(1);
            if *left == 0 {
                self.has_failed.store(true, Ordering::Relaxed);
                return Err(MsrError::Fault { cpu: 0, msr, access });
            }
        }
        Ok(())
    }
}

impl MsrRead for Disturbed {
    fn cpu(&self) -> u32 {
        self.registers.cpu()
    }
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        self.access(msr, Access::Read)?;
        self.registers.read(msr)
    }
    fn one_call(&self) -> bool {
        self.registers.one_call()
    }
}

impl MsrWrite for Disturbed {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        self.access(msr, Access::Write)?;
        self.registers.write(msr, value)
    }
    fn run(&mut self, batch: &mut [Op]) -> Result<(), MsrError> {
        self.access(Msr(0), Access::Read)?;
        self.registers.run(batch)
    }
}

impl BranchRegisters for Disturbed {
    fn retire(&mut self, branch: &Retired) -> bool {
        self.registers.retire(branch)
    }
}

/// A program with threads that a seed plays.
struct Program {
    threads: Vec<Random>,
    truth: Arc<Mutex<BTreeMap<Ring, Truth>>>,
    stop: Arc<AtomicBool>,
    takes_all: bool,
    stops: bool,
}

impl Program {
    fn run_thread(&self, gate: &Gate, tid: u32, mut chance: Random) {
        let mut truth = Truth::default();
        let Ok(mut ring) = gate.start(ThreadId { pid: 70, tid }) else {
            self.truth.lock().unwrap().insert(tid, truth);
            return;
        };
        let mut taken = 0;
        for _ in 0..chance.below(80) {
            let run = match chance.below(12) {
                0 if self.takes_all => {
                    truth.closed = ring.moved(MoveKind::Signal, taken, taken).is_err();
                    if truth.closed {
                        break;
                    }
                    truth.moves.push(taken);
                    // The end of a recording has no branch after the last move.
                    1
                }
                1 => {
                    let entered = branch(tid, taken);
                    if ring.retire_entry(&entered, [taken, 0, 0, 0, 0, 0]).is_err() {
                        break;
                    }
                    truth.entries.push(taken);
                    truth.recorded.push(taken);
                    taken += 1;
                    0
                }
                2 => {
                    if ring.flush().is_err() {
                        break;
                    }
                    0
                }
                3 => {
                    sync::thread::sleep(Duration::from_millis(1));
                    0
                }
                4 if self.stops && chance.one_in(10) => {
                    self.stop.store(true, Ordering::Relaxed);
                    0
                }
                5..=8 => chance.below(60) as u64,
                _ => chance.below(4) as u64,
            };
            let run: Vec<Retired> = (taken..taken + run).map(|n| branch(tid, n)).collect();
            truth.closed = ring.is_due() && ring.flush().is_err() || ring.retire_run(&run).is_err();
            if truth.closed {
                break;
            }
            truth.recorded.extend(taken..taken + run.len() as u64);
            taken += run.len() as u64;
        }
        if chance.one_in(2) {
            let _ = ring.finish();
        }
        self.truth.lock().unwrap().insert(tid, truth);
    }
}

impl Source<'_> for Program {
    fn name(&self) -> &'static str {
        "played"
    }
    fn knowledge(&self) -> SourceKnowledge {
        SourceKnowledge::USER_BRANCHES
    }
    fn run(&mut self, gate: &Gate) -> Result<(Exit, SourceNotes), SourceError> {
        let program = &*self;
        sync::thread::scope(|threads| {
            for (tid, chance) in (1..).zip(&program.threads) {
                threads.spawn(move || program.run_thread(gate, tid, chance.clone()));
            }
        });
        // Only a failed recording refuses it.
        let _ = exit().into_iter().try_for_each(|event| gate.emit(event));
        Ok((Exit::Code(0), SourceNotes::default()))
    }
}

pub(crate) fn play(mut chance: Random) -> Played {
    let all: Vec<SoftCpu> = SoftCpu::all().collect();
    let cpu = &all[chance.below(all.len())];
    let caps = &cpu.caps;
    let Ok(filter) = to_register_disarmed(BranchFilter::DEFAULT, caps.filter) else {
        return Played::default();
    };
    let Ok(config) = RecordConfig::modelled(caps.clone(), cpu.perf_capabilities, filter) else {
        return Played::default();
    };
    let depth = u64::from(caps.depth);
    let sampling = match chance.below(3) {
        0 => Sampling::Rate { hz: 997, seed: chance.next() },
        1 => Sampling::Period(1 + chance.next() % (depth - 1)),
        _ => Sampling::Period(1 + chance.next() % (2 * depth)),
    };
    let takes_all = matches!(sampling, Sampling::Period(period) if period < depth);
    let has_failed = Arc::new(AtomicBool::new(false));
    let open = config.open.unwrap();
    let flaky = chance.one_in(5).then(|| Mutex::new(Random(chance.next())));
    let failed = Arc::clone(&has_failed);
    let open = Box::new(move |thread| {
        let draw = |chance: &Mutex<Random>| 1 + chance.lock().unwrap().next() % 3000;
        Ok(Box::new(Disturbed {
            registers: open(thread)?,
            fails_after: flaky.as_ref().map(draw),
            has_failed: Arc::clone(&failed),
        }) as Box<dyn BranchRegisters>)
    });
    let when_full = if chance.one_in(3) { WhenFull::Drop } else { WhenFull::Wait };
    let truth = Arc::default();
    let mut disk = Disk::new(Random(chance.next()));
    let mut program = Program {
        threads: (0..=chance.below(3)).map(|_| Random(chance.next())).collect(),
        truth: Arc::clone(&truth),
        stop: Arc::clone(&config.stop),
        takes_all,
        stops: chance.one_in(3),
    };
    let config = RecordConfig {
        sampling,
        queue: Queue { stacks: [1, 2, 64][chance.below(3)], when_full },
        open: Some(open),
        ..config
    };
    let result = engine::record(&mut program, config, &mut disk);
    let failed = disk.is_full || has_failed.load(Ordering::Relaxed);
    let truth = truth.lock().unwrap().clone();
    let played = check(&result, &disk.events, &truth, |_, tid| tid, failed);
    if let Ok(summary) = &result {
        // Nothing was in the way of a recording of all branches.
        let all = takes_all && summary.dropped == 0;
        assert!(!all || summary.complete, "not complete: {summary:?}");
    }
    played
}
