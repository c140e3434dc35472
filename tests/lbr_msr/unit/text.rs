use super::AsText;

#[test]
fn invalid_utf_8_is_shown_byte_by_byte() {
    assert_eq!("größe".as_bytes().as_text(), "größe");
    assert_eq!(b"bad\xff\xfe\xc3(utf8".as_text(), "bad\\xff\\xfe\\xc3(utf8");
    assert_eq!(b"\xe2\x82".as_text(), "\\xe2\\x82");
}
