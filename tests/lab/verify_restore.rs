//! However verification ends, every register is restored, including TOS and the records.

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lab::verify::{
    Check, Config, Kernel, Preserved, Ran, Ready, RunError, SoftSubject, Subject, SubjectKind,
    Switch, VerifyError,
};
use lbr_msr::access::Access;
use lbr_msr::caps::{Facility, FilterRegister};
use lbr_msr::probe::RecordedCpuid;
use lbr_msr::record::HwBranchType::{Other, RelCall, RelJmp};
use lbr_msr::soft::{Fault, Faults, Retired, SoftCpu};
use lbr_msr::{Msr, MsrError, MsrRead, MsrWrite};
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use sampler::keeper;

use crate::support::recorder::{Filed, again, filed, recorded};

const DEBUGCTL: Msr = Msr(0x1D9);

/// An event at a register access.
#[derive(Clone)]
enum End {
    Never,
    /// The access fails; later ones succeed.
    Fails(u32),
    Panics(u32),
    /// An interruption, as by Ctrl-C.
    Stops(u32, Arc<AtomicBool>),
}

/// A software CPU with an event at one of its accesses. From then on every access also records a
/// branch of the driver, an interrupt and a PMI.
struct Ending {
    soft: SoftSubject,
    accesses: u32,
    end: End,
}

impl Ending {
    fn new(cpu: &SoftCpu, faults: Faults, end: End) -> Ending {
        let mut ending = Ending { soft: SoftSubject::new(cpu, faults), accesses: 0, end };
        use_before(cpu, &mut ending.soft);
        ending
    }

    fn count(&mut self, msr: Msr, access: Access) -> Result<(), MsrError> {
        self.accesses += 1;
        let now = self.accesses;
        if let End::Fails(at) | End::Panics(at) | End::Stops(at, _) = self.end
            && now > at
        {
            let driver = 0xFFFF_FFFF_8100_0000 + u64::from(now) * 16;
            self.soft.lbr().retire(&Retired::user(driver, driver + 8, Other));
            self.soft.lbr().exception();
            self.soft.lbr().pmi();
        }
        match &self.end {
            End::Fails(at) if *at == now => {
                Err(MsrError::Os { cpu: 0, msr, access, cause: "the 5th of November".into() })
            }
            End::Panics(at) if *at == now => panic!("access {now}"),
            End::Stops(at, stop) if *at == now => {
                stop.store(true, Ordering::Relaxed);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl MsrRead for Ending {
    fn cpu(&self) -> u32 {
        0
    }
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        self.count(msr, Access::Read)?;
        self.soft.read(msr)
    }
}

impl MsrWrite for Ending {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        self.count(msr, Access::Write)?;
        self.soft.write(msr, value)
    }
}

impl Subject for Ending {
    fn kind(&self) -> SubjectKind {
        self.soft.kind()
    }
    fn cpuid(&self) -> &RecordedCpuid {
        self.soft.cpuid()
    }
    fn execute(&mut self, kernel: Kernel, switch: Switch) -> Result<Ran, RunError> {
        // Recording stays on if the run ends here.
        self.soft.write(switch.msr, switch.on)?;
        self.count(switch.msr, Access::Write)?;
        self.soft.execute(kernel, switch)
    }
    fn deep_c_state(&mut self) -> Result<(), RunError> {
        self.soft.deep_c_state()
    }
    fn read_sibling(&mut self, msr: Msr) -> Result<u64, RunError> {
        self.soft.read_sibling(msr)
    }
}

/// Sets records, a filter, a depth and an unusual bit, as another program might have.
fn use_before(cpu: &SoftCpu, soft: &mut SoftSubject) {
    let registers = &cpu.caps.registers;
    if let Some(depth) = registers.depth {
        soft.write(depth, 16).unwrap();
    }
    let filter = match cpu.caps.filter {
        FilterRegister::LbrCtl { .. } => 0x7F_0006,
        _ => 0,
    };
    let own_select = registers.select.filter(|select| *select != registers.control);
    let before = soft.read(registers.control).unwrap();
    soft.write(registers.control, before | filter | registers.enable).unwrap();
    for n in 0..21u64 {
        let high = if n % 3 == 0 { 0xFFFF_FFFF_8000_0000 } else { 0x40_0000 };
        soft.lbr().retire(&Retired {
            mispredicted: Some(n % 2 == 0),
            cycles: Some(n as u32 * 7),
            in_tx: n % 5 == 0,
            ..Retired::user(high + n * 8, high + n * 16, if n % 4 == 0 { RelCall } else { RelJmp })
        });
        if n == 17 {
            soft.lbr().exception();
            soft.lbr().retire(&Retired::user(0x1234, 0xFFFF_FFFF_8000_1000, Other));
        }
    }
    let now = soft.read(registers.control).unwrap();
    soft.write(registers.control, now & !registers.enable).unwrap();
    if let Some(select) = own_select {
        soft.write(select, 0x1C4).unwrap();
    }
    // BTF belongs to a debugger.
    let debugctl = soft.read(DEBUGCTL).unwrap();
    soft.write(DEBUGCTL, debugctl | 2).unwrap();
}

/// Every register of this CPU, by address.
fn registers(cpu: &SoftCpu, soft: &mut SoftSubject) -> BTreeMap<u32, u64> {
    let map = &cpu.caps.registers;
    let mut list: Vec<Msr> = (0..cpu.caps.depth)
        .flat_map(|i| [Some(map.from_at(i)), map.to_at(i), map.info_at(i)])
        .flatten()
        .collect();
    list.extend([map.tos, map.select, map.depth, Some(map.control)].into_iter().flatten());
    list.extend([0x1D9, 0x1DB, 0x1DC, 0x1DD, 0x1DE, 0x1E0, 0x38E, 0xC000_0300].map(Msr));
    list.into_iter().filter_map(|msr| Some((msr.0, soft.read(msr).ok()?))).collect()
}

/// One CPU of each generation and facility.
const CPUS: [&str; 20] = [
    "06_01", "06_0D", "06_0E", "06_0F", "06_1C", "06_1A", "06_2A", "06_3C", "06_3D", "06_5E",
    "06_57", "06_37", "06_5C", "06_7A", "06_96", "06_8F", "06_BE", "0F_03", "19_21", "19_61",
];

fn config(stop: Option<Arc<AtomicBool>>) -> Config {
    Config { write: true, stop, ..Config::default() }
}

#[test]
fn after_verifying_everything_is_as_before_on_every_cpu() {
    for cpu in SoftCpu::all() {
        let mut ready =
            Ready::new(Ending::new(&cpu, Faults::NONE, End::Never), &config(None)).unwrap();
        let before = registers(&cpu, &mut ready.subject().soft);
        assert!(before.values().filter(|value| **value != 0).count() > 2, "{}", cpu.key);
        let report = ready.verify().unwrap();
        assert_eq!(report.differing().collect::<Vec<_>>(), Vec::<&Check>::new(), "{}", cpu.key);
        assert_eq!(registers(&cpu, &mut ready.subject().soft), before, "{}", cpu.key);
    }
}

#[test]
fn a_faulty_cpu_is_restored_too() {
    for key in CPUS {
        let cpu = SoftCpu::preset(key).unwrap();
        // FROM with its flags cannot be written back there (HSM182), nor addresses that are not
        // canonical.
        let unwritable = [Fault::FromWriteChecksFlags, Fault::NoSignExtension];
        for fault in Fault::all().filter(|fault| !unwritable.contains(fault)) {
            let ending = Ending::new(&cpu, fault.into(), End::Never);
            let mut ready = Ready::new(ending, &config(None)).unwrap();
            let before = registers(&cpu, &mut ready.subject().soft);
            ready.verify().unwrap();
            assert_eq!(registers(&cpu, &mut ready.subject().soft), before, "{fault} on {key}");
        }
    }
}

/// Haswell and Broadwell refuse values that they reported themselves. A sign that they accept is
/// written in place of FROM's transaction flags (HSM182), and of the three bits above LER_TO's
/// address (BDM131).
#[test]
fn values_that_the_cpu_refuses_keep_their_addresses() {
    const TSX: u64 = 3 << 61;
    for key in ["06_3C", "06_3D"] {
        let cpu = SoftCpu::preset(key).unwrap();
        for (fault, lost) in [(Fault::FromWriteChecksFlags, TSX), (Fault::LerToUnsigned, 0)] {
            let mut ready =
                Ready::new(Ending::new(&cpu, fault.into(), End::Never), &config(None)).unwrap();
            let before = registers(&cpu, &mut ready.subject().soft);
            ready.verify().unwrap();
            let mut changed = 0;
            for (msr, after) in registers(&cpu, &mut ready.subject().soft) {
                let bits = after ^ before[&msr];
                assert_eq!(bits & !lost, 0, "{fault} on {key}: {msr:#x}");
                changed |= bits;
            }
            assert_eq!(changed, lost, "{fault} on {key}");
        }
    }
}

/// On hardware only these bits are changed and restored: a debugger or perf uses the others.
#[test]
fn on_hardware_the_other_bits_stay() {
    // LBR and FREEZE_LBRS_ON_PMI of DEBUGCTL (SDM 18.4.1), LBR_FRZ's bit of GLOBAL_STATUS_RESET
    // (18.2.4.1), EN of IA32_LBR_CTL with its filter (19.1), LBRE of AMD's DBG_EXTN_CFG (PPR).
    for (key, masks) in [
        ("06_5E", &[(0x1D9, 0x801), (0x390, 1 << 58), (0x38E, 0)][..]),
        ("06_3C", &[(0x1D9, 0x801)]),
        ("06_8F", &[(0x1D9, 0x801), (0x14CE, u64::MAX), (0x390, 1 << 58)]),
        ("19_61", &[(0x1D9, 0x801), (0xC000_010F, 0x40), (0xC000_0302, 1 << 58)]),
    ] {
        let cpu = SoftCpu::preset(key).unwrap();
        let mut soft = SoftSubject::new(&cpu, Faults::NONE);
        use_before(&cpu, &mut soft);
        let saved = Preserved::read(&mut soft, &cpu.caps, SubjectKind::Hardware).unwrap();
        let needs = saved.needs();
        for (msr, mask) in masks {
            let need = needs.iter().find(|need| need.msr == Msr(*msr));
            assert_eq!(need.map(|need| need.write_mask), Some(*mask), "{key}: {msr:#x}");
        }
        let debugctl = soft.read(DEBUGCTL).unwrap();
        // Meanwhile a debugger clears BTF.
        soft.write(DEBUGCTL, debugctl ^ 0x802).unwrap();
        saved.put_back(&mut soft).unwrap();
        assert_eq!(soft.read(DEBUGCTL).unwrap(), debugctl ^ 2, "{key}");
    }
}

/// Register accesses for verifying this CPU.
fn accesses(cpu: &SoftCpu) -> u32 {
    let mut ready = Ready::new(Ending::new(cpu, Faults::NONE, End::Never), &config(None)).unwrap();
    ready.verify().unwrap();
    ready.subject().accesses
}

/// Many numbers up to `most`: the first and last ones, and more between them.
fn many(most: u32) -> impl Iterator<Item = u32> {
    (1..=most).filter(move |n| *n < 40 || most - n < 140 || n % 101 == 0)
}

#[test]
fn interrupted_at_any_access_everything_is_as_before() {
    for key in CPUS {
        let cpu = SoftCpu::preset(key).unwrap();
        let (mut stopped, mut completed) = (0, 0);
        for at in many(accesses(&cpu)) {
            let stop = Arc::new(AtomicBool::new(false));
            let end = End::Stops(at, Arc::clone(&stop));
            let mut ready =
                match Ready::new(Ending::new(&cpu, Faults::NONE, end), &config(Some(stop))) {
                    Ok(ready) => ready,
                    Err(error) => panic!("reading is not stopped: {error}"),
                };
            // The counter must not see these.
            let before = registers(&cpu, &mut ready.subject().soft);
            match ready.verify() {
                Err(VerifyError::Interrupted) => stopped += 1,
                Ok(_) => completed += 1,
                Err(error) => panic!("{key} at {at}: {error}"),
            }
            assert_eq!(registers(&cpu, &mut ready.subject().soft), before, "{key} at {at}");
        }
        assert!(stopped > 20, "{key}: {stopped} stopped, {completed} completed");
    }
}

#[test]
fn failing_at_any_access_everything_is_as_before() {
    for key in CPUS {
        let cpu = SoftCpu::preset(key).unwrap();
        let most = accesses(&cpu);
        let mut failed = 0;
        for at in many(most) {
            let ending = Ending::new(&cpu, Faults::NONE, End::Fails(at));
            let Ok(mut ready) = Ready::new(ending, &config(None)) else { continue };
            let before = registers(&cpu, &mut ready.subject().soft);
            match ready.verify() {
                Err(VerifyError::Register(_)) => failed += 1,
                // During restoration: the failed register remains to be restored, and the error
                // reports it.
                Err(VerifyError::NotRestored(_)) => continue,
                // Some failures are valid answers: a status that cannot be read.
                Ok(_) => {}
                Err(error) => panic!("{key} at {at}: {error}"),
            }
            assert_eq!(registers(&cpu, &mut ready.subject().soft), before, "{key} at {at}");
        }
        assert!(failed > 10, "{key}: {failed}");
    }
}

#[test]
fn a_panic_at_any_access_leaves_everything_as_before() {
    for key in ["06_3C", "06_5E", "06_8F", "19_61"] {
        let cpu = SoftCpu::preset(key).unwrap();
        let most = accesses(&cpu);
        for at in (1..most).filter(|n| n % 97 == 0) {
            let ending = Ending::new(&cpu, Faults::NONE, End::Panics(at));
            let shared = std::cell::RefCell::new(ending);
            let before = registers(&cpu, &mut shared.borrow_mut().soft);
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                // Dropped during unwinding.
                Ready::new(Borrowed(&shared), &config(None)).map(|mut ready| ready.verify())
            }));
            assert!(panicked.is_err(), "{key} at {at}");
            let after = registers(&cpu, &mut shared.borrow_mut().soft);
            assert_eq!(after, before, "{key} at {at}");
        }
    }
}

/// A subject that outlives its user.
struct Borrowed<'a>(&'a std::cell::RefCell<Ending>);

impl MsrRead for Borrowed<'_> {
    fn cpu(&self) -> u32 {
        0
    }
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        self.0.borrow_mut().read(msr)
    }
}

impl MsrWrite for Borrowed<'_> {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        self.0.borrow_mut().write(msr, value)
    }
}

impl Subject for Borrowed<'_> {
    fn kind(&self) -> SubjectKind {
        SubjectKind::Software
    }
    fn cpuid(&self) -> &RecordedCpuid {
        // Leaks one test's CPUID, for the duration of the test.
        Box::leak(Box::new(self.0.borrow().cpuid().clone()))
    }
    fn execute(&mut self, kernel: Kernel, switch: Switch) -> Result<Ran, RunError> {
        self.0.borrow_mut().execute(kernel, switch)
    }
    fn deep_c_state(&mut self) -> Result<(), RunError> {
        self.0.borrow_mut().deep_c_state()
    }
    fn read_sibling(&mut self, _: Msr) -> Result<u64, RunError> {
        Err(RunError::unavailable("no sibling"))
    }
}

/// Registers in a file; the process is killed at one of its accesses.
struct Killed {
    registers: Filed,
    cpuid: RecordedCpuid,
    accesses: u32,
    at: u32,
}

impl Killed {
    fn count(&mut self) {
        self.accesses += 1;
        if self.accesses == self.at {
            nix::sys::signal::raise(Signal::SIGKILL).unwrap();
        }
    }
}

impl MsrRead for Killed {
    fn cpu(&self) -> u32 {
        self.registers.cpu()
    }
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        self.count();
        self.registers.read(msr)
    }
}

impl MsrWrite for Killed {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        self.count();
        self.registers.write(msr, value)
    }
}

impl Subject for Killed {
    fn kind(&self) -> SubjectKind {
        SubjectKind::Software
    }
    fn cpuid(&self) -> &RecordedCpuid {
        &self.cpuid
    }
    fn execute(&mut self, _: Kernel, switch: Switch) -> Result<Ran, RunError> {
        self.write(switch.msr, switch.on)?;
        self.write(Msr(0x680), 0x1111)?;
        self.write(Msr(0x6C0), 0x2222)?;
        self.write(switch.msr, switch.off)?;
        Ok(Ran::default())
    }
    fn deep_c_state(&mut self) -> Result<(), RunError> {
        Err(RunError::unavailable("no C-state"))
    }
    fn read_sibling(&mut self, _: Msr) -> Result<u64, RunError> {
        Err(RunError::unavailable("no sibling"))
    }
}

#[test]
fn killed_at_any_access_the_watchdog_restores_everything() {
    let cpu = SoftCpu::preset("06_5E").unwrap();
    for at in [120, 121, 150, 400, 777, 1300] {
        let mut registers = filed(0);
        for index in 0..32 {
            registers.write(Msr(0x680 + index), 0x1000 + u64::from(index)).unwrap();
            registers.write(Msr(0x6C0 + index), 0x2000 + u64::from(index)).unwrap();
            registers.write(Msr(0xDC0 + index), 0x3000 + u64::from(index)).unwrap();
        }
        registers.write(Msr(0x1C9), 11).unwrap();
        let all = |registers: &mut Filed| {
            (0x1000..0x1000 + 0x700)
                .map(|n| if n < 0x1700 { n - 0x1000 } else { n })
                .chain(0xDC0..0xDE0)
                .map(|n| registers.read(Msr(n)).unwrap())
                .collect::<Vec<u64>>()
        };
        let before = all(&mut registers);
        let view = again(&registers);
        let status = recorded(
            |tell| {
                let killed =
                    Killed { registers: view, cpuid: cpu.cpuid.clone(), accesses: 0, at: u32::MAX };
                let mut ready = [Ready::new(killed, &config(None)).unwrap()];
                keeper::watch(&mut ready).unwrap();
                let [ready] = &mut ready;
                tell.write_all(&[1]).unwrap();
                ready.subject().at = at;
                let _ = ready.verify();
            },
            |_| {},
        );
        assert!(matches!(status, WaitStatus::Signaled(_, Signal::SIGKILL, _)), "{at}: {status:?}");
        assert_eq!(all(&mut registers), before, "killed at {at}");
    }
}

#[test]
fn an_lbr_in_use_is_not_touched() {
    let cpu = SoftCpu::preset("06_5E").unwrap();
    let mut ending = Ending::new(&cpu, Faults::NONE, End::Never);
    ending.soft.write(DEBUGCTL, 1).unwrap();
    let mut ready = Ready::new(ending, &config(None)).unwrap();
    assert!(!ready.writes());
    let before = registers(&cpu, &mut ready.subject().soft);
    let report = ready.verify().unwrap();
    assert_eq!(registers(&cpu, &mut ready.subject().soft), before);
    let why = report.checks.iter().find(|check| check.id == "recording").unwrap();
    assert!(why.verdict.why().unwrap().contains("recording is on"), "{why:?}");
    assert_eq!(cpu.caps.facility, Facility::IntelLegacy);
}
