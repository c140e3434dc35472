//! One virtual CPU: turns what it executes into retired branches and feeds
//! them to its software LBR.
//!
//! Of an instruction QEMU tells before it executes, of a block when it starts,
//! of a discontinuity after the fact. So a branch is pending from the moment
//! it starts until it is known where execution went on.

use lbr_msr::address::IA32_DEBUGCTL;
use lbr_msr::insn::BranchInsn;
use lbr_msr::record::HwBranchType;
use lbr_msr::soft::{Retired, SoftLbr};
use lbr_msr::{LbrCaps, Msr, MsrRead, MsrWrite};

use super::registers::{Answer, Owner};

/// The state of one virtual CPU.
#[derive(Debug)]
pub(super) struct Vcpu {
    lbr: SoftLbr,
    control: Msr,
    enable: u64,
    recording: bool,
    /// The branch that has started and has not arrived yet.
    pending: Option<BranchInsn>,
    /// Privilege level of what executes, valid while recording.
    cpl: u8,
    /// Instructions since the last retired branch; not known before the first.
    instructions: Option<u32>,
    /// An exception has been raised and not been delivered yet.
    exception: bool,
    /// RCX as the guest had it before an access that is made to fault.
    pub(super) faulting_rcx: Option<u64>,
    /// The leaf and sub-leaf of a CPUID instruction that has just executed.
    pub(super) asked: Option<(u32, u32)>,
    /// Base of the interrupt descriptor table.
    pub(super) idt: Option<u64>,
    pub(super) counts: Counts,
}

/// What a vCPU has done, for the plugin's last word.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) retired: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) faults: u64,
    pub(super) discontinuities: u64,
}

impl Vcpu {
    pub(super) fn new(caps: &LbrCaps, perf_capabilities: Option<u64>, index: u32) -> Vcpu {
        Vcpu {
            lbr: SoftLbr::new(caps, perf_capabilities).on_cpu(index),
            control: caps.registers.control,
            enable: caps.registers.enable,
            recording: false,
            pending: None,
            cpl: 0,
            instructions: None,
            exception: false,
            faulting_rcx: None,
            asked: None,
            idt: None,
            counts: Counts::default(),
        }
    }

    /// Whether the branches of this vCPU are wanted.
    pub(super) const fn recording(&self) -> bool {
        self.recording
    }

    /// RDMSR at privilege level 0.
    pub(super) fn read(&mut self, msr: Msr) -> Answer<u64> {
        let owner = Owner::of(msr);
        if owner == Owner::Emulator {
            return Answer::NotOurs;
        }
        match self.lbr.read(msr) {
            Ok(value) => {
                self.counts.reads += 1;
                Answer::Done(value)
            }
            Err(_) => self.refused(owner),
        }
    }

    /// WRMSR at privilege level 0.
    pub(super) fn write(&mut self, msr: Msr, value: u64) -> Answer<()> {
        let owner = Owner::of(msr);
        // A register that cannot even be read is not there; one that is there
        // refuses a value.
        if owner == Owner::Emulator || owner == Owner::LbrOrEmulator && self.lbr.read(msr).is_err()
        {
            return Answer::NotOurs;
        }
        match self.lbr.write(msr, value) {
            Ok(()) => {
                self.counts.writes += 1;
                self.look_at_control();
                Answer::Done(())
            }
            Err(_) => self.refused(Owner::Lbr),
        }
    }

    fn refused<T>(&mut self, owner: Owner) -> Answer<T> {
        if owner == Owner::LbrOrEmulator {
            return Answer::NotOurs;
        }
        self.counts.faults += 1;
        Answer::Fault
    }

    /// Starts or stops following the vCPU. WRMSR executes at privilege level 0
    /// and is no branch: nothing is pending.
    fn look_at_control(&mut self) {
        // DEBUGCTL.LBR enables AMD's one-entry pair beside a stack.
        let recording = self.is_set(self.control, self.enable) || self.is_set(IA32_DEBUGCTL, 1);
        if recording != self.recording {
            self.recording = recording;
            self.pending = None;
            self.cpl = 0;
            self.instructions = None;
        }
    }

    fn is_set(&mut self, msr: Msr, bits: u64) -> bool {
        self.lbr.read(msr).is_ok_and(|value| value & bits != 0)
    }

    /// A branch instruction is about to execute.
    pub(super) fn branch(&mut self, branch: BranchInsn) {
        self.pending = Some(branch);
    }

    /// A block of `instructions` starts at `start`. `cpl` tells the privilege
    /// level; it is asked only where a branch may have changed it.
    pub(super) fn block(&mut self, start: u64, instructions: u32, cpl: impl FnOnce() -> u8) {
        if let Some(branch) = self.pending.take() {
            let after = if branch.is_far() { cpl() } else { self.cpl };
            self.arrived(branch, start, after);
        }
        self.instructions = self.instructions.map(|before| before.saturating_add(instructions));
    }

    /// An exception will be delivered next, see [`delivered`](Self::delivered).
    pub(super) fn raised(&mut self) {
        self.exception = true;
    }

    /// An interrupt or an exception has gone from `from` to its handler at
    /// `to`, where the privilege level is `cpl`.
    pub(super) fn delivered(&mut self, from: u64, to: u64, cpl: u8, debug: bool) {
        self.counts.discontinuities += 1;
        let exception = std::mem::take(&mut self.exception);
        let pending = self.pending.take();
        if !self.recording {
            return;
        }
        // An exception at the branch itself means that it did not retire, or
        // that it is INT n, whose record is the one made below.
        if let Some(branch) = pending
            && !(exception && from == branch.ip)
        {
            let after = if branch.is_far() { level_of(from) } else { self.cpl };
            self.arrived(branch, from, after);
        }
        if debug {
            // No record (SDM24 Table 20-3), and recording ends (SDM 17.4.2).
            self.lbr.debug_exception();
            self.look_at_control();
            self.cpl = cpl;
        } else {
            self.lbr.exception();
            self.retire(from, to, HwBranchType::Other, false, cpl);
        }
    }

    /// `branch` has gone on at `to`, which for a conditional one may be the
    /// next instruction. One that jumps to the next instruction cannot be told
    /// from one that is not taken and counts as such.
    fn arrived(&mut self, branch: BranchInsn, to: u64, cpl_after: u8) {
        if !branch.is_conditional() || to != branch.next() {
            self.retire(branch.ip, to, branch.class, branch.is_zero_length_call(), cpl_after);
        }
        self.cpl = cpl_after;
    }

    fn retire(
        &mut self,
        from: u64,
        to: u64,
        class: HwBranchType,
        zero_length_call: bool,
        cpl_after: u8,
    ) {
        self.lbr.retire(&Retired {
            from,
            to,
            class,
            zero_length_call,
            cpl_before: self.cpl,
            cpl_after,
            // The emulator predicts nothing.
            mispredicted: None,
            // Modelled: one cycle per instruction.
            cycles: self.instructions,
            in_tx: false,
            abort: false,
        });
        self.counts.retired += 1;
        self.cpl = cpl_after;
        self.instructions = Some(0);
    }
}

/// The privilege level at an address of a 64-bit Linux, for the moment between
/// a far branch and the first instruction after it, when an interrupt has
/// already replaced CS.
const fn level_of(address: u64) -> u8 {
    if address >> 63 == 1 { 0 } else { 3 }
}

#[cfg(test)]
mod tests {
    use lbr_msr::insn;
    use lbr_msr::soft::SoftCpu;

    use super::*;

    const SELECT: Msr = Msr(0x1C8);
    const DEBUGCTL: Msr = Msr(0x1D9);
    const USER: u64 = 0x40_1000;
    const KERNEL: u64 = 0xFFFF_FFFF_8100_0000;
    const HANDLER: u64 = 0xFFFF_FFFF_8180_0000;

    /// A Skylake that records with this filter, at privilege level 3 after a
    /// return from the kernel, which is its first record unless filtered out.
    fn recording(select: u64) -> Vcpu {
        let cpu = SoftCpu::preset("06_5E").expect("a preset");
        let mut vcpu = Vcpu::new(&cpu.caps, cpu.perf_capabilities, 0);
        assert_eq!(vcpu.write(SELECT, select), Answer::Done(()));
        assert_eq!(vcpu.write(DEBUGCTL, 1), Answer::Done(()));
        assert!(vcpu.recording());
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

    /// FROM and TO of the ring, newest first, down to the first empty record.
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
    fn a_conditional_branch_is_recorded_only_where_it_is_taken() {
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
        assert_eq!(
            records(&mut vcpu),
            [(USER + 64, HANDLER), (USER + 8, USER + 64), (KERNEL, USER)]
        );
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
    fn the_filter_sees_the_ring_a_branch_lands_in() {
        // CPL_EQ_0: what ends in ring 0 is left out.
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
        assert!(!vcpu.recording());
        assert_eq!(vcpu.read(DEBUGCTL), Answer::Done(0));
        assert_eq!(records(&mut vcpu), [(USER + 8, USER + 64)]);
    }

    #[test]
    fn cycles_are_counted_instructions_and_unknown_at_first() {
        let mut vcpu = recording(0x101);
        let jnz = branch(&JNZ_BACK_2, USER);
        // The block above had one instruction; then two of three and five.
        for instructions in [3, 5, 7] {
            vcpu.branch(jnz);
            vcpu.block(USER, instructions, same_level);
        }
        // Newest first: INFO[15:0].
        let cycles: Vec<Answer<u64>> = [3, 2, 1].map(|i| vcpu.read(Msr(0xDC0 + i))).into();
        assert_eq!(cycles, [Answer::Done(5), Answer::Done(3), Answer::Done(0)]);
    }

    #[test]
    fn nothing_is_followed_while_recording_is_off() {
        let mut vcpu = recording(0);
        vcpu.branch(branch(&CALL_RAX, USER + 8));
        assert_eq!(vcpu.write(DEBUGCTL, 0), Answer::Done(()));
        vcpu.delivered(USER + 64, HANDLER, 0, false);
        assert!(!vcpu.recording());
        assert_eq!(records(&mut vcpu), [(KERNEL, USER)]);
    }

    #[test]
    fn absent_registers_and_reserved_bits_fault_and_others_are_not_ours() {
        let cpu = SoftCpu::preset("06_5E").expect("a preset");
        let mut vcpu = Vcpu::new(&cpu.caps, cpu.perf_capabilities, 0);
        assert_eq!(vcpu.read(Msr(0x14CE)), Answer::Fault);
        assert_eq!(vcpu.write(Msr(0x40), 0), Answer::Fault);
        assert_eq!(vcpu.write(SELECT, 1 << 10), Answer::Fault);
        assert_eq!(vcpu.read(Msr(0x1B)), Answer::NotOurs);
        assert_eq!(vcpu.write(Msr(0xC000_0080), 1), Answer::NotOurs);
        assert_eq!(vcpu.counts.faults, 3);
    }
}
