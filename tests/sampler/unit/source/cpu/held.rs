use std::time::Duration;

use super::*;

#[test]
fn a_sleep_yields_the_cpu_once_voluntarily() {
    // Another task may take the CPU, but not every time.
    let is_seen = (0..200).any(|_| {
        let before = Given::now().expect("a count");
        std::thread::sleep(Duration::from_millis(1));
        let after = Given::now().expect("a count");
        after == Given { waited: before.waited + 1, ..before }
    });
    assert!(is_seen);
}

#[test]
fn only_the_sleep_may_yield_the_cpu() {
    let given = |waited, made| Some(Given { waited, made });
    assert!(held(given(4, 1), given(4, 1), given(4, 1)), "the sleep had already ended");
    assert!(held(given(4, 1), given(4, 1), given(5, 1)));
    assert!(!held(given(4, 1), given(5, 1), given(5, 1)), "waited while recording was off");
    assert!(!held(given(4, 1), given(4, 2), given(5, 2)), "preempted while recording was off");
    assert!(!held(given(4, 1), given(4, 1), given(6, 1)), "waited before the thaw or later");
    assert!(!held(given(4, 1), given(4, 1), given(5, 2)), "preempted before the thaw or later");
    assert!(!held(None, given(4, 1), given(4, 1)), "not known");
}
