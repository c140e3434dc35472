use super::*;

/// Tables of Student's distribution.
#[test]
fn quantiles() {
    for (degrees, quantile) in [(9, 2.2622), (29, 2.0452), (100, 1.9840), (1_000_000, 1.9600)] {
        assert!((student(degrees) - quantile).abs() < 4e-4, "{degrees}");
    }
}

/// Wilson's interval of 20 of 100, with Student's 1.984: k = 0.03937,
/// middle 0.21136, half 0.07873.
#[test]
fn widest() {
    let Interval { low, high } = Interval::widest(0.2, 100).expect("enough stacks");
    assert!((low - 0.1326).abs() < 2e-4 && (high - 0.2901).abs() < 2e-4, "{low} {high}");
    assert_eq!(Interval::widest(0.2, 9), None);
}
