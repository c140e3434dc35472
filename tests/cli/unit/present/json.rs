use super::*;

#[test]
fn strings_mean_what_they_meant_and_hide_nothing() {
    let text = "a\u{1b}\"\\\u{9b}2J\u{202e}b\u{7f}é\u{e0041}c";
    let mut out = Vec::new();
    line(&mut out, &[("key", text.into()), ("a", 1.into())]).expect("a vector");
    let json = String::from_utf8(out).expect("text");
    assert_eq!(
        json,
        "{\"key\":\"a\\u001b\\\"\\\\\\u009b2J\\u202eb\\u007fé\\udb40\\udc41c\",\"a\":1}\n"
    );
    let read: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(read["key"], text);
}
