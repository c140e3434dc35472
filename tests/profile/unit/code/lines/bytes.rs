use std::io::Write;

use super::*;

#[test]
fn a_file_that_is_cut_short_ends_nothing() {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&[7; 1 << 16]).expect("written");
    let bytes = Bytes::map(&file, Path::new("/one")).expect("mapped");
    assert_eq!((bytes.first(), bytes.is_cut()), (Some(&7), false));
    file.set_len(5000).expect("cut");
    assert_eq!((bytes.get(4096), bytes.last()), (Some(&7), Some(&0)));
    assert!(bytes.is_cut());
    // Another file is not affected.
    let other = tempfile::tempfile().expect("a file");
    other.set_len(10).expect("longer");
    assert!(!Bytes::map(&other, Path::new("/other")).expect("mapped").is_cut());
    let cut = || super::super::cut_files().contains(&"/one".into());
    assert!(cut());
    drop(bytes);
    assert!(cut() && !super::super::cut_files().contains(&"/other".into()));
}
