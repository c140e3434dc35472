//! Kernels without an LBR: a file simulates the registers, and the decoder checks that the code can
//! take the listed branches.

use std::os::unix::fs::FileExt;

use lbr_msr::access::FakeMsrs;
use lbr_msr::insn::{self, Insn};
use lbr_msr::soft::{SoftCpu, SoftLbr};

use super::*;
use crate::code::frame::CODE;
use crate::verify::Known;

const KERNELS: [Kernel; 14] = [
    Kernel::Jumps(40),
    Kernel::EveryClass,
    Kernel::Calls { calls: 0, returns: 0 },
    Kernel::Calls { calls: 5, returns: 0 },
    Kernel::Calls { calls: 5, returns: 2 },
    Kernel::Calls { calls: 40, returns: 40 },
    Kernel::Leaves(4),
    Kernel::ZeroLengthCall,
    Kernel::Predictable(40),
    Kernel::Unpredictable(40),
    Kernel::Chain(0),
    Kernel::Chain(70_000),
    Kernel::KernelAddresses,
    Kernel::Exception,
];

fn subject() -> (RealSubject<SoftLbr>, std::fs::File) {
    let cpu = SoftCpu::preset("06_5E").expect("a preset");
    let first = allowed().first().copied().expect("a CPU");
    let registers = SoftLbr::new(&cpu.caps, cpu.perf_capabilities).on_cpu(first);
    let file = tempfile::tempfile().expect("a file");
    let descriptor = file.try_clone().expect("a descriptor").into();
    let subject = RealSubject::new(registers, descriptor, None, cpu.cpuid, Root::default());
    (subject.expect("a subject"), file)
}

const SWITCH: Switch = Switch { msr: Msr(0x1D9), on: 0x4801, off: 0x4800 };

/// The CPUs on which this thread may run.
fn allowed() -> Vec<u32> {
    sampler::target::Affinity::current().expect("a mask").cpus().collect()
}

#[test]
fn every_kernel_runs_and_ends_with_recording_off() {
    let (mut subject, file) = subject();
    assert_eq!(subject.kind(), SubjectKind::Hardware, "only the test machine is emulated");
    for kernel in KERNELS {
        file.set_len(0).expect("a file");
        let ran = Subject::execute(&mut subject, kernel, SWITCH);
        let ran = ran.unwrap_or_else(|error| panic!("{kernel:?}: {error}"));
        assert!(ran.unlisted);
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0x1D9).expect("eight bytes");
        assert_eq!(u64::from_le_bytes(bytes), 0x4800, "{kernel:?}");
    }
}

#[test]
fn a_failed_switch_is_reported() {
    let (mut subject, _) = subject();
    subject.descriptor = std::fs::File::open("/dev/null").expect("a device").into();
    let error = Subject::execute(&mut subject, Kernel::Jumps(1), SWITCH).expect_err("read-only");
    assert!(matches!(error, RunError::Register(MsrError::Os { .. })), "{error}");
}

#[test]
fn kernels_that_need_more_than_a_program_are_unavailable() {
    let (mut subject, _) = subject();
    for kernel in [Kernel::AroundPmi, Kernel::AroundSmi] {
        let error = Subject::execute(&mut subject, kernel, SWITCH).expect_err("not from here");
        assert!(matches!(error, RunError::Unavailable(_)), "{error}");
    }
    assert!(subject.read_sibling(Msr(0x1C8)).is_err());
}

/// CPUID.07H:EBX\[11\] announces RTM. Without it, XBEGIN raises #UD.
#[test]
fn transactions_need_rtm() {
    let (mut subject, _) = subject();
    for cpuid in [Some(!(1 << 11)), None] {
        subject.cpuid = RecordedCpuid::new();
        if let Some(ebx) = cpuid {
            subject.cpuid.insert(7, 0, 0, ebx, !0, !0);
        }
        for abort in [false, true] {
            let ran = Subject::execute(&mut subject, Kernel::Transaction { abort }, SWITCH);
            let error = ran.expect_err("no RTM").to_string();
            assert_eq!(error, "this CPU does not support transactions");
        }
    }
}

/// RAX after an abort: bit 0 is set by XABORT only, bits 1 to 5 have other reasons (SDM Vol. 1,
/// 16.3.5).
#[test]
fn only_the_kernels_own_end_of_a_transaction_counts() {
    for (abort, aborted, status, expected) in [
        (false, false, 0, true),
        (false, false, 1, true),
        (false, true, 0, false),
        (false, true, 1, false),
        (true, true, 1, true),
        (true, true, 0xFF00_0001, true),
        (true, true, 0, false),
        (true, true, 0b11_1110, false),
        (true, false, 1, false),
    ] {
        assert_eq!(ended_itself(abort, aborted, status), expected, "{abort} {aborted} {status:#x}");
    }
}

/// A register file that notes which registers are read.
struct Noting(u64, Vec<Msr>);

impl MsrRead for Noting {
    fn cpu(&self) -> u32 {
        0
    }
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        self.1.push(msr);
        Ok(self.0)
    }
}

/// The machine's registers are at 4C42_52xxH, which no CPU has. They are read only in a guest
/// (CPUID.01H:ECX\[31\]) of the emulator TCG.
#[test]
fn the_test_machine_is_recognised_by_its_emulator_and_register() {
    const GUEST: u32 = 1 << 31;
    const IDENTITY: u64 = u64::from_le_bytes(*b"LBRTM\0\0\x01");
    let (tcg, kvm) = (b"TCGTCGTCGTCG", b"KVMKVMKVM\0\0\0");
    for (ecx, name, value, kind, asked) in [
        (GUEST, tcg, IDENTITY, SubjectKind::Emulated, true),
        (GUEST, tcg, IDENTITY + (1 << 56), SubjectKind::Hardware, true),
        (GUEST, tcg, 0, SubjectKind::Hardware, true),
        (GUEST, kvm, IDENTITY, SubjectKind::Hardware, false),
        (!GUEST, tcg, IDENTITY, SubjectKind::Hardware, false),
    ] {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| name[at + byte]));
        let mut cpuid = RecordedCpuid::new();
        cpuid.insert(1, 0, 0, 0, ecx, 0);
        cpuid.insert(0x4000_0000, 0, 0x4000_0001, word(0), word(4), word(8));
        let mut registers = Noting(value, Vec::new());
        assert_eq!(kind_of(&cpuid, &mut registers), kind, "{ecx:#x} {name:?} {value:#x}");
        let expected: &[Msr] = if asked { &[Msr(0x4C42_5200)] } else { &[] };
        assert_eq!(registers.1, expected, "{ecx:#x} {name:?}");
    }
}

/// Event 3 of the machine is time in a deep C-state.
#[test]
fn only_the_test_machine_is_asked_for_a_deep_c_state() {
    let first = allowed().first().copied().expect("a CPU");
    let registers = FakeMsrs::new(first).with(Msr(0x4C42_5202), 0);
    let sibling = FakeMsrs::new(first + 1).with(Msr(0x1C8), 5);
    let file = tempfile::tempfile().expect("a file").into();
    let folder = tempfile::tempdir().expect("a folder");
    let root = Root::at(folder.path());
    let cpuid = RecordedCpuid::new();
    let subject = RealSubject::new(registers, file, Some(Box::new(sibling)), cpuid, root);
    let mut subject = subject.expect("a subject");
    let why = subject.deep_c_state().expect_err("this tree has no C-states").to_string();
    assert_eq!(why, "the kernel offers no C-state deeper than C1");
    assert_eq!(subject.registers().written(), []);
    subject.kind = SubjectKind::Emulated;
    assert_eq!(subject.deep_c_state(), Ok(()));
    assert_eq!(subject.registers().written(), [(Msr(0x4C42_5202), 3)]);
    assert_eq!(subject.read_sibling(Msr(0x1C8)), Ok(5));
}

/// The listed branches form a path through the code: each is of its class and can go to its target,
/// and from there only branches that are not taken come before the next one.
#[test]
fn the_listed_branches_form_an_execution_path() {
    const BASE: u64 = 0x5555_0000_0000;
    let others = [
        Kernel::AroundPmi,
        Kernel::AroundSmi,
        Kernel::Transaction { abort: false },
        Kernel::Transaction { abort: true },
    ];
    for kernel in KERNELS.into_iter().chain(others) {
        let program = KernelCode::of(kernel);
        let (code, start) = (program.code.finish(), BASE + CODE);
        let bytes = |ip: u64| code.get((ip - start) as usize..).unwrap_or_default();
        let at = |ip: u64| insn::decode(bytes(ip), ip);
        // No randomly taken branch, then every second one.
        let all = program.code.taken(BASE);
        let choices = program.choices;
        for branches in
            [KernelCode::choose(&all, &choices), KernelCode::choose(&all, &vec![0; choices.len()])]
        {
            // After the system call that switches recording on.
            let mut ip = BASE + program.switched;
            let mut fallback = None;
            for branch in &branches {
                if let Some(from) = branch.from {
                    while ip != from {
                        fallback = insn::abort_target(bytes(ip), ip).or(fallback);
                        ip = straight(at(ip), ip, kernel);
                    }
                    assert_eq!(branch.like.in_tx, fallback.is_some(), "{kernel:?}: {branch:x?}");
                    if branch.like.abort {
                        // xabort 0
                        assert_eq!(bytes(ip).get(..3), Some(&[0xC6, 0xF8, 0][..]));
                        assert_eq!(branch.to, fallback, "{kernel:?}");
                    } else {
                        check(at(ip), branch, kernel);
                    }
                }
                ip = branch.to.unwrap_or(ip);
            }
            // And then the one that switches it off.
            while !is_syscall(at(ip)) {
                ip = straight(at(ip), ip, kernel);
            }
        }
    }
}

fn is_syscall(insn: Insn) -> bool {
    matches!(insn, Insn::Branch(branch) if branch.is_far())
}

/// The next address if no branch is taken at `ip`.
fn straight(insn: Insn, ip: u64, kernel: Kernel) -> u64 {
    match insn {
        Insn::Straight { len } => ip + u64::from(len),
        Insn::Branch(branch) if branch.is_conditional() => branch.next(),
        other => panic!("{kernel:?}: {other:?} at {ip:#x} is not listed"),
    }
}

fn check(insn: Insn, known: &Known, kernel: Kernel) {
    match insn {
        Insn::Branch(branch) => {
            assert_eq!(branch.class, known.like.class, "{kernel:?}: {known:x?}");
            assert_eq!(
                branch.is_zero_length_call(),
                known.like.zero_length_call,
                "{kernel:?}: {known:x?}"
            );
            if let (Some(to), false) = (known.to, branch.is_far()) {
                assert!(branch.can_reach(to), "{kernel:?}: {known:x?}");
            }
            // A branch to the next instruction would be indistinguishable from none.
            assert!(!branch.is_conditional() || known.to != Some(branch.next()));
        }
        // A load that faults.
        Insn::Straight { .. } => assert_eq!(known.like.cpl_after, 0, "{kernel:?}: {known:x?}"),
        Insn::Invalid => panic!("{kernel:?}: no instruction at {known:x?}"),
    }
}

#[test]
fn branch_addresses_are_distinct() {
    for kernel in [Kernel::Jumps(40), Kernel::EveryClass, Kernel::Calls { calls: 5, returns: 5 }] {
        let branches = KernelCode::of(kernel).code.taken(0x1000);
        let mut landings: Vec<u64> = branches.iter().filter_map(|branch| branch.to).collect();
        let count = landings.len();
        landings.sort_unstable();
        landings.dedup();
        assert_eq!(landings.len(), count, "{kernel:?}: two branches have the same target");
    }
}

#[test]
fn requested_branch_counts_are_taken() {
    let count = |kernel| KernelCode::of(kernel).code.taken(0).len();
    assert_eq!(count(Kernel::Jumps(40)), 40);
    assert_eq!(count(Kernel::Calls { calls: 5, returns: 2 }), 7);
    assert_eq!(count(Kernel::Leaves(4)), 9);
    assert_eq!(count(Kernel::Chain(100)), 2);
    let program = KernelCode::of(Kernel::Unpredictable(40));
    assert_eq!(KernelCode::choose(&program.code.taken(0), &program.choices).len(), 40);
    let (mut subject, _) = subject();
    let mut choices = program.choices.clone();
    subject.random.shuffle(&mut choices);
    assert_ne!(choices, program.choices, "the order is random");
    assert_eq!(KernelCode::choose(&program.code.taken(0), &choices).len(), 40);
}

#[test]
fn dropping_a_subject_restores_the_affinity() {
    let before = allowed();
    {
        let (subject, _file) = subject();
        assert_eq!(allowed(), [subject.cpu()]);
    }
    assert_eq!(allowed(), before);
}
