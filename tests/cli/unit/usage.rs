use super::*;

#[test]
fn reasons_are_in_plain_words() {
    for (why, sentence) in [
        ("0 is not in 1..=1024", "must be 1 to 1024"),
        ("0 is not in 1..18446744073709551615", "must be at least 1"),
        ("0 is not in 1..=4294967295", "must be at least 1"),
        ("invalid digit found in string", "not a whole number"),
        ("its ending must be .svg or .html", "its ending must be .svg or .html"),
    ] {
        assert_eq!(plain(why), sentence);
    }
}

#[test]
fn only_near_words_are_offered() {
    let known = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        near("repor", &known(&["record", "export", "report"]), true),
        "; did you mean report?"
    );
    assert_eq!(near("--foo", &known(&["--root"]), true), "");
    assert_eq!(near("x", &known(&["y"]), true), "");
}
