use super::*;

#[test]
fn each_sampler_has_its_own_jitter() {
    let rate = Sampling::Rate { hz: 997, seed: 5 };
    let first = |nth| rate.pace(nth).expect("a clock").next_interval();
    assert_eq!(first(0), first(0));
    assert_ne!(first(0), first(1));
    assert_ne!(first(1), first(2));
    assert!(Sampling::Period(5).pace(0).is_none());
}
