use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use super::*;

/// A regular file works as a register file: eight bytes at an offset.
#[test]
fn it_thaws_sleeps_reads_and_freezes() {
    let file = tempfile::tempfile().expect("a file");
    let msr = Msr(0x1D9);
    let mut control = Control { descriptor: file.as_fd(), cpu: 3, msr, enable: 1 };
    let start = crate::clock::monotonic_ns();
    let deadline = Duration::from_nanos(start + 3_000_000);
    assert_eq!(control.record_until(0x4801, deadline), Ok(0x4801));
    assert!(crate::clock::monotonic_ns() >= start + 3_000_000, "it slept");
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 0x1D9).expect("eight bytes");
    assert_eq!(u64::from_le_bytes(bytes), 0x4800, "frozen, with the other bits unchanged");
    assert_eq!(file.metadata().expect("metadata").len(), 0x1D9 + 8);
}

#[test]
fn failures_are_distinguished() {
    let msr = Msr(0x1D9);
    let null = std::fs::File::open("/dev/null").expect("a device");
    let mut control = Control { descriptor: null.as_fd(), cpu: 3, msr, enable: 1 };
    let cause = io::Error::from_raw_os_error(libc::EBADF).to_string();
    let refused = MsrError::Os { cpu: 3, msr, access: Access::Write, cause };
    assert_eq!(control.record_until(1, Duration::ZERO), Err(refused), "not open for writing");
    let null = std::fs::File::options().read(true).write(true).open("/dev/null").expect("it");
    let mut control = Control { descriptor: null.as_fd(), ..control };
    let cause = "0 bytes were transferred instead of 8".to_owned();
    let short = MsrError::Os { cpu: 3, msr, access: Access::Read, cause };
    assert_eq!(control.record_until(1, Duration::ZERO), Err(short));
    let error = |errno| {
        transferred(-i64::from(errno), control.cpu, control.msr, Access::Read)
            .expect_err("an error")
    };
    assert_eq!(error(libc::EIO), MsrError::Fault { cpu: 3, msr, access: Access::Read });
    assert_eq!(error(libc::ENXIO), MsrError::Offline { cpu: 3 });
    assert!(matches!(error(libc::EPERM), MsrError::WriteFiltered { .. }));
}
