use super::*;

/// sched(7): SCHED_FIFO is 1, and so is its lowest priority.
#[test]
fn the_sampler_precedes_ordinary_tasks_alone() {
    let first = std::thread::spawn(|| {
        go_first()?;
        // SAFETY: the structure is a plain number.
        let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
        // SAFETY: `parameters` outlives the calls; 0 is the calling thread.
        let policy = unsafe {
            libc::sched_getparam(0, &raw mut parameters);
            libc::sched_getscheduler(0)
        };
        io::Result::Ok((policy, parameters.sched_priority))
    });
    let first = first.join().expect("no panic");
    assert_eq!(first.is_ok(), may_go_first());
    match first {
        Ok(first) => assert_eq!(first, (1, 1)),
        Err(error) => eprintln!("skipped: real-time priority: {error}"),
    }
}

#[test]
fn a_latency_of_zero_is_written_and_kept_open() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("dev")).expect("dev");
    let file = folder.path().join("dev/cpu_dma_latency");
    let root = Root::at(folder.path());
    assert_eq!(Awake::hold(&root).expect_err("no file").kind(), io::ErrorKind::NotFound);
    std::fs::write(&file, "").expect("written");
    let _awake = Awake::hold(&root).expect("held");
    assert_eq!(std::fs::read(&file).expect("read"), [0; 4]);
}
