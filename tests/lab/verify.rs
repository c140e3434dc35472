//! Verifying software CPUs: a sound one passes, each lie and each erratum is
//! found and named as what it is.

use lab::verify::{Config, Ready, Report, SoftSubject, Verdict};
use lbr_msr::soft::{Fault, Faults, SoftCpu};

use crate::support::faults::{applies, root};

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
        // NetBurst's records cannot be put back, so nothing is recorded there.
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
                assert_eq!(found, Vec::<String>::new(), "{at} changes nothing that can be seen");
                continue;
            }
            let (id, words) = root(fault);
            assert_eq!(found.len(), 1, "{at}: {found:?} {:?}", reasons(&report));
            assert!(found[0].starts_with(&format!("{id}: ")), "{at}: {found:?}");
            assert!(found[0].contains(words), "{at}: {found:?}");
            // What rests on it is not judged.
            for check in report.checks.iter().filter(|check| check.needs.contains(&id)) {
                let judged = matches!(check.verdict, Verdict::AsDocumented | Verdict::Differs);
                assert!(!judged, "{at}: {} rests on {id}", check.id);
            }
            applied += 1;
        }
    }
    assert!(applied > 1500, "{applied}");
}

#[test]
fn what_does_not_rest_on_a_root_is_judged() {
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
fn nothing_is_written_without_being_asked_for() {
    for cpu in SoftCpu::all() {
        let report = verify(&cpu, Faults::NONE, false);
        assert!(!report.written);
        assert_eq!(differing(&report), Vec::<String>::new());
        let recording = report.checks.iter().find(|check| check.id == "recording").unwrap();
        assert_eq!(recording.verdict, Verdict::CannotTell("needs --write".into()));
        // What is read is checked all the same.
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
fn every_need_names_a_check_that_comes_before() {
    let cpu = SoftCpu::preset("06_8F").unwrap();
    let report = verify(&cpu, Faults::NONE, true);
    for (index, check) in report.checks.iter().enumerate() {
        for need in check.needs {
            assert!(report.checks[..index].iter().any(|other| other.id == *need), "{need}");
        }
    }
}

#[test]
fn an_unknown_model_is_checked_against_what_is_assumed() {
    let mut cpu = SoftCpu::preset("06_5E").unwrap();
    // The same CPU with a model number that nobody knows.
    cpu.cpuid.insert(1, 0, 0x000F_06F0, 0, 1 << 15, 0);
    let check = |assume: &str| {
        let config =
            Config { write: true, assume: Some(assume.parse().unwrap()), ..Config::default() };
        Ready::new(SoftSubject::new(&cpu, Faults::NONE), &config).unwrap().verify().unwrap()
    };
    assert_eq!(differing(&check("06_5E")), Vec::<String>::new());
    let by_hand = "depth=32,from=680,to=6C0,info=DC0,tos=1C9,select=1C8";
    let report = check(by_hand);
    assert!(report.caps.assumed);
    // Call-stack mode is not part of what can be told by hand.
    assert_eq!(differing(&report), ["bits.select: reserved bits 0x200 can be set"]);
    // Assumed too shallow, too deep, and of another format.
    let found = differing(&check("depth=16,from=680,to=6C0,info=DC0,tos=1C9,select=1C8"));
    assert!(found.iter().any(|line| line.starts_with("depth: more: TOS comes to ")), "{found:?}");
    let found = differing(&check("06_3C"));
    assert_eq!(found[0], "lbr_fmt: 0x5 INFO");
    let config = Config { write: true, ..Config::default() };
    assert!(Ready::new(SoftSubject::new(&cpu, Faults::NONE), &config).is_err());
}
