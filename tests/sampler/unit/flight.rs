use super::*;
use crate::{maps, target};

#[test]
fn records_of_other_code_are_no_part_of_a_path() {
    let entry = |from, to| BranchEntry { from, to, ..BranchEntry::default() };
    let kernel = 0xffff_ffff_8100_0000;
    // Newest first: another program after the signal, the program, another one before it.
    let entries = [
        entry(kernel, 0x9000),
        entry(0x9010, 0x9000),
        entry(0x1020, 0),
        entry(kernel, 0x1008),
        entry(0x1004, 0x1000),
        entry(0x9010, 0x9000),
        entry(0x1004, 0x1000),
    ];
    let (newer, steps) = own(&entries, |address| address >> 12 == 1, 0);
    let path: Vec<_> = steps.iter().map(|step| (step.from, step.to)).collect();
    assert_eq!((newer, path), (2, vec![(0x1004, 0x1000), (kernel, 0x1008), (0x1020, 0)]));
}

const ID: ThreadId = ThreadId { pid: 7, tid: 8 };

/// RET and NOP, in memory that this process can read.
static CODE: [u8; 32] = {
    let mut code = [0x90; 32];
    code[0] = 0xc3;
    code
};

#[test]
fn the_class_of_a_record_is_in_the_code() {
    let code = CODE.as_ptr() as u64;
    let entry = |from| BranchEntry { from, to: 0x10, ..BranchEntry::default() };
    let pid = std::process::id().cast_signed();
    let (_, steps) = own(&[entry(code + 1), entry(code)], |_| true, pid);
    let kinds = steps.iter().map(|step| step.kind);
    let wanted = [HwBranchType::Ret, HwBranchType::Other].map(StepKind::Branch);
    assert_eq!(kinds.collect::<Vec<_>>(), wanted);
}

/// Its function of [`Trigger::Call`] is 0x10 bytes into each mapping.
fn recorder(depth: usize, trigger: Trigger) -> FlightRecorder {
    let find = Box::new(|map: &Mmap| Some(map.addr + 0x10));
    FlightRecorder::new(depth, trigger, find, Interrupts::unheard())
}

fn ring(recorder: &FlightRecorder) -> FlightRing<'_> {
    recorder.start(ID).expect("it is open")
}

fn paths(recorder: &FlightRecorder) -> Vec<Path> {
    lock(&recorder.kept).1.clone()
}

fn cond(from: u64) -> Retired {
    Retired::user(from, from + 1, HwBranchType::Cond)
}

#[test]
fn the_newest_branches_and_the_moves_among_them_are_kept() {
    let recorder = recorder(2, Trigger::Exit);
    let mut ring = ring(&recorder);
    ring.moved(MoveKind::Start, 0, 0x10).expect("open");
    ring.retire(&cond(0x10)).expect("open");
    ring.retire(&cond(0x20)).expect("open");
    ring.moved(MoveKind::Signal, 0x21, 0x50).expect("open");
    ring.retire(&cond(0x50)).expect("open");
    let far = Retired { class: HwBranchType::Other, ..cond(0x52) };
    ring.retire(&far).expect("open");
    ring.retire(&Retired { cpl_after: 0, ..cond(0x54) }).expect("open");
    ring.retire(&Retired { abort: true, ..far }).expect("open");
    ring.moved(MoveKind::Return, 0x53, 0x21).expect("open");
    ring.moved(MoveKind::SignalAtBranch, 0x22, 0x50).expect("open");
    ring.moved(MoveKind::Unknown, 1, 2).expect("open");
    ring.moved(MoveKind::Start, 3, 4).expect("open");
    ring.moved(MoveKind::End, 0x50, 0).expect("open");
    ring.finish().expect("open");
    let [path] = &paths(&recorder)[..] else { panic!("one path") };
    let step = |from, to, kind| Step { from, to, kind };
    let kernel = StepKind::Kernel;
    assert_eq!(
        path.steps,
        [
            step(0x21, 0x50, kernel(MoveKind::Signal)),
            step(0x50, 0x51, StepKind::Branch(HwBranchType::Cond)),
            step(0x52, 0x53, StepKind::Branch(HwBranchType::Other)),
            step(0x53, 0x21, kernel(MoveKind::Return)),
            step(0x22, 0x50, kernel(MoveKind::SignalAtBranch)),
        ]
    );
    assert_eq!((path.thread, path.taken, path.deadly), (ID, Some(4), false));
    assert!(path.signal.is_none());
}

#[test]
fn moves_without_branches_take_no_more_memory() {
    let recorder = recorder(2, Trigger::Exit);
    let mut ring = ring(&recorder);
    for n in 0..1_000 {
        ring.moved(MoveKind::Signal, n, n).expect("open");
    }
    assert!(ring.steps.len() < 10);
    assert_eq!(ring.steps.back().map(|step| step.from), Some(999));
    ring.retire(&cond(0x10)).expect("open");
    ring.finish().expect("open");
    assert_eq!(paths(&recorder)[0].steps.last().map(|step| step.from), Some(0x10));
}

/// Far transfers are not on a path, but the abort of a transaction is.
#[test]
fn an_abort_is_on_the_path() {
    let recorder = recorder(4, Trigger::Exit);
    let mut ring = ring(&recorder);
    let far = |from, abort| Retired { class: HwBranchType::Other, abort, ..cond(from) };
    for branch in [cond(0x10), far(0x20, true), far(0x30, false)] {
        ring.retire(&branch).expect("open");
    }
    ring.finish().expect("open");
    let steps = &paths(&recorder)[0].steps;
    assert_eq!(steps.iter().map(|step| step.from).collect::<Vec<_>>(), [0x10, 0x20]);
}

/// A tail call, or a call through the PLT, is an indirect jump.
#[test]
fn the_first_call_of_a_function_is_kept() {
    for (class, is_call) in [
        (HwBranchType::RelCall, true),
        (HwBranchType::IndCall, true),
        (HwBranchType::IndJmp, true),
        (HwBranchType::Ret, false),
        (HwBranchType::Cond, false),
    ] {
        let recorder = recorder(2, Trigger::Call);
        let mut ring = ring(&recorder);
        let map = Mmap {
            time: 1,
            pid: 7,
            tid: 7,
            addr: 0x1000,
            len: 0x1000,
            pgoff: 0,
            dev: (0, 0),
            ino: 0,
            ino_generation: 0,
            build_id: None,
            prot: 5,
            flags: 2,
            path: "/a".to_owned(),
        };
        let to = |to| Retired { class, to, ..cond(0x30) };
        for address in [0, 0x1010] {
            ring.retire(&to(address)).expect("open");
        }
        assert!(paths(&recorder).is_empty(), "not known yet");
        (&recorder).emit(Event::Mmap(Box::new(map))).expect("open");
        for address in [0, 0x1000, 0x1010, 0x1010] {
            ring.retire(&to(address)).expect("open");
        }
        ring.finish().expect("open");
        let paths = paths(&recorder);
        assert_eq!(paths.len(), usize::from(is_call), "{class:?}");
        if let Some(path) = paths.first() {
            assert_eq!((path.taken, path.events, path.deadly), (Some(5), 1, false));
            assert_eq!(path.steps.last().map(|step| step.to), Some(0x1010));
        }
    }
}

#[test]
fn a_death_and_the_first_signal_asked_for_are_kept() {
    let stop = |signal| SignalStop { signal, ..SignalStop::default() };
    for (trigger, wanted) in [
        (Trigger::Signal(10), vec![(Some(10), false), (Some(11), true)]),
        (Trigger::Death, vec![(Some(11), true)]),
        // A death is an end.
        (Trigger::Exit, vec![(Some(11), true)]),
    ] {
        let recorder = recorder(2, trigger);
        let mut ring = ring(&recorder);
        for signal in [12, 10, 10, 11] {
            ring.signalled(&stop(signal));
        }
        ring.died(stop(11));
        ring.finish().expect("open");
        let found = paths(&recorder).into_iter();
        let found = found.map(|path| (path.signal.map(|stop| stop.signal), path.deadly));
        assert_eq!(found.collect::<Vec<_>>(), wanted, "{trigger:?}");
    }
}

#[test]
fn a_program_of_many_threads_keeps_the_paths_of_the_first() {
    let recorder = recorder(2, Trigger::Exit);
    for n in 0..300 {
        let mut ring = ring(&recorder);
        ring.retire(&cond(n)).expect("open");
        ring.finish().expect("open");
    }
    let paths = paths(&recorder);
    assert_eq!((paths.len(), paths[255].steps[0].from), (256, 255));
}

/// A shell on a CPU whose newest record is another program's, and the one before its own.
fn shell(script: &str, trigger: Trigger) -> Flight {
    let args = ["-c", script].map(str::to_owned).to_vec();
    let command = Command { program: "sh".to_owned(), args, ..Command::default() };
    let path = target::find("sh").expect("a shell");
    let cpus = target::Affinity::current().expect("CPUs");
    let program = Program::launch(&path, &command, &cpus).expect("started");
    let pid = program.id().pid.cast_signed();
    let mut read = || {
        let mappings = maps::read(pid).expect("it is held");
        let is_code = |map: &maps::Mapping| map.is_executable() && map.start >> 63 == 0;
        let code = mappings.into_iter().find(is_code).expect("code").start;
        let entry = |from, to| BranchEntry { from, to, ..BranchEntry::default() };
        vec![entry(0x10, 0x20), entry(code, code + 8), entry(0x10, code)]
    };
    recorder(2, trigger).on_cpu(program, &mut read).expect("it ran")
}

#[test]
fn records_of_a_cpu_are_kept_at_the_moments_asked_for() {
    let dies = "trap : USR1; kill -USR1 $$; kill -SEGV $$";
    for (script, trigger, exit, wanted) in [
        (dies, Trigger::Death, Exit::Signal(11), vec![(Some(11), true)]),
        (dies, Trigger::Exit, Exit::Signal(11), vec![(Some(11), true)]),
        (dies, Trigger::Signal(10), Exit::Signal(11), vec![(Some(10), false), (Some(11), true)]),
        ("exit 3", Trigger::Exit, Exit::Code(3), vec![(None, false)]),
        ("exit 3", Trigger::Death, Exit::Code(3), vec![]),
        // It survives its signal.
        ("trap : USR1; kill -USR1 $$; exit 10", Trigger::Death, Exit::Code(10), vec![]),
    ] {
        let flight = shell(script, trigger);
        assert_eq!(flight.exit, exit, "{script}");
        let kept = flight.paths.iter().map(|path| {
            assert_eq!((path.steps.len(), path.taken), (1, None), "{script}");
            (path.signal.as_ref().map(|stop| stop.signal), path.deadly)
        });
        assert_eq!(kept.collect::<Vec<_>>(), wanted, "{script} {trigger:?}");
        assert_eq!(flight.foreign, u64::from(!wanted.is_empty()), "{script}");
        assert!(matches!(flight.events.first(), Some(Event::Comm(comm)) if comm.comm == "sh"));
        assert!(matches!(flight.events.last(), Some(Event::Exit(_))), "{script}");
    }
}
