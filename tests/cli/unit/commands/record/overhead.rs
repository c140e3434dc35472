use super::*;

/// A recorder that sleeps for 30 ms of a program of 100 ms; both vary by 10%, and one run in ten
/// takes twice its time.
#[test]
fn the_interval_covers_a_planted_slowdown() {
    let mut random = sampler::Random(1);
    let mut noise = move || {
        let mut dice = || (random.draw() >> 11) as f64 / (1u64 << 53) as f64;
        let disturbed = if dice() < 0.1 { 2.0 } else { 1.0 };
        disturbed * (0.95 + 0.1 * dice())
    };
    let covered = (0..100).filter(|_| {
        let mut times = |seconds: f64| -> Vec<Times> {
            let one = |wall| Times { wall, user: Duration::ZERO };
            (0..12).map(|_| one(Duration::from_secs_f64(seconds * noise()))).collect()
        };
        let (alone, recorded) = (times(0.1), times(0.13));
        let (low, high) = ratio(&alone, &recorded, |times| times.wall).interval().unwrap();
        (low..high).contains(&1.3)
    });
    let covered = covered.count();
    assert!(covered >= 95, "{covered}");
}

#[test]
fn a_time_of_zero_is_not_compared() {
    let times = [Times { wall: Duration::from_secs(1), user: Duration::ZERO }; 12];
    let lines = lines(&times, &times, 7, "the software LBR (X) through qemu: none; as root");
    assert_eq!(
        lines,
        [
            "recorded: 1.000 times the wall time (1.000 to 1.000), user time too short to compare; \
             99%, 12 pairs",
            "  alone     1.000 s, 0.000 s user",
            "  recorded  1.000 s, 0.000 s user, 7 branches",
            "on the software LBR (X) through qemu: none; this is not the cost of hardware",
        ]
    );
}
