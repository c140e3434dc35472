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
fn a_single_record_is_a_match_only_in_its_slot() {
    let outer: Vec<Frame> = (0..40).rev().map(frame).collect();
    let mut before = Before { frames: outer, hw_idx: None, visible: 32, whole: true };
    // Only the outermost record is the same.
    let mut now: Vec<Frame> = (100..131).map(frame).chain([frame(20)]).collect();
    assert_eq!(before.clone().stitch(&mut now, None, Missing::Truncated), Stitched::Alone);
    assert_eq!(now.len(), 32);
    // In its slot it is: there are twelve calls more than before.
    let mut slots = Before { hw_idx: Some(8), ..before.clone() };
    let mut same = now.clone();
    assert_eq!(slots.stitch(&mut same, Some(20), Missing::Truncated), Stitched::Completed);
    assert_eq!(same.len(), 52);
    // Also if it was the innermost: there are 31 calls more than before.
    let mut slots = Before { hw_idx: Some(8), ..before.clone() };
    let mut deeper: Vec<Frame> = (100..131).map(frame).chain([frame(39)]).collect();
    assert_eq!(slots.stitch(&mut deeper, Some(39 % 32), Missing::Truncated), Stitched::Completed);
    assert_eq!(deeper.len(), 32 + 39);
    let mut now: Vec<Frame> = (100..130).map(frame).chain([frame(21), frame(20)]).collect();
    assert_eq!(before.stitch(&mut now, None, Missing::Truncated), Stitched::Completed);
    assert_eq!(now.len(), 52);
}

/// Two records of three are at the old depth, all three are further in.
#[test]
fn the_longest_run_of_equal_records_matches() {
    let frames = |calls: &[u64]| calls.iter().copied().map(frame).collect::<Vec<_>>();
    let older = frames(&[9, 3, 2, 1, 8, 2, 1, 7]);
    let mut before = Before { frames: older, hw_idx: None, visible: 7, whole: true };
    let mut now = frames(&[3, 2, 1]);
    assert_eq!(before.stitch(&mut now, None, Missing::Truncated), Stitched::Completed);
    assert_eq!(now, frames(&[3, 2, 1, 8, 2, 1, 7]));
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
