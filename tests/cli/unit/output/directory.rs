use super::*;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

/// Some file systems, such as NFS, cannot link the file: it is copied.
#[test]
fn a_file_that_cannot_be_linked_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("place");
    std::fs::write(folder.path().join("victim"), "secret").unwrap();
    std::os::unix::fs::symlink("victim", &place).unwrap();
    let (mut file, name) = tempfile::NamedTempFile::new().unwrap().into_parts();
    name.close().unwrap();
    file.write_all(b"text").unwrap();
    let entry = DirEntry::of(&place).unwrap_or_else(|failure| panic!("{}", failure.error));
    entry.publish(&mut file, 0o600).unwrap();
    assert_eq!(std::fs::read(&place).unwrap(), b"text");
    let made = std::fs::symlink_metadata(&place).unwrap();
    assert!(made.is_file());
    assert_eq!(made.permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read(folder.path().join("victim")).unwrap(), b"secret");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}
