//! Layouts of records whose CPU is unavailable.

use crate::{LbrFormat, caps::Layout};

impl Layout {
    /// The layout of LBR_FMT `format`; `tsx` is whether CPUID announces HLE or RTM. `None` for an
    /// undocumented format and for 0x3F, which means no model-specific LBR.
    pub const fn of_format(format: LbrFormat, tsx: bool) -> Option<Layout> {
        match format.0 {
            0 => Some(Layout::Packed32),
            1..=7 => Some(Layout::Legacy { format, tsx }),
            _ => None,
        }
    }

    /// The layout of Architectural LBR that ECX of CPUID leaf 1CH describes. Linux
    /// `asm/perf_event.h`.
    pub const fn of_leaf_1c(ecx: u32, tsx: bool) -> Layout {
        Layout::Arch {
            mispredict: ecx & 1 != 0,
            timed: ecx & 1 << 1 != 0,
            types: ecx & 1 << 2 != 0,
            counters: (ecx >> 16 & 0xF) as u8,
            tsx,
        }
    }

    /// Whether a record is a single register that holds both addresses.
    pub const fn is_packed(self) -> bool {
        matches!(self, Layout::Packed32 | Layout::Legacy { format: LbrFormat::FORMAT_32, .. })
    }

    /// Whether a record has an INFO register.
    pub const fn has_info(self) -> bool {
        match self {
            Layout::Legacy { format, .. } => format.has_info(),
            Layout::Arch { .. } | Layout::Brbe => true,
            _ => false,
        }
    }
}
