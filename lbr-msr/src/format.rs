//! LBR record formats, as IA32_PERF_CAPABILITIES\[5:0\] announces them.

use core::fmt;

use crate::register::{Code, field::code};

/// The LBR_FMT code. SDM 17.4.8.1; names as Linux's `LBR_FORMAT_*`.
///
/// Unknown codes are kept, and print as unknown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LbrFormat(pub u8);

impl LbrFormat {
    /// 0: 32-bit offsets, FROM in the low and TO in the high half of one register.
    pub const FORMAT_32: LbrFormat = LbrFormat(0);
    /// 1: 64-bit linear addresses, no flags.
    pub const LIP: LbrFormat = LbrFormat(1);
    /// 2: 64-bit effective addresses, no flags.
    pub const EIP: LbrFormat = LbrFormat(2);
    /// 3: effective addresses, MISPRED in FROM\[63\].
    pub const EIP_FLAGS: LbrFormat = LbrFormat(3);
    /// 4: as 3, with IN_TSX in FROM\[62\] and TSX_ABORT in FROM\[61\].
    pub const EIP_FLAGS2: LbrFormat = LbrFormat(4);
    /// 5: plain addresses; flags and cycles in LBR_INFO.
    pub const INFO: LbrFormat = LbrFormat(5);
    /// 6: MISPRED in FROM\[63\], cycles in TO\[63:48\].
    pub const TIME: LbrFormat = LbrFormat(6);
    /// 7: as 5, without TSX unless CPUID announces TSX.
    pub const INFO2: LbrFormat = LbrFormat(7);
    /// 0x3F: no model-specific LBR; Architectural LBR if CPUID announces it.
    pub const NONE: LbrFormat = LbrFormat(0x3F);

    /// Whether this code's layout is documented.
    pub const fn is_known(self) -> bool {
        self.0 <= 7
    }

    /// Linux's name without its prefix, such as `EIP_FLAGS2`; `None` for an undocumented code.
    pub fn name(self) -> Option<&'static str> {
        CODES.iter().find(|code| code.first == u64::from(self.0)).map(|code| code.name)
    }

    /// Whether records of this format have an INFO register.
    pub const fn has_info(self) -> bool {
        matches!(self.0, 5 | 7)
    }
}

/// Every documented code.
pub(crate) const CODES: &[Code] = &[
    code(0, "32", "packed 32-bit offsets, FROM in the low and TO in the high half"),
    code(1, "LIP", "64-bit linear addresses, no flags"),
    code(2, "EIP", "64-bit effective addresses, no flags"),
    code(3, "EIP_FLAGS", "effective addresses, MISPRED in FROM[63]"),
    code(4, "EIP_FLAGS2", "effective addresses, MISPRED, IN_TSX and TSX_ABORT in FROM[63:61]"),
    code(5, "INFO", "effective addresses, flags and cycles in LBR_INFO"),
    code(6, "TIME", "linear addresses, MISPRED in FROM[63], cycles in TO[63:48]"),
    code(7, "INFO2", "linear addresses, flags and cycles in LBR_INFO"),
    code(0x3F, "none (Architectural LBR)", "Architectural LBR if CPUID announces it, or no LBR"),
];

impl fmt::Debug for LbrFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LbrFormat({self})")
    }
}

impl fmt::Display for LbrFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{:#x} {name}", self.0),
            None => write!(f, "{:#x} unknown", self.0),
        }
    }
}
