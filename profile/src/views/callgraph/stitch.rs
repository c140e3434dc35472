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
mod tests {
    use super::*;

    fn frame(call: u64) -> Frame {
        Frame { from: call, to: call + 1, caller: call as usize, callee: call as usize + 1 }
    }

    /// 39 levels of a recursion and its first caller; then five more levels. The LBR stack holds
    /// 32.
    #[test]
    fn slots_count_the_rounds_of_a_recursion() {
        let stitched = |slots: Option<(u64, u64)>| {
            let mut frames = vec![frame(7); 39];
            frames.push(frame(1));
            let hw_idx = slots.map(|(before, _)| before);
            let mut before = Before { frames, hw_idx, visible: 32, whole: true };
            let mut now = vec![frame(7); 32];
            let hw_idx = slots.map(|(_, now)| now);
            assert_eq!(before.stitch(&mut now, hw_idx, Missing::Truncated), Stitched::Completed);
            assert_eq!(now.last(), Some(&frame(1)));
            now.len()
        };
        // The 40th call has slot 8 if the first has slot 1.
        assert_eq!(stitched(Some((8, 13))), 45);
        assert_eq!(stitched(Some((8, 5))), 37);
        // Without slots, the depth is assumed to be unchanged.
        assert_eq!(stitched(None), 40);
    }

    #[test]
    fn a_single_record_is_not_a_match() {
        let outer: Vec<Frame> = (0..40).rev().map(frame).collect();
        let mut before = Before { frames: outer, hw_idx: None, visible: 32, whole: true };
        // Only the outermost record is the same.
        let mut now: Vec<Frame> = (100..131).map(frame).chain([frame(20)]).collect();
        assert_eq!(before.clone().stitch(&mut now, None, Missing::Truncated), Stitched::Alone);
        assert_eq!(now.len(), 32);
        let mut now: Vec<Frame> = (100..130).map(frame).chain([frame(21), frame(20)]).collect();
        assert_eq!(before.stitch(&mut now, None, Missing::Truncated), Stitched::Completed);
        assert_eq!(now.len(), 52);
    }

    /// Returns emptied the LBR stack: the calling function is still open.
    #[test]
    fn frames_after_an_overflow_attach_to_the_calling_function() {
        let open: Vec<Frame> = (0..10).rev().map(frame).collect();
        let mut before = Before { frames: open, hw_idx: None, visible: 1, whole: true };
        // Called by the target function of call 4.
        let call = Frame { from: 999, to: 1000, caller: 5, callee: 50 };
        let mut now = vec![call];
        assert_eq!(before.stitch(&mut now, None, Missing::Underflow), Stitched::Completed);
        assert_eq!(now, [call, frame(4), frame(3), frame(2), frame(1), frame(0)]);
        let mut now = vec![Frame { from: 5, caller: 77, ..call }];
        assert_eq!(before.stitch(&mut now, None, Missing::Underflow), Stitched::Alone);
    }
}
