use super::*;

/// Signals come after this many milliseconds, with whether it is time to end then, and later.
#[test]
fn the_second_signal_or_the_end_of_the_grace_period_kills() {
    // Ignored by this process, which signals are passed on to.
    let pid = Some(std::process::id().cast_signed());
    BY_TERMINAL.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let after = |ms: u64| start + Duration::from_millis(ms);
    let mut passing = Passing::new(Interrupts(()));
    passing.seen = COUNT.load(Ordering::Relaxed);
    let mut passes = |ms: u64, signal: bool| {
        COUNT.fetch_add(signal.into(), Ordering::Release);
        passing.is_time_to_end_at(after(ms), pid)
    };
    assert!(!passes(0, false));
    assert!(!passes(1_000, true), "the first is the program's");
    assert!(!passes(1_150, true), "one that comes together with it is not a second one");
    assert!(!passes(10_900, false));
    assert!(passes(11_001, false), "the grace is over");
    assert!(passes(1_201, true), "the second");
    BY_TERMINAL.store(false, Ordering::Relaxed);
    assert!(Passing { seen: 0, first: None, ..passing }.is_time_to_end_at(start, None));
}

#[test]
fn a_signal_to_the_group_comes_once() {
    let ours = std::process::id() as c_int;
    let mut delivered = Delivered::default();
    for (signal, sender, repeated) in [
        (libc::SIGTERM, 1, false),
        (libc::SIGTERM, ours, true),
        // Two signals from others are two.
        (libc::SIGTERM, 1, false),
        (libc::SIGTERM, 1, false),
        (libc::SIGINT, ours, false),
        (libc::SIGTERM, ours, false),
        (libc::SIGTERM, 1, true),
        (libc::SIGUSR1, ours, false),
        (libc::SIGUSR1, 1, false),
    ] {
        assert_eq!(delivered.is_repeated(signal, sender), repeated, "{signal} of {sender}");
    }
}

/// On a busy machine, seconds pass between a signal's two ways.
#[test]
fn a_signal_of_one_sender_comes_once_however_late() {
    let (ours, start) = (std::process::id() as c_int, Instant::now());
    SENDER.store(77, Ordering::Relaxed);
    for (direct, repeated) in [(77, true), (78, false)] {
        let mut delivered = Delivered::default();
        assert!(!delivered.is_repeated_at(start, libc::SIGTERM, direct));
        let later = start + Duration::from_secs(4);
        assert_eq!(delivered.is_repeated_at(later, libc::SIGTERM, ours), repeated, "{direct}");
    }
}
