//! Verifies software CPUs: a correct one passes; each injected fault and each erratum is found and
//! identified.

use std::collections::BTreeSet;
use std::rc::Rc;

use lab::verify::{
    Config, Kernel, Known, Ran, Ready, Report, RunError, SoftSubject, Subject, SubjectKind, Switch,
    Verdict,
};
use lbr_msr::probe::RecordedCpuid;
use lbr_msr::record::HwBranchType::{Other, RelJmp};
use lbr_msr::soft::{Fault, Faults, Retired, SoftCpu};
use lbr_msr::{Msr, MsrError, MsrRead, MsrWrite};

use crate::support::faults::{applies, root};

const DEBUGCTL: Msr = Msr(0x1D9);

fn verify(cpu: &SoftCpu, faults: Faults, write: bool) -> Report {
    let subject = SoftSubject::new(cpu, faults);
    let config = Config { write, ..Config::default() };
    Ready::new(subject, &config).unwrap().verify().unwrap()
}

/// `id: found` of every check that differs.
fn differing(report: &Report) -> Vec<String> {
    let line = |check: &lab::verify::Check| {
        format!("{}: {}", check.id, check.found.as_deref().unwrap_or("-"))
    };
    report.differing().map(line).collect()
}

fn reasons(report: &Report) -> Vec<String> {
    let why = |check: &lab::verify::Check| match &check.verdict {
        Verdict::CannotTell(why) => Some(format!("{}: {why}", check.id)),
        _ => None,
    };
    report.checks.iter().filter_map(why).collect()
}

#[test]
fn a_sound_cpu_passes_every_check() {
    let mut cpus = 0;
    for cpu in SoftCpu::all() {
        let report = verify(&cpu, Faults::NONE, true);
        assert_eq!(differing(&report), Vec::<String>::new(), "{}", cpu.key);
        assert_eq!((report.cpu, &report.identity, report.written), (0, &cpu.caps.cpu, true));
        // NetBurst's records cannot be restored, so nothing is recorded there.
        let told = if cpu.caps.facility == lbr_msr::Facility::NetBurst {
            let whys = reasons(&report);
            assert!(whys[0].starts_with("bits.enable: the records cannot be written"), "{whys:?}");
            whys.iter().skip(1).all(|why| why.contains("depends on"))
        } else {
            reasons(&report).is_empty()
        };
        assert!(told, "{}: {:?}", cpu.key, reasons(&report));
        cpus += 1;
    }
    assert_eq!(cpus, 110, "103 rows of the table and AMD's seven");
}

#[test]
fn each_fault_is_found_as_the_one_root_on_every_cpu_that_it_applies_to() {
    let mut applied = 0;
    for cpu in SoftCpu::all() {
        for fault in Fault::all() {
            let report = verify(&cpu, fault.into(), true);
            let found = differing(&report);
            let is_shown = applies(fault, &cpu.caps, cpu.perf_capabilities.is_some());
            let at = format!("{fault} on {}", cpu.key);
            if !is_shown {
                assert_eq!(found, Vec::<String>::new(), "{at} has no visible effect");
                continue;
            }
            let (id, words) = root(fault);
            assert_eq!(found.len(), 1, "{at}: {found:?} {:?}", reasons(&report));
            assert!(found[0].starts_with(&format!("{id}: ")), "{at}: {found:?}");
            assert!(found[0].contains(words), "{at}: {found:?}");
            // Checks that depend on it are undetermined.
            for check in report.checks.iter().filter(|check| check.needs.contains(&id)) {
                let judged = matches!(check.verdict, Verdict::AsDocumented | Verdict::Differs);
                assert!(!judged, "{at}: {} depends on {id}", check.id);
            }
            applied += 1;
        }
    }
    assert!(applied > 1500, "{applied}");
}

#[test]
fn checks_independent_of_a_failure_are_made() {
    let cpu = SoftCpu::preset("skylake").unwrap();
    let report = verify(&cpu, Fault::NoInfo.into(), true);
    let verdict = |id: &str| {
        report.checks.iter().find(|check| check.id == id).map(|check| check.verdict.clone())
    };
    assert_eq!(verdict("registers.info"), Some(Verdict::Differs));
    for id in ["recording", "depth", "order", "filter.far", "call_stack.leaf", "sign", "freeze"] {
        assert_eq!(verdict(id), Some(Verdict::AsDocumented), "{id}");
    }
    for id in ["mispredict", "cycles", "tsx", "bits.records"] {
        let why = Verdict::CannotTell("depends on registers.info".into());
        assert_eq!(verdict(id), Some(why), "{id}");
    }
}

#[test]
fn nothing_is_written_without_write() {
    for cpu in SoftCpu::all() {
        let report = verify(&cpu, Faults::NONE, false);
        assert!(!report.written);
        assert_eq!(differing(&report), Vec::<String>::new());
        let recording = report.checks.iter().find(|check| check.id == "recording").unwrap();
        assert_eq!(recording.verdict, Verdict::CannotTell("needs --write".into()));
        // Readable values are still checked.
        let from = report.checks.iter().find(|check| check.id == "registers.from").unwrap();
        assert_eq!(from.verdict, Verdict::AsDocumented);
    }
    let skylake = SoftCpu::preset("skylake").unwrap();
    assert_eq!(
        differing(&verify(&skylake, Fault::FormatCode.into(), false)),
        ["lbr_fmt: 0x3 EIP_FLAGS"]
    );
}

#[test]
fn every_needed_check_comes_earlier() {
    let cpu = SoftCpu::preset("06_8F").unwrap();
    let report = verify(&cpu, Faults::NONE, true);
    for (index, check) in report.checks.iter().enumerate() {
        for need in check.needs {
            assert!(report.checks[..index].iter().any(|other| other.id == *need), "{need}");
        }
    }
}

/// 06_5E with an unknown model number.
fn unknown_model() -> SoftCpu {
    let mut cpu = SoftCpu::preset("06_5E").unwrap();
    cpu.cpuid.insert(1, 0, 0x000F_06F0, 0, 1 << 15, 0);
    cpu
}

#[test]
fn an_unknown_model_is_checked_against_the_assumption() {
    let cpu = unknown_model();
    let check = |assume: &str| {
        let config =
            Config { write: true, assume: Some(assume.parse().unwrap()), ..Config::default() };
        Ready::new(SoftSubject::new(&cpu, Faults::NONE), &config).unwrap().verify().unwrap()
    };
    assert_eq!(differing(&check("06_5E")), Vec::<String>::new());
    let by_hand = "depth=32,from=680,to=6C0,info=DC0,tos=1C9,select=1C8";
    let report = check(by_hand);
    assert!(report.caps.assumed);
    // The manual description of a CPU does not include call-stack mode.
    assert_eq!(differing(&report), ["bits.select: reserved bits 0x200 can be set"]);
    // Assumptions: too shallow, too deep, and another format.
    let found = differing(&check("depth=16,from=680,to=6C0,info=DC0,tos=1C9,select=1C8"));
    assert!(found.iter().any(|line| line.starts_with("depth: more: TOS comes to ")), "{found:?}");
    let found = differing(&check("06_3C"));
    assert_eq!(found[0], "lbr_fmt: 0x5 INFO");
    let config = Config { write: true, ..Config::default() };
    assert!(Ready::new(SoftSubject::new(&cpu, Faults::NONE), &config).is_err());
}

/// Runs known code.
type Run = dyn Fn(&mut Altered, Kernel, Switch) -> Result<Ran, RunError>;

/// A software CPU whose runs of known code differ, and that notes what is written.
struct Altered {
    soft: SoftSubject,
    kind: SubjectKind,
    attempts: u32,
    run: Rc<Run>,
    written: Vec<(Msr, u64)>,
    /// The kernels that were run.
    ran: Vec<Kernel>,
    /// The value of every register of the sibling thread, even after a write on this thread.
    sibling: Option<u64>,
}

impl Altered {
    fn new(
        key: &str,
        faults: Faults,
        run: impl Fn(&mut Altered, Kernel, Switch) -> Result<Ran, RunError> + 'static,
    ) -> Altered {
        let soft = SoftSubject::new(&SoftCpu::preset(key).unwrap(), faults);
        let (kind, written, ran) = (SubjectKind::Software, Vec::new(), Vec::new());
        Altered { soft, kind, attempts: 1, run: Rc::new(run), written, ran, sibling: None }
    }

    /// With registers written.
    fn verify(self) -> (Report, Ready<Altered>) {
        let config = Config { write: true, ..Config::default() };
        let mut ready = Ready::new(self, &config).unwrap();
        (ready.verify().unwrap(), ready)
    }
}

/// Runs the code as it is.
fn plainly(altered: &mut Altered, kernel: Kernel, switch: Switch) -> Result<Ran, RunError> {
    altered.soft.execute(kernel, switch)
}

impl MsrRead for Altered {
    fn cpu(&self) -> u32 {
        self.soft.cpu()
    }

    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        self.soft.read(msr)
    }
}

impl MsrWrite for Altered {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        self.written.push((msr, value));
        self.soft.write(msr, value)
    }
}

impl Subject for Altered {
    fn kind(&self) -> SubjectKind {
        self.kind
    }

    fn cpuid(&self) -> &RecordedCpuid {
        self.soft.cpuid()
    }

    fn attempts(&self) -> u32 {
        self.attempts
    }

    fn execute(&mut self, kernel: Kernel, switch: Switch) -> Result<Ran, RunError> {
        let ran = Rc::clone(&self.run)(self, kernel, switch);
        self.ran.push(kernel);
        ran
    }

    fn deep_c_state(&mut self) -> Result<(), RunError> {
        self.soft.deep_c_state()
    }

    fn read_sibling(&mut self, msr: Msr) -> Result<u64, RunError> {
        self.sibling.map_or_else(|| self.soft.read_sibling(msr), Ok)
    }
}

/// The verdict of a check, and what it found.
fn judged(report: &Report, id: &str) -> (Verdict, String) {
    let check = report.checks.iter().find(|check| check.id == id).unwrap();
    (check.verdict.clone(), check.found.clone().unwrap())
}

/// Takes interrupts during a system call, like the test machine: a ring 0 filter hides the kernel
/// entry.
fn in_system_call(altered: &mut Altered, kernel: Kernel, switch: Switch) -> Result<Ran, RunError> {
    if kernel != Kernel::AroundPmi {
        return plainly(altered, kernel, switch);
    }
    altered.write(switch.msr, switch.on)?;
    let call =
        Retired { to: 0xFFFF_FFFF_8100_0000, cpl_after: 0, ..Retired::user(0x3010, 0, Other) };
    let back =
        Retired { from: 0xFFFF_FFFF_8100_0040, cpl_before: 0, ..Retired::user(0, 0x3012, Other) };
    let jump = |n: u64| Retired::user(n * 0x1000 + 0x10, n * 0x1000 + 0x1000, RelJmp);
    for branch in [jump(0), jump(1), jump(2), call] {
        altered.soft.lbr().retire(&branch);
    }
    altered.soft.lbr().pmi();
    for branch in [back, jump(3)] {
        altered.soft.lbr().retire(&branch);
    }
    let now = altered.read(switch.msr)?;
    altered.write(switch.msr, now & !(switch.on & !switch.off))?;
    let mut branches: Vec<Known> =
        [jump(0), jump(1), jump(2), call, back, jump(3)].into_iter().map(Known::of).collect();
    // A program cannot know the addresses at which ring 0 is entered and left.
    branches[3].to = None;
    branches[4].from = None;
    Ok(Ran { branches, unlisted: true, before_event: Some(4) })
}

#[test]
fn a_freeze_is_checked_with_the_newest_branch_that_passes_the_filter() {
    // The enable bit is cleared; LBR_FRZ of Intel; AMD's.
    for key in ["06_3C", "06_5E", "06_8F", "19_11"] {
        for (faults, expected) in [
            (Faults::NONE, Verdict::AsDocumented),
            (Fault::NoFreezeOnPmi.into(), Verdict::Differs),
            (Fault::FreezeEarly.into(), Verdict::Differs),
        ] {
            let kind = SubjectKind::Emulated;
            let altered = Altered { kind, ..Altered::new(key, faults, in_system_call) };
            let (report, _) = altered.verify();
            let freeze = report.checks.iter().find(|check| check.id == "freeze").unwrap();
            assert_eq!(freeze.verdict, expected, "{key}, {faults:?}: {:?}", freeze.found);
        }
    }
}

/// Loses the first run of each kernel, but that of the PMI, which is made once.
fn lost(altered: &mut Altered, kernel: Kernel, switch: Switch) -> Result<Ran, RunError> {
    let again = altered.ran.iter().rev().take_while(|ran| **ran == kernel).count();
    match kernel {
        Kernel::AroundPmi => plainly(altered, kernel, switch),
        _ if again % 2 == 0 => Ok(Ran::default()),
        _ => plainly(altered, kernel, switch),
    }
}

#[test]
fn a_lost_run_is_repeated_and_no_other() {
    // Predictions and cycles are sampled by every attempt.
    let is_sampled = |kernel: &Kernel| {
        matches!(kernel, Kernel::Predictable(_) | Kernel::Unpredictable(_) | Kernel::Chain(_))
    };
    let run = |attempts, run: Rc<Run>| {
        let altered = Altered { attempts, run, ..Altered::new("06_5E", Faults::NONE, plainly) };
        let (report, mut ready) = altered.verify();
        let runs = ready.subject().ran.iter().filter(|kernel| !is_sampled(kernel)).count();
        (differing(&report), runs)
    };
    let (sound, runs) = run(1, Rc::new(plainly));
    assert_eq!(sound, Vec::<String>::new());
    assert_eq!(run(3, Rc::new(plainly)), (sound, runs), "a sound run is not repeated");
    assert!(!run(1, Rc::new(lost)).0.is_empty());
    let (repeated, more) = run(3, Rc::new(lost));
    assert_eq!(repeated, Vec::<String>::new());
    assert!(more > runs);
}

/// FREEZE_LBRS_ON_PMI (bit 11) may be set by somebody else.
#[test]
fn a_freeze_that_was_on_stays_on() {
    for key in ["06_3C", "06_5E", "06_8F"] {
        let mut altered = Altered::new(key, Faults::NONE, plainly);
        altered.write(DEBUGCTL, 1 << 11).unwrap();
        let (report, mut ready) = altered.verify();
        assert_eq!(differing(&report), Vec::<String>::new(), "{key}");
        assert_eq!(ready.subject().read(DEBUGCTL).unwrap(), 1 << 11, "{key}");
    }
}

/// BTF (bit 1) belongs to a debugger, also while verification sets and clears the freeze.
#[test]
fn other_bits_of_debugctl_stay_set() {
    // There recording has its own control register.
    let mut altered = Altered::new("06_8F", Faults::NONE, plainly);
    altered.write(DEBUGCTL, 2).unwrap();
    let (_, mut ready) = altered.verify();
    let written = ready.subject().written.iter().filter(|(msr, _)| *msr == DEBUGCTL);
    let values: BTreeSet<u64> = written.map(|(_, value)| *value).collect();
    // Another check writes each bit alone.
    assert!(values.contains(&(1 << 11 | 2)) && !values.contains(&(1 << 11)), "{values:x?}");
}

/// A user address and a kernel address, and each field of the record's format with a user address
/// (SDM 18.4.8.1; EDK2 GoldmontMsr.h and GoldmontPlusMsr.h; SDM 19.1.3 for architectural LBRs).
#[test]
fn each_field_is_written_to_the_first_and_last_record() {
    const LOW: u64 = 0x0000_7FFF_1234_5670;
    const HIGH: u64 = 0xFFFF_FFFF_8123_4560;
    const MISPRED: u64 = 1 << 63;
    let addresses = &[LOW, HIGH][..];
    for (key, from, to, info) in [
        ("06_01", &[0x1234_5670][..], &[0x1234_5670][..], &[][..]),
        ("06_0D", &[0x8123_4560_1234_5670], &[], &[]),
        ("06_0F", addresses, addresses, &[]),
        ("06_2A", &[LOW, HIGH, LOW | MISPRED], addresses, &[]),
        ("06_3C", &[LOW, HIGH, LOW | MISPRED, LOW | 3 << 61], addresses, &[]),
        ("06_5E", addresses, addresses, &[MISPRED | 0xFFFF, 3 << 61]),
        ("06_5C", &[LOW, HIGH, LOW | MISPRED], &[LOW, HIGH, LOW | 0xFFFF << 48], &[]),
        ("06_7A", addresses, addresses, &[MISPRED | 0xFFFF]),
        ("06_57", &[LOW, HIGH, LOW | MISPRED], addresses, &[]),
        ("06_8F", addresses, addresses, &[MISPRED | 3 << 61 | 1 << 60 | 0xF << 56 | 0xFFFF]),
    ] {
        let cpu = SoftCpu::preset(key).unwrap();
        let (_, mut ready) = Altered::new(key, Faults::NONE, plainly).verify();
        let map = &cpu.caps.registers;
        for index in [0, cpu.caps.depth - 1] {
            for (msr, values) in [
                (Some(map.from_at(index)), from),
                (map.to_at(index), to),
                (map.info_at(index), info),
            ] {
                let Some(msr) = msr else { continue };
                let all = ready.subject().written.iter().filter(|(of, _)| *of == msr);
                let seen: BTreeSet<u64> =
                    all.map(|(_, value)| *value).filter(|n| *n != 0).collect();
                assert_eq!(seen, values.iter().copied().collect(), "{key}: {msr}");
            }
        }
    }
}

/// Sets MISPRED in the first records of a run, and clears it in the others (06_5E).
fn mispredict(altered: &mut Altered, mut flags: u32) {
    const MISPRED: u64 = 1 << 63;
    for index in 0..32 {
        let info = Msr(0xDC0 + index);
        if altered.read(Msr(0x680 + index)).unwrap() != 0 {
            let value = altered.read(info).unwrap() & !MISPRED;
            altered.write(info, if flags > 0 { value | MISPRED } else { value }).unwrap();
            flags = flags.saturating_sub(1);
        }
    }
}

/// Of 8 predictable and 16 unpredictable branches: at most a quarter and at least an eighth.
#[test]
fn mispredictions_are_judged_by_their_shares() {
    let judged = |predictable, unpredictable| {
        let altered = Altered::new("06_5E", Faults::NONE, move |altered, kernel, switch| {
            let ran = plainly(altered, kernel, switch);
            match kernel {
                Kernel::Predictable(_) => mispredict(altered, predictable),
                Kernel::Unpredictable(_) => mispredict(altered, unpredictable),
                _ => {}
            }
            ran
        });
        self::judged(&altered.verify().0, "mispredict")
    };
    let found = |n: u32, m: u32| format!("set on {n} of 8 predictable and {m} of 16 unpredictable");
    for (n, m) in [(0, 2), (2, 8), (2, 16), (0, 16)] {
        assert_eq!(judged(n, m), (Verdict::AsDocumented, found(n, m)));
    }
    for (n, m) in [(0, 1), (3, 8), (4, 8)] {
        assert_eq!(judged(n, m), (Verdict::Differs, found(n, m)));
    }
    for (n, m) in [(5, 8), (8, 0)] {
        let inverted = format!("{}: the flag is inverted", found(n, m));
        assert_eq!(judged(n, m), (Verdict::Differs, inverted));
    }
    assert_eq!(judged(0, 0), (Verdict::Differs, format!("never set ({})", found(0, 0))));
}

/// 06_8F with another leaf 1CH.
fn with_leaf_1ch(eax: u32, ecx: u32, edx: u32) -> SoftCpu {
    let mut cpu = SoftCpu::preset("06_8F").unwrap();
    cpu.cpuid.insert(0x1C, 0, eax, 7, ecx, edx);
    cpu.caps = lbr_msr::probe::probe(&cpu.cpuid, None).unwrap();
    cpu
}

/// CPUID 1CH EAX\[7:0\]: bit n is a depth of 8 * (n + 1).
#[test]
fn depths_up_to_64_are_tried() {
    for (listed, found) in [(0x8B, "8, 16, 32, 64"), (0x91, "8, 40, 64")] {
        let report = verify(&with_leaf_1ch(0x4000_0000 | listed, 7, 0), Faults::NONE, true);
        let expected = (Verdict::AsDocumented, found.to_owned());
        assert_eq!(judged(&report, "bits.depth"), expected);
    }
}

/// Counts must grow from each chain to the next.
#[test]
fn a_cycle_count_that_stops_growing_differs() {
    for (least, most) in [(0, 200), (200, 2000)] {
        let altered = Altered::new("06_5E", Faults::NONE, move |altered, kernel, switch| {
            let kernel = match kernel {
                Kernel::Chain(length) => Kernel::Chain(length.clamp(least, most)),
                other => other,
            };
            plainly(altered, kernel, switch)
        });
        let (verdict, found) = judged(&altered.verify().0, "cycles");
        assert_eq!(verdict, Verdict::Differs, "{found}");
        assert!(!found.contains("constant"), "{found}");
    }
}

/// A register that is not shared may hold one of the values that are written.
#[test]
fn a_sibling_that_holds_a_written_value_does_not_share_the_filter() {
    for value in [1, 5] {
        let mut altered = Altered::new("06_5E", Faults::NONE, plainly);
        altered.sibling = Some(value);
        let expected = (Verdict::AsDocumented, "each has its own".to_owned());
        assert_eq!(judged(&altered.verify().0, "select.sharing"), expected);
    }
}

/// An assumption may name any register as a branch record: 174H is IA32_SYSENTER_CS.
#[test]
fn registers_that_are_no_branch_records_are_never_written() {
    let documented = "depth=4,from=680,to=6c0,info=dc0,tos=1c9,select=1c8,format=5";
    let written = |assume: &str| {
        let mut altered = Altered::new("06_5E", Faults::NONE, plainly);
        altered.soft = SoftSubject::new(&unknown_model(), Faults::NONE);
        let config =
            Config { write: true, assume: Some(assume.parse().unwrap()), ..Config::default() };
        let mut ready = Ready::new(altered, &config).unwrap();
        ready.verify().unwrap();
        !ready.subject().written.is_empty()
    };
    assert!(written(documented));
    for (register, other) in [
        ("from=680", "from=174"),
        ("to=6c0", "to=174"),
        ("info=dc0", "info=174"),
        ("tos=1c9", "tos=174"),
        ("select=1c8", "select=174"),
    ] {
        assert!(!written(&documented.replace(register, other)), "{other}");
    }
}

/// SDM Vol. 2A, CPUID 1CH: unused bits are 0.
#[test]
fn reserved_bits_of_leaf_1ch_differ() {
    for (eax, ecx, edx, is_reserved) in [
        (0x4000_000B, 7, 0, false),
        (0xC000_000B, 0xF_0007, 0, false),
        (0x4000_010B, 7, 0, true),
        (0x6000_000B, 7, 0, true),
        (0x4000_000B, 0xF, 0, true),
        (0x4000_000B, 0x8007, 0, true),
        (0x4000_000B, 7, 1, true),
    ] {
        let report = verify(&with_leaf_1ch(eax, ecx, edx), Faults::NONE, false);
        let (verdict, found) = judged(&report, "cpuid");
        let expected = if is_reserved { Verdict::Differs } else { Verdict::AsDocumented };
        assert_eq!(verdict, expected, "{eax:#x} {ecx:#x} {edx:#x}: {found}");
    }
}
