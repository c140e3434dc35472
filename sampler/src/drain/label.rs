//! Labels for drained stacks.

use lbr_msr::record::{Head, Label};

use super::Drain;
use super::freeze::Frozen;
use super::ring::Edge;
use super::stack::RawStack;
use super::walk::End;

impl Drain {
    /// The continuity of a stack that ends at an empty slot.
    pub(super) fn blank_head(&self) -> Head {
        match self.edge {
            Edge::Blank { head, .. } => head,
            Edge::Mark { .. } => Head::Unknown,
        }
    }

    pub(super) fn label(
        &mut self,
        out: &mut RawStack,
        frozen: Frozen,
        end: End,
        torn: bool,
        blank: Head,
    ) {
        let found = match end {
            End::Mark => Head::Joined,
            End::Blank => blank,
            End::Full => Head::Lost,
            End::Wiped | End::Foreign => Head::Unknown,
        };
        out.starts_after_thaw = end != End::Full;
        let damaged = std::mem::take(&mut self.damaged);
        let label = if frozen.foreign {
            Label::Foreign
        } else if torn {
            Label::Torn
        } else if end == End::Foreign {
            Label::Foreign
        } else if end == End::Wiped || damaged {
            Label::Wiped
        } else if frozen.stopped {
            Label::Stopped
        } else if end == End::Full {
            Label::Gap
        } else {
            Label::Stream
        };
        let head = if found == Head::Joined { self.owed.unwrap_or(found) } else { found };
        out.integrity.label = label;
        out.integrity.head = head;
        let is_empty = out.entries().is_empty();
        self.owed = match label {
            // The old mark was kept: the next drain reads all of this again.
            Label::Torn => self.owed,
            Label::Foreign | Label::Wiped if is_empty => Some(Head::Unknown),
            Label::Foreign | Label::Wiped | Label::Stopped => Some(Head::Lost),
            _ if is_empty && head != Head::Joined => Some(head),
            _ => None,
        };
    }

    pub(super) fn label_snapshot(
        &self,
        out: &mut RawStack,
        frozen: Frozen,
        end: End,
        top: u32,
        torn: bool,
    ) {
        out.integrity.head = Head::Unknown;
        out.integrity.label = if frozen.foreign {
            Label::Foreign
        } else if torn {
            Label::Torn
        } else if frozen.stopped {
            Label::Stopped
        } else {
            Label::Snapshot
        };
        out.integrity.truncated = end == End::Full;
        out.integrity.underflow = end != End::Full
            && self.ring.map.tos.is_some()
            && self.ring.index(top, out.new_slots) != self.base;
    }
}
