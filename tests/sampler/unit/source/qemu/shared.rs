use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::unistd::ftruncate;

use super::*;

/// memfd_create(2) and fcntl(2), F_ADD_SEALS: EPERM.
#[test]
fn the_program_cannot_take_memory_away() {
    let shared = Shared::new().expect("memory");
    let size = i64::try_from(size_of::<Region>()).expect("a size");
    for other in [0, size - 1, size + 1] {
        assert_eq!(ftruncate(&shared.fd, other), Err(Errno::EPERM), "{other}");
    }
    let seal = FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE);
    assert_eq!(fcntl(&shared.fd, seal), Err(Errno::EPERM), "sealed for good");
}

#[test]
fn the_program_cannot_change_the_plugin() {
    let Plugin(file) = Plugin::new(b"bytes").expect("memory");
    for size in [0, 9] {
        assert_eq!(ftruncate(&file, size), Err(Errno::EPERM));
    }
    let file = File::from(file);
    assert_eq!(file.metadata().expect("a file").len(), 5);
    let error = file.write_all_at(b"x", 0).expect_err("sealed");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
}
