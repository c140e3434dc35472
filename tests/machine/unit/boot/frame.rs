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
    assert!(skip_to_preamble(&mut stream).expect("a slice"));
    let mut next = || read(&mut stream).expect("a slice");
    assert_eq!(next(), Some((FrameKind::Stdout, b"abc".to_vec())));
    assert_eq!(next(), Some((FrameKind::Status, vec![3, 0, 0, 0])));
    assert_eq!(next(), None);
}

#[test]
fn a_damaged_stream_is_an_error() {
    assert!(read(&mut b"x\0\0\0\0".as_slice()).is_err());
    assert!(read(&mut b"1\xff\xff\xff\xff".as_slice()).is_err());
    assert!(read(&mut b"1\x05\0\0\0abc".as_slice()).is_err());
    assert!(!skip_to_preamble(&mut b"no preamble".as_slice()).expect("a slice"));
}
