//! The geometry of an LBR, and the mark that a drain leaves in it.

use lbr_msr::LbrFormat;
use lbr_msr::address::Msr;
use lbr_msr::caps::{Facility, Layout, LbrCaps, Order, Quirks, RegisterMap};
use lbr_msr::record::{Head, RawEntry};

use super::DrainError;
use super::stack::MAX_DEPTH;

/// The encoding of an empty record and of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkKind {
    /// Intel: FROM = 0 means empty; the mark zeroes FROM.
    Intel,
    /// One register for both addresses: the mark zeroes its low half, FROM.
    Packed,
    /// BRBE: VALID = 0 means empty. Records cannot be written, so all are invalidated.
    Brbe,
    /// AMD LbrExtV2: TO\[63:62\] = 0 means empty; the mark zeroes TO.
    Amd,
}

/// The low half of a packed record, its FROM. SDM 17.4.8.1, LBR_FMT 0.
pub(super) const PACKED_FROM: u64 = 0xFFFF_FFFF;

/// The properties of a facility that a drain needs.
#[derive(Clone, Debug)]
pub(super) struct RingPlan {
    pub(super) map: RegisterMap,
    pub(super) kind: MarkKind,
    pub(super) depth: u32,
    /// The registers that report and clear a freeze on PMI, if there are any.
    pub(super) status: Option<(Msr, Msr)>,
    /// The filter register, unless it is the control register.
    pub(super) select: Option<Msr>,
}

impl RingPlan {
    /// `depth` is the number of records as armed.
    pub(super) fn new(caps: &LbrCaps, depth: u32) -> Result<RingPlan, DrainError> {
        let refuse = |why| Err(DrainError::Unsupported { facility: caps.facility, why });
        if caps.quirks.contains(Quirks::READ_ONLY_RECORDS) || caps.facility == Facility::NetBurst {
            return refuse("its records cannot be written, so a drain cannot mark them");
        }
        match caps.order {
            Order::Tos if caps.registers.tos.is_some() => {}
            Order::NewestFirst => {}
            Order::Tos => return refuse("it has no top-of-stack register"),
            Order::Single => return refuse("it holds one record, so branches between are lost"),
            Order::Saturating => {
                return refuse("it stops when it is full, and only an interrupt restarts it");
            }
        }
        let mut map = caps.registers;
        let kind = match (caps.layout, map.to) {
            (Layout::AmdV2 { .. }, Some(_)) => MarkKind::Amd,
            (Layout::Brbe, Some(_)) => MarkKind::Brbe,
            (Layout::Packed32, _) => MarkKind::Packed,
            (Layout::Legacy { format: LbrFormat::FORMAT_32, .. }, _) => MarkKind::Packed,
            (Layout::Legacy { .. } | Layout::Arch { .. }, Some(_)) => MarkKind::Intel,
            _ => return refuse("the record layout is not supported"),
        };
        if kind == MarkKind::Packed {
            map.to = None;
        }
        if !caps.layout.has_info() {
            map.info = None;
        }
        let has_tos = caps.order == Order::Tos;
        if depth == 0 || depth as usize > MAX_DEPTH || has_tos && !depth.is_power_of_two() {
            return Err(DrainError::Depth { depth });
        }
        let status = caps.freeze_status();
        let select = map.select.filter(|select| *select != map.control);
        Ok(RingPlan { map, kind, depth, status, select })
    }

    /// The slot of the record `age` places older than the newest. TOS counts modulo the depth; its
    /// upper bits are ignored (SDM 17.5.1).
    pub(super) fn index(&self, top: u32, age: u32) -> u32 {
        match self.map.tos {
            Some(_) => top.wrapping_sub(age) & (self.depth - 1),
            None => age,
        }
    }

    /// TOS without its unused upper bits.
    pub(super) fn top(&self, tos: u64) -> u32 {
        (tos & u64::from(self.depth - 1)) as u32
    }

    /// The register and the value that mark a slot.
    pub(super) fn mark(&self, index: u32, newest: &RawEntry) -> (Msr, u64) {
        match self.kind {
            MarkKind::Intel => (self.map.from_at(index), 0),
            MarkKind::Packed => (self.map.from_at(index), newest.from & !PACKED_FROM),
            MarkKind::Brbe => (self.map.depth.unwrap_or(self.map.control), u64::from(self.depth)),
            MarkKind::Amd => (self.map.to_at(index).unwrap_or(self.map.from_at(index)), 0),
        }
    }

    /// The slot's contents after [`mark`](Self::mark).
    pub(super) fn left_behind(&self, newest: &RawEntry) -> RawEntry {
        match self.kind {
            MarkKind::Intel => RawEntry { from: 0, ..*newest },
            MarkKind::Packed => RawEntry { from: newest.from & !PACKED_FROM, ..*newest },
            MarkKind::Brbe => RawEntry::default(),
            MarkKind::Amd => RawEntry { to: 0, ..*newest },
        }
    }
}

/// Whether all registers of a slot are 0.
pub(super) fn is_blank(slot: &RawEntry) -> bool {
    slot.from == 0 && slot.to == 0 && slot.info.unwrap_or(0) == 0
}

/// The end of the branches that are already recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// All slots, or the newest one, were empty: new entries end at the first empty slot.
    Blank {
        /// The slot that was the newest then, with TOS.
        index: Option<u32>,
        /// The resulting continuity: right after arming nothing can be missing; later, another
        /// clearing would look the same.
        head: Head,
    },
    /// A mark.
    Mark {
        /// The marked slot, with TOS.
        index: Option<u32>,
        /// The registers of the marked slot.
        left: RawEntry,
    },
}
