//! Properties of instructions besides branches: whether the plugin must hook them, and their
//! modelled cycles.
//!
//! QEMU lacks TSX: XBEGIN raises #UD. If the chosen CPU announces it, XBEGIN starts a transaction
//! here, in which branches are marked; XEND ends it; XABORT restores the general registers and
//! continues at XBEGIN's fallback address, which is recorded as an abort. Memory writes of the
//! transaction and the flags are kept. An interrupt or exception ends a transaction as if it had
//! been committed; XEND and XABORT outside of one do nothing.

/// A hooked instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Hooked {
    ReadMsr,
    WriteMsr,
    Cpuid,
    /// RDPMC.
    ReadCounter,
    LoadIdt,
    Halt,
    /// XBEGIN with a 32-bit displacement.
    Begin,
    End,
    Abort,
}

impl Hooked {
    /// `None` for any other instruction.
    pub(super) fn of(bytes: &[u8]) -> Option<Hooked> {
        match opcode(bytes) {
            [0x0F, 0x32] => Some(Hooked::ReadMsr),
            [0x0F, 0x30] => Some(Hooked::WriteMsr),
            [0x0F, 0xA2] => Some(Hooked::Cpuid),
            [0x0F, 0x33] => Some(Hooked::ReadCounter),
            // 0F 01 /3 with a memory operand.
            [0x0F, 0x01, modrm, ..] if modrm >> 6 != 3 && modrm >> 3 & 7 == 3 => {
                Some(Hooked::LoadIdt)
            }
            [0xF4] => Some(Hooked::Halt),
            // QEMU, which lacks them, ends them before their operands.
            [0xC7, 0xF8, ..] => Some(Hooked::Begin),
            [0x0F, 0x01, 0xD5] => Some(Hooked::End),
            [0xC6, 0xF8, ..] => Some(Hooked::Abort),
            _ => None,
        }
    }

    /// Length of a TSX instruction with its operand, without prefixes.
    pub(super) const fn length(self) -> u64 {
        match self {
            Hooked::Begin => 6,
            _ => 3,
        }
    }

    /// Whether it belongs to TSX.
    pub(super) const fn is_transactional(self) -> bool {
        matches!(self, Hooked::Begin | Hooked::End | Hooked::Abort)
    }
}

/// RAX after XABORT with this operand. SDM Vol. 1 16.3.5.
pub(super) const fn abort_status(operand: u8) -> u64 {
    1 | (operand as u64) << 24
}

/// An open transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transaction {
    /// The address to continue at after an abort.
    pub(super) fallback: u64,
    /// The general registers at XBEGIN.
    pub(super) general: [u64; 16],
}

/// MUL and IMUL.
const MULTIPLY: u32 = 3;
/// DIV and IDIV.
const DIVIDE: u32 = 26;

/// The cycles of an instruction on an imaginary in-order CPU: 1, a multiplication 3, a division 26.
/// Chosen for this model; no real CPU's.
pub(super) fn cycles(bytes: &[u8]) -> u32 {
    match opcode(bytes) {
        [0x0F, 0xAF, ..] | [0x69 | 0x6B, ..] => MULTIPLY,
        // Group 3: /4 MUL, /5 IMUL, /6 DIV, /7 IDIV.
        [0xF6 | 0xF7, modrm, ..] => match modrm >> 3 & 7 {
            4 | 5 => MULTIPLY,
            6 | 7 => DIVIDE,
            _ => 1,
        },
        _ => 1,
    }
}

/// The bytes after the legacy prefixes and REX.
fn opcode(bytes: &[u8]) -> &[u8] {
    let first = bytes.iter().position(|byte| {
        !matches!(
            byte,
            0x26 | 0x2E | 0x36 | 0x3E | 0x40..=0x4F | 0x64..=0x67 | 0xF0 | 0xF2 | 0xF3
        )
    });
    first.and_then(|first| bytes.get(first..)).unwrap_or_default()
}

#[cfg(test)]
#[path = "../../../tests/machine/unit/guest/instruction.rs"]
mod tests;
