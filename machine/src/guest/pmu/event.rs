//! Counted events. Unmodelled events count 0.

/// Number of occurrences of each event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::guest) struct Happened {
    pub(in crate::guest) instructions: u64,
    /// Modelled, see [`cycles`](crate::guest::instruction::cycles).
    pub(in crate::guest) cycles: u64,
    /// Branches that retired, taken or not.
    pub(in crate::guest) branches: u64,
    /// This and the next are known only while branches are followed one by one.
    pub(in crate::guest) taken: u64,
    pub(in crate::guest) mispredicted: u64,
}

/// A countable event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Instructions,
    Cycles,
    /// Issue slots.
    Slots,
    Branches,
    Taken,
    Mispredicted,
}

/// Slots per cycle, as documented for Ice Lake; the model itself has one.
const SLOTS: u64 = 4;

impl Event {
    /// The event that IA32_PERFEVTSELx selects. SDM 18.2.1.2, Table 18-2.
    pub(super) const fn of_intel(select: u64) -> Option<Event> {
        Some(match select & 0xFFFF {
            0x00C0 => Event::Instructions,
            0x003C => Event::Cycles,
            0x00C4 => Event::Branches,
            // BR_INST_RETIRED.NEAR_TAKEN of Haswell and later.
            0x20C4 => Event::Taken,
            0x00C5 => Event::Mispredicted,
            _ => return None,
        })
    }

    /// The event that PERF_CTLx selects. AMD PPR of family 19H, 2.1.15.
    pub(super) const fn of_amd(select: u64) -> Option<Event> {
        Some(match select & 0xFF | (select >> 32 & 0xF) << 8 {
            0x0C0 => Event::Instructions,
            0x076 => Event::Cycles,
            0x0C2 => Event::Branches,
            0x0C3 => Event::Mispredicted,
            0x0C4 => Event::Taken,
            _ => return None,
        })
    }

    /// The event of a fixed counter. SDM Table 18-2.
    pub(super) const fn of_fixed(index: usize) -> Option<Event> {
        Some(match index {
            0 => Event::Instructions,
            1 | 2 => Event::Cycles,
            3 => Event::Slots,
            _ => return None,
        })
    }

    pub(super) const fn times(self, happened: &Happened) -> u64 {
        match self {
            Event::Instructions => happened.instructions,
            Event::Cycles => happened.cycles,
            Event::Slots => happened.cycles.saturating_mul(SLOTS),
            Event::Branches => happened.branches,
            Event::Taken => happened.taken,
            Event::Mispredicted => happened.mispredicted,
        }
    }

    /// The minimum number of cycles before this number of occurrences: an instruction takes at
    /// least one.
    pub(super) const fn cycles_at_least(self, times: u64) -> u64 {
        match self {
            Event::Slots => times.div_ceil(SLOTS),
            _ => times,
        }
    }

    /// Whether it is counted only while branches are followed one by one.
    pub(super) const fn needs_branches(self) -> bool {
        matches!(self, Event::Taken | Event::Mispredicted)
    }
}
