//! Drains that read and reset the whole LBR stack in one uninterruptible call.

use lbr_msr::MsrWrite;
use lbr_msr::access::{MsrResult, Op};
use lbr_msr::record::{Head, RawEntry};

use super::freeze::{Frozen, LBR_FRZ};
use super::ring::{Edge, MarkKind};
use super::stack::RawStack;
use super::walk::{frames, walk};
use super::{Drain, edge_at};
use crate::clock::monotonic_ns;

/// The results of a batch.
struct Batch {
    frozen: Frozen,
    top: u32,
    image: Vec<RawEntry>,
    torn: bool,
}

impl Drain {
    pub(super) fn stream_in_one_call(
        &mut self,
        registers: &mut impl MsrWrite,
        out: &mut RawStack,
    ) -> MsrResult {
        let mut batch = self.batch(registers, true)?;
        out.time = monotonic_ns();
        let found = walk(&self.ring, &self.edge, batch.top, &mut batch.image, out)?;
        out.new_slots = found.new;
        self.label(out, batch.frozen, found.end, batch.torn, self.blank_head());
        let tos = self.ring.map.tos;
        match found.newest {
            _ if batch.torn => {
                // The position of the old mark is unknown.
                self.edge = Edge::Blank { index: None, head: Head::Unknown };
                self.owed = Some(Head::Lost);
            }
            Some(newest) if found.new > 0 => {
                // Zeroed packed records keep nothing.
                let left = match self.ring.kind {
                    MarkKind::Packed => RawEntry::default(),
                    MarkKind::Intel | MarkKind::Amd | MarkKind::Brbe => {
                        self.ring.left_behind(&newest)
                    }
                };
                self.edge = edge_at(left, tos.map(|_| batch.top));
            }
            _ => self.nothing_new(&found, tos.map(|_| batch.top)),
        }
        Ok(())
    }

    pub(super) fn frames_in_one_call(
        &mut self,
        registers: &mut impl MsrWrite,
        out: &mut RawStack,
    ) -> MsrResult {
        let mut batch = self.batch(registers, false)?;
        out.time = monotonic_ns();
        let ended = frames(&self.ring, batch.top, &mut batch.image, out)?;
        out.new_slots = out.entries().len() as u32;
        self.label_snapshot(out, batch.frozen, ended, batch.top, batch.torn);
        Ok(())
    }

    /// Reads all records in one batch, and zeroes them.
    fn batch(&self, registers: &mut impl MsrWrite, reset: bool) -> MsrResult<Batch> {
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
        if reset {
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
