use super::*;

#[test]
fn a_monitor_has_the_cpus_of_its_list() {
    let monitor = |cpus: Option<&str>| Monitor {
        kind: 0,
        cpus: cpus.map(str::to_owned),
        branches: None,
        rdpmc: true,
    };
    let all = |cpus| (0..13).filter(|cpu| monitor(cpus).is_of(*cpu)).collect::<Vec<u32>>();
    assert_eq!(all(Some("0-3,8,10-11")), [0, 1, 2, 3, 8, 10, 11]);
    assert_eq!(all(Some("7")), [7]);
    assert_eq!(all(None).len(), 13);
}

/// A hybrid as Linux lists it: Documentation/ABI/testing/sysfs-bus-event_source-devices-caps.
#[test]
fn each_kind_of_cpu_has_its_monitor() {
    let folder = tempfile::tempdir().expect("a folder");
    let put = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    };
    let look = || Host::look(&Root::at(folder.path()));
    assert_eq!(look(), Host::default(), "nothing is known");
    for (file, text) in [
        ("cpu_core/type", "4\n"),
        ("cpu_core/cpus", "0-1\n"),
        ("cpu_core/caps/branches", "32\n"),
        ("cpu_core/rdpmc", "0\n"),
        ("cpu_atom/type", "10\n"),
        ("cpu_atom/cpus", "2-3\n"),
        ("cpu_atom/caps/pmu_name", "atom\n"),
        ("cpu_atom/rdpmc", "2\n"),
        // None of these CPUs is present.
        ("cpu_lowpower/type", "11\n"),
        ("cpu_lowpower/cpus", "\n"),
        ("software/type", "1\n"),
    ] {
        put(&format!("sys/bus/event_source/devices/{file}"), text);
    }
    put("proc/sys/kernel/perf_event_paranoid", "-1\n");
    put("proc/sys/kernel/perf_event_max_sample_rate", "4000\n");
    let host = look();
    let of = |kind, cpus: &str, branches, rdpmc| Monitor {
        kind,
        cpus: Some(cpus.to_owned()),
        branches: Some(branches),
        rdpmc,
    };
    assert_eq!(host.monitors, Some(vec![of(10, "2-3", 0, true), of(4, "0-1", 32, false)]));
    assert_eq!((host.level, host.most_hz, host.privileged), (Some(-1), Some(4000), None));
    assert_eq!(host.branches(), Some(32));
    // Of one kind, without a list of features, as before Linux 4.14.
    let folder = tempfile::tempdir().expect("a folder");
    let device = folder.path().join("sys/bus/event_source/devices/cpu");
    fs::create_dir_all(&device).expect("made");
    fs::write(device.join("type"), "4\n").expect("written");
    let host = Host::look(&Root::at(folder.path()));
    let alike = Monitor { kind: 0, cpus: None, branches: None, rdpmc: true };
    assert_eq!((host.branches(), host.monitors), (None, Some(vec![alike])));
}

/// Linux Documentation/admin-guide/sysctl/kernel.rst.
#[test]
fn a_paranoid_level_forbids_ordinary_users() {
    for (filter, whole_cpus, highest) in
        [("any,u", false, 2), ("any,k", false, 1), ("any,u,k", false, 1), ("any,u", true, 0)]
    {
        let filter = filter.parse().expect("a filter");
        for level in -1..=4 {
            let host = |privileged| Host { level: Some(level), privileged, ..Host::default() };
            let permitted = host(Some(false)).permits(filter, whole_cpus);
            assert_eq!(permitted.is_ok(), level <= highest, "{level} {filter}: {permitted:?}");
            assert!(host(Some(true)).permits(filter, whole_cpus).is_ok());
            assert!(host(None).permits(filter, whole_cpus).is_ok(), "it is not known");
        }
    }
    let none = Host { monitors: Some(Vec::new()), ..Host::default() };
    let user = BranchFilter::USER;
    assert!(matches!(none.permits(user, false), Err(Refused::NoCounters)));
    assert!(matches!(none.allows(user, false), Err(Refused::NoCounters)));
}

/// perf_event_open(2), ERRORS.
#[test]
fn an_error_has_its_reason() {
    let host = Host { level: Some(2), most_hz: Some(4000), ..Host::default() };
    let refused = |errno, filter: &str, hz: Option<u32>| {
        let filter = filter.parse().expect("a filter");
        let sampling = hz.map_or(Sampling::Period(1), |hz| Sampling::Rate { hz, seed: 0 });
        let threads = Some(&[77][..]);
        let asked = EventRequest { sampling, threads, ..EventRequest::own(&host, filter) };
        host.refused(io::Error::from_raw_os_error(errno), &asked)
    };
    let user = |errno| refused(errno, "any,u", None);
    assert!(matches!(user(libc::ENOSYS), Refused::NoEvents));
    assert!(matches!(user(libc::ENOENT), Refused::NoCounters));
    assert!(matches!(user(libc::EOPNOTSUPP), Refused::NoStacks));
    assert!(matches!(refused(libc::EOPNOTSUPP, "stack,u", None), Refused::Filter { .. }));
    assert!(matches!(user(libc::EINVAL), Refused::Filter { .. }));
    assert!(matches!(refused(libc::EINVAL, "any,u", Some(4000)), Refused::Filter { .. }));
    let rate = refused(libc::EINVAL, "any,u", Some(4001));
    assert!(matches!(rate, Refused::Rate { hz: 4001, most: 4000 }));
    for errno in [libc::EACCES, libc::EPERM] {
        assert!(matches!(user(errno), Refused::Forbidden));
        let kernel = refused(errno, "any,k", None);
        assert!(matches!(kernel, Refused::Level { level: 2, highest: 1 }));
    }
    assert!(matches!(user(libc::EBUSY), Refused::Busy));
    assert!(matches!(user(libc::EMFILE), Refused::Files));
    assert!(matches!(user(libc::ENFILE), Refused::Files));
    assert!(matches!(user(libc::ESRCH), Refused::NoProcess { pid: 77 }));
    assert!(matches!(user(libc::EIO), Refused::Os(_)));
}
