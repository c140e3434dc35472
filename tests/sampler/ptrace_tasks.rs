//! Threads, signals and children of a target.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use lbr_msr::record::Event;
use sampler::source::ptrace::Ptrace;
use sampler::source::{Command, Exit};

use crate::program::{Keeper, Program, RecorderInput, build, from_main, run, try_run, turns};
use crate::support::skip::skipped;

/// Static, to avoid stepping through a dynamic linker after an exec.
const HOSTED: &[&str] = &["-static", "-O1", "-pthread"];

#[test]
fn each_thread_has_its_own_branches() {
    let Some(program) = build("threads.c", HOSTED) else { return };
    let run = run(from_main(&program, &[]));
    assert_eq!(run.exit, Exit::Code(0));
    let mut names = BTreeMap::new();
    let (mut forks, mut exits) = (Vec::new(), Vec::new());
    for event in run.events() {
        match event {
            Event::Comm(comm) => drop(names.insert(comm.tid, comm.comm.clone())),
            Event::Fork(task) => forks.push((task.pid, task.tid, task.ppid, task.ptid)),
            Event::Exit(task) => exits.push(task.tid),
            _ => {}
        }
    }
    let (main, _) = run.branches().next().unwrap();
    assert_eq!(forks.len(), 2);
    assert!(forks.iter().all(|&(pid, tid, ppid, ptid)| {
        (pid, ppid, ptid) == (main.pid, main.pid, main.tid) && tid != main.tid
    }));
    assert_eq!(exits.len(), 3);
    assert_eq!(exits.last(), Some(&main.tid));
    let mut open = std::collections::BTreeSet::new();
    for told in &run.told {
        match told {
            RecorderInput::Start(id) => assert!(open.insert(*id), "one LBR per thread"),
            RecorderInput::Branch(id, _) => {
                assert!(open.contains(id), "branches between start and end")
            }
            RecorderInput::Finish(id) => assert!(open.remove(id)),
            RecorderInput::Event(_) => {}
        }
    }
    assert!(open.is_empty(), "every ring is drained");
    let by_name: BTreeMap<&str, usize> =
        turns(&run, &program).iter().map(|(tid, n)| (names[tid].as_str(), *n)).collect();
    assert_eq!(by_name, BTreeMap::from([("ten", 9), ("twenty", 19), ("program", 4)]));
}

#[test]
fn signals_reach_the_program() {
    let Some(program) = build("signals.c", HOSTED) else { return };
    let run = run(from_main(&program, &[]));
    assert_eq!(run.exit, Exit::Code(0), "the number of the check that failed");
    assert_eq!(run.notes.undecoded, 0);
    for handler in ["on_user", "on_trap", "on_fault", "on_queued", "on_alarm"] {
        let entry = program.at(handler);
        assert!(run.branches().all(|(_, b)| b.to != entry), "{handler} is entered by the kernel");
    }
    let from = |label: &str| run.branches().filter(|(_, b)| b.from == program.at(label)).count();
    assert_eq!(from("fault_i"), 0, "it never completes");
    assert_eq!(from("fault_n"), 1);
    assert_eq!(from("trap_i"), 2);
    assert_eq!(from("trap_n"), 2);
    // In on_user, in the handler with all signals blocked, and at the end.
    assert_eq!(turns(&run, &program).values().sum::<usize>(), 2 + 1 + 3);
}

/// The program's own INT3 looks like the breakpoint where recording starts.
#[test]
fn recording_may_start_at_an_int3() {
    let Some(program) = build("signals.c", HOSTED) else { return };
    let run = run(Command { from: Some(program.at("trap_i")), ..program.command(&[]) });
    assert_eq!(run.exit, Exit::Code(0), "the number of the check that failed");
    let (_, first) = run.branches().next().unwrap();
    assert_eq!((first.from, first.cpl_after), (program.at("trap_i"), 0));
    for label in ["trap_i", "trap_n"] {
        let from = run.branches().filter(|(_, b)| b.from == program.at(label));
        assert_eq!(from.count(), 2, "{label}");
    }
}

#[test]
fn a_killing_signal_is_the_exit() {
    let Some(program) = build("signals.c", HOSTED) else { return };
    assert_eq!(run(from_main(&program, &["die"])).exit, Exit::Signal(6));
}

#[test]
fn children_are_followed_when_asked() {
    let Some(program) = build("children.c", HOSTED) else { return };
    for how in ["fork", "vfork"] {
        let run = run(Command { follow_children: true, ..from_main(&program, &[how, "8"]) });
        assert_eq!(run.exit, Exit::Code(4), "{how}");
        assert_eq!(run.notes.children_left, 0);
        let turns: Vec<_> = turns(&run, &program).into_values().collect();
        assert_eq!(turns, [3, 7], "{how}: parent and child");
        let execs = run.events().filter(|e| matches!(e, Event::Comm(c) if c.exec)).count();
        assert_eq!(execs, if how == "vfork" { 2 } else { 1 });
        assert_eq!(run.events().filter(|e| matches!(e, Event::Fork(_))).count(), 1);
        assert_eq!(run.events().filter(|e| matches!(e, Event::Exit(_))).count(), 2);
    }
}

#[test]
fn children_left_alone_run_at_full_speed() {
    let Some(program) = build("children.c", HOSTED) else { return };
    for how in ["fork", "vfork"] {
        let started = std::time::Instant::now();
        // Single-stepping 30 million iterations would take half an hour.
        let run = run(from_main(&program, &[how, "30000000"]));
        assert!(started.elapsed().as_secs() < 600);
        assert_eq!(run.exit, Exit::Code(4), "{how}");
        assert_eq!(run.notes.children_left, 1, "{how}");
        assert_eq!(turns(&run, &program).into_values().collect::<Vec<_>>(), [3], "{how}");
        assert!(!run.events().any(|e| matches!(e, Event::Fork(_))));
    }
}

fn is_clone3_missing(program: &Program) -> bool {
    let status = std::process::Command::new(&program.path).args(["clone3", "1"]).status();
    status.unwrap().code() == Some(77)
}

#[test]
fn recording_starts_in_the_child_that_reaches_the_address() {
    let Some(program) = build("children.c", HOSTED) else { return };
    for how in ["fork", "vfork"] {
        // The parent forks at full speed; only `spin`, run by the child, reaches the start, so the
        // child's memory contains the breakpoint too.
        let mut command = program.command(&[how, "30000000"]);
        command.from = Some(program.at("spin"));
        let run = run(command);
        assert_eq!(run.exit, Exit::Code(4), "{how}");
        assert_eq!(turns(&run, &program).into_values().collect::<Vec<_>>(), [3], "{how}");
        assert_eq!(run.notes.children_left, 1, "{how}");
    }
    // The same of children that share its memory, or copy it, by another system call.
    for how in ["clone", "clone3", "clone3-fork"] {
        let mut command = program.command(&[how, "30000000"]);
        command.from = Some(program.at("spin"));
        let run = match try_run(command) {
            Ok(run) => run,
            Err(error) if how != "clone" && is_clone3_missing(&program) => {
                skipped(format_args!("no clone3 here: {error}"));
                continue;
            }
            Err(error) => panic!("{how}: {error}"),
        };
        assert_eq!(run.exit, Exit::Code(4), "{how}");
        assert_eq!(turns(&run, &program).into_values().collect::<Vec<_>>(), [3], "{how}");
        assert_eq!(run.notes.children_left, 1, "{how}");
    }
    // `after`: children reach it while recording starts in the parent, but not each time.
    let after = std::iter::repeat_n(("after", 16), 8);
    for (how, children) in std::iter::once(("fork", 1)).chain(after) {
        let mut command = program.command(&[how, "8"]);
        command.from = Some(program.at("spin"));
        command.follow_children = true;
        let run = run(command);
        assert_eq!(run.exit, Exit::Code(4), "{how}");
        let turns: Vec<usize> = turns(&run, &program).into_values().collect();
        assert_eq!(turns, [&[3], vec![7; children].as_slice()].concat(), "{how}");
    }
}

#[test]
fn exec_replaces_the_program_also_from_a_thread() {
    let Some(program) = build("children.c", HOSTED) else { return };
    let one = run(from_main(&program, &["exec", "7"]));
    assert_eq!(one.exit, Exit::Code(3));
    assert_eq!(turns(&one, &program).into_values().collect::<Vec<_>>(), [3 + 6]);
    let (main, _) = one.branches().next().unwrap();
    let text = |event: &&Event| matches!(event, Event::Mmap(map) if map.path == program.path.to_str().unwrap());
    assert_eq!(one.events().filter(text).count(), 2, "its text is mapped once more");

    let thread = run(from_main(&program, &["thread", "-"]));
    assert_eq!(thread.exit, Exit::Code(3));
    let turns = turns(&thread, &program);
    assert_eq!(turns.values().copied().collect::<Vec<_>>(), [5]);
    assert_ne!(main.tid, *turns.keys().next().unwrap());
    let (first, _) = thread.branches().next().unwrap();
    assert_eq!(turns.keys().next(), Some(&first.pid), "the thread becomes the leader");
}

#[test]
fn recording_starts_in_the_thread_that_reaches_the_address() {
    let Some(program) = build("threads.c", HOSTED) else { return };
    let mut command = program.command(&[]);
    command.from = Some(program.at("spin"));
    let run = run(command);
    assert_eq!(run.exit, Exit::Code(0));
    let mut turns: Vec<_> = turns(&run, &program).into_values().collect();
    turns.sort_unstable();
    assert_eq!(turns, [4, 9, 19]);
}

#[test]
fn a_stopped_child_stays_stopped_until_it_is_continued() {
    let Some(program) = build("children.c", HOSTED) else { return };
    let run = run(Command { follow_children: true, ..from_main(&program, &["stop", "8"]) });
    assert_eq!(run.exit, Exit::Code(4));
    let spins: Vec<_> = run.branches().filter(|(_, b)| b.from == program.at("spin_b")).collect();
    let (first, last) = (spins.first().unwrap().0, spins.last().unwrap().0);
    assert_eq!(first.pid, run.branches().next().unwrap().0.pid, "the parent spins first");
    assert_ne!(first.pid, last.pid);
}

#[test]
fn the_target_is_pinned_and_its_children_are_not() {
    let Some(program) = build("children.c", HOSTED) else { return };
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    let cpus: Vec<usize> =
        (0..nix::sched::CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap()).collect();
    let cpu = *cpus.last().unwrap();
    let mut command = from_main(&program, &["cpus", "-"]);
    command.cpu = Some(cpu as u32);
    // One CPU; its number is part of the exit status.
    assert_eq!(run(command).exit, Exit::Code((16 + cpu as i32) & 0xff));
    let alone = run(from_main(&program, &["child-cpus", "-"]));
    assert_eq!(alone.exit, Exit::Code(cpus.len() as i32 & 0xff));
}

/// Waits until the target is in clock_nanosleep(2): proc(5), `syscall`.
fn wait_for_sleep(keeper: &Keeper) {
    let is_asleep = || {
        let pid = keeper.threads().first().map(|thread| thread.pid)?;
        let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
        Some(call.starts_with(&format!("{} ", nix::libc::SYS_clock_nanosleep)))
    };
    while is_asleep() != Some(true) {
        std::thread::yield_now();
    }
}

#[test]
fn a_closed_recorder_ends_a_target_that_sleeps() {
    let Some(program) = build("children.c", HOSTED) else { return };
    let mut source = Ptrace::new(from_main(&program, &["sleep", "60"])).unwrap();
    let keeper = Keeper::default();
    let started = std::time::Instant::now();
    let (exit, _) = std::thread::scope(|scope| {
        let run = scope.spawn(|| source.run_into(&&keeper));
        wait_for_sleep(&keeper);
        keeper.closed.store(true, std::sync::atomic::Ordering::Relaxed);
        run.join().unwrap().unwrap()
    });
    assert_eq!(exit, Exit::Signal(9));
    assert!(started.elapsed().as_secs() < 300, "it was not waited for");
    let pid = i32::try_from(keeper.threads()[0].pid).unwrap();
    let gone = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None);
    assert_eq!(gone, Err(nix::errno::Errno::ESRCH), "dead and reaped");
}

/// Ten rounds: kill(2) returns, a handler is entered, and rt_sigreturn(2) returns.
#[test]
fn entries_of_handlers_and_their_returns_are_counted() {
    let Some(program) = build("handlers.c", HOSTED) else { return };
    let command = Command { from: Some(program.at("work")), ..program.command(&[]) };
    let run = run(command);
    assert_eq!(run.exit, Exit::Code(0));
    assert_eq!(run.notes.kernel_returns_omitted, 3 * 10);
    // The system calls go into the kernel, and the one at the end does not return.
    let into = run.branches().filter(|(_, branch)| branch.cpl_after == 0).count();
    assert_eq!(into, 10 + 10 + 1);
}
