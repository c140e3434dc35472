use super::*;

/// perf-data: the bits of `branch_sample_type`, by hand.
#[test]
fn filters_in_the_kernels_bits() {
    for (filter, bits) in [
        ("any,u,no_far", 0x9),
        ("any,u,k", 0xB),
        ("any", 0xB),
        ("any_call,any_ret,u", 0x31),
        ("ind_call,ind_jmp,u", 0x1041),
        ("call,cond,u", 0x2401),
        ("stack,u", 0x801),
        ("save_type,u", 0x9),
    ] {
        let parsed: BranchFilter = filter.parse().expect("a filter");
        let found = branch_sample_type(parsed.normalized(), false);
        assert_eq!(found, bits, "{filter}");
        assert_eq!(branch_sample_type(parsed.normalized(), true), bits | 0x1_0000, "{filter}");
    }
}

/// linux/perf_event.h: PERF_COUNT_HW_BRANCH_INSTRUCTIONS is 4, and the PMU of a hybrid's CPUs
/// is in the upper half; TID, TIME, CPU, PERIOD and BRANCH_STACK; CLOCK_MONOTONIC is 1.
#[test]
fn what_is_asked_of_the_kernel() {
    let host = Host::default();
    for (filter, user, kernel) in [("any,u", 0, 1), ("any,k", 1, 0), ("any,u,k", 0, 0)] {
        let wanted = EventRequest {
            host: &host,
            filter: filter.parse().expect("a filter"),
            sampling: Sampling::Period(1000),
            on_exec: true,
            threads: None,
            cpus: &[0],
        };
        let mut builder = attributes(&wanted, 10, true);
        let attrs = builder.attrs_mut();
        assert_eq!((attrs.type_, attrs.config), (0, 0xA_0000_0004));
        assert_eq!(attrs.sample_type, 0x2 | 0x4 | 0x80 | 0x100 | 0x800);
        assert_eq!((attrs.exclude_user(), attrs.exclude_kernel()), (user, kernel), "{filter}");
        assert_eq!((attrs.use_clockid(), attrs.clockid), (1, 1));
        assert_eq!((attrs.enable_on_exec(), attrs.inherit()), (1, 0));
        assert_eq!((attrs.freq(), attrs.sample_id_all()), (0, 1));
        assert_eq!((attrs.mmap(), attrs.mmap2()), (1, 1));
        assert_eq!((attrs.comm(), attrs.comm_exec(), attrs.task()), (1, 1, 1));
        assert_eq!(samples_each(attrs), 1000);
    }
}

/// `sample_period`, or `sample_freq` if `freq` is set.
fn samples_each(attrs: &bindings::perf_event_attr) -> u64 {
    // SAFETY: both fields of the union are the same integer.
    unsafe { attrs.__bindgen_anon_1.sample_period }
}

/// Threads created later inherit the events of a process; those of a running one are on at once.
#[test]
fn a_running_process_is_sampled_by_a_rate() {
    let wanted = EventRequest {
        host: &Host::default(),
        filter: "any,u".parse().expect("a filter"),
        sampling: Sampling::Rate { hz: 4000, seed: 1 },
        on_exec: false,
        threads: Some(&[7]),
        cpus: &[0],
    };
    let mut builder = attributes(&wanted, 0, false);
    let attrs = builder.attrs_mut();
    assert_eq!((attrs.enable_on_exec(), attrs.inherit()), (0, 1));
    assert_eq!((attrs.freq(), samples_each(attrs)), (1, 4000));
    assert_eq!((attrs.config, attrs.branch_sample_type), (4, 0x9));
}
