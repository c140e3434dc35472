//! Recordings of CPUs whose program runs while a sampler thread for each drains them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lbr_msr::access::{Access, Op};
use lbr_msr::address::{IA32_DEBUGCTL, IA32_PERF_GLOBAL_STATUS};
use lbr_msr::arm::{ArmOptions, ArmPlan};
use lbr_msr::caps::Layout;
use lbr_msr::filter::{BranchFilter, to_register_disarmed};
use lbr_msr::register::DebugCtl;
use lbr_msr::soft::{SoftCpu, SoftLbr};
use lbr_msr::{LbrCaps, Msr, MsrError, MsrRead, MsrWrite};

use crate::checked::{Disk, Ring, Truth, branch, check, exit};
use crate::config::{Queue, RecordConfig, Sampling, WhenFull};
use crate::guard::Ready;
use crate::keeper::Restorable;
use crate::random::Random;
use crate::source::cpu::Switches;
use crate::source::cpu::target::{Emit, Target};
use crate::source::cpu::{CpuRing, Cpus};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::target::{Affinity, Exit, SourceError, ThreadId};
use crate::{Played, engine, sync};

/// Beyond the CPUs of any machine, so that no thread moves.
const FIRST: u32 = 2000;

/// A CPU, and its part of the program.
struct World {
    soft: SoftLbr,
    truth: Truth,
    taken: u64,
    chance: Random,
    /// One access of this many fails; none for 0.
    faults: usize,
    /// The recorder is killed: its later accesses have no effect.
    kill_after: Option<u64>,
    is_killed: bool,
    has_failed: bool,
}

#[derive(Clone)]
struct Registers {
    world: Arc<Mutex<World>>,
    cpu: u32,
    one_call: bool,
    /// The recorder's, which can be killed, or its watchdog's.
    is_recorder: bool,
}

impl Registers {
    fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(&mut self.world.lock().unwrap())
    }

    fn have_failed(&self) -> bool {
        self.with(|world| world.has_failed || world.is_killed)
    }

    fn control(&self, caps: &LbrCaps) -> Vec<(Msr, u64)> {
        let map = caps.registers;
        let registers = [Some(IA32_DEBUGCTL), Some(map.control), map.select, map.depth];
        let read = |msr| self.with(|world| Some((msr, world.soft.read(msr).ok()?)));
        registers.into_iter().flatten().filter_map(read).collect()
    }

    fn access<T>(
        &self,
        msr: Msr,
        access: Access,
        act: impl FnOnce(&mut SoftLbr) -> Result<T, MsrError>,
    ) -> Result<T, MsrError> {
        let cpu = self.cpu;
        self.with(|world| {
            if !self.is_recorder {
                return act(&mut world.soft);
            }
            if let Some(left) = &mut world.kill_after {
                world.is_killed |= *left == 0;
                *left = left.saturating_sub(1);
            }
            if world.is_killed {
                return Err(MsrError::Offline { cpu });
            }
            // Whether there is a status register is found out by reading it.
            if msr != IA32_PERF_GLOBAL_STATUS && world.chance.one_in(world.faults) {
                world.has_failed = true;
                return Err(MsrError::Fault { cpu, msr, access });
            }
            act(&mut world.soft)
        })
    }
}

impl MsrRead for Registers {
    fn cpu(&self) -> u32 {
        self.cpu
    }
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        self.access(msr, Access::Read, |soft| soft.read(msr))
    }
    fn one_call(&self) -> bool {
        self.one_call
    }
}

impl MsrWrite for Registers {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        self.access(msr, Access::Write, |soft| soft.write(msr, value))
    }
    fn run(&mut self, batch: &mut [Op]) -> Result<(), MsrError> {
        let msr = batch.first().map_or(Msr(0), |op| match op {
            Op::Read { msr, .. } | Op::Write { msr, .. } => *msr,
        });
        self.access(msr, Access::Read, |soft| soft.run(batch))
    }
}

/// The program on all CPUs, and those who interfere.
struct Program {
    cpus: Vec<Registers>,
    caps: LbrCaps,
    chance: Random,
    rounds: usize,
    stop: Arc<AtomicBool>,
    interferes: bool,
    switches: bool,
}

impl Program {
    fn run(&mut self, at: usize, most: usize) {
        let branches = self.chance.below(most);
        self.cpus[at].with(|world| {
            for _ in 0..branches {
                let before = world.soft.recorded();
                world.soft.retire(&branch(at as Ring, world.taken));
                if world.soft.recorded() > before {
                    world.truth.recorded.push(world.taken);
                }
                world.taken += 1;
            }
        });
    }

    fn interfere(&mut self, at: usize) {
        let map = self.caps.registers;
        let what = self.chance.below(4);
        self.cpus[at].with(|world| match what {
            0 => {
                world.soft.deep_c_state();
                world.truth.wiped = true;
            }
            1 => world.soft.pmi(),
            _ => {
                let control = world.soft.read(map.control).unwrap();
                world.soft.write(map.control, control & !map.enable).unwrap();
            }
        });
    }
}

impl Target for Program {
    fn id(&self) -> ThreadId {
        ThreadId { pid: 70, tid: 70 }
    }
    fn switches(&self) -> Option<Box<dyn Switches>> {
        self.switches.then(|| Box::new(Switched(self.chance.clone())) as Box<dyn Switches>)
    }
    fn start(&mut self, _: Emit<'_>) -> Result<(), SourceError> {
        Ok(())
    }
    fn wait(&mut self, is_over: &dyn Fn() -> bool, _: Emit<'_>) -> Result<(), SourceError> {
        for _ in 0..self.rounds {
            if is_over() {
                break;
            }
            let at = self.chance.below(self.cpus.len());
            match self.chance.below(40) {
                0 if self.interferes => self.interfere(at),
                1 => sync::thread::sleep(Duration::from_millis(3)),
                2 if self.chance.one_in(6) => self.stop.store(true, Ordering::Relaxed),
                3..=8 => self.run(at, self.caps.depth as usize * 3 / 2),
                _ => self.run(at, 4),
            }
        }
        Ok(())
    }
    fn finish(&mut self, emit: Emit<'_>) -> Result<Option<Exit>, SourceError> {
        exit().into_iter().for_each(emit);
        Ok(Some(Exit::Code(3)))
    }
}

struct Switched(Random);

impl Switches for Switched {
    fn since_last(&mut self) -> Option<u64> {
        Some(u64::from(self.0.one_in(3)))
    }
}

pub(crate) fn play(mut chance: Random) -> Played {
    let all: Vec<SoftCpu> = SoftCpu::all().collect();
    let cpu = &all[chance.below(all.len())];
    let caps = &cpu.caps;
    let Ok(filter) = to_register_disarmed(BranchFilter::DEFAULT, caps.filter) else {
        return Played::default();
    };
    let Ok(plan) = ArmPlan::new(caps, filter, ArmOptions::default()) else {
        return Played::default();
    };
    let faults = if chance.one_in(4) { 2000 } else { 0 };
    let is_killed = chance.one_in(6);
    let one_call = caps.layout != Layout::Packed32 && chance.one_in(3);
    let number = 1 + chance.below(3) as u32;
    let registers: Vec<Registers> = (0..number)
        .map(|nth| {
            let mut soft = SoftLbr::new(caps, cpu.perf_capabilities);
            if chance.one_in(2) {
                let _ = soft.write(IA32_DEBUGCTL, DebugCtl::FREEZE_LBRS_ON_PMI.bits());
            }
            let world = World {
                soft,
                truth: Truth::default(),
                taken: 0,
                chance: Random(chance.next()),
                faults,
                kill_after: is_killed.then(|| chance.next() % 1500),
                is_killed: false,
                has_failed: false,
            };
            let world = Arc::new(Mutex::new(world));
            Registers { world, cpu: FIRST + nth, one_call, is_recorder: true }
        })
        .collect();
    let before: Vec<_> = registers.iter().map(|registers| registers.control(caps)).collect();
    let mut keepers: Vec<_> = registers
        .iter()
        .map(|registers| Registers { is_recorder: false, ..registers.clone() })
        .map(|registers| Ready::new(registers, plan.clone()).expect("nobody records"))
        .collect();
    let ready: Result<Vec<_>, _> = registers
        .iter()
        .map(|registers| Ready::new(registers.clone(), plan.clone()).and_then(Ready::arm))
        .collect();
    let mut disk = Disk::new(Random(chance.next()));
    let mut played = Played::default();
    if let Ok(mut armed) = ready {
        let stop = Arc::default();
        let mut program = Program {
            cpus: registers.clone(),
            caps: caps.clone(),
            rounds: chance.below(300),
            stop: Arc::clone(&stop),
            interferes: chance.one_in(2),
            switches: chance.one_in(3),
            chance: Random(chance.next()),
        };
        let when_full = if chance.one_in(2) { WhenFull::Drop } else { WhenFull::Wait };
        let config = RecordConfig {
            sampling: Sampling::Rate { hz: 997, seed: chance.next() },
            queue: Queue { stacks: [1, 2, 64][chance.below(3)], when_full },
            stop,
            ..RecordConfig::new(caps.clone())
        };
        let rings =
            armed.iter_mut().map(|armed| CpuRing { registers: armed.registers(), same_cpu: None });
        let allowed = Affinity::current().unwrap();
        let mut source = Cpus::new(rings.collect(), &mut program, allowed);
        let result = engine::record(&mut source, config, &mut disk);
        drop(source);
        let truth: BTreeMap<Ring, Truth> = (0..)
            .zip(&registers)
            .map(|(ring, registers)| (ring, registers.with(|world| world.truth.clone())))
            .collect();
        let failed = disk.is_full || registers.iter().any(Registers::have_failed);
        played = check(&result, &disk.events, &truth, |cpu, _| cpu - FIRST, failed);
        for (armed, registers) in armed.into_iter().zip(&registers) {
            let result = armed.restore();
            assert!(result.is_ok() || registers.have_failed(), "not restored: {result:?}");
        }
    }
    // The watchdog restores what the recorder could not.
    for (at, registers) in registers.iter().enumerate() {
        if registers.have_failed() {
            assert!(keepers[at].put_back(), "the watchdog can");
        }
        assert_eq!(registers.control(caps), before[at], "CPU {at} is not as before");
    }
    played
}
