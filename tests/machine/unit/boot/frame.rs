use super::*;

#[test]
fn frames_follow_whatever_came_before_the_preamble() {
    let mut bytes = b"SeaBIOS\0\0LBR".to_vec();
    bytes.extend(PREAMBLE);
    bytes.extend(header(FrameKind::Stdout, 3));
    bytes.extend(b"abc");
    bytes.extend(header(FrameKind::Status, 4));
    bytes.extend([3, 0, 0, 0]);
    let mut stream = bytes.as_slice();
    let mut contents = Vec::new();
    assert!(skip_to_preamble(&mut stream).expect("a slice"));
    assert_eq!(read(&mut stream, &mut contents).expect("a slice"), Some(FrameKind::Stdout));
    assert_eq!(contents, b"abc");
    assert_eq!(read(&mut stream, &mut contents).expect("a slice"), Some(FrameKind::Status));
    assert_eq!(contents, [3, 0, 0, 0]);
    assert_eq!(read(&mut stream, &mut contents).expect("a slice"), None);
}

#[test]
fn a_damaged_stream_is_an_error() {
    let mut contents = Vec::new();
    assert!(read(&mut b"x\0\0\0\0".as_slice(), &mut contents).is_err());
    assert!(read(&mut b"1\xff\xff\xff\xff".as_slice(), &mut contents).is_err());
    assert!(read(&mut b"1\x05\0\0\0abc".as_slice(), &mut contents).is_err());
    assert!(!skip_to_preamble(&mut b"no preamble".as_slice()).expect("a slice"));
}
