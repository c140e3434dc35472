use lbr_msr::access::Root;

use super::*;

/// A hybrid whose first two CPUs forbid RDPMC.
#[test]
fn rdpmc_may_be_forbidden_on_some_cpus() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, kind, cpus, rdpmc) in [("cpu_core", "4", "0-1", "0"), ("cpu_atom", "10", "2-3", "1")]
    {
        let monitor = folder.path().join("sys/bus/event_source/devices").join(name);
        std::fs::create_dir_all(&monitor).expect("a folder");
        for (file, text) in [("type", kind), ("cpus", cpus), ("rdpmc", rdpmc)] {
            std::fs::write(monitor.join(file), format!("{text}\n")).expect("written");
        }
    }
    let host = Host::look(&Root::at(folder.path()));
    for (cpu, forbidden) in [(0, true), (1, true), (2, false), (3, false)] {
        let looked = Counting::look(&host, cpu);
        assert_eq!(matches!(looked, Err(Refused::NoRdpmc)), forbidden, "CPU {cpu}");
    }
}
