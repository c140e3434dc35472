use super::*;

#[test]
fn names_with_and_without_modifiers() {
    let events =
        ["cycles:u", "cycles:k", "branch-misses:ppu", "cpu_core/cycles/", "cpu_core/cycles/k"];
    let events = events.map(str::to_owned);
    let meant = |name: &str| meant(&[name.to_owned()], &events).remove(0);
    assert_eq!(meant("cycles:u"), [0]);
    assert_eq!(meant("cycles"), [0, 1]);
    assert_eq!(meant("branch-misses"), [2]);
    assert_eq!(meant("cpu_core/cycles/"), [3]);
    assert_eq!(meant("cpu_core/cycles/k"), [4]);
    assert!(meant("cycle").is_empty() && meant("cycles:p").is_empty());
    let tracepoint = ["sched:sched_switch".to_owned()];
    assert!(super::meant(&["sched".to_owned()], &tracepoint).remove(0).is_empty());
    // perf-list(1).
    for modifier in "ukhIGHpPSDWebRX".chars() {
        let name = format!("cycles:{modifier}");
        assert_eq!(super::meant(&["cycles".to_owned()], &[name]), [[0]], "{modifier}");
    }
    assert!(super::meant(&["cycles".to_owned()], &["cycles:x".to_owned()])[0].is_empty());
}
