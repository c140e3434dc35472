use super::*;

#[test]
fn a_wide_interval_is_no_equality() {
    assert_eq!(no_difference(Some((0.983, 1.018))), "takes as long");
    assert_eq!(no_difference(Some((0.95, 1.4))), "takes 0.95 to 1.40 times as long");
    assert_eq!(no_difference(Some((-204.2, 902.5))), "takes 0.00 to 902.50 times as long");
}

fn labels(sources: &[&str]) -> Vec<String> {
    let code = |source: &&str| TimedCode {
        body: lab::measure::bracket::Body::default(),
        image: None,
        title: String::new(),
        source: (*source).to_owned(),
        prediction: None,
    };
    let codes: Vec<TimedCode> = sources.iter().map(code).collect();
    (0..codes.len()).map(|which| label(&codes, which)).collect()
}

#[test]
fn code_that_starts_alike_is_shown_from_where_it_differs() {
    let shared = "mov rax, [r14]; add rax, 64; and rax, 4095";
    let (one, two) = (format!("{shared}; imul rax, rax"), format!("{shared}; lea rax, [rax+8]"));
    assert_eq!(labels(&[&one, &two]), ["\u{2026}; imul rax, rax", "\u{2026}; lea rax, [rax+8]"]);
    assert_eq!(labels(&["nop", "nop; nop"]), ["nop", "nop; nop"], "short as it is");
    assert_eq!(labels(&[shared, "nop"]), [shared, "nop"]);
    assert_eq!(labels(&[shared, shared]).len(), 2);
}
