use super::{Cycles, FEW, Many, Storage};

/// A distribution is the same in both storage forms.
#[test]
fn few_and_many_are_one() {
    let few_values: Vec<(u32, u64)> =
        [(9, 2), (3, 1), (0, 3), (0xFFFF, 4), (9, 1), (5, 7)].repeat(3).to_vec();
    let mut too_many = few_values.clone();
    too_many.extend((20..20 + FEW as u32).map(|cycles| (cycles, 1)));
    let mut too_often = few_values.clone();
    too_often.extend([(3, 0xFFFF), (3, 1)]);
    let mut too_large = few_values.clone();
    too_large.push((0x1_0000, 1));
    for (values, fits) in
        [(few_values, true), (too_many, false), (too_often, false), (too_large, false)]
    {
        let (mut cycles, mut plain) = (Cycles::default(), Many::default());
        for (value, weight) in values {
            cycles.add(value, weight);
            plain.add(value, weight);
        }
        assert_eq!(matches!(cycles.counts, Storage::Few(_)), fits);
        let plain = Cycles { counts: Storage::Many(Box::new(plain)) };
        let summary = |c: &Cycles| {
            let quantiles = [0.0, 0.1, 0.5, 0.9, 1.0].map(|share| c.quantile(share));
            let all: Vec<(u32, u64)> = c.iter().collect();
            (c.n(), c.saturated(), c.min(), c.max(), c.modes(), quantiles, all)
        };
        assert_eq!(summary(&cycles), summary(&plain));
        let (mut twice, mut merged) = (cycles.clone(), plain.clone());
        twice.merge(&cycles);
        merged.merge(&plain);
        assert_eq!(summary(&twice), summary(&merged));
    }
}

#[test]
fn parts_merge_into_the_whole() {
    let of = |values: std::ops::Range<u32>| {
        let mut cycles = Cycles::default();
        values.for_each(|value| cycles.add(value, 1));
        cycles
    };
    let mut merged = of(10..30);
    merged.merge(&of(100..120));
    let range = (merged.min(), merged.max());
    assert_eq!((merged.n(), range, merged.quantile(0.5)), (40, (Some(10), Some(119)), Some(29)));
    merged.merge(&of(1..9));
    assert_eq!((merged.min(), merged.max()), (Some(1), Some(119)));

    // 2001 has eleven bits; the lowest six are dropped, as those of the rounded side were.
    let mut rounded = of(2001..2002);
    rounded.merge(&of(1..1100));
    assert!(rounded.is_rounded());
    assert_eq!((rounded.iter().last(), rounded.max()), (Some((1984, 1)), Some(2001)));
    let high = of(2001..3101);
    assert_eq!((high.iter().next(), high.quantile(0.0)), (Some((1984, 47)), Some(2001)));
    let mut small = of(2001..2009);
    let mut large = of(1..1100);
    large.merge(&of(2001..2002));
    assert_eq!(large, rounded);
    small.merge(&large);
    assert_eq!(small.iter().last(), Some((1984, 9)));
}
