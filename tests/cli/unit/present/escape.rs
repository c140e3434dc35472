use super::*;

#[test]
fn what_does_not_show_is_escaped() {
    for (text, shown) in [
        ("main", "main"),
        ("f\u{1b}]0;T\u{7}", "f\\x1b]0;T\\x07"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\u{7f}\u{9b}2J", "\\x7f\\x9b2J"),
        ("user\u{202e}nimda", "user\\u{202e}nimda"),
        ("ma\u{200b}in\u{feff}", "ma\\u{200b}in\\u{feff}"),
        ("\u{2028}\u{e0041}", "\\u{2028}\\u{e0041}"),
        ("größe 関数", "größe 関数"),
    ] {
        assert_eq!(escaped(text), shown);
    }
}
