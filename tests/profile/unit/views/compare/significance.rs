use super::*;

/// Tables of the normal distribution, including its far tail.
#[test]
fn tails_of_the_normal_distribution() {
    for (z, tail) in [
        (0.0, 0.5),
        (1.0, 0.158_655_253_9),
        (1.959_963_985, 0.025),
        (2.000_001, 0.022_750_078),
        (4.0, 3.167_124_183e-5),
        (6.0, 9.865_876_45e-10),
    ] {
        assert!((upper_tail(z) / tail - 1.0).abs() < 1e-6, "{z}: {}", upper_tail(z));
    }
}

/// Tables of Student's distribution: 1%, two-sided.
#[test]
fn tails_of_students_distribution() {
    for (degrees, t) in [(10u64, 3.169f64), (30, 2.750), (1000, 2.581)] {
        let p = tails(t * t, degrees + 2);
        assert!((p / 0.01 - 1.0).abs() < 0.02, "{degrees}: {p}");
    }
}

fn of(stacks: &[(u64, u64)]) -> Clusters {
    let mut sums = Clusters::default();
    stacks.iter().for_each(|&(x, y)| sums.add(1, x, y));
    sums
}

/// Stacks of one entry each, the first of them hits.
fn hits(hits: usize, stacks: usize) -> Clusters {
    of(&(0..stacks).map(|at| (1, u64::from(at < hits))).collect::<Vec<_>>())
}

/// 200 stacks of one entry each, 10 of 100 against 30 of 100: with Yates' correction 10.5 and
/// 29.5, twice the logarithm of the ratio is 11.66.
#[test]
fn independent_entries() {
    let p = of_ratios(&hits(10, 100), &hits(30, 100), 200);
    assert!((5e-4..1.2e-3).contains(&p), "{p}");
}

/// The same counts from stacks with ten identical entries each are worth a tenth, and not
/// significant.
#[test]
fn entries_that_are_alike() {
    let side = |hits: usize| -> Vec<(u64, u64)> {
        (0..10).map(|at| (10, if at < hits { 10 } else { 0 })).collect()
    };
    let (a, b) = (of(&side(1)), of(&side(3)));
    // By hand: the squared residuals are 90 and 210, which times 10 / 9 and divided by 9 + 21 are
    // 11.1 entries a draw. With 1.4 and 2.2 hits of 9 draws each, twice the logarithm is 0.224, and
    // the tail with 18 degrees of freedom beyond its root 0.642.
    let p = of_ratios(&a, &b, 20);
    assert!((0.635..0.65).contains(&p), "{p}");
    // Divided by the 40 hits, they are 8.33 hits a draw. With 1.7 and 3.1 draws of 2.4, twice the
    // logarithm is 0.414, and the tail with 18 degrees of freedom beyond its root 0.528.
    let p = of_counts(&a, &b, 1.0, 20);
    assert!((0.52..0.54).contains(&p), "{p}");
}

/// By hand: up to 2 are a quarter of the first side, up to 5 all of it and a tenth of the second.
#[test]
fn splits_with_equal_weight_for_both_sides() {
    let of = |values: &[(u32, u64)]| {
        let mut cycles = Cycles::default();
        values.iter().for_each(|&(value, times)| cycles.add(value, times));
        cycles
    };
    let (a, b) = (of(&[(2, 1), (5, 3)]), of(&[(5, 10), (9, 90)]));
    assert_eq!([split(&a, &b), split(&b, &a)], [Some(5); 2]);
    assert_eq!([split(&a, &of(&[])), split(&of(&[]), &a)], [None; 2]);
}

/// 20 of 100 stacks against 40 of 200: the same, unless the second were to have doubled. Then
/// 12 and 48 are expected, twice the logarithm of the ratio of 19.5 and 40.5 is 5.173, and the
/// tail of Student's distribution with 298 degrees of freedom beyond its root 0.0237.
#[test]
fn counts_of_unequal_exposure() {
    let (a, b) = (hits(20, 100), hits(40, 200));
    assert!(of_counts(&a, &b, 1.0, 300) > 0.999_999);
    let p = of_counts(&a, &b, 2.0, 300);
    assert!((0.0234..0.0240).contains(&p), "{p}");
}

/// By hand: Holm's values for 0.01, 0.02, 0.04 are 0.03, 0.04, 0.04.
#[test]
fn holm() {
    let change = |p| Change {
        p: Some(p),
        ..Change::new(super::super::Measure::Share, [None; 2], Default::default())
    };
    let mut changes = [0.04, 0.01, 0.02].map(change);
    adjust(&mut changes.iter_mut().collect::<Vec<_>>(), 0.03);
    let adjusted = changes.map(|of| (of.adjusted.map(|p| (p * 1e6).round() / 1e6), of.significant));
    assert_eq!(adjusted, [(Some(0.04), false), (Some(0.03), true), (Some(0.04), false)]);
}

#[test]
fn medians_of_three_or_more() {
    let of = |ratios: &[f64]| median(ratios.to_vec());
    assert_eq!([of(&[]), of(&[3.0]), of(&[3.0, 5.0])], [1.0; 3]);
    assert_eq!([of(&[4.0, 1.0, 2.0]), of(&[10.0, 1.0, 2.0, 3.0])], [2.0, 2.5]);
}
