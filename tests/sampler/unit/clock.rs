use super::*;

/// The first numbers of the authors' splitmix64.c from this seed.
#[test]
fn the_generator_is_splitmix64() {
    let mut random = Random(1_234_567);
    let numbers = [(); 5].map(|()| random.draw());
    assert_eq!(
        numbers,
        [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ]
    );
}

#[test]
fn every_order_is_as_likely() {
    let mut random = Random(7);
    let mut orders = std::collections::BTreeMap::new();
    for _ in 0..6_000 {
        let mut items = [1, 2, 3];
        random.shuffle(&mut items);
        *orders.entry(items).or_insert(0) += 1;
    }
    // Six standard deviations of a binomial distribution are 173.
    assert_eq!(orders.len(), 6, "{orders:?}");
    assert!(orders.values().all(|count| (827..=1_173).contains(count)), "{orders:?}");
}

#[test]
fn a_slow_tick_leaves_the_target_as_much_time() {
    let mut pace = Pace::new(1_000, 1);
    assert_eq!(pace.tick_after(4_000_000, 5_000_000..7_000_000), 9_000_000);
    let next = pace.tick_after(4_000_000, 5_000_000..5_010_000);
    assert!((5_020_000..5_250_000).contains(&next), "no longer than the interval: {next}");
    // The sampler was stopped for a second.
    let next = pace.tick_after(4_000_000, 5_000_000..1_005_000_000);
    assert!((1_012_500_000..=1_017_500_000).contains(&next), "{next}");
}

#[test]
fn seeds_differ() {
    assert_ne!(fresh_seed(), fresh_seed());
}
