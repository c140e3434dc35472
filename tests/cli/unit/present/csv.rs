#[test]
fn formulas_are_guarded_and_numbers_are_not() {
    for (cell, written) in [
        ("=cmd|calc!A0", "\"'=cmd|calc!A0\""),
        ("@SUM(1,2)", "\"'@SUM(1,2)\""),
        ("-1+1", "\"'-1+1\""),
        ("+a", "\"'+a\""),
        ("-", "\"'-\""),
        ("-inf", "\"'-inf\""),
        ("=\"a\"", "\"'=\"\"a\"\"\""),
        ("\t=1", "\"'\\t=1\""),
        ("\r=1", "\"'\\r=1\""),
        ("\u{ff1d}1", "\"'\u{ff1d}1\""),
        ("-5", "-5"),
        ("+3.2e4", "+3.2e4"),
        ("-0.5", "-0.5"),
        ("a=b", "a=b"),
        ("f(int, char)", "\"f(int, char)\""),
        ("say \"x\"", "\"say \"\"x\"\"\""),
        ("a\nb", "a\\nb"),
        ("", ""),
    ] {
        let mut line = Vec::new();
        super::write(&mut line, [cell, "0"]).expect("memory takes it");
        assert_eq!(String::from_utf8_lossy(&line), format!("{written},0\n"));
    }
}
