use super::*;

#[test]
fn offsets_are_in_the_first_and_the_last_line_of_a_page() {
    assert_eq!(offsets(1), [0, 4032]);
    assert_eq!(offsets(4), [0, 16, 32, 48, 4032, 4048, 4064, 4080]);
    assert_eq!(offsets(64).len(), 128);
}

#[test]
fn a_difference_within_what_layout_changes_is_layout() {
    let range = |fastest, slowest| Some(Range { fastest: (fastest, 0), slowest: (slowest, 32) });
    let first = range(2.0, 3.0);
    assert_eq!(verdict(Some("slower"), range(2.5, 4.0), first), "layout");
    assert_eq!(verdict(Some("slower"), range(3.1, 4.0), first), "slower");
    assert_eq!(verdict(Some("faster"), range(1.0, 1.9), first), "faster");
    assert_eq!(verdict(Some("faster"), range(1.0, 2.1), first), "layout");
    assert_eq!(verdict(Some("not known"), range(5.0, 6.0), first), "not known");
    assert_eq!(verdict(Some("slower"), None, first), "not known");
}

#[test]
fn an_answer_is_no_more_exact_than_the_interval() {
    let wide = Some((0.331, 5.278));
    assert_eq!(answer("no difference seen", 2, wide), "takes 0.33 to 5.28 times as long");
    assert_eq!(answer("no difference seen", 2, Some((0.98, 1.02))), "takes as long");
    assert_eq!(answer("slower", 2, wide), "is slower at all 2 offsets");
    assert_eq!(answer("layout", 2, wide), "differs no more than by layout");
    assert_eq!(answer("not known", 2, None), "is not known");
}
