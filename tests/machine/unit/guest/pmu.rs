//! The performance monitor without a virtual CPU: its registers and counts.

use lbr_msr::Msr;

use super::super::registers::Answer;
use super::*;

const PMC0: Msr = Msr(0xC1);
const A_PMC0: Msr = Msr(0x4C1);
const PERFEVTSEL0: Msr = Msr(0x186);
const FIXED_CTR0: Msr = Msr(0x309);
const FIXED_CTR_CTRL: Msr = Msr(0x38D);
const GLOBAL_STATUS: Msr = Msr(0x38E);
const GLOBAL_CTRL: Msr = Msr(0x38F);
const GLOBAL_STATUS_RESET: Msr = Msr(0x390);
const GLOBAL_STATUS_SET: Msr = Msr(0x391);
const GLOBAL_INUSE: Msr = Msr(0x392);

/// Instructions in both rings, with an interrupt.
const INSTRUCTIONS: u64 = 0x53_00C0;

/// Leaf 0AH as recorded for CPUs with these versions.
fn version(version: u32) -> Pmu {
    let (eax, edx) = match version {
        1 => (0x0728_0201, 0),
        2 => (0x0728_0202, 0x503),
        3 => (0x0730_0403, 0x603),
        4 => (0x0730_0404, 0x603),
        _ => (0x0830_0805, 0x8604),
    };
    Pmu::intel(Leaf { eax, edx, ..Leaf::default() }, version >= 3, false).expect("a monitor")
}

fn zen4() -> Pmu {
    Pmu::amd(Leaf { eax: 7, ebx: 0x106, ..Leaf::default() })
}

fn write(pmu: &mut Pmu, pairs: &[(Msr, u64)]) {
    for (msr, value) in pairs {
        assert_eq!(pmu.write(*msr, *value), Answer::Done(()), "{msr} = {value:#x}");
    }
}

fn read(pmu: &Pmu, msr: Msr) -> u64 {
    match pmu.read(msr) {
        Answer::Done(value) => value,
        other => panic!("{msr}: {other:?}"),
    }
}

fn instructions(instructions: u64) -> Happened {
    Happened { instructions, cycles: instructions, ..Happened::default() }
}

#[test]
fn no_pmu_if_leaf_0ah_reports_none() {
    assert!(Pmu::intel(Leaf::default(), false, false).is_none());
    // A version newer than the modelled ones.
    let newer = Leaf { eax: 0x0D30_0806, ebx: 0x280, edx: 0x8603, ..Leaf::default() };
    let pmu = Pmu::intel(newer, true, false).expect("a monitor");
    assert_eq!(pmu.leaf_a(newer), Leaf { eax: 0x0D30_0805, ebx: 0x1F9C, ..newer });
}

#[test]
fn each_version_has_its_registers_and_no_others() {
    use Answer::{Fault, NotOurs};

    // Two counters and no global registers.
    let early = version(1);
    assert_eq!(read(&early, Msr(0x187)), 0);
    for absent in [0xC3, 0x188, 0x309, 0x38D, 0x38E, 0x38F, 0x390, 0x391, 0x392, 0x4C1] {
        assert_eq!(early.read(Msr(absent)), Fault, "{absent:#x}");
    }
    // Version 2: three fixed counters and the global registers; after a reset all general counters
    // are enabled.
    let core2 = version(2);
    assert_eq!((read(&core2, Msr(0x30B)), read(&core2, GLOBAL_CTRL)), (0, 3));
    assert_eq!([core2.read(Msr(0x30C)), core2.read(GLOBAL_STATUS_SET)], [Fault; 2]);
    // EN_PERF_METRICS and four fixed counters.
    write(&mut version(5), &[(GLOBAL_CTRL, 1 << 48 | 0xFF)]);
    // Version 4: GLOBAL_STATUS_SET, GLOBAL_INUSE.
    assert_eq!(version(3).read(GLOBAL_INUSE), Fault);
    assert_eq!((read(&version(4), GLOBAL_INUSE), read(&version(4), GLOBAL_CTRL)), (0, 0xF));
    // Eight counters.
    assert_eq!(read(&version(5), Msr(0xC8)), 0);
    assert_eq!(version(4).read(Msr(0xC5)), Fault);
    // TSC, IA32_SPEC_CTRL, IA32_PERF_CAPABILITIES, a record.
    for other in [0x10, 0x48, 0xC9, 0x185, 0x18E, 0x308, 0x345, 0x680, 0xC001_0200] {
        assert_eq!(version(5).read(Msr(other)), NotOurs, "{other:#x}");
    }
    assert_eq!(zen4().read(PERFEVTSEL0), NotOurs);
    assert_eq!(zen4().read(Msr(0xC001_020C)), NotOurs);
    // Zen 3 has no global registers.
    assert_eq!(Pmu::amd(Leaf::default()).read(Msr(0xC000_0300)), Fault);
}

#[test]
fn reserved_bits_fault() {
    let mut pmu = version(4);
    for (msr, value) in [
        (PERFEVTSEL0, 1 << 34),
        (A_PMC0, 1 << 48),
        (FIXED_CTR0, 1 << 48),
        (FIXED_CTR_CTRL, 1 << 12),
        (GLOBAL_CTRL, 1 << 4),
        (GLOBAL_CTRL, 1 << 35),
        (GLOBAL_CTRL, 1 << 48),
        (GLOBAL_STATUS, 0),
        (GLOBAL_STATUS_RESET, 1 << 40),
        (GLOBAL_STATUS_SET, 1 << 57),
        (GLOBAL_INUSE, 0),
    ] {
        assert_eq!(pmu.write(msr, value), Answer::Fault, "{msr} = {value:#x}");
    }
    // LBR_FRZ and CTR_FRZ came with version 4.
    assert_eq!(pmu.write(GLOBAL_STATUS_RESET, 0b11 << 58), Answer::Done(()));
    assert_eq!(version(3).write(GLOBAL_STATUS_RESET, 1 << 58), Answer::Fault);
    // AnyThread: not yet, supported, no longer.
    for (number, expected) in [(2, Answer::Fault), (3, Answer::Done(())), (5, Answer::Fault)] {
        assert_eq!(version(number).write(PERFEVTSEL0, 1 << 21), expected, "{number}");
        assert_eq!(version(number).write(FIXED_CTR_CTRL, 1 << 2), expected, "{number}");
    }
    assert_eq!(zen4().write(Msr(0xC001_0200), 1 << 42), Answer::Fault);
    assert_eq!(zen4().write(Msr(0xC000_0301), 1 << 6), Answer::Fault);
}

#[test]
fn a_write_of_32_bits_is_extended_by_its_sign() {
    let mut pmu = version(4);
    write(&mut pmu, &[(PMC0, 0xFFFF_FFFF_8000_0001)]);
    assert_eq!(read(&pmu, PMC0), 0xFFFF_8000_0001);
    write(&mut pmu, &[(PMC0, 0x1_7FFF_FFFF)]);
    assert_eq!(read(&pmu, A_PMC0), 0x7FFF_FFFF);
    write(&mut pmu, &[(A_PMC0, 0x8000_0001)]);
    assert_eq!(read(&pmu, PMC0), 0x8000_0001);
    // Core 2's counters have 40 bits.
    let mut core2 = version(2);
    write(&mut core2, &[(PMC0, 0xFFFF_FFFF)]);
    assert_eq!(read(&core2, PMC0), 0xFF_FFFF_FFFF);
}

#[test]
fn an_overflow_sets_its_status_bit_and_interrupts_if_enabled() {
    for (select, interrupts) in [(INSTRUCTIONS, true), (INSTRUCTIONS & !(1 << 20), false)] {
        let mut pmu = version(4);
        write(&mut pmu, &[(Msr(0x4C2), 0xFFFF_FFFF_FFF6), (Msr(0x187), select)]);
        assert_eq!(pmu.cycles_to_interrupt(3), interrupts.then_some(10));
        assert!(!pmu.count(&instructions(9), 3, false));
        assert_eq!(pmu.cycles_to_interrupt(3), interrupts.then_some(1));
        assert_eq!(pmu.count(&instructions(3), 3, false), interrupts);
        assert_eq!((read(&pmu, Msr(0xC2)), read(&pmu, GLOBAL_STATUS)), (2, 2));
        write(&mut pmu, &[(GLOBAL_STATUS_RESET, 2)]);
        assert_eq!(read(&pmu, GLOBAL_STATUS), 0);
    }
}

#[test]
fn a_fixed_counter_counts_and_interrupts() {
    let mut pmu = version(4);
    // Instructions in user mode with an interrupt, cycles in ring 0 without.
    write(&mut pmu, &[(FIXED_CTR_CTRL, 0x1A), (GLOBAL_CTRL, 0x3_0000_000F)]);
    write(&mut pmu, &[(FIXED_CTR0, 0xFFFF_FFFF_FFFF)]);
    assert_eq!((pmu.cycles_to_interrupt(3), pmu.cycles_to_interrupt(0)), (Some(1), None));
    let happened = Happened { instructions: 5, cycles: 7, ..Happened::default() };
    assert!(!pmu.count(&happened, 0, false));
    assert!(pmu.count(&happened, 3, false));
    assert_eq!((read(&pmu, FIXED_CTR0), read(&pmu, Msr(0x30A))), (4, 7));
    assert_eq!(read(&pmu, GLOBAL_STATUS), 1 << 32);
    assert_eq!(read(&pmu, GLOBAL_INUSE), 0x8000_0003_0000_0000);
}

#[test]
fn counters_stop_if_disabled_frozen_or_in_another_ring() {
    let quiet = |pairs: &[(Msr, u64)]| {
        let mut pmu = version(4);
        write(&mut pmu, pairs);
        pmu.count(&instructions(5), 3, false);
        assert_eq!(read(&pmu, PMC0), 0, "{pairs:x?}");
    };
    quiet(&[(PERFEVTSEL0, INSTRUCTIONS & !(1 << 22))]);
    quiet(&[(PERFEVTSEL0, INSTRUCTIONS & !(1 << 16))]);
    quiet(&[(PERFEVTSEL0, INSTRUCTIONS), (GLOBAL_CTRL, 0xE)]);
    // An unmodelled event: LLC misses; a counter mask.
    quiet(&[(PERFEVTSEL0, 0x53_412E)]);
    quiet(&[(PERFEVTSEL0, INSTRUCTIONS | 1 << 24)]);
    let mut pmu = version(4);
    write(&mut pmu, &[(PERFEVTSEL0, INSTRUCTIONS)]);
    assert!(pmu.is_on());
    pmu.frozen = true;
    assert!(!pmu.is_on());
    // An early version clears the enable bits instead.
    for (number, left) in [(2, 0), (3, 0), (4, 0xF)] {
        let mut pmu = version(number);
        pmu.freeze();
        assert_eq!(read(&pmu, GLOBAL_CTRL), left, "{number}");
    }
}

#[test]
fn only_transactions_are_counted() {
    assert_eq!(version(4).write(PERFEVTSEL0, 1 << 32 | INSTRUCTIONS), Answer::Fault);
    let mut pmu = Pmu { tsx: true, ..version(4) };
    let undoes = Msr(PERFEVTSEL0.0 + 2);
    assert_eq!(pmu.write(PERFEVTSEL0, 1 << 33 | INSTRUCTIONS), Answer::Fault);
    write(&mut pmu, &[(PERFEVTSEL0, 1 << 32 | INSTRUCTIONS), (undoes, 1 << 33 | INSTRUCTIONS)]);
    for (in_tx, happened) in [(false, 1), (true, 10)] {
        pmu.begin();
        pmu.count(&instructions(happened), 3, in_tx);
    }
    assert_eq!([read(&pmu, PMC0), read(&pmu, Msr(PMC0.0 + 2))], [10, 11]);
    pmu.abort();
    assert_eq!([read(&pmu, PMC0), read(&pmu, Msr(PMC0.0 + 2))], [10, 1]);
}

#[test]
fn branch_events_are_distinguished() {
    let happened = Happened { branches: 5, taken: 3, mispredicted: 2, ..Happened::default() };
    for (event, times, one_by_one) in
        [(0x00C4, 5, false), (0x20C4, 3, true), (0x00C5, 2, true), (0x003C, 0, false)]
    {
        let mut pmu = version(4);
        write(&mut pmu, &[(PERFEVTSEL0, 0x41_0000 | event)]);
        pmu.count(&happened, 3, false);
        assert_eq!((read(&pmu, PMC0), pmu.needs_branches()), (times, one_by_one), "{event:#x}");
    }
}

#[test]
fn amds_counters_are_reached_by_both_families_of_registers() {
    let mut pmu = zen4();
    // Instructions in user mode, with an interrupt.
    write(&mut pmu, &[(Msr(0xC001_0202), 0x51_00C0), (Msr(0xC001_0203), 0xFFFF_FFFF_FFFF_FFFE)]);
    assert_eq!(read(&pmu, Msr(0xC001_0001)), 0x51_00C0);
    assert_eq!(read(&pmu, Msr(0xC001_0005)), 0xFFFF_FFFF_FFFE);
    assert!(pmu.count(&instructions(3), 3, false));
    assert_eq!((read(&pmu, Msr(0xC001_0203)), read(&pmu, Msr(0xC000_0300))), (1, 2));
    // As Linux acknowledges: every bit. Linux amd/core.c.
    write(&mut pmu, &[(Msr(0xC000_0302), u64::MAX), (Msr(0xC000_0301), 0)]);
    assert_eq!(read(&pmu, Msr(0xC000_0300)), 0);
    assert!(!pmu.is_on());
}

#[test]
fn rdpmc_reads_both_kinds_of_counters() {
    let mut pmu = version(4);
    write(&mut pmu, &[(Msr(0x4C4), 0x1_2345_6789), (Msr(0x30A), 77)]);
    assert_eq!((pmu.rdpmc(3), pmu.rdpmc(1 << 30 | 1)), (Some(0x1_2345_6789), Some(77)));
    for wrong in [4, 1 << 30 | 3, 1 << 31, 1 << 29] {
        assert_eq!(pmu.rdpmc(wrong), None, "{wrong:#x}");
    }
    assert_eq!(zen4().rdpmc(5), Some(0));
}
