//! Drains that read and reset the whole LBR stack in one uninterruptible call.

use lbr_msr::MsrWrite;
use lbr_msr::access::{MsrResult, Op};
use lbr_msr::record::{Head, RawEntry};

use super::freeze::{Frozen, LBR_FRZ};
use super::ring::{Edge, MarkKind};
use super::stack::RawStack;
use super::{Drain, Mode, edge_at};
use crate::clock::monotonic_ns;

/// The results of a batch.
struct Batch {
    frozen: Frozen,
    top: u32,
    image: Vec<RawEntry>,
    torn: bool,
}

impl Drain {
    pub(super) fn drain_in_one_call(
        &mut self,
        registers: &mut impl MsrWrite,
        out: &mut RawStack,
    ) -> MsrResult {
        let Batch { frozen, top, mut image, torn } = self.batch(registers)?;
        out.time = monotonic_ns();
        let found = self.walk(top, &mut image, out)?;
        if self.mode == Mode::CallStack {
            self.label_snapshot(out, frozen, found.end, top, torn);
            return Ok(());
        }
        self.label(out, frozen, found.end, torn, self.blank_head());
        let index = self.ring.map.tos.map(|_| top);
        if torn {
            // The position of the old mark is unknown.
            self.edge = Edge::Blank { index: None, head: Head::Unknown };
            self.owed = Some(Head::Lost);
        } else if found.new > 0 {
            // Zeroed packed records keep nothing.
            let left = match self.ring.kind {
                MarkKind::Packed => RawEntry::default(),
                _ => self.ring.left_behind(&found.newest),
            };
            self.edge = edge_at(left, index);
        } else {
            self.nothing_new(&found, index);
        }
        Ok(())
    }

    /// Reads all records in one batch, and zeroes them, except in call-stack mode.
    fn batch(&self, registers: &mut impl MsrWrite) -> MsrResult<Batch> {
        let map = &self.ring.map;
        let read = |msr| Op::Read { msr, value: 0 };
        // The batch writes the control register, so its other bits must be known first.
        let before = registers.read(map.control)?;
        let off = before & !map.enable;
        let thawed = if self.judge(before).foreign { before } else { before | map.enable };
        let mut ops = vec![read(map.control), Op::Write { msr: map.control, value: off }];
        let watched = [self.ring.status.map(|(status, _)| status), self.ring.select, map.tos];
        ops.extend(watched.into_iter().flatten().map(read));
        for index in 0..self.ring.depth {
            ops.push(read(map.from_at(index)));
            ops.extend(map.to_at(index).map(read));
            ops.extend(map.info_at(index).map(read));
        }
        // Shows whether the records moved although recording was off.
        ops.push(read(map.tos.unwrap_or(map.from)));
        if self.mode == Mode::Stream {
            for index in 0..self.ring.depth {
                let (msr, _) = self.ring.mark(index, &RawEntry::default());
                ops.push(Op::Write { msr, value: 0 });
            }
        }
        ops.push(Op::Write { msr: map.control, value: thawed });
        registers.run(&mut ops).inspect_err(|_| self.leave_as_found(registers, before))?;

        let mut values = ops.into_iter().filter_map(|op| match op {
            Op::Read { value, .. } => Some(value),
            Op::Write { .. } => None,
        });
        let mut next = || values.next().unwrap_or(0);
        let mut frozen = self.judge(next());
        frozen.foreign |= frozen.control != before;
        if self.ring.status.is_some() {
            frozen.by_status = next() & LBR_FRZ != 0;
            frozen.stopped |= frozen.by_status;
        }
        if self.ring.select.is_some() {
            frozen.foreign |= Some(next()) != self.select;
        }
        let top = if map.tos.is_some() { self.ring.top(next()) } else { 0 };
        let mut image = Vec::new();
        for _ in 0..self.ring.depth {
            let from = next();
            let to = if map.to.is_some() { next() } else { 0 };
            let info = map.info.is_some().then(&mut next);
            image.push(RawEntry { from, to, info });
        }
        let again = next();
        let torn = match map.tos {
            Some(_) => self.ring.top(again) != top,
            None => image.first().is_some_and(|newest| newest.from != again),
        };
        self.release(registers, frozen)?;
        Ok(Batch { frozen, top, image, torn })
    }
}
