//! The branch type of an instruction. No other module inspects code bytes.
//!
//! Names follow perf (`PERF_BR_*`), classes follow Architectural LBR (SDM24
//! Table 20-2); conditions and forms follow the opcode map (SDM Vol. 2,
//! Appendix A and B.1.4.7). Functions outside [`Isa`] and [`CodeBytes`] are about x86-64.

mod aarch64;

use alloc::{string::String, vec::Vec};

use crate::record::{BranchType, HwBranchType};
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess,
    OpKind, Register, UsedMemory,
};

/// The RFLAGS bits that conditions test. SDM Vol. 1, 3.4.3.
mod rflags {
    pub(super) const CF: u64 = 1 << 0;
    pub(super) const PF: u64 = 1 << 2;
    pub(super) const ZF: u64 = 1 << 6;
    pub(super) const SF: u64 = 1 << 7;
    pub(super) const OF: u64 = 1 << 11;
}

/// The condition of a conditional branch.
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
    /// LOOP: the count register is not zero after decrementing; LOOPE and LOOPNE also test ZF.
    Loop {
        /// Counts in RCX; otherwise in ECX.
        wide: bool,
        /// The required ZF, for LOOPE (true) and LOOPNE (false).
        zero: Option<bool>,
    },
}

impl Condition {
    /// Whether it holds, given the registers **before** the instruction.
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

/// An instruction set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Intel 64 and AMD64.
    #[default]
    X86_64,
    /// A64, of 64-bit Arm CPUs.
    Aarch64,
}

impl Isa {
    /// How the instruction at `ip` affects control flow.
    pub fn decode(self, bytes: &[u8], ip: u64) -> Insn {
        match self {
            Isa::X86_64 => decode(bytes, ip),
            Isa::Aarch64 => aarch64::decode(bytes, ip),
        }
    }

    /// The distance from invalid bytes to the next possible instruction.
    pub const fn alignment(self) -> u8 {
        match self {
            Isa::X86_64 => 1,
            Isa::Aarch64 => aarch64::LENGTH,
        }
    }

    /// The length of the longest instruction, bytes. SDM Vol. 2, 2.3.11.
    pub const fn longest(self) -> u8 {
        match self {
            Isa::X86_64 => 15,
            Isa::Aarch64 => aarch64::LENGTH,
        }
    }
}

/// Code bytes of an instruction set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeBytes {
    /// The instruction set.
    pub isa: Isa,
    /// The bytes, as in memory.
    pub bytes: Vec<u8>,
}

impl CodeBytes {
    /// The first instruction, whose address is `ip`.
    pub fn decode(&self, ip: u64) -> Insn {
        self.isa.decode(&self.bytes, ip)
    }

    /// The branch at `ip`, or `None` if the first instruction is not a branch.
    pub fn branch(&self, ip: u64) -> Option<BranchInsn> {
        self.decode(ip).branch()
    }

    /// The branch that FROM refers to on a CPU that fuses a compare with the following conditional
    /// branch (AMD LbrExtV2, Linux amd/lbr.c): the branch at `from` or, if the instruction there is
    /// not a branch, a conditional branch right after it.
    pub fn fused_branch(&self, from: u64) -> Option<BranchInsn> {
        match self.decode(from) {
            Insn::Straight { len } if self.isa == Isa::X86_64 => {
                let rest = self.bytes.get(usize::from(len)..)?;
                branch_kind(rest, from.wrapping_add(u64::from(len)))
                    .filter(BranchInsn::is_conditional)
            }
            insn => insn.branch(),
        }
    }
}

/// A branch instruction of 64-bit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BranchInsn {
    /// Address of the instruction.
    pub ip: u64,
    /// Length in bytes, 1 to 15.
    pub len: u8,
    /// perf's type.
    pub branch_type: BranchType,
    /// The class that LBR filters use.
    pub class: HwBranchType,
    /// The target of a direct branch.
    pub target: Option<u64>,
    /// The condition; `None` for an unconditional branch, and for AArch64.
    pub condition: Option<Condition>,
}

impl BranchInsn {
    /// Address of the next instruction.
    pub const fn next(&self) -> u64 {
        self.ip.wrapping_add(self.len as u64)
    }

    /// Whether it is a direct call to the next instruction.
    pub fn is_zero_length_call(&self) -> bool {
        self.class == HwBranchType::RelCall && self.target == Some(self.next())
    }

    /// Whether it may fall through.
    pub fn is_conditional(&self) -> bool {
        self.class == HwBranchType::Cond
    }

    /// Whether a conditional branch is taken, given the registers before it executes; `None` for an
    /// unconditional branch.
    ///
    /// The only way to decide if its target is the next instruction.
    pub const fn taken(&self, rflags: u64, rcx: u64) -> Option<bool> {
        match self.condition {
            Some(condition) => Some(condition.holds(rflags, rcx)),
            None => None,
        }
    }

    /// Whether it changes privilege or segment: system calls, interrupts, far transfers.
    pub fn is_far(&self) -> bool {
        self.class == HwBranchType::Other
    }

    /// Whether this branch can go to `to`: a direct branch only to its target, any other anywhere.
    ///
    /// If a record fails this test, its FROM was not this instruction: the code has changed, or the
    /// record is of an interrupt.
    pub fn can_reach(&self, to: u64) -> bool {
        self.target.is_none_or(|target| target == to)
    }
}

/// An instruction at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insn {
    /// A branch.
    Branch(BranchInsn),
    /// Any other instruction.
    Straight {
        /// Length in bytes, 1 to 15.
        len: u8,
    },
    /// Invalid bytes, or too few.
    Invalid,
}

impl Insn {
    /// The branch, if it is one.
    pub const fn branch(self) -> Option<BranchInsn> {
        match self {
            Insn::Branch(branch) => Some(branch),
            Insn::Straight { .. } | Insn::Invalid => None,
        }
    }
}

/// Decodes the x86-64 instruction at `ip` (15 bytes are always enough).
pub fn decode(bytes: &[u8], ip: u64) -> Insn {
    let insn = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
    if insn.code() == Code::INVALID {
        return Insn::Invalid;
    }
    // At most 15, the longest instruction.
    let len = insn.len() as u8;
    let Some((branch_type, class)) = classify(&insn) else {
        return Insn::Straight { len };
    };
    let target = is_near(&insn).then(|| insn.near_branch_target());
    let condition = condition(&insn);
    Insn::Branch(BranchInsn { ip: insn.ip(), len, branch_type, class, target, condition })
}

/// perf's type and the LBR's class; `None` for a non-branch.
///
/// XBEGIN, XABORT and XEND are not branches: an abort is an event, and its record's FROM may be any
/// instruction of the transaction. Hypervisor calls (VMCALL, VMLAUNCH etc.) are not branches
/// either: the guest continues after them, and perf has no type for them.
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
        // iced numbers conditions in opcode order, from 1.
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

/// The branch at `ip`, or `None` if the instruction is not a branch.
pub fn branch_kind(bytes: &[u8], ip: u64) -> Option<BranchInsn> {
    decode(bytes, ip).branch()
}

/// The fallback address of the XBEGIN at `ip`; `None` for any other instruction.
pub fn abort_target(bytes: &[u8], ip: u64) -> Option<u64> {
    let insn = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
    matches!(insn.code(), Code::Xbegin_rel16 | Code::Xbegin_rel32)
        .then(|| insn.near_branch_target())
}

/// Side effects of an instruction while the trap flag is set (SDM Vol. 3, 6.8.3 and 17.3.1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnderTrapFlag {
    /// A debug exception follows it.
    Plain,
    /// PUSHF: pushes the trap flag.
    PushesFlags,
    /// POPF, IRET: load the trap flag from the stack.
    PopsFlags,
    /// MOV SS: delays the debug exception until after the next instruction.
    DelaysTrap,
}

/// How the instruction at `ip` behaves when single-stepped.
pub fn under_trap_flag(bytes: &[u8], ip: u64) -> UnderTrapFlag {
    let insn = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
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

/// The CPUID features that the first instruction of `bytes` needs, by iced-x86's names, without
/// those that every x86-64 CPU has. Empty if it needs none or is invalid.
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

/// The memory that the instruction at `ip` accesses: addresses, and whether it writes there.
/// `registers` are RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI and R8 to R15 before it executes. Empty
/// for segments with a base, and for gathers.
pub fn memory_accesses(bytes: &[u8], ip: u64, registers: &[u64; 16]) -> Vec<(u64, bool)> {
    let insn = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
    let value = |register: Register, _: usize, _: usize| match register {
        Register::FS | Register::GS => None,
        _ if register.is_segment_register() => Some(0),
        _ if register.is_gpr() => {
            let bits = 8 * register.size() as u32;
            let value = registers.get(register.full_register().number())?;
            Some(value & (u64::MAX >> (64 - bits.min(64))))
        }
        _ => None,
    };
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(&insn).used_memory();
    let access = |memory: &UsedMemory| {
        use OpAccess as A;
        let writes =
            matches!(memory.access(), A::Write | A::CondWrite | A::ReadWrite | A::ReadCondWrite);
        let is_real = memory.access() != A::NoMemAccess;
        Some((memory.virtual_address(0, value)?, writes)).filter(|_| is_real)
    };
    used.iter().filter_map(access).collect()
}

/// Whether it is a direct near branch (its operand is a relative displacement).
fn is_near(insn: &Instruction) -> bool {
    insn.op_count() > 0 && insn.op0_kind() == OpKind::NearBranch64
}
