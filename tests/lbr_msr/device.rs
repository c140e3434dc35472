//! The driver's device, emulated by a file tree, and the fake.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};

use lbr_msr::access::{Device, FakeMsrs, MsrError, MsrRead, MsrWrite, Op, Root};
use lbr_msr::{Msr, address};
use tempfile::TempDir;

/// A tree with two CPUs online, CPU 2 offline, and a node only for CPU 0.
fn tree() -> (TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    let cpus = dir.path().join("sys/devices/system/cpu");
    for cpu in 0..3 {
        fs::create_dir_all(cpus.join(format!("cpu{cpu}"))).unwrap();
    }
    fs::write(cpus.join("online"), "0-1\n").unwrap();
    fs::write(cpus.join("cpu1/online"), "1\n").unwrap();
    fs::write(cpus.join("cpu2/online"), "0\n").unwrap();
    fs::create_dir_all(dir.path().join("dev/cpu/0")).unwrap();
    let node = fs::File::create(dir.path().join("dev/cpu/0/msr")).unwrap();
    node.write_all_at(&0x33C5u64.to_le_bytes(), 0x345).unwrap();
    node.write_all_at(&0x0123_4567_89AB_CDEFu64.to_le_bytes(), 0x1D9).unwrap();
    let root = Root::at(dir.path());
    (dir, root)
}

#[test]
fn reads_eight_bytes_at_the_address() {
    let (_dir, root) = tree();
    let mut device = Device::open(0, &root).unwrap();
    assert_eq!(device.cpu(), 0);
    assert_eq!(device.read(address::IA32_PERF_CAPABILITIES), Ok(0x33C5));
    assert_eq!(device.read(address::IA32_DEBUGCTL), Ok(0x0123_4567_89AB_CDEF));
    assert!(!device.one_call());
    // A file that ends early.
    let error = device.read(Msr(0x34C)).unwrap_err();
    assert!(matches!(&error, MsrError::Os { cause, .. } if cause.contains("1 bytes")), "{error}");
}

#[test]
fn says_why_it_cannot_open() {
    let (dir, root) = tree();
    let error = |cpu| Device::open(cpu, &root).unwrap_err();
    assert_eq!(error(7), MsrError::NoSuchCpu { cpu: 7, online: "0-1".into() });
    assert_eq!(error(2), MsrError::Offline { cpu: 2 });
    let missing = error(1);
    assert!(
        matches!(&missing, MsrError::DriverMissing { path } if path.ends_with("dev/cpu/1/msr"))
    );
    assert!(missing.to_string().ends_with("modprobe msr"));
    // A file in place of its folder.
    fs::write(dir.path().join("dev/cpu/1"), []).unwrap();
    assert!(matches!(error(1), MsrError::DriverMissing { .. }));
    fs::remove_file(dir.path().join("dev/cpu/1")).unwrap();
    // Offline CPUs lose their node, so a missing node means offline.
    fs::create_dir_all(dir.path().join("dev/cpu/2")).unwrap();
    assert_eq!(error(2), MsrError::Offline { cpu: 2 });
    // sysfs decides, whatever is left in /dev.
    fs::create_dir_all(dir.path().join("dev/cpu/7")).unwrap();
    assert_eq!(error(7), MsrError::NoSuchCpu { cpu: 7, online: "0-1".into() });
    fs::remove_dir(dir.path().join("dev/cpu/7")).unwrap();

    // Without sysfs the device directory decides.
    fs::remove_dir_all(dir.path().join("sys")).unwrap();
    assert!(matches!(error(2), MsrError::DriverMissing { .. }));
    assert_eq!(error(7), MsrError::NoSuchCpu { cpu: 7, online: "unknown".into() });
}

#[test]
fn says_that_the_file_mode_forbids() {
    let (dir, root) = tree();
    let node = dir.path().join("dev/cpu/0/msr");
    fs::set_permissions(&node, fs::Permissions::from_mode(0o200)).unwrap();
    match Device::open(0, &root) {
        Err(MsrError::Permission { path, mode }) => {
            assert_eq!((path, mode), (node.display().to_string(), 0o200));
        }
        // Root may read despite the mode.
        Ok(_) => assert!(nix_is_root()),
        Err(other) => panic!("{other}"),
    }
}

fn nix_is_root() -> bool {
    fs::read_to_string("/proc/self/status")
        .unwrap()
        .lines()
        .any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}

#[test]
fn a_regular_file_is_a_device_only_in_a_test_tree() {
    let (_folder, root) = tree();
    let file = root.msr_node(0);
    let found = std::fs::metadata(&file).unwrap();
    assert_eq!(root.not_a_node(&found), None);
    assert_eq!(Root::default().not_a_node(&found), Some("a regular file"));
    let error = Root::default().open_node(&file, false).unwrap_err();
    assert_eq!(error.to_string(), "it is a regular file, not a character device");
    assert!(Root::default().open_node("/dev/null".as_ref(), true).is_ok());
}

#[test]
fn other_kinds_of_files_are_no_devices() {
    let (dir, root) = tree();
    let (pipe, socket) = (dir.path().join("pipe"), dir.path().join("socket"));
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, kind) in [(dir.path(), "a directory"), (&pipe, "a FIFO"), (&socket, "a socket")] {
        let found = fs::metadata(path).unwrap();
        for root in [&root, &Root::default()] {
            assert_eq!(root.not_a_node(&found), Some(kind));
        }
    }
}

#[test]
fn a_directory_is_not_a_device() {
    let (dir, root) = tree();
    fs::create_dir_all(dir.path().join("dev/cpu/1/msr")).unwrap();
    for opened in [Device::open(1, &root), Device::open_for_writing(1, &root)] {
        let error = opened.unwrap_err().to_string();
        assert!(
            error.ends_with("dev/cpu/1/msr: it is a directory, not a character device"),
            "{error}"
        );
    }
}

#[test]
fn the_fake_refuses_unpopulated_registers() {
    let mut fake = FakeMsrs::new(3).with(Msr(0x1D9), 5);
    assert_eq!((fake.cpu(), fake.read(Msr(0x1D9))), (3, Ok(5)));
    assert!(matches!(fake.read(Msr(0x680)), Err(MsrError::Unpopulated { .. })));
    assert!(matches!(fake.write(Msr(0x680), 0), Err(MsrError::Unpopulated { .. })));
    fake.write(Msr(0x1D9), 4).unwrap();
    assert_eq!((fake.read(Msr(0x1D9)), fake.written()), (Ok(4), &[(Msr(0x1D9), 4)][..]));
}

#[test]
fn writes_eight_bytes_at_the_address() {
    let (dir, root) = tree();
    let node = dir.path().join("dev/cpu/0/msr");
    let mut device = Device::open_for_writing(0, &root).unwrap();
    device.write(address::IA32_DEBUGCTL, 0x0123_4567_89AB_CDEE).unwrap();
    let mut batch = [
        Op::Write { msr: Msr(0x1C8), value: 0x101 },
        Op::Read { msr: Msr(0x1C8), value: 0 },
        Op::Read { msr: Msr(0x1D9), value: 0 },
    ];
    device.run(&mut batch).unwrap();
    assert_eq!(batch[1], Op::Read { msr: Msr(0x1C8), value: 0x101 });
    assert_eq!(batch[2], Op::Read { msr: Msr(0x1D9), value: 0x0123_4567_89AB_CDEE });
    let bytes = fs::read(node).unwrap();
    assert_eq!(bytes[0x1D9..0x1E1], 0x0123_4567_89AB_CDEEu64.to_le_bytes());
    assert_eq!(bytes[0x1C8..0x1D0], 0x101u64.to_le_bytes());
}

#[test]
fn a_second_writer_is_refused_until_the_first_ends() {
    let (_dir, root) = tree();
    let first = Device::open_for_writing(0, &root).unwrap();
    assert_eq!(Device::open_for_writing(0, &root).unwrap_err(), MsrError::InUse { cpu: 0 });
    assert!(Device::open(0, &root).is_ok(), "reading disturbs nobody");
    drop(first);
    assert!(Device::open_for_writing(0, &root).is_ok());
}

#[test]
fn a_read_only_device_cannot_be_written() {
    let (dir, root) = tree();
    let node = dir.path().join("dev/cpu/0/msr");
    let before = fs::read(&node).unwrap();
    let mut device = Device::open(0, &root).unwrap();
    for error in [
        device.write(address::IA32_DEBUGCTL, 0).unwrap_err(),
        device.run(&mut [Op::Write { msr: Msr(0x345), value: 0 }]).unwrap_err(),
    ] {
        assert!(error.to_string().contains("for reading only"), "{error}");
    }
    assert_eq!(fs::read(&node).unwrap(), before);
    assert_eq!(
        Device::open_for_writing(7, &root).unwrap_err(),
        MsrError::NoSuchCpu { cpu: 7, online: "0-1".into() }
    );
}

#[test]
fn says_what_forbids_writing() {
    let (dir, root) = tree();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    assert_eq!(root.write_filter(), "kernel lockdown is active or msr.allow_writes=off");
    write("sys/module/msr/parameters/allow_writes", "off\n");
    assert!(root.write_filter().contains("echo on > /sys/module/msr/parameters/allow_writes"));
    write("sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
    assert!(root.write_filter().contains("allow_writes is off"));
    write("sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
    assert!(root.write_filter().contains("lockdown is active (confidentiality)"));
}
