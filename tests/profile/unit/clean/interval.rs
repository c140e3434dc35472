use super::*;

/// Tables of Student's distribution.
#[test]
fn quantiles() {
    for (degrees, quantile, error) in [
        (9, 2.262_157, 3e-4),
        (29, 2.045_230, 3e-6),
        (100, 1.983_972, 1e-6),
        (1_000_000, 1.959_966, 1e-6),
    ] {
        assert!((student(degrees) - quantile).abs() < error, "{degrees}");
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
