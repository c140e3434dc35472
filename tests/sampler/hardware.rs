//! Recording like on hardware: registers that another thread records branches in while they are
//! drained.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use lbr_msr::access::Op;
use lbr_msr::arm::{ArmOptions, ArmPlan};
use lbr_msr::caps::LbrCaps;
use lbr_msr::record::{Event, Head, HwBranchType, Label, Sample, Sink};
use lbr_msr::soft::{Retired, SoftCpu, SoftLbr};
use lbr_msr::{Msr, MsrError, MsrRead, MsrWrite};
use sampler::config::{Queue, WhenFull};
use sampler::drain::DrainError;
use sampler::gate::OpenError;
use sampler::source::cpu::target::{Emit, Target};
use sampler::source::cpu::{CpuRing, Cpus, RecordUntil, Switches, UserCode, may_go_first};
use sampler::source::{Exit, SourceError};
use sampler::target::Affinity;
use sampler::target::ThreadId;
use sampler::{RecordConfig, RecordError, Sampling, Summary};

use crate::scripted::samples;

const ID: ThreadId = ThreadId { pid: 70, tid: 71 };
/// Branch n of a CPU's script starts at `BASE` plus a multiple of n.
const BASE: u64 = 0x40_1000;

/// Registers shared by several threads, like a CPU's.
#[derive(Clone)]
struct Shared {
    soft: Arc<Mutex<SoftLbr>>,
    cpu: u32,
    one_call: bool,
    /// How long a read takes, other than of the control register.
    read_takes: Duration,
    /// When recording was disabled, and the reads since.
    frozen: Arc<Mutex<Vec<(Instant, u32)>>>,
    control: Msr,
    enable: u64,
}

impl Shared {
    fn armed(cpu: &SoftCpu, select: u64, number: u32) -> Shared {
        let mut soft = SoftLbr::new(&cpu.caps, cpu.perf_capabilities);
        let plan = ArmPlan::new(&cpu.caps, select, ArmOptions::default()).unwrap();
        let saved = plan.save(&mut soft).unwrap();
        plan.arm(&mut soft, &saved).unwrap();
        Shared {
            soft: Arc::new(Mutex::new(soft)),
            cpu: number,
            one_call: false,
            read_takes: Duration::ZERO,
            frozen: Arc::default(),
            control: cpu.caps.registers.control,
            enable: cpu.caps.registers.enable,
        }
    }

    fn soft(&self) -> MutexGuard<'_, SoftLbr> {
        self.soft.lock().unwrap()
    }

    /// Returns whether branch n was recorded.
    fn retire(&self, n: u64) -> bool {
        self.soft().retire(&script(n))
    }

    /// The registers between two drains: whatever is done before they are given back, one drain
    /// sees all of it.
    fn on(&self) -> MutexGuard<'_, SoftLbr> {
        loop {
            let mut soft = self.soft();
            if soft.read(self.control).unwrap() & self.enable != 0 {
                return soft;
            }
            drop(soft);
            std::thread::yield_now();
        }
    }

    fn freezes(&self) -> usize {
        self.frozen.lock().unwrap().len()
    }

    fn froze(&self) {
        self.frozen.lock().unwrap().push((Instant::now(), 0));
    }

    fn drains_at_least(&self, more: usize) {
        let until = self.freezes() + more;
        let since = Instant::now();
        while self.freezes() < until {
            assert!(since.elapsed() < Duration::from_secs(300), "the sampler does not drain");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn script(n: u64) -> Retired {
    let from = BASE + 16 * n;
    Retired::user(from, from + 16, HwBranchType::Cond)
}

fn number(from: u64) -> u64 {
    (from - BASE) / 16
}

impl MsrRead for Shared {
    fn cpu(&self) -> u32 {
        self.cpu
    }
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        if msr != self.control && !self.read_takes.is_zero() {
            std::thread::sleep(self.read_takes);
            if let Some((_, reads)) = self.frozen.lock().unwrap().last_mut() {
                *reads += 1;
            }
        }
        self.soft().read(msr)
    }
    fn one_call(&self) -> bool {
        self.one_call
    }
}

impl MsrWrite for Shared {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        if msr == self.control && value & self.enable == 0 {
            self.froze();
        }
        self.soft().write(msr, value)
    }
    fn run(&mut self, batch: &mut [Op]) -> Result<(), MsrError> {
        self.froze();
        self.soft().run(batch)
    }
}

/// The wait of a sampler on the target's CPU.
struct Sleep(Shared);

impl RecordUntil for Sleep {
    fn record_until(&mut self, thawed: u64, deadline: Duration) -> Result<u64, MsrError> {
        let Shared { control, enable, .. } = self.0;
        self.0.write(control, thawed)?;
        let now = Duration::from_nanos(sampler::clock::monotonic_ns());
        std::thread::sleep(deadline.saturating_sub(now));
        let seen = self.0.read(control)?;
        self.0.write(control, seen & !enable)?;
        Ok(seen)
    }
}

/// Waits as [`Sleep`], and gives its CPU away more than once.
struct Restless(Sleep);

impl RecordUntil for Restless {
    fn record_until(&mut self, thawed: u64, deadline: Duration) -> Result<u64, MsrError> {
        for _ in 0..2 {
            std::thread::sleep(Duration::from_micros(100));
        }
        self.0.record_until(thawed, deadline)
    }
}

type Act = Box<dyn FnMut(&dyn Fn() -> bool) + Send>;

/// A target whose branches the test makes.
struct Scripted {
    act: Act,
    code: Option<fn(u64) -> bool>,
    switches: Option<Arc<AtomicU64>>,
    /// Further switches in each interval.
    switches_each: u64,
}

impl Scripted {
    fn new(act: impl FnMut(&dyn Fn() -> bool) + Send + 'static) -> Scripted {
        Scripted { act: Box::new(act), code: None, switches: None, switches_each: 0 }
    }
}

struct Owned(fn(u64) -> bool);

impl UserCode for Owned {
    fn look(&mut self, _: u64) -> Vec<Event> {
        Vec::new()
    }
    fn owns(&self, address: u64) -> bool {
        (self.0)(address)
    }
}

struct Counted(Arc<AtomicU64>, u64);

impl Switches for Counted {
    fn since_last(&mut self) -> Option<u64> {
        Some(self.0.swap(0, Ordering::Relaxed) + self.1)
    }
}

impl Target for Scripted {
    fn id(&self) -> ThreadId {
        ID
    }
    fn code(&self) -> Option<Box<dyn UserCode>> {
        self.code.map(|owns| Box::new(Owned(owns)) as Box<dyn UserCode>)
    }
    fn switches(&self) -> Option<Box<dyn Switches>> {
        let count = self.switches.clone()?;
        Some(Box::new(Counted(count, self.switches_each)))
    }
    fn start(&mut self, _: Emit<'_>) -> Result<(), SourceError> {
        Ok(())
    }
    fn wait(&mut self, is_over: &dyn Fn() -> bool, _: Emit<'_>) -> Result<(), SourceError> {
        (self.act)(is_over);
        Ok(())
    }
    fn finish(&mut self, _: Emit<'_>) -> Result<Option<Exit>, SourceError> {
        Ok(Some(Exit::Code(3)))
    }
}

fn config(caps: &LbrCaps, hz: u32) -> RecordConfig {
    RecordConfig {
        sampling: Sampling::Rate { hz, seed: 11 },
        queue: Queue { stacks: 65_536, when_full: WhenFull::Drop },
        ..RecordConfig::new(caps.clone())
    }
}

fn record<'a, S: Sink + Send>(
    rings: Vec<CpuRing<'a>>,
    target: &'a mut Scripted,
    config: RecordConfig,
    sink: &mut S,
) -> Result<Summary, RecordError<S::Error>>
where
    S::Error: Send,
{
    let allowed = Affinity::current().unwrap();
    sampler::record(&mut Cpus::new(rings, target, allowed), config, sink)
}

fn preset(name: &str) -> SoftCpu {
    SoftCpu::preset(name).unwrap()
}

/// The value of `any,u` for each facility.
fn user(cpu: &SoftCpu) -> u64 {
    if cpu.caps.registers.depth.is_some() { 0x7F_0004 } else { 0x001 }
}

fn run(rings: &mut [Shared], target: &mut Scripted, config: RecordConfig) -> (Summary, Vec<Event>) {
    let mut events = Vec::new();
    let rings = rings.iter_mut().map(|ring| CpuRing { registers: ring, same_cpu: None }).collect();
    let summary = record(rings, target, config, &mut events).unwrap();
    (summary, events)
}

/// Each stack is a contiguous part of the script, and each joined stack continues the previous one
/// within `recorded`. Returns the newest branch.
fn check_against(recorded: &[u64], samples: &[&Sample]) -> Option<u64> {
    let mut last = None;
    for sample in samples {
        let numbers: Vec<u64> =
            sample.stack.oldest_first().map(|entry| number(entry.from)).collect();
        let at = recorded.binary_search(&numbers[0]).expect("it was recorded");
        assert_eq!(recorded[at..at + numbers.len()], numbers, "one after the other");
        match (sample.stack.integrity.head, last) {
            (Head::Joined, Some(last)) => assert_eq!(at, last + 1, "joined, and it follows"),
            (Head::Joined, None) => assert_eq!(at, 0, "joined to the start"),
            (_, Some(last)) => assert!(at > last, "nothing twice"),
            (_, None) => {}
        }
        last = Some(at + numbers.len() - 1);
    }
    last.map(|at| recorded[at])
}

#[test]
fn remotely_drained_stacks_are_parts_of_the_execution() {
    for name in ["06_1A", "06_3C", "06_5E", "06_5C", "06_7A", "06_8F", "19_11"] {
        let cpu = preset(name);
        for one_call in [false, true] {
            let mut ring = Shared::armed(&cpu, user(&cpu), 5);
            ring.one_call = one_call;
            let recorded = Arc::new(Mutex::new(Vec::new()));
            let (into, from) = (Arc::clone(&recorded), ring.clone());
            let mut target = Scripted::new(move |_| {
                let mut recorded = into.lock().unwrap();
                for n in 0..6_000 {
                    if from.retire(n) {
                        recorded.push(n);
                    }
                    if n % 100 == 0 {
                        // Also if the sampler rarely gets a CPU.
                        from.drains_at_least(1);
                    } else if n % 7 == 0 {
                        std::thread::sleep(Duration::from_micros(50));
                    }
                }
            });
            let rings = std::slice::from_mut(&mut ring);
            let (all, events) = run(rings, &mut target, config(&cpu.caps, 3_000));
            let summary = &all;
            assert!(summary.drains > 50, "{name} {summary:?}");
            assert_eq!((summary.exit, summary.retired), (Exit::Code(3), None));
            assert!(!summary.complete, "a rate promises nothing");
            let recorded = recorded.lock().unwrap();
            let samples: Vec<&Sample> = samples(&events).collect();
            let newest = check_against(&recorded, &samples);
            assert_eq!(newest, recorded.last().copied(), "{name}: the end is drained too");
            for sample in &samples {
                assert_eq!((sample.pid, sample.tid, sample.cpu), (ID.pid, ID.tid, 5));
                assert_eq!(sample.stack.integrity.cut, !one_call, "{name}");
                // Recording is off only during a drain.
                let numbers: Vec<u64> =
                    sample.stack.oldest_first().map(|entry| number(entry.from)).collect();
                assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{name}");
            }
            let [cpu] = all.samplers[..] else { panic!("one CPU") };
            assert_eq!((cpu.cpu, cpu.same_cpu, cpu.taken_over), (5, false, false));
            assert_eq!(cpu.drains, summary.drains);
        }
    }
}

#[test]
fn local_drains_miss_nothing() {
    let cpu = preset("06_5E");
    let number = Affinity::current().unwrap().cpus().last().unwrap();
    let mut ring = Shared::armed(&cpu, user(&cpu), number);
    let from = ring.clone();
    let mut target = Scripted::new(move |_| {
        // Continues only while recording is on: otherwise the sampler has the CPU.
        let mut n = 0;
        while n < 3_000 {
            if from.retire(n) {
                n += 1;
            } else {
                std::thread::sleep(Duration::from_micros(20));
            }
            // Some joined stacks, also if the sampler rarely gets a CPU.
            if n % 16 == 0 && n < 800 {
                from.drains_at_least(1);
            } else if n % 16 == 0 {
                std::thread::sleep(Duration::from_micros(300));
            }
        }
    });
    let sleep = Sleep(ring.clone());
    let rings = vec![CpuRing { registers: &mut ring, same_cpu: Some(Box::new(sleep)) }];
    let mut events: Vec<Event> = Vec::new();
    let all = record(rings, &mut target, config(&cpu.caps, 2_000), &mut events).unwrap();
    let everything: Vec<u64> = (0..3_000).collect();
    let samples: Vec<&Sample> = samples(&events).collect();
    assert_eq!(check_against(&everything, &samples), Some(2_999));
    let first = may_go_first();
    assert_eq!((all.samplers[0].same_cpu, all.samplers[0].first), (true, first));
    assert!(!all.samplers[0].taken_over, "the sampler leaves its registers as they were");
    assert!(samples.iter().all(|sample| sample.stack.integrity.cut != first));
    // Stacks that are not joined are counted, so everything between is accounted for.
    let joined = samples.iter().filter(|s| s.stack.integrity.head == Head::Joined).count();
    assert_eq!(samples.len() - joined, usize::try_from(all.not_joined).unwrap());
    assert!(joined > 20, "{all:?}");
}

/// Records on one CPU, which the sampler may share with the target.
fn on_one_cpu(
    target: impl FnOnce(Shared) -> Scripted,
    same_cpu: impl FnOnce(Shared) -> Option<Box<dyn RecordUntil + Send>>,
) -> (Summary, Vec<Event>) {
    let cpu = preset("06_5E");
    let number = Affinity::current().unwrap().cpus().last().unwrap();
    let mut ring = Shared::armed(&cpu, user(&cpu), number);
    let (mut target, same_cpu) = (target(ring.clone()), same_cpu(ring.clone()));
    let rings = vec![CpuRing { registers: &mut ring, same_cpu }];
    let mut events: Vec<Event> = Vec::new();
    let all = record(rings, &mut target, config(&cpu.caps, 1_000), &mut events).unwrap();
    (all, events)
}

fn asleep(ring: Shared) -> Option<Box<dyn RecordUntil + Send>> {
    Some(Box::new(Sleep(ring)))
}

/// The sampler takes the CPU from the target once for each drain.
#[test]
fn the_switch_to_the_sampler_is_not_one_to_another_task() {
    for (same_cpu, each, is_other) in
        [(false, 0, false), (false, 1, true), (true, 1, false), (true, 2, true)]
    {
        let target = |ring: Shared| Scripted {
            switches: Some(Arc::default()),
            switches_each: each,
            ..Scripted::new(move |_| {
                let mut soft = ring.on();
                for n in 0..40 {
                    soft.retire(&script(n));
                }
                drop(soft);
                ring.drains_at_least(3);
            })
        };
        let (all, events) = on_one_cpu(target, if same_cpu { asleep } else { |_| None });
        let [sampler] = all.samplers[..] else { panic!("one CPU") };
        assert!(sampler.drains > 0);
        assert_eq!(
            sampler.switched,
            if is_other { sampler.drains } else { 0 },
            "{same_cpu} {each}"
        );
        // More branches than records: that some are lost is certain.
        let heads = samples(&events).map(|sample| sample.stack.integrity.head);
        assert_eq!(heads.collect::<Vec<_>>(), [Head::Lost], "{same_cpu} {each}");
    }
}

/// The target may have run while recording was off.
#[test]
fn after_giving_up_its_cpu_the_sampler_claims_no_continuity() {
    let target = |ring: Shared| {
        Scripted::new(move |_| {
            for n in 0..4 {
                ring.on().retire(&script(n));
                ring.drains_at_least(1);
            }
        })
    };
    let (all, events) = on_one_cpu(target, |ring| Some(Box::new(Restless(Sleep(ring)))));
    let [sampler] = all.samplers[..] else { panic!("one CPU") };
    assert_eq!(sampler.not_held, sampler.drains);
    let heads: Vec<Head> = samples(&events).map(|sample| sample.stack.integrity.head).collect();
    assert_eq!(heads, [Head::Unknown; 4]);
}

#[test]
fn branches_before_the_targets_start_are_not_recorded() {
    for same_cpu in [false, true] {
        let target = |ring: Shared| {
            for n in 100..105 {
                assert!(ring.retire(n));
            }
            Scripted::new(move |_| {
                for n in 0..3 {
                    ring.on().retire(&script(n));
                    ring.drains_at_least(1);
                }
            })
        };
        let (all, events) = on_one_cpu(target, if same_cpu { asleep } else { |_| None });
        let numbers = samples(&events).flat_map(|sample| sample.stack.oldest_first());
        let numbers: Vec<u64> = numbers.map(|entry| number(entry.from)).collect();
        assert_eq!(numbers, [0, 1, 2], "{same_cpu}");
        // The LBR was not empty when the sampler began, which would look as if it had been cleared.
        assert_eq!(all.labels.keys().collect::<Vec<_>>(), [&Label::Stream], "{same_cpu}");
        assert_eq!(all.lost, 0);
        // A sampler that stays on its CPU can time every drain.
        let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        if same_cpu && flags.split_whitespace().any(|flag| flag == "rdtscp") {
            let [sampler] = all.samplers[..] else { panic!("one CPU") };
            let (drains, cycles) = sampler.timed.unwrap();
            assert!(drains == sampler.drains && cycles > 0, "{sampler:?}");
        }
    }
}

#[test]
fn call_stacks_of_a_cpu_are_snapshots() {
    let cpu = preset("06_5E");
    // EN_CALLSTACK, without calls of the kernel and jumps: SDM 18.11.
    let mut ring = Shared::armed(&cpu, 0x3C5, 0);
    let from = ring.clone();
    let mut target = Scripted::new(move |_| {
        let call = Retired { class: HwBranchType::RelCall, ..script(1) };
        from.on().retire(&call);
        from.drains_at_least(2);
    });
    let config = RecordConfig { call_stack: true, ..config(&cpu.caps, 1_000) };
    let (all, events) = run(std::slice::from_mut(&mut ring), &mut target, config);
    assert_eq!(all.labels.keys().collect::<Vec<_>>(), [&Label::Snapshot]);
    let frames = samples(&events).map(|sample| sample.stack.entries.len());
    // Two drains saw the call, and no drain took it away.
    assert!(frames.filter(|frames| *frames == 1).count() >= 2, "{all:?}");
}

#[test]
fn a_sampler_that_cannot_begin_names_the_cause() {
    let cpu = preset("06_5E");
    let error = |ring: &mut Shared, same_cpu| {
        let mut target = Scripted::new(|_| panic!("it must not run"));
        let rings = vec![CpuRing { registers: ring, same_cpu }];
        let mut events: Vec<Event> = Vec::new();
        record(rings, &mut target, config(&cpu.caps, 1_000), &mut events).unwrap_err()
    };
    let mut ring = Shared::armed(&cpu, user(&cpu), 5000);
    let sleep: Box<dyn RecordUntil + Send> = Box::new(Sleep(ring.clone()));
    let there = error(&mut ring, Some(sleep));
    let no_such_cpu =
        matches!(there, RecordError::Source(SourceError::NoSuchCpu { cpu: 5000, .. }));
    assert!(no_such_cpu, "{there}");
    let control = ring.control;
    ring.soft().write(control, 0).unwrap();
    let off = error(&mut ring, None);
    let not_armed = matches!(
        off,
        RecordError::Arm(OpenError::Drain(DrainError::NotArmed { control: Msr(0x1D9), value: 0 }))
    );
    assert!(not_armed, "{off}");
}

/// A target that cannot start, but has to be released.
struct Unstartable(Arc<AtomicBool>);

impl Target for Unstartable {
    fn id(&self) -> ThreadId {
        ID
    }
    fn start(&mut self, _: Emit<'_>) -> Result<(), SourceError> {
        Err(SourceError::NotFound { program: "nope".to_owned() })
    }
    fn wait(&mut self, _: &dyn Fn() -> bool, _: Emit<'_>) -> Result<(), SourceError> {
        panic!("it has not started");
    }
    fn finish(&mut self, _: Emit<'_>) -> Result<Option<Exit>, SourceError> {
        self.0.store(true, Ordering::Relaxed);
        Ok(None)
    }
}

#[test]
fn a_target_that_cannot_start_is_released() {
    let cpu = preset("06_5E");
    let mut ring = Shared::armed(&cpu, user(&cpu), 0);
    let is_released = Arc::new(AtomicBool::new(false));
    let mut target = Unstartable(Arc::clone(&is_released));
    let rings = vec![CpuRing { registers: &mut ring, same_cpu: None }];
    let allowed = Affinity::current().unwrap();
    let mut events: Vec<Event> = Vec::new();
    let mut source = Cpus::new(rings, &mut target, allowed);
    let error = sampler::record(&mut source, config(&cpu.caps, 1_000), &mut events).unwrap_err();
    assert!(matches!(error, RecordError::Source(SourceError::NotFound { .. })), "{error}");
    assert!(is_released.load(Ordering::Relaxed));
}

/// Where a drain takes longer than the interval, the target still gets as much time as the sampler.
#[test]
fn the_target_runs_for_as_long_as_the_drain_before() {
    let cpu = preset("06_5E");
    let number = Affinity::current().unwrap().cpus().last().unwrap();
    for same_cpu in [false, true] {
        let mut ring = Shared::armed(&cpu, user(&cpu), number);
        ring.read_takes = Duration::from_millis(1);
        let from = ring.clone();
        let mut target = Scripted::new(move |_| from.drains_at_least(20));
        let frozen = Arc::clone(&ring.frozen);
        let read_takes = ring.read_takes;
        let sleep = Sleep(ring.clone());
        let same_cpu = same_cpu.then(|| Box::new(sleep) as Box<dyn RecordUntil + Send>);
        let rings = vec![CpuRing { registers: &mut ring, same_cpu }];
        let mut events: Vec<Event> = Vec::new();
        record(rings, &mut target, config(&cpu.caps, 1_000), &mut events).unwrap();
        let frozen = frozen.lock().unwrap();
        // The last drain, at the end of the recording, waits for no interval.
        let (_, clocked) = frozen.split_last().unwrap();
        for pair in clocked.windows(2) {
            let [(frozen, reads), (next, _)] = pair else { unreachable!() };
            let drain = *reads * read_takes;
            // Ten of the shortest intervals at most.
            let rest = drain.min(Duration::from_micros(7_500));
            assert!(*next - *frozen >= drain + rest, "{clocked:?}");
        }
    }
}

/// Counts samples instead of storing them.
#[derive(Default)]
struct Count {
    last: [Option<u64>; 2],
    stacks: u64,
    broken: u64,
    out_of_order: u64,
    time: u64,
}

impl Sink for Count {
    type Error = std::convert::Infallible;
    fn event(&mut self, event: &Event) -> Result<(), Self::Error> {
        let Event::Sample(sample) = event else { return Ok(()) };
        self.stacks += 1;
        self.out_of_order += u64::from(sample.time < self.time);
        self.time = sample.time;
        let last = &mut self.last[sample.cpu as usize];
        for (at, entry) in sample.stack.oldest_first().enumerate() {
            let n = number(entry.from);
            // A drain in one call is never cut: joined stacks are contiguous.
            let follows = at > 0 || sample.stack.integrity.head == Head::Joined;
            self.broken += u64::from(follows && last.map_or(0, |last| last + 1) != n);
            *last = Some(n);
        }
        Ok(())
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Runs in its own process, because memory is measured for the whole process.
#[test]
fn two_cpus_at_once_for_ten_thousand_drains_lose_nothing_unnoticed() {
    const ALONE: &str = "LBR_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "hardware::two_cpus_at_once_for_ten_thousand_drains_lose_nothing_unnoticed";
        let alone = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&alone.stdout);
        let why = String::from_utf8_lossy(&alone.stderr);
        assert!(alone.status.success() && said.contains("1 passed"), "{said}{why}");
        return;
    }
    let cpu = preset("06_5E");
    let rings: Vec<Shared> = (0..2)
        .map(|number| Shared { one_call: true, ..Shared::armed(&cpu, user(&cpu), number) })
        .collect();
    let from = rings.clone();
    let memory = Arc::new(AtomicU64::new(0));
    let grown = Arc::clone(&memory);
    let mut target = Scripted::new(move |_| {
        let mut n = 0;
        let mut early = None;
        while from.iter().any(|ring| ring.freezes() < 10_000) {
            for ring in &from {
                assert!(ring.retire(n), "recording is off within a call alone");
            }
            n += 1;
            if n % 32 == 0 {
                std::thread::yield_now();
            }
            // By then both queues have been as full as they get.
            if early.is_none() && from.iter().all(|ring| ring.freezes() > 5_000) {
                early = Some(resident_kib());
            }
        }
        grown.store(resident_kib().saturating_sub(early.unwrap_or(0)), Ordering::Relaxed);
    });
    let mut owned = rings.clone();
    let rings = owned.iter_mut().map(|ring| CpuRing { registers: ring, same_cpu: None }).collect();
    let mut count = Count::default();
    let mut fast = config(&cpu.caps, 20_000);
    fast.queue = Queue { stacks: 512, when_full: WhenFull::Drop };
    let all = record(rings, &mut target, fast, &mut count).unwrap();
    assert!(all.samplers.iter().all(|cpu| cpu.drains >= 10_000), "{all:?}");
    assert_eq!((count.broken, count.out_of_order), (0, 0), "{all:?}");
    assert_eq!(count.stacks, all.samples);
    // Storing 10,000 stacks of 32 entries would exceed that.
    assert!(memory.load(Ordering::Relaxed) < 8 * 1024, "KiB: {memory:?}");
}

#[test]
fn each_label_occurs() {
    let cpu = preset("06_5E");
    let act = |what: &'static str| {
        let mut ring = Shared::armed(&cpu, user(&cpu), 0);
        let from = ring.clone();
        let switches = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&switches);
        let mut target = Scripted::new(move |_| {
            from.drains_at_least(2);
            let mut soft = from.on();
            for n in 0..10 {
                soft.retire(&script(n));
            }
            drop(soft);
            let debugctl = Msr(0x1D9);
            match what {
                "gap" => {
                    let mut soft = from.on();
                    for _ in 0..200 {
                        soft.retire(&script(10));
                    }
                }
                "mixed address" => {
                    let foreign = Retired::user(0x7700_0000, 0x7700_0010, HwBranchType::Ret);
                    from.on().retire(&foreign);
                }
                // In several intervals between two drains, each with a branch.
                "switch" => {
                    for n in 10..15 {
                        count.fetch_add(3, Ordering::Relaxed);
                        from.on().retire(&script(n));
                        from.drains_at_least(2);
                    }
                }
                "foreign" => {
                    let mut soft = from.on();
                    let now = soft.read(debugctl).unwrap();
                    soft.write(debugctl, now | 1 << 11).unwrap();
                    soft.retire(&script(10));
                }
                "stopped" => {
                    let mut soft = from.on();
                    for n in 300..305 {
                        soft.retire(&script(n));
                    }
                    soft.debug_exception();
                }
                "wiped" => {
                    from.drains_at_least(2);
                    from.on().deep_c_state();
                }
                _ => {}
            }
            from.drains_at_least(2);
        });
        target.code = Some(|address| (BASE..BASE + 0x10_0000).contains(&address));
        target.switches = Some(switches);
        let rings = std::slice::from_mut(&mut ring);
        run(rings, &mut target, config(&cpu.caps, 1_000))
    };
    for (what, label) in [
        ("stream", Label::Stream),
        ("gap", Label::Gap),
        ("mixed address", Label::Mixed),
        ("switch", Label::Stream),
        ("foreign", Label::Foreign),
        ("stopped", Label::Stopped),
        ("wiped", Label::Wiped),
    ] {
        let (all, events) = act(what);
        let summary = &all;
        let seen = summary.labels.get(&label).copied().unwrap_or_default();
        assert!(seen.stacks > 0, "{what}: {summary:?}");
        let lost: u64 = events
            .iter()
            .map(|event| match event {
                Event::Lost(lost) if lost.label == Some(label) => lost.stacks,
                _ => 0,
            })
            .sum();
        // Excluded stacks are only reported as lost.
        let excluded = if label.is_excluded() { seen.stacks } else { 0 };
        assert_eq!(lost, excluded, "{what}");
        let written = samples(&events).any(|s| s.stack.integrity.label == label);
        assert_eq!(written, !label.is_excluded(), "{what}");
        // The stack may contain other tasks' branches, so it is not joined.
        let is_unsure = samples(&events).any(|s| s.stack.integrity.head == Head::Unknown);
        assert_eq!((is_unsure, all.samplers[0].switched > 0), (what == "switch", what == "switch"));
        assert_eq!(all.samplers[0].taken_over, what == "foreign", "{what}");
    }
}

#[test]
fn the_stack_after_a_mixed_one_does_not_join() {
    let cpu = preset("06_5E");
    let mut ring = Shared::armed(&cpu, user(&cpu), 0);
    let from = ring.clone();
    let mut target = Scripted::new(move |_| {
        from.drains_at_least(1);
        for n in [1, 2, 3] {
            while !from.retire(n) {}
        }
        while !from.soft().retire(&Retired::user(0x7700_0000, 0x7700_0010, HwBranchType::Ret)) {}
        from.drains_at_least(2);
        while !from.retire(4) {}
        from.drains_at_least(2);
        while !from.retire(5) {}
        from.drains_at_least(1);
    });
    target.code = Some(|address| (BASE..BASE + 0x10_0000).contains(&address));
    let rings = std::slice::from_mut(&mut ring);
    let (_, events) = run(rings, &mut target, config(&cpu.caps, 200));
    let four_and_on: Vec<(u64, Head)> = samples(&events)
        .filter_map(|s| Some((number(s.stack.entries.last()?.from), s.stack.integrity.head)))
        .filter(|(n, _)| *n >= 4)
        .collect();
    assert_eq!(four_and_on, [(4, Head::Lost), (5, Head::Joined)]);
}

/// A sink that is five times slower than the drains, until the end.
struct Slow {
    events: Vec<Event>,
    ring: Shared,
    over: Arc<AtomicBool>,
}

impl Sink for Slow {
    type Error = std::convert::Infallible;
    fn event(&mut self, event: &Event) -> Result<(), Self::Error> {
        if matches!(event, Event::Sample(_)) {
            let until = self.ring.freezes() + 5;
            while self.ring.freezes() < until && !self.over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        self.events.push(event.clone());
        Ok(())
    }
}

#[test]
fn a_full_queue_drops_and_counts_and_never_waits() {
    let cpu = preset("06_5E");
    let mut ring = Shared::armed(&cpu, user(&cpu), 0);
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let (into, from) = (Arc::clone(&recorded), ring.clone());
    let over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&over);
    let mut target = Scripted::new(move |_| {
        let mut recorded = into.lock().unwrap();
        for n in 0..3_000 {
            if from.retire(n) {
                recorded.push(n);
            }
            if n % 20 == 0 {
                from.drains_at_least(1);
            }
        }
        ends.store(true, Ordering::Relaxed);
    });
    let mut config = config(&cpu.caps, 5_000);
    config.queue = Queue { stacks: 1, when_full: WhenFull::Drop };
    let mut sink = Slow { events: Vec::new(), ring: ring.clone(), over };
    let rings = vec![CpuRing { registers: &mut ring, same_cpu: None }];
    let all = record(rings, &mut target, config, &mut sink).unwrap();
    assert!(all.dropped > 10, "{all:?}");
    let told: u64 = sink
        .events
        .iter()
        .map(|event| match event {
            Event::Lost(lost) if lost.label.is_none() => lost.stacks,
            _ => 0,
        })
        .sum();
    assert_eq!(told, all.dropped, "each drop is announced");
    assert!(all.not_joined > 0, "{all:?}");
    let samples: Vec<&Sample> = samples(&sink.events).collect();
    check_against(&recorded.lock().unwrap(), &samples);
}

#[test]
fn a_failed_drain_ends_the_recording() {
    let cpu = preset("06_5E");
    let mut ring = Shared::armed(&cpu, user(&cpu), 0);
    // A drain for another CPU's registers: TOS has another address.
    let other = preset("06_8F");
    let mut target = Scripted::new(|is_over| {
        let since = Instant::now();
        while !is_over() {
            assert!(since.elapsed() < Duration::from_secs(300), "the target was not stopped");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let rings = vec![CpuRing { registers: &mut ring, same_cpu: None }];
    let mut events: Vec<Event> = Vec::new();
    let error = record(rings, &mut target, config(&other.caps, 500), &mut events).unwrap_err();
    assert!(error.to_string().contains("#GP"), "{error}");
}
