//! The exact traces of programs with known branches.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lbr_msr::record::{BranchType, Event, HwBranchType as H};
use sampler::source::ptrace::Ptrace;
use sampler::source::{Exit, Source};

use crate::program::{BARE, Keeper, Program, build, run};

/// The taken branches of oracle.S in order. Kernel entries go to 0.
fn oracle(program: &Program) -> Vec<(u64, u64, H)> {
    [
        ("loop_b", "loop", H::Cond),
        ("loop_b", "loop", H::Cond),
        ("outer_c", "outer", H::RelCall),
        ("inner_c", "leaf", H::RelCall),
        ("leaf_ret", "inner_r", H::Ret),
        ("inner_r", "outer_ret", H::RelJmp),
        ("outer_ret", "outer_r", H::Ret),
        ("ind_j", "landing", H::IndJmp),
        ("ind_c", "leaf", H::IndCall),
        ("leaf_ret", "ind_r", H::Ret),
        ("zero_c", "zero", H::RelCall),
        ("next_t", "next_1", H::Cond),
        ("next_m", "next_4", H::Cond),
        ("next_z", "next_5", H::Cond),
        ("ss_j", "ss_l", H::RelJmp),
        ("sys_1", "", H::Other),
        ("sys_2", "", H::Other),
    ]
    .map(|(from, to, class)| {
        let to = if to.is_empty() { 0 } else { program.at(to) };
        (program.at(from), to, class)
    })
    .to_vec()
}

#[test]
fn every_taken_branch_once_and_in_order() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let run = run(program.command(&[]));
    let got: Vec<_> = run.branches().map(|(_, b)| (b.from, b.to, b.class)).collect();
    assert_eq!(got, oracle(&program));
    assert_eq!(run.exit, Exit::Code(7));
    // getpid and execve return, exit does not.
    assert_eq!(run.notes.kernel_returns_omitted, 2);
    assert_eq!(run.notes.undecoded, 0);
    for (_, branch) in run.branches() {
        assert_eq!(branch.zero_length_call, branch.from == program.at("zero_c"));
        assert_eq!((branch.cpl_before, branch.cpl_after), (3, if branch.to == 0 { 0 } else { 3 }));
        assert_eq!((branch.mispredicted, branch.cycles), (None, None));
    }
}

#[test]
fn mapping_events_precede_the_programs_branches() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let run = run(program.command(&[]));
    assert_eq!(run.order(), format!("cmms{}fx", "b".repeat(17)), "text and vdso are mapped");
    let Some(Event::Comm(comm)) = run.events().next() else { panic!("no name") };
    assert_eq!((comm.comm.as_str(), comm.exec), ("program", true));
    assert_eq!(comm.pid, comm.tid);
    let maps: Vec<_> = run
        .events()
        .filter_map(|event| if let Event::Mmap(map) = event { Some(map) } else { None })
        .collect();
    let text = maps.iter().find(|m| m.path == program.path.to_str().unwrap()).expect("text");
    let start = program.at("_start");
    assert!((text.addr..text.addr + text.len).contains(&start));
    assert_eq!(text.prot, 5, "PROT_READ | PROT_EXEC");
    assert_eq!(text.flags, 2, "MAP_PRIVATE");
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(&program.path).unwrap();
    assert_eq!(text.ino, file.ino());
    let dev = file.dev();
    assert_eq!(text.dev, (nix::sys::stat::major(dev) as u32, nix::sys::stat::minor(dev) as u32));
    assert!(maps.iter().any(|m| m.path == "[vdso]"));
    let times: Vec<u64> = run
        .events()
        .map(|event| match event {
            Event::Comm(comm) => comm.time,
            Event::Mmap(map) => map.time,
            Event::Exit(task) | Event::Fork(task) => task.time,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(times.is_sorted() && times[0] > 0);
}

#[test]
fn the_classifier_knows_each_branch_that_was_retired() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let keeper = Keeper::default();
    let mut source = Ptrace::new(program.command(&[])).unwrap();
    let mut classify = source.decoding().classify.expect("it names types");
    assert_eq!(source.name(), "ptrace");
    let knowledge = source.knowledge();
    assert!(!knowledge.mispredict && !knowledge.cycles && !knowledge.kernel);
    source.run_into(&&keeper).unwrap();
    let pid = keeper.threads()[0].pid;
    let mut wanted = |label: &str| classify(pid, program.at(label));
    assert_eq!(wanted("loop_b"), Some(BranchType::COND));
    assert_eq!(wanted("zero_c"), Some(BranchType::CALL));
    assert_eq!(wanted("ind_c"), Some(BranchType::IND_CALL));
    assert_eq!(wanted("ind_j"), Some(BranchType::IND));
    assert_eq!(wanted("ss_j"), Some(BranchType::UNCOND));
    assert_eq!(wanted("leaf_ret"), Some(BranchType::RET));
    assert_eq!(wanted("sys_1"), Some(BranchType::SYSCALL));
    assert_eq!(wanted("_start"), None, "no branch");
    assert_eq!(wanted("sys_f"), None, "never reached");
}

#[test]
fn from_starts_at_the_address_asked_for() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let mut command = program.command(&[]);
    command.from = Some(program.at("zero_c"));
    let run = run(command);
    let got: Vec<_> = run.branches().map(|(_, b)| (b.from, b.to, b.class)).collect();
    assert_eq!(got, oracle(&program)[10..]);
    assert_eq!(run.exit, Exit::Code(7));
}

#[test]
fn a_closed_recorder_ends_the_run() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let keeper = Keeper { limit: Some(8), ..Keeper::default() };
    let mut source = Ptrace::new(program.command(&[])).unwrap();
    let (exit, _) = source.run_into(&&keeper).unwrap();
    assert_eq!(exit, Exit::Signal(9));
    assert_eq!(keeper.threads().len(), 1);
}
