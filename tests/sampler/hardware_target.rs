//! Targets on hardware: started programs and running processes; and the code from thaw to freeze,
//! instruction by instruction.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lbr_msr::insn::{self, Insn};
use lbr_msr::record::Event;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol};
use sampler::source::cpu::same_cpu::Control;
use sampler::source::cpu::target::{Process, Program, Target, WholeCpu};
use sampler::source::cpu::{Cpus, RecordUntil};
use sampler::source::{Command, Exit, Source, SourceError};
use sampler::target::{Affinity, find};

use crate::support::itself::with_symbols;

fn launch(words: &[&str]) -> Result<Program, SourceError> {
    let command = Command {
        program: words[0].to_owned(),
        args: words[1..].iter().map(|word| (*word).to_owned()).collect(),
        ..Command::default()
    };
    let cpus = Affinity::current().unwrap();
    Program::launch(&find(words[0])?, &command, &cpus)
}

fn run(words: &[&str]) -> (Exit, Vec<Event>) {
    let mut program = launch(words).unwrap();
    let mut events = Vec::new();
    let mut emit = |event| events.push(event);
    program.start(&mut emit).unwrap();
    program.wait(&|| false, &mut emit).unwrap();
    let exit = program.finish(&mut emit).unwrap();
    (exit.unwrap(), events)
}

#[test]
fn a_program_is_known_before_its_first_instruction_and_ends_as_it_does() {
    let (exit, events) = run(&["sh", "-c", "exit 7"]);
    assert_eq!(exit, Exit::Code(7));
    let Some(Event::Comm(comm)) = events.first() else { panic!("{events:?}") };
    assert_eq!((comm.comm.as_str(), comm.exec), ("sh", true));
    let shell = std::fs::canonicalize(find("sh").unwrap()).unwrap();
    let is_shell = |event: &Event| match event {
        Event::Mmap(map) => Path::new(&map.path) == shell && map.pid == comm.pid,
        _ => false,
    };
    assert!(is_shell(&events[1]) || events[1..4].iter().any(is_shell), "{events:?}");
    assert!(matches!(events.last(), Some(Event::Exit(task)) if task.pid == comm.pid));
    // libc was mapped while it ran; only the end's look found it.
    let maps = events.iter().filter(|event| matches!(event, Event::Mmap(_))).count();
    assert!(maps >= 2, "{events:?}");
}

#[test]
fn signals_reach_the_program() {
    let (exit, _) = run(&["sh", "-c", "trap 'exit 5' USR1; kill -USR1 $$; sleep 5"]);
    assert_eq!(exit, Exit::Code(5));
    assert_eq!(run(&["sh", "-c", "kill -KILL $$"]).0, Exit::Signal(9));
    // A Rust program ignores it; its children must not.
    assert_eq!(run(&["sh", "-c", "kill -PIPE $$; exit 3"]).0, Exit::Signal(13));
    // Stopped and continued like any program.
    let since = Instant::now();
    // Repeatedly, because the first may come before the stop.
    let script = "(while sleep 0.2; do kill -CONT $$ 2>&- || exit; done) & kill -STOP $$; exit 4";
    assert_eq!(run(&["sh", "-c", script]).0, Exit::Code(4));
    assert!(since.elapsed() > Duration::from_millis(150), "it was stopped");
}

#[test]
fn a_program_that_does_not_end_by_itself_is_killed() {
    let mut program = launch(&["sleep", "60"]).unwrap();
    let mut emit = |_| {};
    program.start(&mut emit).unwrap();
    program.wait(&|| true, &mut emit).unwrap();
    assert_eq!(program.finish(&mut emit).unwrap(), Some(Exit::Signal(9)));
}

#[test]
fn an_unexecutable_program_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken");
    std::fs::write(&path, "\x7fELF no program").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let error = launch(&[path.to_str().unwrap()]).unwrap_err();
    assert!(matches!(&error, SourceError::NotExecutable { .. }), "{error}");
    // Opening a pipe would wait for a writer.
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = sampler::target::find(pipe.to_str().unwrap()).unwrap_err();
    assert!(matches!(&error, SourceError::NotExecutable { .. }), "{error}");
    assert!(matches!(launch(&["no-such-program-x"]), Err(SourceError::NotFound { .. })));
}

#[test]
fn a_dropped_program_is_killed() {
    let program = launch(&["sleep", "60"]).unwrap();
    let pid = program.id().pid;
    drop(program);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_process_is_moved_and_moved_back() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let tid = child.id().cast_signed();
    // spawn returns when the old memory is gone, before the new program is mapped.
    let maps = || std::fs::read_to_string(format!("/proc/{tid}/maps")).unwrap();
    while !maps().contains(" r-xp ") {
        std::thread::yield_now();
    }
    let before = Affinity::of(tid).unwrap();
    let first = Affinity::current().unwrap().cpus().next().unwrap();
    let only = before.only(first).unwrap();
    let mut process = Process::attach(child.id(), &only, None).unwrap();
    assert_eq!(Affinity::of(tid).unwrap().list(), first.to_string());
    let mut events = Vec::new();
    process.start(&mut |event| events.push(event)).unwrap();
    assert!(events.iter().any(|event| matches!(event, Event::Mmap(_))));
    let Some(Event::Mmap(map)) = events.get(1) else { panic!("{events:?}") };
    assert!(process.code().unwrap().owns(map.addr) && !process.code().unwrap().owns(0x1000));
    drop(process);
    assert_eq!(Affinity::of(tid).unwrap().list(), before.list());

    // It ends with the process or the time limit.
    let limit = Some(Duration::from_millis(30));
    let mut process = Process::attach(child.id(), &before, limit).unwrap();
    let since = Instant::now();
    process.wait(&|| false, &mut |_| {}).unwrap();
    assert!(since.elapsed() >= Duration::from_millis(30));
    let mut process = Process::attach(child.id(), &before, None).unwrap();
    child.kill().unwrap();
    process.wait(&|| false, &mut |_| {}).unwrap();
    assert_eq!(process.finish(&mut |_| {}).unwrap(), None);
    child.wait().unwrap();
    let error = Process::attach(child.id(), &before, None).unwrap_err();
    assert!(matches!(error, SourceError::Os { .. }), "{error}");
    let mut cpu = WholeCpu { limit };
    cpu.wait(&|| false, &mut |_| {}).unwrap();
}

/// The code of the function that thaws, sleeps and freezes, from a program file.
fn row(program: &Path) -> Option<(u64, Vec<u8>)> {
    let bytes = std::fs::read(program).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    let symbol = file
        .symbols()
        .find(|symbol| symbol.name().is_ok_and(|name| name.contains("cpu8same_cpu3row")))?;
    let section = file.section_by_index(symbol.section_index()?).ok()?;
    let code = section.data_range(symbol.address(), symbol.size()).ok()??;
    Some((symbol.address(), code.to_vec()))
}

#[test]
fn no_branch_between_the_first_and_the_last_system_call() {
    // Unused, the function would not be linked into this program.
    let null = std::fs::File::open("/dev/null").unwrap();
    let descriptor = null.as_fd();
    let mut control = Control { descriptor, cpu: 0, msr: lbr_msr::Msr(0x1D9), enable: 1 };
    assert!(control.record_until(1, Duration::ZERO).is_err());
    let Some(this) = with_symbols() else { return };
    let folder = this.parent().unwrap().parent().unwrap().parent().unwrap();
    let mut looked_at: Vec<PathBuf> = Vec::new();
    for program in [this.clone(), folder.join("release/lbr")] {
        let Some((address, code)) = row(&program) else { continue };
        const SYSCALL: [u8; 2] = [0x0F, 0x05];
        // This length decides which kernel returns are the sampler's.
        assert!(code.len() <= 512, "{}: {} bytes", program.display(), code.len());
        let mut at = 0;
        let mut calls = 0;
        while calls < 4 {
            let rest = &code[at..];
            match insn::decode(rest, address + at as u64) {
                Insn::Branch(branch) if rest.starts_with(&SYSCALL) => {
                    calls += 1;
                    at += usize::from(branch.len);
                }
                Insn::Branch(branch) => {
                    assert_eq!(calls, 0, "{}: {branch:x?}", program.display());
                    at += usize::from(branch.len);
                }
                Insn::Straight { len } => at += usize::from(len),
                other => panic!("{}: {other:x?} at {at:#x}", program.display()),
            }
        }
        looked_at.push(program);
    }
    assert_eq!(looked_at.first(), Some(&this), "at least this program has the function");
}

/// The kernel returns to that function after each of its system calls, which is no branch of the
/// target.
#[test]
fn the_code_from_thaw_to_freeze_is_not_the_targets() {
    let null = std::fs::File::open("/dev/null").unwrap();
    let mut control =
        Control { descriptor: null.as_fd(), cpu: 0, msr: lbr_msr::Msr(0x1D9), enable: 1 };
    assert!(control.record_until(1, Duration::ZERO).is_err());
    let Some(this) = with_symbols() else { return };
    let Some((address, code)) = row(&this) else { panic!("no such function") };
    // Where the first byte of this program's file is mapped, and where the file wants it.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let running = std::env::current_exe().unwrap();
    let first = maps.lines().find(|line| line.ends_with(running.to_str().unwrap())).unwrap();
    let mapped = u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap();
    let bytes = std::fs::read(&this).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let wanted = file.segments().map(|segment| segment.address()).min().unwrap();
    let start = address - wanted + mapped;

    let mut target = WholeCpu { limit: None };
    let mut cpus = Cpus::new(Vec::new(), &mut target, Affinity::current().unwrap());
    let ours = cpus.decoding().ours.unwrap();
    assert_eq!(ours.start, start);
    assert!(ours.contains(&(start + code.len() as u64 - 1)) && ours.end - start < 4096);
}
