//! What kind of branch an instruction is: the only place that judges code
//! bytes.
//!
//! Names follow perf (`PERF_BR_*`), classes follow Architectural LBR (SDM24
//! Table 20-2); conditions and forms follow the opcode map (SDM Vol. 2,
//! Appendix A and B.1.4.7).

use alloc::{string::String, vec::Vec};

use crate::record::{BranchType, HwBranchType};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

/// RFLAGS bits that conditions test. SDM Vol. 1, 3.4.3.
mod rflags {
    pub(super) const CF: u64 = 1 << 0;
    pub(super) const PF: u64 = 1 << 2;
    pub(super) const ZF: u64 = 1 << 6;
    pub(super) const SF: u64 = 1 << 7;
    pub(super) const OF: u64 = 1 << 11;
}

/// What a conditional branch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// Jcc: the low four bits of its opcode (`tttn`, SDM Vol. 2 B.1.4.7).
    Flags {
        /// 0 (overflow) to 15 (greater).
        tttn: u8,
    },
    /// JECXZ, JRCXZ: the count register is zero.
    CountZero {
        /// All of RCX is tested; otherwise ECX.
        wide: bool,
    },
    /// LOOP: the count register is not zero once it is decremented; LOOPE
    /// and LOOPNE want ZF as well.
    Loop {
        /// RCX counts; otherwise ECX.
        wide: bool,
        /// The value ZF must have, for LOOPE (true) and LOOPNE (false).
        zero: Option<bool>,
    },
}

impl Condition {
    /// Whether it holds for these registers as they are **before** the
    /// instruction.
    #[must_use]
    pub const fn holds(self, rflags: u64, rcx: u64) -> bool {
        const fn count(rcx: u64, wide: bool) -> u64 {
            if wide { rcx } else { rcx & 0xffff_ffff }
        }
        match self {
            Condition::Flags { tttn } => {
                let less = (rflags & rflags::SF != 0) != (rflags & rflags::OF != 0);
                let base = match (tttn >> 1) & 7 {
                    0 => rflags & rflags::OF != 0,
                    1 => rflags & rflags::CF != 0,
                    2 => rflags & rflags::ZF != 0,
                    3 => rflags & (rflags::CF | rflags::ZF) != 0,
                    4 => rflags & rflags::SF != 0,
                    5 => rflags & rflags::PF != 0,
                    6 => less,
                    _ => less || rflags & rflags::ZF != 0,
                };
                base != (tttn & 1 != 0)
            }
            Condition::CountZero { wide } => count(rcx, wide) == 0,
            Condition::Loop { wide, zero } => {
                let again = count(rcx.wrapping_sub(1), wide) != 0;
                match zero {
                    Some(zero) => again && (rflags & rflags::ZF != 0) == zero,
                    None => again,
                }
            }
        }
    }
}

/// A branch instruction of 64-bit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchInsn {
    /// Address of the instruction.
    pub ip: u64,
    /// Length in bytes, 1 to 15.
    pub len: u8,
    /// perf's type.
    pub branch_type: BranchType,
    /// The class that LBR filters look at.
    pub class: HwBranchType,
    /// Where a direct branch goes when taken.
    pub target: Option<u64>,
    /// What a conditional branch waits for; `None` for any other.
    pub condition: Option<Condition>,
}

impl BranchInsn {
    /// Address of the instruction that follows.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.ip.wrapping_add(self.len as u64)
    }

    /// A direct call to the next instruction.
    #[must_use]
    pub fn is_zero_length_call(&self) -> bool {
        self.class == HwBranchType::RelCall && self.target == Some(self.next())
    }

    /// It may fall through instead of branching.
    #[must_use]
    pub fn is_conditional(&self) -> bool {
        self.class == HwBranchType::Cond
    }

    /// Whether a conditional branch is taken, from the registers as they are
    /// before it executes; `None` for a branch without a condition.
    ///
    /// The only way to tell where its target is the next instruction.
    #[must_use]
    pub const fn taken(&self, rflags: u64, rcx: u64) -> Option<bool> {
        match self.condition {
            Some(condition) => Some(condition.holds(rflags, rcx)),
            None => None,
        }
    }

    /// It changes privilege or segment: system calls, interrupts, far transfers.
    #[must_use]
    pub fn is_far(&self) -> bool {
        self.class == HwBranchType::Other
    }

    /// Whether this branch, when taken, can go to `to`: a direct one only to
    /// its target, any other anywhere.
    ///
    /// `from` of a record that fails this test was not this instruction: the
    /// code has changed, or the record is of an interrupt.
    #[must_use]
    pub fn can_reach(&self, to: u64) -> bool {
        self.target.is_none_or(|target| target == to)
    }
}

/// An instruction at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insn {
    /// It can transfer control by itself.
    Branch(BranchInsn),
    /// It runs on to the next instruction.
    Straight {
        /// Length in bytes, 1 to 15.
        len: u8,
    },
    /// The bytes are no instruction, or end before it does.
    Invalid,
}

/// Decodes the instruction at `ip` from `bytes` (15 are always enough).
#[must_use]
pub fn decode(bytes: &[u8], ip: u64) -> Insn {
    let mut insn = Instruction::default();
    Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode_out(&mut insn);
    if insn.code() == Code::INVALID {
        return Insn::Invalid;
    }
    // At most 15: the decoder has no longer instruction.
    let len = insn.len() as u8;
    let Some((branch_type, class)) = classify(&insn) else {
        return Insn::Straight { len };
    };
    let target = is_near(&insn).then(|| insn.near_branch_target());
    let condition = condition(&insn);
    Insn::Branch(BranchInsn { ip: insn.ip(), len, branch_type, class, target, condition })
}

/// perf's type and the LBR's class; `None` for what is no branch.
///
/// XBEGIN, XABORT and XEND are none: an abort is an event, and its record's
/// FROM may be any instruction of the transaction. Calls of the hypervisor
/// (VMCALL, VMLAUNCH and kin) are none either: the guest goes on behind them,
/// and perf gives them no type.
fn classify(insn: &Instruction) -> Option<(BranchType, HwBranchType)> {
    Some(match insn.flow_control() {
        FlowControl::Next | FlowControl::Exception | FlowControl::XbeginXabortXend => return None,
        FlowControl::ConditionalBranch => (BranchType::COND, HwBranchType::Cond),
        FlowControl::UnconditionalBranch if is_near(insn) => {
            (BranchType::UNCOND, HwBranchType::RelJmp)
        }
        FlowControl::UnconditionalBranch => (BranchType::UNCOND, HwBranchType::Other),
        FlowControl::IndirectBranch if insn.is_jmp_near_indirect() => {
            (BranchType::IND, HwBranchType::IndJmp)
        }
        FlowControl::IndirectBranch => (BranchType::IND, HwBranchType::Other),
        FlowControl::IndirectCall if insn.is_call_near_indirect() => {
            (BranchType::IND_CALL, HwBranchType::IndCall)
        }
        FlowControl::IndirectCall => (BranchType::IND_CALL, HwBranchType::Other),
        FlowControl::Call => match insn.code() {
            Code::Syscall | Code::Sysenter => (BranchType::SYSCALL, HwBranchType::Other),
            _ if is_near(insn) => (BranchType::CALL, HwBranchType::RelCall),
            _ => return None,
        },
        FlowControl::Return => match insn.code() {
            Code::Retnq | Code::Retnq_imm16 | Code::Retnw | Code::Retnw_imm16 => {
                (BranchType::RET, HwBranchType::Ret)
            }
            Code::Sysretd | Code::Sysretq | Code::Sysexitd | Code::Sysexitq => {
                (BranchType::SYSRET, HwBranchType::Other)
            }
            Code::Iretw | Code::Iretd | Code::Iretq | Code::Uiret | Code::Rsm => {
                (BranchType::ERET, HwBranchType::Other)
            }
            _ => (BranchType::RET, HwBranchType::Other),
        },
        FlowControl::Interrupt => (BranchType::IRQ, HwBranchType::Other),
    })
}

fn condition(insn: &Instruction) -> Option<Condition> {
    let code = insn.code();
    if insn.is_jcc_short_or_near() {
        // iced's order is the opcode's, after `None`.
        let tttn = (insn.condition_code() as u8).checked_sub(1)?;
        return Some(Condition::Flags { tttn });
    }
    Some(match code {
        Code::Jecxz_rel8_64 => Condition::CountZero { wide: false },
        Code::Jrcxz_rel8_64 => Condition::CountZero { wide: true },
        Code::Loop_rel8_64_ECX => Condition::Loop { wide: false, zero: None },
        Code::Loop_rel8_64_RCX => Condition::Loop { wide: true, zero: None },
        Code::Loope_rel8_64_ECX => Condition::Loop { wide: false, zero: Some(true) },
        Code::Loope_rel8_64_RCX => Condition::Loop { wide: true, zero: Some(true) },
        Code::Loopne_rel8_64_ECX => Condition::Loop { wide: false, zero: Some(false) },
        Code::Loopne_rel8_64_RCX => Condition::Loop { wide: true, zero: Some(false) },
        _ => return None,
    })
}

/// The branch at `ip`, or `None` where the instruction is none.
#[must_use]
pub fn branch_kind(bytes: &[u8], ip: u64) -> Option<BranchInsn> {
    match decode(bytes, ip) {
        Insn::Branch(branch) => Some(branch),
        Insn::Straight { .. } | Insn::Invalid => None,
    }
}

/// The branch that a record's FROM stands for on a CPU that fuses a compare
/// and the conditional branch behind it (AMD LbrExtV2, Linux amd/lbr.c): the
/// branch at `from` or, where the instruction there is none, a conditional
/// branch right after it.
#[must_use]
pub fn fused_branch(bytes: &[u8], from: u64) -> Option<BranchInsn> {
    match decode(bytes, from) {
        Insn::Branch(branch) => Some(branch),
        Insn::Straight { len } => {
            let rest = bytes.get(usize::from(len)..)?;
            branch_kind(rest, from.wrapping_add(u64::from(len))).filter(BranchInsn::is_conditional)
        }
        Insn::Invalid => None,
    }
}

/// Where a transaction that starts at `ip` goes on when it aborts: the
/// operand of XBEGIN. `None` where the instruction is no XBEGIN.
#[must_use]
pub fn abort_target(bytes: &[u8], ip: u64) -> Option<u64> {
    let mut insn = Instruction::default();
    Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode_out(&mut insn);
    matches!(insn.code(), Code::Xbegin_rel16 | Code::Xbegin_rel32)
        .then(|| insn.near_branch_target())
}

/// What an instruction does beside its work when the trap flag is set (SDM
/// Vol. 3, 6.8.3 and 17.3.1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnderTrapFlag {
    /// The debug exception follows it.
    Plain,
    /// PUSHF: the trap flag is in the word it pushes.
    PushesFlags,
    /// POPF, IRET: the trap flag is as in the word they pop.
    PopsFlags,
    /// MOV SS: the debug exception waits for the next instruction too.
    DelaysTrap,
}

/// How the instruction at `ip` behaves under single-step.
#[must_use]
pub fn under_trap_flag(bytes: &[u8], ip: u64) -> UnderTrapFlag {
    let mut insn = Instruction::default();
    Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode_out(&mut insn);
    match insn.code() {
        Code::Pushfw | Code::Pushfq => UnderTrapFlag::PushesFlags,
        Code::Popfw | Code::Popfq | Code::Iretw | Code::Iretd | Code::Iretq => {
            UnderTrapFlag::PopsFlags
        }
        Code::Mov_Sreg_rm16 | Code::Mov_Sreg_r32m16 | Code::Mov_Sreg_r64m16
            if insn.op0_register() == Register::SS =>
        {
            UnderTrapFlag::DelaysTrap
        }
        _ => UnderTrapFlag::Plain,
    }
}

/// The CPUID features that the instruction at the start of `bytes` needs, by
/// iced-x86's names; those that every x86-64 CPU has are left out. Empty where it
/// needs none, or is no instruction.
#[must_use]
pub fn features(bytes: &[u8], ip: u64) -> Vec<String> {
    use iced_x86::CpuidFeature as F;
    let insn = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
    let every = |feature: &F| {
        (*feature as u32) <= F::INTEL486 as u32
            || [F::X64, F::FPU, F::FPU287, F::FPU387, F::CMOV, F::CX8, F::MSR, F::TSC, F::MMX]
                .contains(feature)
            || [F::SSE, F::SSE2, F::FXSR, F::SYSCALL, F::CLFSH, F::MULTIBYTENOP].contains(feature)
    };
    insn.cpuid_features().iter().filter(|f| !every(f)).map(|f| alloc::format!("{f:?}")).collect()
}

/// A direct near branch: its operand is a relative displacement.
fn is_near(insn: &Instruction) -> bool {
    insn.op_count() > 0 && insn.op0_kind() == OpKind::NearBranch64
}
