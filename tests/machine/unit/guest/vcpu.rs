//! A virtual CPU without an emulator: its inputs and registers.

use std::sync::Arc;

use lbr_msr::insn;

use super::super::machine::BlockPart;
use super::*;

const SELECT: Msr = Msr(0x1C8);
const DEBUGCTL: Msr = Msr(0x1D9);
const USER: u64 = 0x40_1000;
const KERNEL: u64 = 0xFFFF_FFFF_8100_0000;
const HANDLER: u64 = 0xFFFF_FFFF_8180_0000;

fn skylake() -> Model {
    Model::new("06_5E", true).expect("a preset")
}

/// A Skylake that records with this filter, at privilege level 3 after a return from the kernel,
/// which is its first record unless filtered.
fn recording(select: u64) -> Vcpu {
    let model = skylake();
    let mut vcpu = Vcpu::new(&model, 0, None);
    assert_eq!(vcpu.write(SELECT, select, &model), Answer::Done(()));
    assert_eq!(vcpu.write(DEBUGCTL, 1, &model), Answer::Done(()));
    assert!(vcpu.recording);
    vcpu.branch(branch(&SYSRET, KERNEL));
    vcpu.block(USER, 1, || 3);
    vcpu
}

const JNZ_BACK_2: [u8; 2] = [0x75, 0xFE];
const CALL_RAX: [u8; 2] = [0xFF, 0xD0];
const SYSCALL: [u8; 2] = [0x0F, 0x05];
const SYSRET: [u8; 3] = [0x48, 0x0F, 0x07];
const IRET: [u8; 2] = [0x48, 0xCF];
const INT3: [u8; 1] = [0xCC];

fn branch(bytes: &[u8], ip: u64) -> BranchInsn {
    insn::branch_kind(bytes, ip).expect("a branch")
}

fn same_level() -> u8 {
    panic!("a near branch keeps the privilege level")
}

/// FROM and TO of the records, newest first, up to the first empty one.
fn records(vcpu: &mut Vcpu) -> Vec<(u64, u64)> {
    let mut read = |msr| match vcpu.read(Msr(msr)) {
        Answer::Done(value) => value,
        other => panic!("{msr:#x}: {other:?}"),
    };
    let tos = read(0x1C9) as u32;
    (0..32)
        .map(|k| tos.wrapping_sub(k) % 32)
        .map(|i| (read(0x680 + i), read(0x6C0 + i)))
        .take_while(|(from, _)| *from != 0)
        .collect()
}

#[test]
fn a_conditional_branch_is_recorded_only_if_taken() {
    let mut vcpu = recording(0x101);
    let jnz = branch(&JNZ_BACK_2, USER + 4);
    vcpu.branch(jnz);
    vcpu.block(USER + 4, 2, same_level);
    vcpu.branch(jnz);
    vcpu.block(USER + 6, 2, same_level);
    assert_eq!(records(&mut vcpu), [(USER + 4, USER + 4)]);
}

#[test]
fn an_interrupt_after_a_branch_makes_two_records() {
    let mut vcpu = recording(0);
    vcpu.branch(branch(&CALL_RAX, USER + 8));
    vcpu.delivered(USER + 64, HANDLER, 0, false);
    assert_eq!(records(&mut vcpu), [(USER + 64, HANDLER), (USER + 8, USER + 64), (KERNEL, USER)]);
}

#[test]
fn an_interrupt_after_a_branch_that_was_not_taken_makes_one() {
    let mut vcpu = recording(0);
    vcpu.branch(branch(&JNZ_BACK_2, USER));
    vcpu.delivered(USER + 2, HANDLER, 0, false);
    assert_eq!(records(&mut vcpu), [(USER + 2, HANDLER), (KERNEL, USER)]);
}

#[test]
fn a_branch_that_faults_does_not_retire() {
    let mut vcpu = recording(0);
    vcpu.branch(branch(&CALL_RAX, USER + 8));
    vcpu.raised();
    vcpu.delivered(USER + 8, HANDLER, 0, false);
    assert_eq!(records(&mut vcpu), [(USER + 8, HANDLER), (KERNEL, USER)]);
}

#[test]
fn a_branch_whose_target_faults_retires_before_the_fault() {
    let mut vcpu = recording(0);
    vcpu.branch(branch(&CALL_RAX, USER + 8));
    vcpu.raised();
    vcpu.delivered(0x7000, HANDLER, 0, false);
    assert_eq!(records(&mut vcpu), [(0x7000, HANDLER), (USER + 8, 0x7000), (KERNEL, USER)]);
}

#[test]
fn a_software_interrupt_is_one_record() {
    let mut vcpu = recording(0);
    vcpu.branch(branch(&INT3, USER + 8));
    vcpu.raised();
    vcpu.delivered(USER + 8, HANDLER, 0, false);
    assert_eq!(records(&mut vcpu), [(USER + 8, HANDLER), (KERNEL, USER)]);
}

#[test]
fn the_filter_tests_the_targets_ring() {
    // CPL_EQ_0: branches that end in ring 0 are filtered.
    let mut vcpu = recording(1);
    vcpu.branch(branch(&SYSCALL, USER + 8));
    vcpu.block(KERNEL + 64, 3, || 0);
    vcpu.branch(branch(&CALL_RAX, KERNEL + 70));
    vcpu.block(KERNEL + 128, 3, same_level);
    vcpu.branch(branch(&IRET, KERNEL + 140));
    vcpu.block(USER + 10, 1, || 3);
    assert_eq!(records(&mut vcpu), [(KERNEL + 140, USER + 10), (KERNEL, USER)]);
}

#[test]
fn a_return_to_user_code_that_is_interrupted_at_once_keeps_its_ring() {
    let mut vcpu = recording(1);
    vcpu.branch(branch(&IRET, KERNEL + 140));
    vcpu.delivered(USER + 10, HANDLER, 0, false);
    assert_eq!(records(&mut vcpu), [(KERNEL + 140, USER + 10), (KERNEL, USER)]);
}

#[test]
fn a_debug_exception_stops_recording_without_a_record() {
    let mut vcpu = recording(0x101);
    vcpu.branch(branch(&CALL_RAX, USER + 8));
    vcpu.raised();
    vcpu.delivered(USER + 64, HANDLER, 0, true);
    assert!(!vcpu.recording);
    assert_eq!(vcpu.read(DEBUGCTL), Answer::Done(0));
    assert_eq!(records(&mut vcpu), [(USER + 8, USER + 64)]);
}

#[test]
fn cycles_are_those_of_the_blocks_and_unknown_at_first() {
    let mut vcpu = recording(0x101);
    let jnz = branch(&JNZ_BACK_2, USER);
    // The first block took one cycle; then two branches of three and five.
    for cycles in [3, 5, 7] {
        vcpu.branch(jnz);
        vcpu.block(USER, cycles, same_level);
    }
    // Newest first: INFO[15:0]; bit 63 of the first, mispredicted because it is new.
    let infos: Vec<Answer<u64>> = [3, 2, 1].map(|i| vcpu.read(Msr(0xDC0 + i))).into();
    assert_eq!(infos, [Answer::Done(5), Answer::Done(3), Answer::Done(1 << 63)]);
}

#[test]
fn code_that_is_mapped_elsewhere_than_it_was_translated_is_recorded_where_it_is() {
    let mut vcpu = recording(0x101);
    vcpu.located(USER + 0x5000, USER);
    vcpu.branch(branch(&JNZ_BACK_2, USER + 4));
    vcpu.block(USER + 0x5004, 2, same_level);
    // Not taken.
    vcpu.branch(branch(&JNZ_BACK_2, USER + 4));
    vcpu.block(USER + 0x5006, 2, same_level);
    assert_eq!(records(&mut vcpu), [(USER + 0x5004, USER + 0x5004)]);
}

#[test]
fn a_transaction_marks_its_branches_and_its_abort() {
    let mut vcpu = recording(0);
    vcpu.begin(Transaction { fallback: USER + 0x100, general: [7; 16] });
    vcpu.branch(branch(&CALL_RAX, USER + 8));
    vcpu.block(USER + 64, 1, same_level);
    let undone = vcpu.abort(USER + 66).expect("a transaction");
    assert_eq!((undone.fallback, undone.general), (USER + 0x100, [7; 16]));
    assert!(vcpu.abort(USER + 66).is_none(), "outside");
    assert_eq!(records(&mut vcpu)[..2], [(USER + 66, USER + 0x100), (USER + 8, USER + 64)]);
    // INFO[62:61]: IN_TSX and TSX_ABORT of the abort, IN_TSX of the call.
    let mut flags = |i: u32| match vcpu.read(Msr(0xDC0 + i)) {
        Answer::Done(info) => info >> 61 & 3,
        other => panic!("{other:?}"),
    };
    assert_eq!([flags(3), flags(2), flags(1)], [3, 2, 0]);
}

/// Writes text as Linux's driver does, eight bytes at a time.
fn name(vcpu: &mut Vcpu, model: &Model, text: &str) -> Vec<Answer<()>> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(text.len() / 8 * 8 + 24, 0);
    let words = bytes.chunks_exact(8);
    let words = words.map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
    words.map(|word| vcpu.write(machine::FAULTS, word, model)).collect()
}

#[test]
fn faults_are_switched_on_for_all_virtual_cpus() {
    let model = skylake();
    let mut vcpu = Vcpu::new(&model, 0, None);
    let mut other = Vcpu::new(&model, 1, None);
    assert_eq!(vcpu.read(machine::IDENT), Answer::Done(machine::IDENTITY));
    let format = |vcpu: &mut Vcpu| match vcpu.read(Msr(0x345)) {
        Answer::Done(value) => value & 0x3F,
        other => panic!("{other:?}"),
    };
    assert_eq!(format(&mut other), 5);
    for name_of_one in ["format-code", "no-info,format-code", "half-depth,format-code"] {
        assert!(name(&mut vcpu, &model, name_of_one).iter().all(|a| *a == Answer::Done(())));
        other.follow(&model);
        assert_eq!(format(&mut other), 3, "{name_of_one}");
        assert!(name(&mut vcpu, &model, "none").iter().all(|a| *a == Answer::Done(())));
        other.follow(&model);
        assert_eq!(format(&mut other), 5);
    }
    assert!(name(&mut vcpu, &model, "no-such").contains(&Answer::Fault));
}

#[test]
fn events_change_the_registers() {
    let mut vcpu = recording(0x101);
    vcpu.branch(branch(&CALL_RAX, USER));
    vcpu.block(USER + 64, 1, same_level);
    assert_eq!(records(&mut vcpu).len(), 1);
    assert_eq!(vcpu.write(machine::EVENT, 3, &skylake()), Answer::Done(()));
    assert_eq!(records(&mut vcpu), [], "a Skylake may lose them");
    assert_eq!(vcpu.write(machine::EVENT, 9, &skylake()), Answer::Fault);
}

#[test]
fn hyperthreads_share_the_filter() {
    let model = Model::new("06_1A", true).expect("a preset");
    let core = Arc::default();
    let thread =
        |index| Vcpu::new(&model, index, Some(SharedSelect::new(SELECT, Arc::clone(&core))));
    let (mut one, mut other) = (thread(0), thread(1));
    assert_eq!(one.write(SELECT, 0x101, &model), Answer::Done(()));
    assert_eq!(other.read(SELECT), Answer::Done(0x101));
    assert_eq!(other.write(DEBUGCTL, 1, &model), Answer::Done(()));
    other.branch(branch(&SYSRET, KERNEL));
    other.block(USER, 1, || 3);
    assert_eq!(one.write(SELECT, 0, &model), Answer::Done(()));
    other.branch(branch(&CALL_RAX, USER));
    other.block(USER + 64, 1, same_level);
    other.branch(branch(&SYSCALL, USER + 64));
    other.block(KERNEL, 1, || 0);
    let Answer::Done(tos) = other.read(Msr(0x1C9)) else { panic!("TOS") };
    assert_eq!(tos, 2, "the call and, with the new filter, the system call");
}

#[test]
fn branches_are_ignored_while_recording_is_off() {
    let mut vcpu = recording(0);
    vcpu.branch(branch(&CALL_RAX, USER + 8));
    assert_eq!(vcpu.write(DEBUGCTL, 0, &skylake()), Answer::Done(()));
    vcpu.delivered(USER + 64, HANDLER, 0, false);
    assert!(!vcpu.recording);
    assert_eq!(records(&mut vcpu), [(KERNEL, USER)]);
}

#[test]
fn absent_registers_and_reserved_bits_fault_and_others_are_qemus() {
    let model = skylake();
    let mut vcpu = Vcpu::new(&model, 0, None);
    assert_eq!(vcpu.read(Msr(0x14CE)), Answer::Fault);
    assert_eq!(vcpu.write(Msr(0x40), 0, &model), Answer::Fault);
    assert_eq!(vcpu.write(SELECT, 1 << 10, &model), Answer::Fault);
    assert_eq!(vcpu.read(Msr(0x1B)), Answer::NotOurs);
    assert_eq!(vcpu.write(Msr(0xC000_0080), 1, &model), Answer::NotOurs);
    assert_eq!(vcpu.counts.faults, 3);
}

/// Counts from generated code.
fn executed(instructions: u64) -> Happened {
    Happened { instructions, cycles: instructions, ..Happened::default() }
}

#[test]
fn an_overflow_freezes_after_the_last_branch_and_interrupts_once() {
    let mut vcpu = recording(0x101);
    let model = skylake();
    // FREEZE_LBRS_ON_PMI; 20 instructions in user mode, with an interrupt.
    for (msr, value) in [(0x1D9, 0x801), (0x4C1, 0xFFFF_FFFF_FFEC), (0x186, 0x51_00C0), (0x38F, 1)]
    {
        assert_eq!(vcpu.write(Msr(msr), value, &model), Answer::Done(()), "{msr:#x}");
    }
    assert!(vcpu.counting && vcpu.recording);
    vcpu.branch(branch(&SYSRET, KERNEL));
    vcpu.executed(executed(5), BlockPart::default());
    vcpu.block(USER, 1, || 3);
    assert!(!vcpu.is_interrupted(same_level), "the kernel's do not count");
    vcpu.branch(branch(&CALL_RAX, USER + 8));
    vcpu.executed(executed(30), BlockPart::default());
    vcpu.block(USER + 64, 1, same_level);
    assert!(vcpu.is_interrupted(same_level));
    assert!(!vcpu.is_interrupted(same_level));
    // LBR_FRZ and the counter's bit.
    assert_eq!(vcpu.read(Msr(0x38E)), Answer::Done(1 << 58 | 1));
    assert_eq!(vcpu.read(Msr(0xC1)), Answer::Done(5));
    assert_eq!(records(&mut vcpu)[0], (USER + 8, USER + 64));
    vcpu.branch(branch(&CALL_RAX, USER + 64));
    vcpu.block(USER, 1, same_level);
    assert_eq!(records(&mut vcpu)[0], (USER + 8, USER + 64), "it is frozen");
    assert_eq!(vcpu.write(Msr(0x390), 1 << 58 | 1, &model), Answer::Done(()));
    assert_eq!(vcpu.read(Msr(0x38E)), Answer::Done(0));
}

#[test]
fn counting_alone_waits_for_as_long_as_nothing_can_overflow() {
    let model = skylake();
    let mut vcpu = Vcpu::new(&model, 0, None);
    assert_eq!(vcpu.cycles_to_wait(), u64::MAX);
    // 1,000 branches in user mode, with an interrupt.
    for (msr, value) in [(0x4C1, 0xFFFF_FFFF_FC18), (0x186, 0x51_00C4)] {
        assert_eq!(vcpu.write(Msr(msr), value, &model), Answer::Done(()), "{msr:#x}");
    }
    assert!(vcpu.counting && !vcpu.recording);
    assert_eq!(vcpu.cycles_to_wait(), u64::MAX, "not in the kernel");
    vcpu.leaves_level = true;
    assert_eq!(vcpu.cycles_to_wait(), 0);
    assert!(!vcpu.is_interrupted(|| 3));
    assert_eq!(vcpu.cycles_to_wait(), 1_000);
    let part = BlockPart { instructions: 3, cycles: 3, branches: 1 };
    vcpu.executed(Happened { branches: 401, ..executed(2_000) }, part);
    assert_eq!(vcpu.cycles_to_wait(), 600, "the rest of the block does not count");
    vcpu.delivered(USER, HANDLER, 0, false);
    assert_eq!(vcpu.cycles_to_wait(), u64::MAX);
    // Taken branches are only counted one by one.
    assert_eq!(vcpu.write(Msr(0x187), 0x41_20C4, &model), Answer::Done(()));
    assert!(vcpu.recording);
}

#[test]
fn without_a_pmu_its_registers_are_qemus() {
    let model = Model::new("06_5E", false).expect("a preset");
    let mut vcpu = Vcpu::new(&model, 0, None);
    assert_eq!(vcpu.read(Msr(0xC1)), Answer::NotOurs);
    assert_eq!(vcpu.write(Msr(0x186), 1 << 40, &model), Answer::NotOurs);
    assert_eq!(vcpu.read(Msr(0x38E)), Answer::Done(0));
}
