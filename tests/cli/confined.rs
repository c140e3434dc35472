//! Hostile code under `lbr time`: it cannot choose register values, leaves no process running, and
//! ends in time.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, geteuid, mkfifo};

use crate::support::lbr::{PROGRAM, alone, lbr, text};
use crate::support::skip::{run_tool, skipped, tool};

/// IA32_DEBUGCTL, whose bit 0 switches recording on. SDM Vol. 4, Table 2-2.
const DEBUGCTL: u64 = 0x1D9;

/// A made-up Skylake whose node is a file of zeros.
struct Tree {
    root: tempfile::TempDir,
}

impl Tree {
    fn new() -> Tree {
        let tree = Tree { root: tempfile::tempdir().unwrap() };
        let skylake = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/hosts/skylake");
        std::fs::copy(skylake.join("cpuid"), tree.path("cpuid")).unwrap();
        std::fs::create_dir_all(tree.path("sys/devices/system/cpu")).unwrap();
        std::fs::write(tree.path("sys/devices/system/cpu/online"), "0\n").unwrap();
        std::fs::create_dir_all(tree.path("dev/cpu/0")).unwrap();
        File::create(tree.node()).unwrap().set_len(0x1_0000).unwrap();
        tree
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn node(&self) -> PathBuf {
        self.path("dev/cpu/0/msr")
    }

    fn debugctl(&self) -> u64 {
        let mut bytes = [0; 8];
        File::open(self.node()).unwrap().read_exact_at(&mut bytes, DEBUGCTL).unwrap();
        u64::from_le_bytes(bytes)
    }

    fn is_as_before(&self) -> bool {
        std::fs::read(self.node()).unwrap().iter().all(|byte| *byte == 0)
    }

    /// A command on CPU 0 of the tree, in a session whose number is its own.
    fn command(&self, words: &[&str]) -> Command {
        let (name, rest) = words.split_first().unwrap();
        let mut command = alone(Command::new("setsid"));
        command.arg(PROGRAM).arg(name).arg("--msr-root").arg(self.root.path());
        command.args(rest).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// `lbr time`, with the control register switched around each run.
    fn time(&self, words: &[&str]) -> Command {
        let few = ["time", "--backend", "msr", "-C", "0", "--warm-up", "1", "--repeat", "3"];
        self.command(&[&few[..], &["--loop", "1"], words].concat())
    }
}

fn has_tools() -> bool {
    run_tool(tool("as").arg("--version")).is_some()
        && run_tool(tool("setsid").arg("--version")).is_some()
}

/// Nothing here takes as long, on any host; less than the longest `--timeout` of these tests.
const HANGS: Duration = Duration::from_secs(300);

/// Waits for a command and checks that it and the processes it started have ended.
#[track_caller]
fn ended(mut child: Child) -> Output {
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if since.elapsed() > HANGS {
            let _ = child.kill();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let session = child.id();
    while of_session(session) > 0 {
        assert!(since.elapsed() < HANGS, "processes of the session are left");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// Processes of a session that have not ended. proc(5), `/proc/PID/stat`.
fn of_session(session: u32) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let stats =
        processes.filter_map(|found| std::fs::read_to_string(found.path().join("stat")).ok());
    let is_of = |stat: &String| {
        let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let words: Vec<&str> = rest.split(' ').collect();
        words.first() != Some(&"Z") && words.get(3).and_then(|id| id.parse().ok()) == Some(session)
    };
    stats.filter(is_of).count()
}

/// Looks for the system calls of the bracket before it, as the code's address leads to them.
const FIND_SYSCALL: &str = "lea rbx, [rip]; 1: dec rbx; cmp word ptr [rbx], 0x050f; jne 1b";

#[test]
fn measured_code_cannot_choose_register_values() {
    if !has_tools() {
        return;
    }
    // Each descriptor in turn; [r14] counts them from one run to the next.
    let jump_to = |offset: &str, length: &str, from: &str| {
        format!(
            "mov qword ptr [r14 + 8], 0xc3; {FIND_SYSCALL}; inc qword ptr [r14]; \
             cmp qword ptr [r14], 40; ja 2f; mov eax, 18; mov rdi, [r14]; {from}; \
             mov rdx, {length}; mov r10, {offset}; jmp rbx; 2: nop"
        )
    };
    let own = "lea rsi, [r14 + 8]";
    let attacks = [
        // pwrite64 at the bracket's own call: a value, a register, a length of the code's choice.
        jump_to("0x1d9", "8", own),
        jump_to("0x1c8", "8", "mov esi, 0x10000"),
        jump_to("0x1d9", "16", "mov esi, 0x10000"),
        jump_to("0x1d9", "8", "mov esi, 0x10010"),
        jump_to("0x1000001d9", "8", "mov esi, 0x10000"),
        jump_to("0x1d9", "0x100000008", "mov esi, 0x10000"),
        // And at a call of the code's own.
        "mov qword ptr [r14], 0xc3; mov ebx, 3; 1: mov eax, 18; mov edi, ebx; mov rsi, r14; \
         mov edx, 8; mov r10d, 0x1d9; syscall; inc ebx; cmp ebx, 64; jb 1b"
            .to_owned(),
        // mmap(0, 4096, READ | WRITE, MAP_SHARED, descriptor, 0).
        "mov ebx, 3; 1: mov eax, 9; xor edi, edi; mov esi, 4096; mov edx, 3; mov r10d, 1; \
         mov r8d, ebx; xor r9d, r9d; syscall; test rax, rax; js 2f; \
         mov byte ptr [rax + 0x1d9], 0xc3; 2: inc ebx; cmp ebx, 64; jb 1b"
            .to_owned(),
        // Anything in the pages that the bracket keeps its own values in.
        "lea rax, [rip]; and rax, -4096; sub rax, 0x5000; lea rcx, [r14]; \
         mov qword ptr [rcx], 0xc3; mov [rax + 424], rcx; mov [rax + 432], rcx; mov [rax + 440], rcx"
            .to_owned(),
    ];
    for attack in attacks {
        let tree = Tree::new();
        let output = ended(tree.time(&["--stepped", "0", &attack]).spawn().unwrap());
        assert!(output.status.code().is_some(), "{attack}: {output:?}");
        assert!(tree.is_as_before(), "{attack}: DEBUGCTL is {:#x}", tree.debugctl());
    }
    // The values themselves are not to be replaced.
    let (page, map) =
        ("mov edi, 0x10000; mov esi, 4096; mov edx, 3;", "mov r10d, 0x32; mov r8, -1;");
    let replacing = [
        format!("{page} {map} xor r9d, r9d; mov eax, 9; syscall"),
        format!("{page} mov eax, 10; syscall"),
        format!("{page} mov eax, 11; syscall"),
        format!("{page} mov edx, 4; mov eax, 28; syscall"),
        format!("{page} mov r10, -1; mov eax, 329; syscall"),
        format!("{page} mov edx, 4096; mov r10d, 1; mov eax, 25; syscall"),
        format!("{page} mov edi, 0; mov rsi, 0x7fff00000000; mov eax, 11; syscall"),
        "lea rdi, [r14]; and rdi, -4096; mov esi, 4096; mov edx, 4096; mov r10d, 3; \
         mov r8d, 0x10000; mov eax, 25; syscall"
            .to_owned(),
    ];
    for attack in replacing {
        let tree = Tree::new();
        let output = ended(tree.time(&["--stepped", "0", &attack]).spawn().unwrap());
        let said = text(&output.stderr);
        assert!(said.contains("not let make"), "{attack}: {said}");
        assert!(tree.is_as_before(), "{attack}");
    }
}

#[test]
fn measured_code_leaves_no_processes() {
    if !has_tools() {
        return;
    }
    // clone(flags, stack), fork, vfork; those that it starts wait for ever.
    let wait = "test eax, eax; jnz 2f; 1: mov eax, 34; syscall; jmp 1b; 2: nop";
    let clone = |flags: &str| {
        format!(
            "mov eax, 56; mov edi, {flags}; lea rsi, [rsp - 4096]; xor edx, edx; xor r10d, r10d; xor r8d, r8d; syscall; {wait}"
        )
    };
    let starting = [
        format!("mov eax, 57; syscall; {wait}"),
        format!("mov eax, 58; syscall; {wait}"),
        // CLONE_THREAD and what goes with it; CLONE_UNTRACED; CLONE_PARENT.
        clone("0x50f00"),
        clone("0x800011"),
        clone("0x850f00"),
        clone("0x8011"),
    ];
    for code in &starting {
        for words in
            [&["--timeout", "2", "--stepped", "0", code][..], &["--unconfined", code], &[code]]
        {
            let tree = Tree::new();
            let output = ended(tree.time(words).spawn().unwrap());
            let said = text(&output.stderr);
            // Unconfined, one that is not traced goes unseen.
            if !words.contains(&"--unconfined") || !code.contains("0x8") {
                assert!(
                    said.contains("starts another thread or process at +0x"),
                    "{words:?}: {said}"
                );
            }
            assert!(tree.is_as_before(), "{words:?}");
        }
    }
    // clone3 does not exist: -ENOSYS.
    let clone3 =
        "mov eax, 435; mov rdi, r14; mov esi, 88; syscall; cmp eax, -38; je 2f; ud2; 2: nop";
    let tree = Tree::new();
    let output = ended(tree.command(&["time", "--backend", "soft", clone3]).spawn().unwrap());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn measured_code_has_a_memory_limit() {
    if !has_tools() {
        return;
    }
    // mmap(0, length, READ | WRITE, PRIVATE | ANONYMOUS | POPULATE): an address, or -ENOMEM.
    let map = |length: &str, expected: &str| {
        format!(
            "xor edi, edi; mov rsi, {length}; mov edx, 3; mov r10d, 0x8022; mov r8, -1; \
             xor r9d, r9d; mov eax, 9; syscall; cmp rax, -12; {expected} 2f; ud2; 2: test rax, rax; \
             js 3f; mov rdi, rax; mov rsi, {length}; mov eax, 11; syscall; 3: nop"
        )
    };
    for code in [map("0x80000000", "je"), map("0x40100000", "je"), map("0x100000", "jne")] {
        let tree = Tree::new();
        let output = ended(tree.command(&["time", "--backend", "soft", &code]).spawn().unwrap());
        assert_eq!(output.status.code(), Some(0), "{code}: {}", text(&output.stderr));
    }
}

#[test]
fn measured_code_has_the_rights_of_an_existing_user() {
    if !geteuid().is_root() || !has_tools() {
        return skipped("root alone gives up rights");
    }
    let tree = Tree::new();
    let time = |ids: &[(&str, &str)], code: &str| {
        let mut command = tree.command(&["time", "--backend", "soft", code]);
        ended(command.envs(ids.iter().copied()).spawn().unwrap())
    };
    for id in
        ["4294967295", "-1", "", "root", "4294967296", "1000 ", "0x3e8", "99999999999999999999"]
    {
        for ids in [&[("SUDO_UID", id)][..], &[("SUDO_UID", "1000"), ("SUDO_GID", id)]] {
            let output = time(ids, "nop");
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{ids:?}: {said}");
            let variable = ids.last().unwrap().0;
            assert!(said.contains(&format!("{variable} is {id:?}, which is not")), "{said}");
        }
    }
    // getuid, geteuid, getgid, getegid; getgroups is not the code's to ask.
    let check = |user: u32, group: u32| {
        [(102, user), (107, user), (104, group), (108, group)].map(|(call, id)| {
            format!("mov eax, {call}; syscall; cmp eax, {id}; je 2f; ud2; 2: nop;")
        })
    };
    for (ids, user, group) in [
        (&[][..], 65534, 65534),
        (&[("SUDO_UID", "1234"), ("SUDO_GID", "4321")], 1234, 4321),
        (&[("SUDO_UID", "1234")], 1234, 65534),
        (&[("SUDO_UID", "0"), ("SUDO_GID", "0")], 65534, 65534),
    ] {
        let output = time(ids, &check(user, group).concat());
        assert_eq!(output.status.code(), Some(0), "{ids:?}: {}", text(&output.stderr));
    }
}

/// An assembler that waits for a FIFO ends with `lbr`.
/// CLONE_UNTRACED hides a process from its tracer: without a filter, each round of a loop would
/// double the processes.
#[test]
fn unconfined_code_starts_no_process_either() {
    if !has_tools() {
        return;
    }
    let clone = "xor esi, esi; xor edx, edx; xor r10d, r10d; xor r8d, r8d; syscall";
    for code in [
        format!("mov eax, 56; mov edi, 0x800011; {clone}"),
        "mov eax, 2; int 0x80".to_owned(),
        "mov eax, 0x40000039; syscall".to_owned(),
        "mov eax, 435; xor edi, edi; xor esi, esi; syscall".to_owned(),
    ] {
        let options = ["time", "--unconfined", "--loop", "1", "--repeat", "1", "--warm-up", "1"];
        let out = lbr(&[&options[..], &[&code]].concat());
        let said = text(&out.stderr);
        assert!(said.contains("starts another thread or process"), "{code}: {said}");
        assert_eq!(out.status.code(), Some(1), "{code}");
    }
}

#[test]
fn the_assembler_has_limits() {
    if !has_tools() {
        return;
    }
    let out = lbr(&["time", ".fill 0x7fffffff, 1, 0x90"]);
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot be assembled: "), "{said}");
    assert!(said.contains("memory exhausted") || said.contains("SIGXFSZ ended it"), "{said}");
}

#[test]
fn no_assembler_process_survives() {
    if !has_tools() {
        return;
    }
    let tree = Tree::new();
    let fifo = tree.path("fifo");
    mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    // The last ones right after the fork, before the assembler runs.
    let signals = [Signal::SIGTERM, Signal::SIGKILL];
    for (round, signal) in (0..20).zip(signals.into_iter().cycle()) {
        let mut child = tree.time(&[&format!(".incbin {fifo:?}")]).spawn().unwrap();
        let started = Instant::now();
        while of_session(child.id()) < 2 {
            assert!(started.elapsed() < HANGS && child.try_wait().unwrap().is_none());
            if round < 2 {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        ended(child);
    }
}

/// Whoever ends `lbr` while code runs on: the whole register is as before.
#[test]
fn the_register_is_restored_however_the_process_ends() {
    if !has_tools() {
        return;
    }
    // The third run does not end; recording is on then.
    let code = "inc qword ptr [r14]; cmp qword ptr [r14], 3; jb 2f; 1: jmp 1b; 2: nop";
    for (signal, meddled) in [
        (Signal::SIGKILL, false),
        (Signal::SIGKILL, true),
        (Signal::SIGTERM, true),
        (Signal::SIGINT, false),
    ] {
        let tree = Tree::new();
        let mut child = tree.time(&["--stepped", "0", "--timeout", "600", code]).spawn().unwrap();
        let started = Instant::now();
        let mut since = Instant::now();
        // On for long: in the run that does not end.
        while since.elapsed() < Duration::from_millis(500) {
            assert!(started.elapsed() < HANGS, "{signal}");
            if tree.debugctl() & 1 == 0 {
                since = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if meddled {
            // FREEZE_WHILE_SMM and FREEZE_LBRS_ON_PMI, as if somebody else had set them.
            let node = File::options().write(true).open(tree.node()).unwrap();
            node.write_all_at(&[0x48], DEBUGCTL + 1).unwrap();
        }
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        let mut said = String::new();
        // The watchdog process has it open too.
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let output = ended(child);
        assert_eq!(output.status.code().is_none(), signal == Signal::SIGKILL, "{signal}: {said}");
        assert!(tree.is_as_before(), "{signal}: DEBUGCTL is {:#x}", tree.debugctl());
        // An lbr that is alive has switched recording off before.
        let sentence = "CPU 0: the control register 0x1d9 was 0x480";
        assert_eq!(said.contains(sentence), meddled, "{signal}: {said}");
    }
}

#[test]
fn a_file_that_is_not_a_device_is_refused_at_once() {
    if !has_tools() {
        return;
    }
    let commands: [&[&str]; 6] = [
        &["dump", "--backend", "msr", "-C", "0"],
        &["record", "--backend", "msr", "-C", "0", "--", "true"],
        &["time", "--backend", "msr", "-C", "0", "--hex", "90"],
        &["verify", "--backend", "msr", "-C", "0"],
        &["doctor"],
        &["disarm", "--backend", "msr", "-C", "0"],
    ];
    for what in ["a FIFO", "a socket", "a directory"] {
        let tree = Tree::new();
        let node = tree.node();
        std::fs::remove_file(&node).unwrap();
        match what {
            "a FIFO" => mkfifo(&node, Mode::S_IRUSR | Mode::S_IWUSR).unwrap(),
            "a socket" => drop(UnixListener::bind(&node).unwrap()),
            _ => std::fs::create_dir(&node).unwrap(),
        }
        for words in commands {
            let mut command = tree.command(words);
            let output = ended(command.current_dir(tree.root.path()).spawn().unwrap());
            let said = text(&output.stdout) + &text(&output.stderr);
            let expected = format!("is {what}, not a character device");
            assert!(said.contains(&expected), "{what}, {words:?}: {said}");
            assert_ne!(output.status.code(), Some(0), "{what}, {words:?}");
        }
    }
}
