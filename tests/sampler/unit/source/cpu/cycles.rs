use super::*;

#[test]
fn the_time_stamp_increases_and_names_its_cpu() {
    let flags = std::fs::read_to_string("/proc/cpuinfo").expect("the CPU's flags");
    if !flags.split_whitespace().any(|flag| flag == "rdtscp") {
        eprintln!("skipped: this CPU has no RDTSCP");
        return;
    }
    let clock = Clock::find().expect("RDTSCP");
    std::thread::spawn(move || {
        let allowed = crate::target::Affinity::current().expect("a mask");
        let cpu = allowed.cpus().next().expect("a CPU");
        allowed.pin_this_thread(cpu).expect("pinned");
        let (before, after) = (clock.now(), clock.now());
        assert_eq!(after.cpu, cpu);
        assert!(after.since(before).is_some_and(|cycles| cycles < 1 << 40));
    })
    .join()
    .expect("no panic");
    let elsewhere = [Moment { cycles: 5, cpu: 1 }, Moment { cycles: 9, cpu: 2 }];
    assert_eq!(elsewhere[1].since(elsewhere[0]), None);
}
