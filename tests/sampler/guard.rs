//! The restore guard restores in all cases, and the watchdog process when the guard cannot.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use lbr_msr::access::{Access, FakeMsrs};
use lbr_msr::arm::{ArmError, ArmOptions, ArmPlan};
use lbr_msr::soft::{SoftCpu, SoftLbr};
use lbr_msr::{LbrCaps, Msr, MsrError, MsrRead, MsrWrite};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use sampler::guard::{Armed, GuardError, Ready};
use sampler::keeper::{self, KeeperError, Restorable, Ticket};

use crate::support::recorder::{Filed, again, bystander, filed, recorded};

const DEBUGCTL: Msr = Msr(0x1D9);
const SELECT: Msr = Msr(0x1C8);
const LBR_CTL: Msr = Msr(0x14CE);

fn caps(key: &str) -> (LbrCaps, Option<u64>) {
    let cpu = SoftCpu::preset(key).unwrap();
    (cpu.caps, cpu.perf_capabilities)
}

fn plan(caps: &LbrCaps, filter: u64) -> ArmPlan {
    ArmPlan::new(caps, filter, ArmOptions::default()).unwrap()
}

/// The fault injected at a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Once,
    Panic,
    FromThenOn,
    Filtered,
    FilteredOnce,
}

/// A software LBR that is shared with the test, and whose writes can fail.
#[derive(Clone)]
struct Watched {
    soft: Arc<Mutex<SoftLbr>>,
    writes: Arc<Mutex<u32>>,
    fault: Option<(u32, Fault)>,
}

impl Watched {
    fn new(key: &str, fault: Option<(u32, Fault)>) -> (Watched, LbrCaps) {
        let (caps, perf_capabilities) = caps(key);
        let soft = Arc::new(Mutex::new(SoftLbr::new(&caps, perf_capabilities)));
        (Watched { soft, writes: Arc::default(), fault }, caps)
    }

    fn get(&self, msr: Msr) -> u64 {
        self.soft.lock().unwrap_or_else(PoisonError::into_inner).read(msr).unwrap()
    }

    fn set(&self, msr: Msr, value: u64) {
        self.soft.lock().unwrap().write(msr, value).unwrap();
    }

    fn writes(&self) -> u32 {
        *self.writes.lock().unwrap()
    }
}

impl MsrRead for Watched {
    fn cpu(&self) -> u32 {
        3
    }
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        self.soft.lock().unwrap().read(msr)
    }
}

impl MsrWrite for Watched {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        let count = {
            let mut writes = self.writes.lock().unwrap();
            *writes += 1;
            *writes
        };
        let fault = MsrError::Fault { cpu: 3, msr, access: Access::Write };
        match self.fault {
            Some((at, Fault::Once)) if count == at => return Err(fault),
            Some((at, Fault::Panic)) if count == at => panic!("write {count}"),
            Some((at, Fault::FromThenOn)) if count >= at => return Err(fault),
            Some((at, Fault::FilteredOnce)) if count == at => {
                return Err(MsrError::WriteFiltered { msr, why: "off".into() });
            }
            Some((_, Fault::Filtered)) => {
                return Err(MsrError::WriteFiltered { msr, why: "off".into() });
            }
            _ => {}
        }
        self.soft.lock().unwrap().write(msr, value)
    }
}

/// The kernel's BTF, and a filter set by someone else.
fn with_foreign_bits(fault: Option<(u32, Fault)>) -> (Watched, LbrCaps) {
    let (watched, caps) = Watched::new("06_5E", fault);
    watched.set(DEBUGCTL, 2);
    watched.set(SELECT, 0x1C4);
    watched.set(Msr(0x680), 0x1234);
    (watched, caps)
}

#[test]
fn an_armed_lbr_is_restored_by_drop_and_explicitly() {
    for by_name in [false, true] {
        let (watched, caps) = with_foreign_bits(None);
        let ready = Ready::new(watched.clone(), plan(&caps, 0x101)).unwrap();
        assert!(ready.saved().in_use, "the filter was set");
        assert_eq!((ready.cpu(), watched.writes()), (3, 0), "reading writes nothing");
        let mut armed = ready.arm().unwrap();
        assert_eq!((watched.get(DEBUGCTL), watched.get(SELECT)), (3, 0x101));
        assert_eq!(watched.get(Msr(0x680)), 0, "the ring is empty when it is armed");
        let frozen = armed.freeze().unwrap();
        assert_eq!((watched.get(DEBUGCTL), frozen.stopped, frozen.foreign), (2, false, false));
        armed.thaw(&frozen).unwrap();
        assert_eq!(watched.get(DEBUGCTL), 3);
        watched.set(Msr(0x6C0), 0x5678);
        if by_name {
            assert!(!armed.restore().unwrap().foreign);
        } else {
            drop(armed);
        }
        assert_eq!((watched.get(DEBUGCTL), watched.get(SELECT)), (2, 0x1C4));
        assert_eq!(watched.get(Msr(0x6C0)), 0, "no record remains");
    }
}

#[test]
fn architectural_lbr_is_restored() {
    let (watched, caps) = Watched::new("06_8F", None);
    watched.set(LBR_CTL, 0x2);
    let armed = Ready::new(watched.clone(), plan(&caps, 0x3F_0004)).unwrap().arm().unwrap();
    assert_eq!(watched.get(LBR_CTL), 0x3F_0005);
    drop(armed);
    assert_eq!(watched.get(LBR_CTL), 0x2);
}

#[test]
fn every_write_that_fails_while_arming_is_undone() {
    // Disable, the filter, 3 * 32 records, enable.
    for at in 1..=99 {
        for fault in [Fault::Once, Fault::Panic] {
            let (watched, caps) = with_foreign_bits(Some((at, fault)));
            let ready = Ready::new(watched.clone(), plan(&caps, 0x101)).unwrap();
            match catch_unwind(AssertUnwindSafe(|| ready.arm())) {
                Ok(Err(GuardError::Failed(MsrError::Fault { cpu: 3, .. }))) => {
                    assert_eq!(fault, Fault::Once);
                }
                Err(_) => assert_eq!(fault, Fault::Panic),
                Ok(other) => panic!("write {at}: {:?}", other.map(|_| "armed")),
            }
            let now = (watched.get(DEBUGCTL), watched.get(SELECT));
            assert_eq!(now, (2, 0x1C4), "after {fault:?} at write {at}");
        }
    }
    let (watched, caps) = with_foreign_bits(Some((100, Fault::Once)));
    assert!(Ready::new(watched, plan(&caps, 0x101)).unwrap().arm().is_ok(), "99 writes arm");
}

#[test]
fn failures_to_restore_are_reported() {
    let (watched, caps) = with_foreign_bits(Some((3, Fault::FromThenOn)));
    let error = Ready::new(watched, plan(&caps, 0x101)).unwrap().arm().err().unwrap();
    assert!(matches!(error, GuardError::LeftOver { .. }), "{error}");
    assert!(error.to_string().ends_with("run: lbr disarm"), "{error}");
}

/// Dropping it does not retry: that is the watchdog's task.
#[test]
fn a_failure_to_restore_is_not_retried() {
    let (watched, caps) = with_foreign_bits(None);
    let armed = Ready::new(watched.clone(), plan(&caps, 0x101)).unwrap().arm().unwrap();
    let arming = watched.writes();
    armed.restore().unwrap();
    let all = watched.writes();
    let (watched, caps) = with_foreign_bits(Some((arming + 1, Fault::FromThenOn)));
    let armed = Ready::new(watched.clone(), plan(&caps, 0x101)).unwrap().arm().unwrap();
    assert!(armed.restore().is_err());
    assert_eq!(watched.writes(), all, "each register was tried once");
}

#[test]
fn nothing_is_undone_if_the_kernel_refuses_writes() {
    let (watched, caps) = with_foreign_bits(Some((0, Fault::Filtered)));
    let error = Ready::new(watched.clone(), plan(&caps, 0x101)).unwrap().arm().err().unwrap();
    assert!(matches!(error, GuardError::Failed(MsrError::WriteFiltered { .. })), "{error}");
    assert_eq!(watched.writes(), 1, "one try is enough");
}

/// As if someone enabled kernel lockdown in between.
#[test]
fn a_write_that_is_refused_after_others_is_undone() {
    for at in 1..=99 {
        let (watched, caps) = with_foreign_bits(Some((at, Fault::FilteredOnce)));
        let error = Ready::new(watched.clone(), plan(&caps, 0x101)).unwrap().arm().err().unwrap();
        assert!(matches!(error, GuardError::Failed(MsrError::WriteFiltered { .. })), "{error}");
        let now = (watched.get(DEBUGCTL), watched.get(SELECT));
        assert_eq!(now, (2, 0x1C4), "after write {at}");
    }
}

#[test]
fn a_panic_while_armed_restores() {
    let (watched, caps) = with_foreign_bits(None);
    let armed = Ready::new(watched.clone(), plan(&caps, 0x101)).unwrap().arm().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _armed = armed;
        panic!("the decoder fell over");
    }));
    assert!(panicked.is_err());
    assert_eq!((watched.get(DEBUGCTL), watched.get(SELECT)), (2, 0x1C4));
}

#[test]
fn an_lbr_in_use_is_refused() {
    let (watched, caps) = with_foreign_bits(None);
    watched.set(DEBUGCTL, 0x801);
    let error = Ready::new(watched.clone(), plan(&caps, 0x101)).err().unwrap();
    assert!(
        matches!(error, GuardError::InUse { cpu: 3, control: DEBUGCTL, value: 0x801 }),
        "{error}"
    );
    assert_eq!(watched.writes(), 0);
}

#[test]
fn a_trace_by_intel_pt_is_refused() {
    let (caps, _) = caps("06_5E");
    let fake = FakeMsrs::new(3).with(Msr(0x570), 1);
    let error = Ready::new(fake, plan(&caps, 0)).err().unwrap();
    assert!(matches!(error, GuardError::Arm(ArmError::IntelPt { cpu: 3 })), "{error}");
}

#[test]
fn registers_outside_the_plan_cannot_be_written() {
    let (watched, caps) = with_foreign_bits(None);
    let mut armed = Ready::new(watched, plan(&caps, 0x101)).unwrap().arm().unwrap();
    let msr = Msr(0x10);
    assert_eq!(armed.registers().write(msr, 1), Err(MsrError::NotAllowed { msr }));
}

fn wait_for_death() -> ! {
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

/// Starts a watchdog process for an LBR, and arms it.
fn armed_and_watched(ring: &Filed) -> Armed<Filed> {
    let (caps, _) = caps("06_5E");
    let mut ready = [Ready::new(again(ring), plan(&caps, 0x101)).unwrap()];
    keeper::watch(&mut ready).unwrap();
    let [ready] = ready;
    ready.arm().unwrap()
}

#[test]
fn the_watchdog_restores_when_the_recorder_is_killed() {
    for whole_group in [false, true] {
        let (caps, _) = caps("06_5E");
        let mut rings = [filed(0), filed(1), filed(2), filed(3)];
        let views: Vec<Filed> = rings.iter().map(again).collect();
        let status = recorded(
            |tell| {
                let mut ready: Vec<_> = rings
                    .iter()
                    .map(|ring| Ready::new(again(ring), plan(&caps, 0x101)).unwrap())
                    .collect();
                keeper::watch(&mut ready).unwrap();
                let _last = ready.pop().unwrap().arm().unwrap();
                let never_armed = ready.pop();
                let second = ready.pop().unwrap().arm().unwrap();
                let _first = ready.pop().unwrap().arm().unwrap();
                second.restore().unwrap();
                // Someone else takes over, while the first is still ours.
                again(&rings[1]).write(DEBUGCTL, 1).unwrap();
                again(&rings[2]).write(Msr(0x680), 0x77).unwrap();
                tell.write_all(&[1]).unwrap();
                let _unused = never_armed;
                wait_for_death();
            },
            |recorder| {
                let armed = again(&views[0]).read(DEBUGCTL).unwrap();
                assert_eq!(armed, 3, "armed while the recorder lives");
                if whole_group {
                    killpg(recorder, Signal::SIGKILL).unwrap();
                } else {
                    kill(recorder, Signal::SIGKILL).unwrap();
                }
            },
        );
        assert!(matches!(status, WaitStatus::Signaled(_, Signal::SIGKILL, _)), "{status:?}");
        for at in [0, 3] {
            let ours = &mut rings[at];
            assert_eq!((ours.read(DEBUGCTL), ours.read(SELECT)), (Ok(2), Ok(0x1C4)), "{at}");
        }
        assert_eq!(rings[1].read(DEBUGCTL), Ok(1), "settled: the watchdog leaves it");
        assert_eq!(rings[2].read(Msr(0x680)), Ok(0x77), "never armed: the watchdog leaves it");
    }
}

/// A process that the recorder forked still holds the pipe to the watchdog.
#[test]
fn the_watchdog_restores_although_its_pipe_stays_open() {
    const PID: Msr = Msr(0x10);
    let mut ring = filed(0);
    let status = recorded(
        |tell| {
            let _armed = armed_and_watched(&ring);
            let pid = bystander(tell).as_raw();
            again(&ring).write(PID, pid as u64).unwrap();
            tell.write_all(&[1]).unwrap();
            wait_for_death();
        },
        |recorder| kill(recorder, Signal::SIGKILL).unwrap(),
    );
    assert!(matches!(status, WaitStatus::Signaled(_, Signal::SIGKILL, _)), "{status:?}");
    let pid = Pid::from_raw(ring.read(PID).unwrap() as i32);
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    kill(pid, Signal::SIGKILL).unwrap();
    assert!(state.contains(") S "), "it held the pipe open until then: {state}");
    assert_eq!((ring.read(DEBUGCTL), ring.read(SELECT)), (Ok(2), Ok(0x1C4)));
}

#[test]
fn the_watchdog_of_a_successful_recorder_does_nothing() {
    let mut ring = filed(0);
    let status = recorded(
        |tell| {
            armed_and_watched(&ring).restore().unwrap();
            // The watchdog process was reaped.
            let none = waitpid(None, None);
            assert_eq!(none, Err(nix::errno::Errno::ECHILD));
            again(&ring).write(DEBUGCTL, 0x801).unwrap();
            tell.write_all(&[1]).unwrap();
        },
        |_| {},
    );
    assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
    assert_eq!(ring.read(DEBUGCTL), Ok(0x801));
}

#[test]
fn a_multithreaded_process_gets_no_watchdog() {
    let (watched, caps) = with_foreign_bits(None);
    let mut ready = [Ready::new(watched, plan(&caps, 0x101)).unwrap()];
    std::thread::scope(|threads| {
        let (until, wait) = std::sync::mpsc::channel::<()>();
        threads.spawn(move || wait.recv());
        let error = keeper::watch(&mut ready).unwrap_err();
        drop(until);
        assert!(matches!(error, KeeperError::Threads(2..)), "{error}");
    });
}

/// An LBR that only shows whether the watchdog restored it.
struct Numbered {
    file: Filed,
    number: u32,
    ticket: Option<Ticket>,
}

impl Restorable for Numbered {
    fn give(&mut self, ticket: Ticket) {
        self.ticket = Some(ticket);
    }
    fn put_back(&mut self) -> bool {
        self.file.write(Msr(self.number), 1).is_ok()
    }
}

/// A number is two bytes of a message.
#[test]
fn the_watchdog_tells_hundreds_of_lbrs_apart() {
    let mut file = filed(0);
    let status = recorded(
        |tell| {
            let numbered = |number| Numbered { file: again(&file), number, ticket: None };
            let mut rings: Vec<_> = (0..300).map(numbered).collect();
            keeper::watch(&mut rings).unwrap();
            for armed in [3, 258, 261] {
                rings[armed].ticket.as_ref().unwrap().arming().unwrap();
            }
            rings[261].ticket.take().unwrap().settle();
            tell.write_all(&[1]).unwrap();
            wait_for_death();
        },
        |recorder| kill(recorder, Signal::SIGKILL).unwrap(),
    );
    assert!(matches!(status, WaitStatus::Signaled(_, Signal::SIGKILL, _)), "{status:?}");
    let restored: Vec<u32> = (0..300).filter(|n| file.read(Msr(*n)) == Ok(1)).collect();
    assert_eq!(restored, [3, 258]);
}

#[test]
fn more_lbrs_than_numbers_get_no_watchdog() {
    struct Nothing;
    impl Restorable for Nothing {
        fn give(&mut self, _: Ticket) {}
        fn put_back(&mut self) -> bool {
            false
        }
    }
    let mut many: Vec<Nothing> = (0..=65_535).map(|_| Nothing).collect();
    let error = keeper::watch(&mut many).unwrap_err();
    assert!(matches!(error, KeeperError::TooMany(65_536)), "{error}");
    many.pop();
    std::thread::scope(|threads| {
        let (until, wait) = std::sync::mpsc::channel::<()>();
        threads.spawn(move || wait.recv());
        let error = keeper::watch(&mut many).unwrap_err();
        drop(until);
        assert!(matches!(error, KeeperError::Threads(2..)), "{error}");
    });
}

/// A recorder that ends does not wait for others who have its pipe.
#[test]
fn the_watchdog_ends_with_the_recorder_although_its_pipe_stays_open() {
    const PID: Msr = Msr(0x10);
    let mut ring = filed(0);
    let status = recorded(
        |tell| {
            let armed = armed_and_watched(&ring);
            let pid = bystander(tell).as_raw();
            again(&ring).write(PID, pid as u64).unwrap();
            armed.restore().unwrap();
            again(&ring).write(DEBUGCTL, 0x801).unwrap();
            tell.write_all(&[1]).unwrap();
        },
        |_| {},
    );
    assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
    let pid = Pid::from_raw(ring.read(PID).unwrap() as i32);
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let _ = kill(pid, Signal::SIGKILL);
    assert!(state.contains(") S "), "it held the pipe open until then: {state}");
    assert_eq!(ring.read(DEBUGCTL), Ok(0x801), "settled: the watchdog leaves it");
}

/// The only child of this process: proc(5), the fourth field of `stat`.
fn child() -> Pid {
    let ours = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_ours = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after = stat.rsplit(") ").next().unwrap_or_default();
        after.split(' ').nth(1) == Some(&ours)
    };
    Pid::from_raw(numbers.find(is_ours).unwrap())
}

#[test]
fn without_its_watchdog_an_lbr_is_not_armed() {
    let mut ring = filed(0);
    let status = recorded(
        |tell| {
            let (caps, _) = caps("06_5E");
            let mut ready = [Ready::new(again(&ring), plan(&caps, 0x101)).unwrap()];
            keeper::watch(&mut ready).unwrap();
            let watchdog = child();
            kill(watchdog, Signal::SIGKILL).unwrap();
            waitpid(watchdog, None).unwrap();
            let [ready] = ready;
            let error = ready.arm().err().unwrap();
            assert!(matches!(error, GuardError::Keeper(KeeperError::Os { .. })), "{error}");
            tell.write_all(&[1]).unwrap();
        },
        |_| {},
    );
    assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
    assert_eq!((ring.read(DEBUGCTL), ring.read(SELECT)), (Ok(2), Ok(0x1C4)));
}

/// What the watchdog reported: the CPU, and whether it restored the registers.
static REPORTED: Mutex<Vec<(u32, bool)>> = Mutex::new(Vec::new());

#[test]
fn the_watchdog_reports_what_it_restored() {
    for (fault, restored) in [(None, true), (Some((1, Fault::FromThenOn)), false)] {
        let (watched, caps) = with_foreign_bits(fault);
        let ready = Ready::new(watched.clone(), plan(&caps, 0x101)).unwrap();
        let mut ready =
            ready.with_report(|cpu, found| REPORTED.lock().unwrap().push((cpu, found.is_ok())));
        watched.set(SELECT, 0x101);
        assert_eq!(ready.put_back(), restored);
        assert_eq!(std::mem::take(&mut *REPORTED.lock().unwrap()), [(3, restored)]);
        assert_eq!(watched.get(SELECT), if restored { 0x1C4 } else { 0x101 });
    }
}
