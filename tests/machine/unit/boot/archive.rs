use super::*;

#[test]
fn an_entry_is_laid_out_as_the_kernel_documents() {
    let mut archive = Archive::new(Vec::new()).expect("a vector");
    let start = archive.out.len();
    archive.file("a/bc", 0o755, b"hello").expect("a vector");
    let bytes = &archive.out[start..];
    // The folder first: 110 bytes of header, "a\0", padded to 112.
    assert_eq!(&bytes[..6], b"070701");
    assert_eq!(&bytes[14..22], b"000041ed");
    assert_eq!(&bytes[110..112], b"a\0");
    // Then the file: 110 + "a/bc\0" = 115, padded to 116; 5 bytes, padded to 8.
    let file = &bytes[112..];
    assert_eq!(&file[14..22], b"000081ed");
    assert_eq!(&file[54..62], b"00000005");
    assert_eq!(&file[94..102], b"00000005");
    assert_eq!(&file[110..116], b"a/bc\0\0");
    assert_eq!(&file[116..], b"hello\0\0\0");
}

#[test]
fn a_folder_is_written_once() {
    let mut archive = Archive::new(Vec::new()).expect("a vector");
    archive.file("x/1", 0o644, b"").expect("a vector");
    let before = archive.out.len();
    archive.file("x/2", 0o644, b"").expect("a vector");
    assert_eq!(archive.out.len() - before, (110 + 4usize).next_multiple_of(4));
}
