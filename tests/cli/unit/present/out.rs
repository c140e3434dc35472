use super::*;

#[test]
fn errors_of_the_system_have_no_number() {
    let plain = without_numbers("a: No such file or directory (os error 2); b (os error x)");
    assert_eq!(plain, "a: No such file or directory; b (os error x)");
}

#[test]
fn long_lines_are_cut_between_words() {
    let fold = |text: &str, width| folded(text, Some(width), 2);
    assert_eq!(fold("one two three", 13), ["one two three"]);
    assert_eq!(fold("one two three", 9), ["one two", "  three"]);
    assert_eq!(fold("abcdefghij", 6), ["abcdef", "  ghij"]);
    assert_eq!(fold("a bcdefghij k", 6), ["a bcde", "  fghi", "  j k"]);
    // Two cells each.
    assert_eq!(fold("関数関数", 4), ["関数", "  関", "  数"]);
    assert_eq!(folded("one two three", None, 2), ["one two three"]);
}
