use super::*;

/// One hint, and only if the recording has taken longer than five seconds.
#[test]
fn a_long_recording_gets_one_hint() {
    let mut hint: Option<Hint> = Some(Box::new(|| "install the faster one".to_owned()));
    let hints = [0, 5, 6, 7].map(|seconds| due(&mut hint, Duration::from_secs(seconds)));
    assert_eq!(hints, [None, None, Some("install the faster one".to_owned()), None]);
}
