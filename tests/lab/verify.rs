//! Verifies software CPUs: a correct one passes; each injected fault and each erratum is found and
//! identified.

use std::collections::BTreeSet;
use std::rc::Rc;

use lab::verify::{
    Config, Kernel, Known, Ran, Ready, Report, RunError, SoftSubject, Spec, Subject, SubjectKind,
    Switch, Verdict,
};
use lbr_msr::access::Access;
use lbr_msr::probe::{RecordedCpuid, probe};
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
        assert_eq!((report.cpu, &report.caps.cpu, report.written), (0, &cpu.caps.cpu, true));
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

/// Linux's lbr.c expects it on Haswell alone.
#[test]
fn a_double_abort_is_an_erratum_where_it_is_known() {
    let of_haswell = "it is recorded twice (a known Haswell erratum: Linux lbr_double_abort)";
    for (key, found) in [("06_3C", of_haswell), ("06_5E", "it is recorded twice")] {
        let report = verify(&SoftCpu::preset(key).unwrap(), Fault::DoubleAbort.into(), true);
        assert_eq!(judged(&report, "tsx.abort"), (Verdict::Differs, found.to_owned()), "{key}");
    }
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
    /// A register that raises #GP.
    hidden: Option<Msr>,
}

impl Altered {
    fn new(
        key: &str,
        faults: Faults,
        run: impl Fn(&mut Altered, Kernel, Switch) -> Result<Ran, RunError> + 'static,
    ) -> Altered {
        let soft = SoftSubject::new(&SoftCpu::preset(key).unwrap(), faults);
        let (kind, written, ran) = (SubjectKind::Software, Vec::new(), Vec::new());
        let run = Rc::new(run);
        Altered { soft, kind, attempts: 1, run, written, ran, sibling: None, hidden: None }
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
        match self.hidden {
            Some(hidden) if hidden == msr => {
                Err(MsrError::Fault { cpu: 0, msr, access: Access::Read })
            }
            _ => self.soft.read(msr),
        }
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

/// LBR_INFO bit 61 is TSX_ABORT. SDM Table 17-16.
#[test]
fn an_abort_without_its_flag_differs() {
    let altered = Altered::new("06_5E", Faults::NONE, |altered, kernel, switch| {
        let ran = plainly(altered, kernel, switch);
        if kernel == (Kernel::Transaction { abort: true }) {
            for info in (0xDC0..0xDE0).map(Msr) {
                let value = altered.read(info)?;
                altered.write(info, value & !(1 << 61))?;
            }
        }
        ran
    });
    let found = "TSX_ABORT is not set on an abort".to_owned();
    assert_eq!(judged(&altered.verify().0, "tsx"), (Verdict::Differs, found));
}

/// 06_8F with another leaf 1CH.
fn with_leaf_1ch(eax: u32, ecx: u32, edx: u32) -> SoftCpu {
    let mut cpu = SoftCpu::preset("06_8F").unwrap();
    cpu.cpuid.insert(0x1C, 0, eax, 7, ecx, edx);
    cpu.caps = probe(&cpu.cpuid, None).unwrap();
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

/// Flipping TR, BTS or BTF crashes a live machine, and an interrupt may need the last-exception
/// pair. Of DEBUGCTL only LBR (bit 0) and FREEZE_LBRS_ON_PMI (bit 11) are written.
#[test]
fn on_hardware_nothing_unsafe_is_tried() {
    for key in ["06_3C", "06_5E", "06_8F"] {
        let kind = SubjectKind::Hardware;
        let altered = Altered { kind, ..Altered::new(key, Faults::NONE, plainly) };
        let (report, mut ready) = altered.verify();
        for id in ["bits.debugctl", "bits.last_exception"] {
            let verdict = verdict(&report, id);
            assert!(verdict.why().is_some_and(|why| why.starts_with("unsafe: ")), "{verdict:?}");
        }
        let written = &ready.subject().written;
        let of = |msr: u32| written.iter().filter(move |(other, _)| *other == Msr(msr));
        assert!(of(0x1D9).count() > 0 && of(0x1D9).all(|(_, value)| value & !0x801 == 0), "{key}");
        // The pair is restored to what it held.
        assert!([0x1DD, 0x1DE].into_iter().flat_map(of).all(|(_, value)| *value == 0), "{key}");
    }
}

/// Without a filter by ring, the kernel's branches overwrite all records; BRS needs a counter.
#[test]
fn no_code_runs_whose_branches_could_not_be_told_from_the_kernels() {
    let ring = "nothing filters by ring";
    // 1CH:EBX[0] announces the filter by ring.
    let mut unfiltered = SoftCpu::preset("06_8F").unwrap();
    unfiltered.cpuid.insert(0x1C, 0, 0x4000_000B, 6, 7, 0);
    unfiltered.caps = probe(&unfiltered.cpuid, None).unwrap();
    for (cpu, why) in [
        (SoftCpu::preset("06_0F").unwrap(), Some(ring)),
        (SoftCpu::preset("06_0D").unwrap(), Some(ring)),
        (unfiltered, Some(ring)),
        (SoftCpu::preset("19_21").unwrap(), Some("which the kernel owns")),
        (SoftCpu::preset("06_5E").unwrap(), None),
    ] {
        for kind in [SubjectKind::Emulated, SubjectKind::Hardware] {
            let mut altered = Altered { kind, ..Altered::new("06_5E", Faults::NONE, plainly) };
            altered.soft = SoftSubject::new(&cpu, Faults::NONE);
            let (report, mut ready) = altered.verify();
            let verdict = verdict(&report, "recording");
            match why {
                Some(why) => {
                    let told = verdict.why().is_some_and(|told| told.contains(why));
                    assert!(told, "{}: {verdict:?}", cpu.key);
                    assert!(ready.subject().ran.is_empty(), "{}", cpu.key);
                }
                None => assert_eq!(verdict, Verdict::AsDocumented),
            }
        }
    }
}

/// The verdict of a check.
fn verdict(report: &Report, id: &str) -> Verdict {
    report.checks.iter().find(|check| check.id == id).unwrap().verdict.clone()
}

/// A transaction may abort for any reason.
#[test]
fn a_run_that_was_impossible_is_repeated() {
    let spontaneous = |altered: &mut Altered, kernel, switch| {
        let again = altered.ran.iter().rev().take_while(|ran| **ran == kernel).count();
        match kernel {
            Kernel::Transaction { .. } if again % 2 == 0 => Err(RunError::unavailable("aborted")),
            _ => plainly(altered, kernel, switch),
        }
    };
    for (attempts, expected) in
        [(2, Verdict::AsDocumented), (1, Verdict::CannotTell("aborted".into()))]
    {
        let altered = Altered { attempts, ..Altered::new("06_5E", Faults::NONE, spontaneous) };
        assert_eq!(verdict(&altered.verify().0, "tsx"), expected, "{attempts}");
    }
}

/// The expected behaviour of each facility, from the manuals: sign copies of SDM Tables 17-8, 17-9
/// and 17-14, and of Linux's amd/lbr.c and amd/brs.c; enable bits, DEBUGCTL and filters of SDM
/// 17.4.1, 17.7.2 and 17.14, Linux's msr-index.h.
#[test]
fn what_is_documented_depends_on_the_cpu() {
    let documented = |id: &str, cpu: &SoftCpu| {
        let spec = Spec::all().find(|spec| spec.id == id).unwrap();
        spec.documented(cpu).map(|(expected, _)| expected)
    };
    let sign = |from: u64, to: u64| {
        let to = if to == 0 { String::new() } else { format!(" and {to:#x} of TO") };
        format!("the bits {from:#x} of FROM{to} are copies of its sign")
    };
    let all = 0xFFFF << 48;
    for (id, key, expected) in [
        ("sign", "06_0F", sign(all, all)),
        ("sign", "06_2A", sign(0x7FFF << 48, all)),
        ("sign", "06_3C", sign(0x1FFF << 48, all)),
        ("sign", "06_5C", sign(0x7FFF << 48, 0)),
        ("sign", "06_5E", sign(all, all)),
        ("sign", "06_8F", sign(all, all)),
        ("sign", "19_61", sign(0x7FFF << 48, 0x1FFF << 48)),
        ("sign", "19_21", sign(all, 0x1FFF << 48)),
        ("bits.enable", "06_5E", "bit 0 of 0x1d9".into()),
        ("bits.enable", "06_8F", "bit 0 of 0x14ce".into()),
        ("bits.enable", "19_61", "bit 6 of 0xc000010f".into()),
        ("bits.enable", "19_21", "bit 2 of 0xc000010f".into()),
        ("bits.debugctl", "06_01", "none beyond 0x7f can be set".into()),
        ("bits.debugctl", "0F_03", "none beyond 0x7f can be set".into()),
        ("bits.debugctl", "06_5E", "none beyond 0xffff can be set".into()),
        ("bits.debugctl", "06_8F", "none beyond 0xfffe can be set".into()),
        ("bits.select", "06_1A", "0x1ff can be set, others not".into()),
        ("bits.select", "06_3C", "0x3ff can be set, others not".into()),
        ("bits.select", "06_8F", "0x7f000f can be set, others not".into()),
        ("bits.select", "19_61", "0x1ff can be set, others not".into()),
        ("filter.cond", "06_5E", "cond suppressed, all others recorded".into()),
        ("filter.far", "06_8F", "far suppressed, all others recorded".into()),
        ("filter.ring_0", "19_61", "branches into ring 0 suppressed, all others recorded".into()),
    ] {
        let cpu = SoftCpu::preset(key).unwrap();
        assert_eq!(documented(id, &cpu), Ok(expected), "{id} of {key}");
    }
    // 80000008H:EAX[15:8] = 57: bits 56:48 belong to the address.
    for (key, expected) in
        [("06_8F", sign(0x7F << 57, 0x7F << 57)), ("19_61", sign(0x3F << 57, 0xF << 57))]
    {
        let mut cpu = SoftCpu::preset(key).unwrap();
        cpu.cpuid.insert(0x8000_0008, 0, 0x3934, 0, 0, 0);
        assert_eq!(documented("sign", &cpu), Ok(expected), "{key}");
    }
    for (id, key) in [("sign", "06_01"), ("sign", "06_0D"), ("bits.debugctl", "19_61")] {
        assert!(documented(id, &SoftCpu::preset(key).unwrap()).is_err(), "{id} of {key}");
    }
}

/// An interrupt makes a chain longer, or separates it from the branch that ends it.
#[test]
fn the_least_cycle_count_of_undisturbed_runs_is_taken() {
    let (_, plain) = judged(&Altered::new("06_5E", Faults::NONE, plainly).verify().0, "cycles");
    for slow in [0, 1] {
        let altered = Altered::new("06_5E", Faults::NONE, move |altered, kernel, switch| {
            let again = altered.ran.iter().rev().take_while(|ran| **ran == kernel).count();
            match kernel {
                Kernel::Chain(length) if again == slow => {
                    plainly(altered, Kernel::Chain(length + 500), switch)
                }
                _ => plainly(altered, kernel, switch),
            }
        });
        let (report, _) = Altered { attempts: 2, ..altered }.verify();
        assert_eq!(judged(&report, "cycles"), (Verdict::AsDocumented, plain.clone()));
    }
    let altered = Altered::new("06_5E", Faults::NONE, |altered, kernel, switch| {
        if !matches!(kernel, Kernel::Chain(_)) {
            return plainly(altered, kernel, switch);
        }
        altered.write(switch.msr, switch.on)?;
        let jump = |n: u64| Retired {
            cycles: Some(2),
            ..Retired::user(n * 0x1000 + 0x10, n * 0x1000 + 0x1000, RelJmp)
        };
        for branch in [jump(0), jump(7), jump(1)] {
            altered.soft.lbr().retire(&branch);
        }
        altered.write(switch.msr, switch.off)?;
        let branches = [jump(0), jump(1)].map(Known::of).to_vec();
        Ok(Ran { branches, unlisted: true, before_event: None })
    });
    let verdict = verdict(&altered.verify().0, "cycles");
    assert!(verdict.why().is_some_and(|why| why.ends_with("was interrupted")), "{verdict:?}");
}

/// Of a fused pair, FROM may be the first instruction, which has at most 15 bytes: SDM Vol. 2, 2.3.11.
#[test]
fn from_is_at_most_one_instruction_before_a_fused_branch() {
    let judged = |key: &str, bytes: u64| {
        let map = SoftCpu::preset(key).unwrap().caps.registers;
        let altered = Altered::new(key, Faults::NONE, move |altered, kernel, switch| {
            let ran = plainly(altered, kernel, switch);
            if matches!(kernel, Kernel::Jumps(1) | Kernel::Predictable(_)) {
                for from in (0..16).map(|index| map.from_at(index)) {
                    let value = altered.read(from).unwrap();
                    altered.write(from, value.saturating_sub(bytes)).unwrap();
                }
            }
            ran
        });
        self::judged(&altered.verify().0, "from")
    };
    let fused = "FROM of conditional branches is the instruction before (macro fusion)";
    for (key, bytes, verdict, found) in [
        ("19_61", 0, Verdict::AsDocumented, "as expected"),
        ("19_61", 15, Verdict::AsDocumented, "as expected"),
        ("19_61", 16, Verdict::Differs, "FROM is another address"),
        ("06_5E", 1, Verdict::Differs, fused),
        ("06_5E", 16, Verdict::Differs, "FROM is another address"),
    ] {
        assert_eq!(judged(key, bytes), (verdict, found.to_owned()), "{key} {bytes}");
    }
}

/// Each wrong order is named. 35 jumps fill a Skylake's 32 records, and three of them again.
#[test]
fn wrong_orders_are_distinguished() {
    const TOS: Msr = Msr(0x1C9);
    let judged = |moved: u64| {
        let altered = Altered::new("06_5E", Faults::NONE, move |altered, kernel, switch| {
            let ran = plainly(altered, kernel, switch);
            if kernel == Kernel::Jumps(35) {
                let tos = altered.read(TOS).unwrap();
                altered.write(TOS, (tos + moved) % 32).unwrap();
            }
            ran
        });
        self::judged(&altered.verify().0, "order")
    };
    assert_eq!(judged(0).0, Verdict::AsDocumented);
    for (moved, found) in [
        (1, "the newest is at TOS - 1: TOS is one too high"),
        (31, "the newest is at TOS + 1: TOS is one too low"),
        (5, "the records are not in any order"),
    ] {
        assert_eq!(judged(moved), (Verdict::Differs, found.to_owned()));
    }
}

/// EBX\[9:4\] of 80000022H can hold up to 63.
#[test]
fn an_amd_stack_of_more_than_32_records_differs() {
    for (depth, expected) in [(32, Verdict::AsDocumented), (33, Verdict::Differs)] {
        let mut cpu = SoftCpu::preset("19_61").unwrap();
        cpu.cpuid.insert(0x8000_0022, 0, 7, depth << 4 | 6, 0, 0);
        cpu.caps = probe(&cpu.cpuid, None).unwrap();
        let report = verify(&cpu, Faults::NONE, false);
        assert_eq!(judged(&report, "cpuid"), (expected, format!("a depth of {depth}")));
    }
}

#[test]
fn without_its_control_register_nothing_is_written() {
    let altered = Altered::new("06_5E", Faults::NONE, plainly);
    let (report, mut ready) = Altered { hidden: Some(DEBUGCTL), ..altered }.verify();
    assert!(!report.written && ready.subject().written.is_empty());
    assert_eq!(verdict(&report, "registers.control"), Verdict::Differs);
    let why = "0x1d9 does not exist, and nothing is written then";
    assert_eq!(verdict(&report, "recording"), Verdict::CannotTell(why.into()));
}

/// Registers that raise #GP: one record of 32, and single ones.
#[test]
fn missing_registers_are_named() {
    for (msr, id, found) in [
        (0x681, "registers.from", "reading raises #GP on 1 of 32, starting with 0x681"),
        (0x6DF, "registers.to", "reading raises #GP on 1 of 32, starting with 0x6df"),
        (0x1C9, "registers.tos", "reading raises #GP: none of them exists, starting with 0x1c9"),
        (0x345, "perf_capabilities", "345H raises #GP"),
    ] {
        let altered = Altered::new("06_5E", Faults::NONE, plainly);
        let (report, _) = Altered { hidden: Some(Msr(msr)), ..altered }.verify();
        assert_eq!(judged(&report, id), (Verdict::Differs, found.to_owned()));
        assert_eq!(report.differing().count(), 1, "{id}: {:?}", differing(&report));
    }
}

/// No source says whether Tremont reports format 5 or 7.
#[test]
fn a_tremont_may_report_either_format() {
    for (code, expected, found) in [
        (5, Verdict::AsDocumented, "0x5 INFO"),
        (7, Verdict::AsDocumented, "0x7 INFO2"),
        (3, Verdict::Differs, "0x3 EIP_FLAGS"),
        (6, Verdict::Differs, "0x6 TIME"),
    ] {
        let mut cpu = SoftCpu::preset("06_86").unwrap();
        cpu.perf_capabilities = Some(0x3000 | code);
        let report = verify(&cpu, Faults::NONE, false);
        assert_eq!(judged(&report, "lbr_fmt"), (expected, found.to_owned()));
    }
}

/// The kernel's own branches overwrite a program's if the filter for ring 0 has no effect.
#[test]
fn records_of_ring_0_alone_show_an_ignored_filter() {
    let altered = Altered::new("06_5E", Faults::NONE, |altered, kernel, switch| {
        let ran = plainly(altered, kernel, switch)?;
        altered.write(switch.msr, switch.on)?;
        for n in 0..32 {
            let at = 0xFFFF_FFFF_8100_0000 + n * 0x40;
            altered.soft.lbr().retire(&Retired::user(at, at + 0x20, RelJmp));
        }
        altered.write(switch.msr, switch.off)?;
        Ok(Ran { unlisted: true, ..ran })
    });
    let (report, _) = Altered { kind: SubjectKind::Hardware, ..altered }.verify();
    let found = "branches into ring 0 recorded although suppressed, and no others left";
    assert_eq!(judged(&report, "recording"), (Verdict::Differs, found.to_owned()));
}

/// Any interrupt overwrites the last-exception pair, so that one good run of several is enough.
#[test]
fn the_last_exception_pair_may_be_disturbed_but_not_always() {
    let judged = |disturbed: usize| {
        let altered = Altered::new("06_5E", Faults::NONE, move |altered, kernel, switch| {
            let again = altered.ran.iter().filter(|ran| **ran == Kernel::Exception).count();
            let ran = plainly(altered, kernel, switch);
            if kernel == Kernel::Exception && again < disturbed {
                altered.write(Msr(0x1DD), 0x1234).unwrap();
            }
            ran
        });
        self::judged(&Altered { attempts: 3, ..altered }.verify().0, "last_exception")
    };
    let sound = (Verdict::AsDocumented, "the branch before it".to_owned());
    assert_eq!([judged(0), judged(5)], [sound.clone(), sound]);
    assert_eq!(judged(usize::MAX), (Verdict::Differs, "another branch".to_owned()));
}

#[test]
fn without_a_record_of_ring_0_its_sign_is_unknown() {
    let altered = Altered::new("06_5E", Faults::NONE, |altered, kernel, switch| match kernel {
        Kernel::KernelAddresses => Ok(Ran::default()),
        _ => plainly(altered, kernel, switch),
    });
    let why = Verdict::CannotTell("no branch of ring 0 was recorded".into());
    assert_eq!(verdict(&altered.verify().0, "sign"), why);
}

/// The source of the depth: the table's row or the assumed one, CPUID, or the user.
#[test]
fn the_geometry_has_its_source() {
    let source = |cpu: &SoftCpu, assume: Option<&str>| {
        let assume = assume.map(|text| text.parse().unwrap());
        let config = Config { write: false, assume, ..Config::default() };
        let report = Ready::new(SoftSubject::new(cpu, Faults::NONE), &config).unwrap().verify();
        let checks = report.unwrap().checks;
        checks.into_iter().find(|check| check.id == "depth").unwrap().source.unwrap()
    };
    let by_hand = "depth=32,from=680,to=6C0,info=DC0,tos=1C9,select=1C8";
    let mut unknown_arch = with_leaf_1ch(0x4000_000B, 7, 0);
    unknown_arch.cpuid.insert(1, 0, 0x000F_06F0, 0, 1 << 15, 0);
    unknown_arch.caps = probe(&unknown_arch.cpuid, None).unwrap();
    for (cpu, assume, expected) in [
        (SoftCpu::preset("06_3C").unwrap(), None, "CPU table, 06_3CH: "),
        (unknown_model(), Some("06_5E"), "CPU table, 06_5EH: "),
        (unknown_model(), Some(by_hand), "as given by --assume"),
        (unknown_arch, None, "CPUID 1CH; "),
        (SoftCpu::preset("19_61").unwrap(), None, "CPUID 80000022H; "),
        (SoftCpu::preset("19_21").unwrap(), None, "CPUID 80000008H; "),
    ] {
        let found = source(&cpu, assume);
        assert!(found.starts_with(expected), "{} {assume:?}: {found}", cpu.key);
    }
}
