use lab::verify::{Config, Ready, SoftSubject};
use lbr_msr::soft::{Fault, Faults, SoftCpu};

use super::*;

fn add(machine: &mut Machine, cpu: u32, key: &str, faults: Faults) {
    let soft = SoftCpu::preset(key).expect("a preset");
    let subject = SoftSubject::new(&soft, faults);
    let config = Config { write: true, ..Config::default() };
    let report = Ready::new(subject, &config).and_then(|mut ready| ready.verify());
    machine.add(report.expect("a report"), &RecordedCpu { cpu, cpuid: soft.cpuid }, None);
}

/// Two kinds of cores, and one core that is not like its kind.
#[test]
fn cpus_with_one_outcome_are_together() {
    let mut machine = Machine { verified: Vec::new(), soft_lies: None, kernel: None, date: None };
    for cpu in 0..3 {
        add(&mut machine, cpu, "06_97", Faults::NONE);
    }
    for cpu in 3..5 {
        add(&mut machine, cpu, "06_BE", Faults::NONE);
    }
    add(&mut machine, 5, "06_97", Fault::OrderReversed.into());
    add(&mut machine, 6, "06_97", Faults::NONE);
    let titles: Vec<String> = machine.verified.iter().map(Verified::cpus).collect();
    assert_eq!(titles, ["CPUs 0-2,6", "CPUs 3-4", "CPU 5"]);
    let cores: Vec<_> =
        machine.verified.iter().map(|group| group.core_type.and_then(CoreType::name)).collect();
    assert_eq!(cores, [Some("Core"), Some("Atom"), Some("Core")]);
    let differs: Vec<bool> = machine.verified.iter().map(Verified::differs).collect();
    assert_eq!(differs, [false, false, true]);
}
