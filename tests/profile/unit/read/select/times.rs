use super::*;

fn between(from: Option<u64>, to: Option<u64>) -> Times {
    Times::Between { from, to }
}

#[test]
fn as_perf_writes_them() {
    let s = SECOND;
    let parse = Times::parse;
    assert_eq!(parse("1,2"), Ok(vec![between(Some(s), Some(2 * s))]));
    assert_eq!(parse("1.5,"), Ok(vec![between(Some(s + s / 2), None)]));
    assert_eq!(parse(",0.000000001"), Ok(vec![between(None, Some(1))]));
    assert_eq!(parse("2,2"), Ok(vec![between(Some(2 * s), Some(2 * s))]));
    assert_eq!(parse("7"), Ok(vec![between(Some(7 * s), None)]));
    assert_eq!(
        parse("1,2 4,5.25"),
        Ok(vec![between(Some(s), Some(2 * s)), between(Some(4 * s), Some(5 * s + s / 4))])
    );
    assert_eq!(parse("10%-20%"), Ok(vec![Times::Share { from: 0.1, to: 0.2 }]));
    assert_eq!(parse("10%-10%"), Ok(vec![Times::Share { from: 0.1, to: 0.1 }]));
    assert_eq!(parse("25%/2,25%/4").map(|all| all.len()), Ok(2));
    assert_eq!(parse("25%/2"), Ok(vec![Times::Share { from: 0.25, to: 0.5 }]));
    assert_eq!(parse("75%/2"), Ok(vec![Times::Share { from: 0.75, to: 1.0 }]));
    for wrong in
        ["", "a", "1,b", "2,1", "1.0000000001,", "-1,", "20%-10%", "10%/0", "50%/3", "0%/1"]
    {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn shares_are_of_the_time_between_the_first_and_the_last_sample() {
    let share = Times::Share { from: 0.25, to: 0.5 };
    assert_eq!(share.resolve(Some((1000, 2000))), Some((1250, 1500)));
    // To the nearest nanosecond.
    assert_eq!(share.resolve(Some((1000, 2003))), Some((1251, 1502)));
    assert_eq!(share.resolve(None), None);
    // A single sample; and perf's numbers for unknown times.
    assert_eq!(share.resolve(Some((1000, 1000))), Some((1000, 1000)));
    assert_eq!(share.resolve(Some((0, 0))), None);
    assert_eq!(share.resolve(Some((2000, 1000))), None);
    assert_eq!(between(None, Some(5)).resolve(None), Some((0, 5)));
}
