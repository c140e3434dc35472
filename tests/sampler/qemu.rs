//! Programs in QEMU's user-mode emulator, compared with known traces and with single-stepping the
//! same program.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lbr_msr::record::{BranchType, Event, HwBranchType as H, Mmap};
use lbr_msr::soft::Retired;
use sampler::gate::{Closed, Recorder, Retire};
use sampler::source::qemu::{Emulated, Qemu};
use sampler::source::{Command, Exit, Source, SourceError};
use sampler::target::ThreadId;

use crate::program::{self, BARE, Keeper, Program, Run, build, from_main, turns};
use crate::support::skip::skipped;

const HOSTED: &[&str] = &["-no-pie", "-O1", "-pthread"];

/// `None`, after a skip message, if programs cannot run in QEMU.
fn qemu() -> Option<Qemu> {
    Qemu::find().map_err(skipped).ok()
}

fn emulated(command: Command) -> Option<Emulated> {
    Some(qemu()?.program(command).expect("a program to run"))
}

fn run(command: Command) -> Option<Run> {
    let keeper = Keeper::default();
    let (exit, notes) = emulated(command)?.run_into(&&keeper).expect("the program runs");
    Some(Run { exit, notes, told: keeper.told.into_inner().expect("no panic") })
}

#[test]
fn the_emulator_matches_the_oracle_exactly() {
    let Some(program) = build("qemu_oracle.S", BARE) else { return };
    let Some(run) = run(program.command(&[])) else { return };
    let at = |label| program.at(label);
    let mut wanted = vec![(at("turn_b"), at("turn"), H::Cond); 999_999];
    wanted.extend([
        (at("zero_c"), at("zero"), H::RelCall),
        (at("jump_b"), at("over"), H::RelJmp),
        (at("ind_b"), at("ahead"), H::IndJmp),
        (at("ret_b"), at("back"), H::Ret),
    ]);
    assert_eq!(wanted.len(), 1_000_003);
    let got: Vec<_> = run.branches().map(|(_, b)| (b.from, b.to, b.class)).collect();
    assert!(got == wanted, "{} branches, the last {:?}", got.len(), got.last());
    for (_, branch) in run.branches() {
        assert_eq!(branch.zero_length_call, branch.from == at("zero_c"));
        assert_eq!((branch.cpl_before, branch.cpl_after), (3, 3));
        assert_eq!((branch.mispredicted, branch.cycles), (None, None));
    }
    assert_eq!(run.exit, Exit::Code(42));
    assert_eq!((run.notes.invisible, run.notes.unresolved), (1, 0));
    assert_eq!((run.notes.kernel_returns_omitted, run.notes.children_left), (1, 0), "getpid");
    // 2,000,020 and the repetitions of STOSB, which may count once or each.
    assert!((2_000_020..2_001_030).contains(&run.notes.instructions), "{:?}", run.notes);
}

#[test]
fn the_mappings_precede_the_programs_branches() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let Some(run) = run(program.command(&[])) else { return };
    assert_eq!(run.order(), format!("cms{}fx", "b".repeat(12)), "{:?}", mappings(&run));
    let Some(Event::Comm(comm)) = run.events().next() else { panic!("no name") };
    assert_eq!((comm.comm.as_str(), comm.exec, comm.pid), ("program", true, comm.tid));
    assert_eq!(run.exit, Exit::Code(7));
    let map = mappings(&run)[0];
    let page = program.at("_start") & !0xfff;
    assert_eq!((map.path.as_str(), map.addr), (program.name(), page));
    // The linker puts code on separate pages, here the file's second.
    assert_eq!((map.pgoff, map.prot & 4), (0x1000, 4));
}

fn mappings(run: &Run) -> Vec<&Mmap> {
    let mappings = run.events().filter_map(|event| match event {
        Event::Mmap(map) => Some(&**map),
        _ => None,
    });
    mappings.collect()
}

/// The branches visible without the kernel, and without conditional branches to the next
/// instruction.
fn visible(run: &Run, program: &Program) -> Vec<(u64, u64, H)> {
    let hidden: Vec<u64> =
        ["next_t", "next_m", "next_z"].iter().filter_map(|label| program.label(label)).collect();
    run.branches()
        .filter(|(_, b)| b.class != H::Other && !hidden.contains(&b.from))
        .map(|(_, b)| (b.from, b.to, b.class))
        .collect()
}

#[test]
fn the_same_branches_as_single_stepping() {
    for name in ["oracle.S", "textbook.S", "nested.S"] {
        let Some(program) = build(name, BARE) else { return };
        let Some(emulated) = run(program.command(&[])) else { return };
        let stepped = program::run(program.command(&[]));
        assert_eq!(visible(&emulated, &program), visible(&stepped, &program), "{name}");
        assert!(!visible(&stepped, &program).is_empty());
        assert_eq!(emulated.exit, stepped.exit);
    }
}

#[test]
fn code_that_changes_while_it_runs() {
    let Some(program) = build("jit.c", &["-no-pie", "-O1"]) else { return };
    let Some(emulated) = run(from_main(&program, &[])) else { return };
    let stepped = program::run(from_main(&program, &[]));
    assert_eq!(emulated.exit, Exit::Code(0));
    let page = 0x2000_0000..0x2000_1000;
    let inside = |run: &Run| -> Vec<(u64, u64)> {
        let edges = run.edges().into_iter();
        edges.filter(|(from, to)| page.contains(from) && page.contains(to)).collect()
    };
    let (decrement, jump) = (0x2000_0005, 0x2000_0007);
    let (enter, leave) = (0x2000_0000, 0x2000_0009);
    let wanted = [
        (jump, decrement),
        (jump, decrement),
        (enter, jump),
        (jump, leave),
        (enter, jump),
        (jump, leave),
        (jump, decrement),
    ];
    assert_eq!(inside(&emulated), wanted);
    assert_eq!(inside(&stepped), wanted);
    let anonymous = mappings(&emulated).into_iter().filter(|map| map.addr == page.start);
    let paths: Vec<_> = anonymous.map(|map| (map.path.as_str(), map.len, map.prot & 4)).collect();
    assert_eq!(paths, [("//anon", 4096, 4); 3], "mmap and two mprotect");
}

#[test]
fn each_thread_has_its_own_branches() {
    let Some(program) = build("threads.c", HOSTED) else { return };
    let Some(run) = run(from_main(&program, &[])) else { return };
    assert_eq!(run.exit, Exit::Code(0));
    let threads = run.threads();
    let main = threads[0];
    assert_eq!(main.pid, main.tid);
    assert_eq!(threads.len(), 3);
    for event in run.events() {
        if let Event::Fork(task) = event {
            assert_eq!((task.pid, task.ppid, task.ptid), (main.pid, main.pid, main.tid));
        }
    }
    let events = |wanted: fn(&Event) -> bool| run.events().filter(|event| wanted(event)).count();
    assert_eq!(events(|event| matches!(event, Event::Fork(_))), 2);
    assert_eq!(events(|event| matches!(event, Event::Exit(_))), 3);
    let names = run.events().filter_map(|event| match event {
        Event::Comm(comm) => Some((comm.tid, comm.comm.as_str())),
        _ => None,
    });
    let names: BTreeMap<u32, &str> = names.collect();
    let by_name: BTreeMap<&str, usize> =
        turns(&run, &program).iter().map(|(tid, n)| (names[tid], *n)).collect();
    assert_eq!(by_name, BTreeMap::from([("ten", 9), ("twenty", 19), ("program", 4)]));
    assert_eq!(run.notes.threads_left, 0);
}

#[test]
fn signals_reach_the_program_and_are_no_branches() {
    let Some(program) = build("signals.c", HOSTED) else { return };
    let Some(run) = run(from_main(&program, &[])) else { return };
    assert_eq!(run.exit, Exit::Code(0), "the number of the check that failed");
    for handler in ["on_user", "on_trap", "on_fault", "on_queued", "on_alarm"] {
        let entry = program.at(handler);
        assert!(run.branches().all(|(_, b)| b.to != entry), "{handler} is entered by the kernel");
    }
    let from = |label: &str| run.branches().filter(|(_, b)| b.from == program.at(label)).count();
    assert_eq!(from("fault_i"), 0, "it never completes");
    assert_eq!(from("fault_n"), 1);
    assert_eq!(from("trap_n"), 2);
    assert_eq!(turns(&run, &program).values().sum::<usize>(), 2 + 1 + 3);
}

#[test]
fn a_timer_costs_no_branch() {
    const TURNS: usize = 300_000;
    let Some(program) = build("qemu_signals.c", HOSTED) else { return };
    let Some(run) = run(from_main(&program, &["300000"])) else { return };
    assert_eq!(run.exit, Exit::Code(0), "signals arrived and the program counted right");
    let at = |label| program.at(label);
    assert_eq!(run.count(at("turn_c"), at("step")), TURNS);
    assert_eq!(run.count(at("step_r"), at("turn_n")), TURNS);
    assert_eq!(run.count(at("turn_b"), at("turn")), TURNS - 1);
    for label in ["turn_c", "step_r", "turn_b"] {
        let wanted = if label == "turn_b" { TURNS - 1 } else { TURNS };
        let all = run.branches().filter(|(_, b)| b.from == at(label)).count();
        assert_eq!(all, wanted, "{label} goes nowhere else");
    }
    assert!(run.branches().all(|(_, b)| b.to != at("on_alarm")));
    assert_eq!(run.notes.unresolved, 0);
}

/// The program can write to the shared memory.
#[test]
fn a_program_that_corrupts_the_shared_memory_is_detected() {
    let Some(program) = build("overwrites.c", HOSTED) else { return };
    for byte in ["0", "1", "255"] {
        let Some(mut emulated) = emulated(program.command(&[byte])) else { return };
        let error = emulated.run_into(&&Keeper::default()).expect_err("a target without branches");
        assert!(format!("{error:?}").contains("overwritten the memory"), "{byte}: {error:?}");
    }
}

#[test]
fn a_killing_signal_is_the_exit() {
    let Some(program) = build("signals.c", HOSTED) else { return };
    let Some(run) = run(from_main(&program, &["die"])) else { return };
    assert_eq!(run.exit, Exit::Signal(6));
    assert!(run.branches().next().is_some());
}

#[test]
fn children_are_not_recorded() {
    let Some(program) = build("children.c", HOSTED) else { return };
    for how in ["fork", "vfork"] {
        let Some(run) = run(from_main(&program, &[how, "8"])) else { return };
        assert_eq!(run.exit, Exit::Code(4), "{how}");
        assert_eq!(run.notes.children_left, 1, "{how}");
        assert_eq!(turns(&run, &program).into_values().collect::<Vec<_>>(), [3], "{how}");
        assert_eq!(run.threads().len(), 1, "{how}");
    }
}

#[test]
fn a_program_is_recorded_up_to_exec() {
    let Some(program) = build("children.c", HOSTED) else { return };
    let Some(run) = run(from_main(&program, &["exec", "8"])) else { return };
    assert_eq!((run.exit, run.notes.children_left), (Exit::Code(3), 0));
    assert!(run.notes.replaced);
    assert_eq!(turns(&run, &program).into_values().collect::<Vec<_>>(), [3]);
}

#[test]
fn libraries_are_mapped_where_their_branches_are() {
    for flags in [["-pie", "-O1"], ["-no-pie", "-O1"]] {
        let Some(program) = build("signals.c", &flags) else { return };
        let Some(run) = run(program.command(&[])) else { return };
        let maps = mappings(&run);
        let covered =
            |address: u64| maps.iter().any(|map| (map.addr..map.addr + map.len).contains(&address));
        for (from, to) in run.edges() {
            assert!(covered(from) && covered(to), "{from:#x} -> {to:#x} of {flags:?}");
        }
        assert!(maps.iter().any(|map| map.path == program.name()));
        assert!(maps.iter().any(|map| map.path.contains("libc.so")));
    }
}

#[test]
fn recording_starts_at_the_given_address() {
    for flags in [["-pie", "-O1"], ["-no-pie", "-O1"]] {
        let Some(program) = build("children.c", &flags) else { return };
        let mut command = program.command(&["spin", "5"]);
        command.from = Some(program.at("spin"));
        let Some(run) = run(command) else { return };
        let spin = program.at("spin");
        let relocated = run.edges().first().map(|edge| edge.0 - program.at("spin_b"));
        let from = |label| program.at(label) + relocated.expect("branches");
        let edges: Vec<_> = run.edges().into_iter().take(5).collect();
        assert_eq!(edges[..4], [(from("spin_b"), from("spin_l")); 4], "from {spin:#x}");
        assert_eq!(edges[4].0, from("spin_ret"));
        let map = mappings(&run).into_iter().find(|map| map.path == program.name());
        let map = map.expect("the program is mapped");
        assert!((map.addr..map.addr + map.len).contains(&from("spin_b")));
    }
}

#[test]
fn a_start_that_is_never_reached() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let command = Command { from: Some(program.at("tail")), ..program.command(&[]) };
    let Some(mut emulated) = emulated(command) else { return };
    let keeper = Keeper::default();
    let error = emulated.run_into(&&keeper).expect_err("nothing was recorded");
    assert!(matches!(error, SourceError::NeverReached { .. }), "{error}");
    assert!(keeper.told.into_inner().expect("no panic").is_empty());
}

#[test]
fn the_target_dies_when_the_recorder_closes() {
    let Some(program) = build("children.c", HOSTED) else { return };
    let Some(mut emulated) = emulated(program.command(&["spin", "2000000000"])) else { return };
    let keeper = Keeper { limit: Some(100_000), ..Keeper::default() };
    let started = Instant::now();
    let (exit, _) = emulated.run_into(&&keeper).expect("it ends early");
    // The whole run takes an hour.
    assert!(started.elapsed() < Duration::from_secs(600));
    assert_eq!(exit, Exit::Signal(9));
    assert!(keeper.closed.load(Ordering::Relaxed));
}

#[test]
fn a_program_that_the_emulator_cannot_start() {
    let flags = ["-O1", "-no-pie", "-Wl,--dynamic-linker=/no/such/interpreter"];
    let Some(program) = build("children.c", &flags) else { return };
    let Some(mut emulated) = emulated(program.command(&["spin", "5"])) else { return };
    let error = emulated.run_into(&&Keeper::default()).expect_err("it has no interpreter");
    assert!(error.to_string().contains("did not start the program"), "{error}");
}

#[test]
fn types_of_branches_are_known() {
    let Some(program) = build("qemu_oracle.S", BARE) else { return };
    let Some(mut emulated) = emulated(program.command(&[])) else { return };
    assert_eq!(emulated.name(), "qemu-x86_64");
    let mut classify = emulated.decoding().classify.expect("it names types");
    let keeper = Keeper::default();
    emulated.run_into(&&keeper).expect("the program runs");
    let pid = keeper.threads()[0].pid;
    for (label, wanted) in [
        ("turn_b", BranchType::COND),
        ("zero_c", BranchType::CALL),
        ("jump_b", BranchType::UNCOND),
        ("ind_b", BranchType::IND),
        ("ret_b", BranchType::RET),
    ] {
        assert_eq!(classify(pid, program.at(label)), Some(wanted), "{label}");
    }
    assert_eq!(classify(pid, program.at("next_b")), None, "never seen to be taken");
    assert_eq!(classify(pid + 1, program.at("ret_b")), None);
}

#[test]
fn unsupported_programs_are_refused_before_they_run() {
    let Some(qemu) = qemu() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/bin/sh\n").expect("written");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("no panic");
    let command = |program: &str| Command { program: program.to_owned(), ..Command::default() };
    let refused = |program: &str| qemu.clone().program(command(program)).expect_err("refused");
    assert!(matches!(refused(script.to_str().expect("UTF-8")), SourceError::Unavailable { .. }));
    assert!(matches!(refused("no-such-program-anywhere"), SourceError::NotFound { .. }));
    let far = Command { cpu: Some(100_000), ..command("/bin/sh") };
    let error = qemu.clone().program(far).expect_err("no such CPU");
    assert!(matches!(error, SourceError::NoSuchCpu { .. }), "{error}");
}

/// Counts branches, and keeps the addresses of the last million.
#[derive(Debug, Default)]
struct Last(AtomicUsize);

struct LastRing<'a> {
    last: &'a Last,
    edges: Vec<(u64, u64)>,
    count: usize,
}

const KEPT: usize = 1 << 20;

impl<'a> Recorder for &'a Last {
    type Ring = LastRing<'a>;
    fn start(&self, _: ThreadId) -> Result<LastRing<'a>, Closed> {
        Ok(LastRing { last: self, edges: vec![(0, 0); KEPT], count: 0 })
    }
    fn emit(&self, _: Event) -> Result<(), Closed> {
        Ok(())
    }
    fn is_closed(&self) -> bool {
        false
    }
}

impl Retire for LastRing<'_> {
    fn retire(&mut self, branch: &Retired) -> Result<(), Closed> {
        self.edges[self.count % KEPT] = (branch.from, branch.to);
        self.count += 1;
        Ok(())
    }
    fn finish(self) -> Result<(), Closed> {
        self.last.0.fetch_add(self.count, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
#[ignore = "a measurement of branches per second, for --release"]
fn how_fast() {
    let Some(program) = build("qemu_work.c", &["-O2"]) else { return };
    for _ in 0..3 {
        let Some(mut emulated) = emulated(program.command(&[])) else { return };
        let last = Last::default();
        let started = Instant::now();
        let (exit, notes) = emulated.run_into(&&last).expect("the program runs");
        let seconds = started.elapsed().as_secs_f64();
        let branches = last.0.into_inner() as f64;
        eprintln!(
            "{exit:?}: {branches} branches in {seconds:.2} s: {:.1} M/s, {:.0} M instructions/s",
            branches / seconds / 1e6,
            notes.instructions as f64 / seconds / 1e6
        );
        assert!(branches > 1e6);
    }
}
