//! The CPU keeps running while registers are restored: between any two accesses, branches retire
//! and exceptions and performance-monitoring interrupts occur, and anything that still records or
//! freezes overwrites restored values.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lbr_msr::access::Access;
use lbr_msr::arm::{ArmOptions, ArmPlan};
use lbr_msr::caps::{Facility, Quirks};
use lbr_msr::record::HwBranchType;
use lbr_msr::soft::{Retired, SoftCpu, SoftLbr};
use lbr_msr::{LbrCaps, Msr, MsrError, MsrRead, MsrWrite};
use sampler::guard::Ready;
use sampler::keeper::Restorable;

/// How a recorder ends at an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// This access fails, later ones succeed.
    Fails,
    Panics,
    /// It stops, as after SIGKILL.
    Killed,
}

/// One CPU, shared by several processes.
#[derive(Clone, Debug)]
struct Busy {
    soft: Arc<Mutex<SoftLbr>>,
    accesses: Arc<Mutex<u32>>,
    end: Option<(u32, End)>,
}

impl Busy {
    fn new(cpu: &SoftCpu) -> Busy {
        let soft = Arc::new(Mutex::new(SoftLbr::new(&cpu.caps, cpu.perf_capabilities)));
        Busy { soft, accesses: Arc::default(), end: None }
    }

    fn soft(&self) -> MutexGuard<'_, SoftLbr> {
        self.soft.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accesses(&self) -> u32 {
        *self.accesses.lock().unwrap()
    }

    /// Events before each access.
    fn go_on(&self, msr: Msr, access: Access) -> Result<(), MsrError> {
        let now = {
            let mut accesses = self.accesses.lock().unwrap();
            *accesses += 1;
            *accesses
        };
        {
            let mut soft = self.soft();
            let at = 0x40_0000 + u64::from(now) * 16;
            for (from, class) in [(at, HwBranchType::Cond), (at + 8, HwBranchType::Ret)] {
                soft.retire(&Retired::user(from, from + 0x100, class));
            }
            soft.exception();
            soft.retire(&Retired::user(at + 0x100, 0xFFFF_FFFF_8100_0000, HwBranchType::Other));
            soft.pmi();
        }
        let cause = || Err(MsrError::Os { cpu: 0, msr, access, cause: "ended".into() });
        match self.end {
            Some((at, End::Killed)) if now >= at => cause(),
            Some((at, End::Fails)) if now == at => cause(),
            Some((at, End::Panics)) if now == at => panic!("access {now}"),
            _ => Ok(()),
        }
    }
}

impl MsrRead for Busy {
    fn cpu(&self) -> u32 {
        0
    }
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        self.go_on(msr, Access::Read)?;
        self.soft().read(msr)
    }
}

impl MsrWrite for Busy {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        self.go_on(msr, Access::Write)?;
        self.soft().write(msr, value)
    }
}

/// The registers that must be restored, whether no record is left, and the freeze status.
fn state(cpu: &SoftCpu, soft: &mut SoftLbr) -> (Vec<u64>, bool, u64) {
    let map = &cpu.caps.registers;
    let controls = [Some(map.control), Some(Msr(0x1D9)), map.select, map.depth];
    let controls = controls.into_iter().flatten().filter_map(|msr| soft.read(msr).ok());
    let controls = controls.collect();
    let records = (0..cpu.caps.depth)
        .flat_map(|n| [Some(map.from_at(n)), map.to_at(n), map.info_at(n)])
        .flatten();
    let empty = records.into_iter().all(|msr| matches!(soft.read(msr), Ok(0) | Err(_)));
    let status = cpu.caps.freeze_status().map_or(0, |(status, _)| soft.read(status).unwrap());
    (controls, empty, status)
}

/// A state set by someone else: BTF, a filter, a depth.
fn use_before(cpu: &SoftCpu, soft: &mut SoftLbr) {
    let map = &cpu.caps.registers;
    soft.write(Msr(0x1D9), 2).unwrap();
    if let Some(depth) = map.depth {
        soft.write(depth, 16).unwrap();
        soft.write(map.control, 0x7F_0006).unwrap();
    } else if let Some(select) = map.select {
        soft.write(select, 0x1C4).unwrap();
    }
}

/// The combinations of freeze and call-stack mode that the CPU supports.
fn options(caps: &LbrCaps) -> Vec<(u64, ArmOptions)> {
    let user = match caps.facility {
        Facility::IntelArch => 0x7F_0004,
        _ => 0x001,
    };
    let stack = match caps.facility {
        Facility::IntelArch => 0x33_000C,
        _ => 0x3C5,
    };
    let tried = [
        (user, ArmOptions::default()),
        (user, ArmOptions { freeze_on_pmi: true, depth: None }),
        (stack, ArmOptions::default()),
    ];
    tried
        .into_iter()
        .filter(|(value, options)| ArmPlan::new(caps, *value, *options).is_ok())
        .collect()
}

/// A recorder: arms, drains twice, restores.
fn record(registers: Busy, plan: ArmPlan) -> Result<(), Box<dyn std::error::Error>> {
    let mut armed = Ready::new(registers, plan)?.arm()?;
    for _ in 0..2 {
        let frozen = armed.freeze()?;
        let map = armed.plan().clone();
        for step in map.clear_steps(u64::from(map.depth())).into_iter().take(3) {
            armed.registers().write(step.msr(), 0x1234).or_else(|error| match error {
                MsrError::Fault { .. } => Ok(()),
                error => Err(error),
            })?;
        }
        armed.thaw(&frozen)?;
    }
    armed.restore()?;
    Ok(())
}

/// Every kind of end at every access.
fn ended_anywhere(cpu: &SoftCpu, value: u64, options: ArmOptions) {
    let plan = || ArmPlan::new(&cpu.caps, value, options).unwrap();
    let begin = |end| {
        let busy = Busy { end, ..Busy::new(cpu) };
        use_before(cpu, &mut busy.soft());
        let before = state(cpu, &mut busy.soft());
        (busy, (before.0, true, 0))
    };
    let what = format!("{} with {value:#x}, {options:?}", cpu.key);
    let (busy, before) = begin(None);
    record(busy.clone(), plan()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(state(cpu, &mut busy.soft()), before, "{what}");
    let accesses = busy.accesses();
    assert!(accesses > 15, "{what}: {accesses}");

    for end in [End::Fails, End::Panics, End::Killed] {
        for at in 1..=accesses {
            let (busy, before) = begin(Some((at, end)));
            // Its copy is older than the first write.
            let mut keeper = Busy { end: None, accesses: Arc::default(), ..busy.clone() };
            keeper.soft = Arc::clone(&busy.soft);
            let mut keeper = Ready::new(keeper, plan()).unwrap();
            let ended = catch_unwind(AssertUnwindSafe(|| {
                record(busy.clone(), plan()).map_err(|error| error.to_string())
            }));
            assert_eq!(ended.is_err(), end == End::Panics, "{what}: {end:?} at {at}");
            // The watchdog process also retries a failed restore.
            assert!(keeper.put_back(), "{what}: {end:?} at {at}");
            let after = state(cpu, &mut busy.soft());
            assert_eq!(after, before, "{what}: {end:?} at {at} of {accesses}");
        }
    }
}

#[test]
fn restored_registers_stay_restored_on_a_busy_cpu() {
    for key in ["06_1A", "06_3C", "06_5E", "06_5C", "06_7A", "06_8F", "19_11", "19_61"] {
        let mut cpu = SoftCpu::preset(key).unwrap();
        if key == "19_61" {
            // The freeze, which is optional on AMD.
            cpu.caps.quirks |= Quirks::STREAMLINED_FREEZE;
        }
        let options = options(&cpu.caps);
        assert!(!options.is_empty(), "{key}");
        for (value, options) in options {
            ended_anywhere(&cpu, value, options);
        }
    }
}
