//! Adds missing outer calls to a stack, from the thread's previous stack.
//!
//! An LBR stack of 32 records keeps the innermost 32 frames. If the previous stack had frames
//! further out, and also contains the outermost records of the truncated one, these frames are most
//! likely still open: perf's `--stitch-lbr`. Two records are of the same frame if both addresses
//! match; if the recording has the slot of each record (`hw_idx`), the slots must match too, which
//! distinguishes levels of a recursion up to a multiple of the depth. Of several matches, the one
//! with the longest run of equal records is used, and of those the one that moves the lost frames
//! the least.
//!
//! perf stops there. After returns have emptied an LBR stack that had overflowed, the records of
//! the outer calls never come back, and every later stack lacks them although it is not full. lbr's
//! own recordings mark such stacks (underflow): they are extended in the same way or, if none of
//! their records remain from before, attached to the nearest frame whose function makes the
//! outermost call.

/// An open call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The address of the call.
    pub(super) from: u64,
    /// Its target.
    pub(super) to: u64,
    /// The calling function.
    pub(super) caller: usize,
    /// The called function.
    pub(super) callee: usize,
}

/// Number of records that must match if slots are unknown; all records if there are fewer.
const SAME: usize = 2;

/// Why frames of a stack are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// None is missing.
    Nothing,
    /// More calls than records.
    Truncated,
    /// Returns have removed what remained of a truncated stack.
    Underflow,
}

/// The last stack of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Before {
    /// Innermost first, including frames added by stitching.
    frames: Vec<Frame>,
    hw_idx: Option<u64>,
    /// Number of the frames in the LBR stack.
    visible: usize,
    /// Whether it reaches the outermost frame.
    whole: bool,
}

/// The result of stitching a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stitched {
    /// The stack was not truncated.
    Whole,
    /// It now reaches the outermost frame.
    Completed,
    /// It is longer, but the previous stack was incomplete too.
    Longer,
    /// No match.
    Alone,
}

impl Before {
    /// Adds the thread's next stack, innermost frame first, and extends it if possible.
    pub(super) fn stitch(
        &mut self,
        frames: &mut Vec<Frame>,
        hw_idx: Option<u64>,
        missing: Missing,
    ) -> Stitched {
        let visible = frames.len();
        let at = match missing {
            Missing::Nothing => None,
            Missing::Truncated => self.find(frames, hw_idx),
            Missing::Underflow => self.find(frames, None).or_else(|| self.calling(frames)),
        };
        let whole = missing == Missing::Nothing;
        let mut result = if whole { Stitched::Whole } else { Stitched::Alone };
        if let Some(at) = at {
            let older = self.frames.get(at..).unwrap_or_default();
            let room = MOST.saturating_sub(frames.len());
            result = if self.whole && older.len() <= room {
                Stitched::Completed
            } else {
                Stitched::Longer
            };
            frames.extend(older.iter().take(room));
        }
        self.frames.clone_from(frames);
        self.hw_idx = hw_idx;
        self.visible = visible;
        self.whole = matches!(result, Stitched::Whole | Stitched::Completed);
        result
    }

    /// The index in the previous stack after which the missing outer frames start.
    fn find(&self, frames: &[Frame], hw_idx: Option<u64>) -> Option<usize> {
        let depth = frames.len();
        let outermost = depth.checked_sub(1)?;
        // Slots wrap around; a truncated stack fills all.
        let slot = |hw_idx: u64, index: usize| {
            (i128::from(hw_idx) - index as i128).rem_euclid(depth as i128)
        };
        let slots = hw_idx.zip(self.hw_idx);
        let least = if slots.is_some() { 1 } else { SAME.min(depth) };
        let mut best: Option<(usize, usize, usize)> = None;
        for at in 0..self.frames.len() {
            if slots.is_some_and(|(ours, theirs)| slot(ours, outermost) != slot(theirs, at)) {
                continue;
            }
            let ours = frames.iter().rev();
            let theirs = self.frames.get(..=at).unwrap_or_default().iter().rev();
            let same =
                ours.zip(theirs).take_while(|(a, b)| (a.from, a.to) == (b.from, b.to)).count();
            let away = (at + 1).abs_diff(self.visible);
            let better = best.is_none_or(|(most, least_away, _)| {
                same > most || (same == most && away < least_away)
            });
            if same >= least && better {
                best = Some((same, away, at));
            }
        }
        best.map(|(_, _, at)| at + 1)
    }

    /// The frame nearest in depth whose function makes the outermost call.
    fn calling(&self, frames: &[Frame]) -> Option<usize> {
        let caller = frames.last()?.caller;
        let open = self.frames.iter().enumerate().filter(|(_, frame)| frame.callee == caller);
        // That frame is the one outside the outermost record.
        open.map(|(at, _)| at).min_by_key(|at| at.abs_diff(self.visible))
    }
}

/// Maximum number of frames in a stitched stack.
const MOST: usize = 1024;

#[cfg(test)]
#[path = "../../../../tests/profile/unit/views/callgraph/stitch.rs"]
mod tests;
