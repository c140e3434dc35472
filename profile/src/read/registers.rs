//! The general-purpose registers of a sample: `PERF_SAMPLE_REGS_INTR` and `PERF_SAMPLE_REGS_USER`.

/// The x86-64 registers with the first six integer arguments of a function (System V ABI, AMD64
/// supplement, 3.2.3), by number in `enum perf_event_x86_regs` (Linux
/// `arch/x86/include/uapi/asm/perf_regs.h`): RDI, RSI, RDX, RCX, R8, R9.
pub const ARGUMENTS: [(u32, &str); 6] =
    [(5, "rdi"), (4, "rsi"), (3, "rdx"), (2, "rcx"), (16, "r8"), (17, "r9")];

/// These registers as a mask for `sample_regs_user`.
pub(crate) fn argument_mask() -> u64 {
    ARGUMENTS.iter().fold(0, |mask, (register, _)| mask | 1 << register)
}

/// The registers of a 64-bit program at a sample.
#[derive(Clone, Copy, Debug)]
pub struct Registers<'a> {
    pub(crate) words: &'a [[u8; 8]],
    /// Bitmap of the recorded registers.
    pub(crate) mask: u64,
    pub(crate) big: bool,
}

impl Registers<'_> {
    /// The value of a register; `None` if not recorded.
    pub fn get(&self, register: u32) -> Option<u64> {
        let bit = 1u64.checked_shl(register)?;
        if self.mask & bit == 0 {
            return None;
        }
        let bytes = *self.words.get((self.mask & (bit - 1)).count_ones() as usize)?;
        Some(if self.big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }
}
