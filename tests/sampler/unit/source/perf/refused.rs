use super::*;

/// Linux Documentation/admin-guide/sysctl/kernel.rst, perf_event_paranoid.
#[test]
fn a_level_forbids_the_least_that_was_asked_for() {
    for (highest, forbidden) in
        [(2, "all perf events"), (1, "branches of the kernel"), (0, "recording whole CPUs")]
    {
        let refused = Refused::Level { level: 3, highest };
        let wanted = format!(
            "kernel.perf_event_paranoid is 3, which forbids {forbidden} without CAP_PERFMON"
        );
        assert_eq!(refused.to_string(), wanted);
        let remedy = refused.remedy().expect("a fix");
        assert!(remedy.contains(&format!("kernel.perf_event_paranoid={highest},")), "{remedy}");
    }
    let remedy = Refused::Rate { hz: 9000, most: 4000 }.remedy().expect("a fix");
    assert!(remedy.ends_with("kernel.perf_event_max_sample_rate=9000"), "{remedy}");
    assert!(Refused::Files.remedy().is_some_and(|remedy| remedy.contains("ulimit -n")));
    assert_eq!(Refused::NoProcess { pid: 7 }.remedy(), None);
}
