//! What kind of branch an instruction is: the only place that decodes code
//! bytes.

use crate::record::{BranchType, HwBranchType};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

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

    /// It changes privilege or segment: system calls, interrupts, far transfers.
    #[must_use]
    pub fn is_far(&self) -> bool {
        self.class == HwBranchType::Other
    }

    /// Whether this branch can go to `to`: a direct one only to its target,
    /// any other anywhere.
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
    let len = insn.len() as u8;
    let (branch_type, class) = match insn.flow_control() {
        FlowControl::Next | FlowControl::Exception | FlowControl::XbeginXabortXend => {
            return Insn::Straight { len };
        }
        FlowControl::ConditionalBranch => (BranchType::COND, HwBranchType::Cond),
        FlowControl::UnconditionalBranch if is_near(&insn) => {
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
            _ if is_near(&insn) => (BranchType::CALL, HwBranchType::RelCall),
            _ => (BranchType::CALL, HwBranchType::Other),
        },
        FlowControl::Return => match insn.code() {
            Code::Retnq | Code::Retnq_imm16 | Code::Retnw | Code::Retnw_imm16 => {
                (BranchType::RET, HwBranchType::Ret)
            }
            Code::Sysretd | Code::Sysretq | Code::Sysexitd | Code::Sysexitq => {
                (BranchType::SYSRET, HwBranchType::Other)
            }
            Code::Iretw | Code::Iretd | Code::Iretq | Code::Uiret => {
                (BranchType::ERET, HwBranchType::Other)
            }
            _ => (BranchType::RET, HwBranchType::Other),
        },
        FlowControl::Interrupt => (BranchType::IRQ, HwBranchType::Other),
    };
    let target = is_near(&insn).then(|| insn.near_branch_target());
    Insn::Branch(BranchInsn { ip: insn.ip(), len, branch_type, class, target })
}

/// The branch at `ip`, or `None` where the instruction is none.
#[must_use]
pub fn branch_kind(bytes: &[u8], ip: u64) -> Option<BranchInsn> {
    match decode(bytes, ip) {
        Insn::Branch(branch) => Some(branch),
        Insn::Straight { .. } | Insn::Invalid => None,
    }
}

/// A direct near branch: its operand is a relative displacement.
fn is_near(insn: &Instruction) -> bool {
    insn.op_count() > 0 && insn.op0_kind() == OpKind::NearBranch64
}
