use super::*;

/// msr_open of Linux's arch/x86/kernel/msr.c: ENXIO of an offline CPU, EIO without MSRs.
#[test]
fn an_error_of_opening_has_its_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = folder.path().join("dev/cpu/2/msr");
    std::fs::create_dir_all(&node).expect("a folder");
    let root = Root::at(folder.path());
    let of = |errno: Errno| open_error(2, &root, &node, &errno.into());
    assert_eq!(of(Errno::ENXIO), MsrError::Offline { cpu: 2 });
    assert!(matches!(of(Errno::EPERM), MsrError::Capability { .. }));
    assert!(matches!(of(Errno::EACCES), MsrError::Permission { mode: 0o700..=0o755, .. }));
    let MsrError::Open { cause, .. } = of(Errno::EIO) else { panic!("EIO") };
    assert_eq!(cause, "this CPU has no model-specific registers");
}

/// msr_read and msr_write of the same file: EIO after #GP, ENXIO of a CPU that went offline.
/// Only writes are checked for lockdown and `allow_writes`, with EPERM.
#[test]
fn an_error_of_an_access_has_its_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(folder.path().join("dev/cpu/2")).expect("a folder");
    File::create(folder.path().join("dev/cpu/2/msr")).expect("a node");
    let device = Device::open(2, &Root::at(folder.path())).expect("a device");
    let msr = Msr(0x1D9);
    for access in [Read, Write] {
        let of = |errno| device.error(msr, access, errno);
        assert_eq!(of(Errno::EIO), MsrError::Fault { cpu: 2, msr, access });
        assert_eq!(of(Errno::ENXIO), MsrError::Offline { cpu: 2 });
        assert!(matches!(of(Errno::EINVAL), MsrError::Os { cpu: 2, .. }));
    }
    assert!(matches!(device.error(msr, Write, Errno::EPERM), MsrError::WriteFiltered { .. }));
    assert!(matches!(device.error(msr, Read, Errno::EPERM), MsrError::Os { .. }));
}
