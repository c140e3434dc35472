use super::modes;

#[test]
fn a_counter_that_counts_in_steps_has_no_peak_at_each() {
    // Steps of 26 around 1,040: one latency.
    let one: Vec<u64> = (0..90).map(|i| 1014 + 26 * (i % 3)).collect();
    assert_eq!(modes(&one).len(), 1, "{:?}", modes(&one));
    // And around 5,200, half as often: another.
    let two: Vec<u64> =
        (0..90).map(|i| if i % 3 == 0 { 5200 } else { 1040 + 26 * (i % 2) }).collect();
    let found = modes(&two);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!((1040.0..=1066.0).contains(&found[0]) && found[1] == 5200.0, "{found:?}");
}
