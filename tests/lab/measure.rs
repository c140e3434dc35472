//! Snippets whose instructions and branches are known by hand, and hostile code.

use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use lab::measure::bracket::{Body, Bracket, Gpr, SwitchWrites};
use lab::measure::image::{LoadError, LoadedFile};
use lab::measure::{FaultKind, MeasureError, Measurement, Reading, Ring, Session};
use lbr_msr::arm::Restored;
use lbr_msr::{Msr, MsrError};

use crate::support::skip::{skipped, tool};

fn session() -> Session {
    let mut session = Session::stepping().expect("a session");
    session.options().warm_up = 1;
    session.options().repeat = 2;
    session.options().limit = Duration::from_secs(10);
    session
}

/// Assembles; `None`, with a message, without an assembler.
fn assemble(source: &str) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a folder");
    let (input, object) = (folder.path().join("code.s"), folder.path().join("code.o"));
    std::fs::write(&input, format!(".intel_syntax noprefix\n{source}\n")).expect("a file");
    let status = tool("as").arg("--64").arg("-o").arg(&object).arg(&input).status();
    let Ok(status) = status else {
        skipped("no assembler (as)");
        return None;
    };
    assert!(status.success(), "as: {source}");
    use object::{Object, ObjectSection};
    let bytes = std::fs::read(&object).expect("an object");
    let file = object::File::parse(&*bytes).expect("ELF");
    let text = file.section_by_name(".text").expect("code");
    assert_eq!(text.relocations().count(), 0, "{source}");
    Some(text.data().expect("bytes").to_vec())
}

fn measure(body: &Body) -> Measurement {
    session().measure_code(body).unwrap_or_else(|error| panic!("{error}: {body:?}"))
}

/// SDM Vol. 3, 5.3: pages of 4096 bytes.
#[test]
fn code_starts_where_it_is_put() {
    let code = vec![0x90; 3];
    for at in [0, 1, 63, 2000, 4095] {
        for (rounds, fresh, stepped) in
            [(None, false, false), (Some(9), false, true), (Some(9), true, false)]
        {
            let page_offset = Some(at);
            let code = code.clone();
            let body = Body { code, rounds, fresh, stepped, page_offset, ..Body::default() };
            let bracket = Bracket::new(&body).expect("a bracket");
            assert_eq!(bracket.layout().code.start % 4096, at, "{body:?}");
        }
        let looped = Body { code: code.clone(), rounds: Some(9), ..Body::default() };
        let measured = measure(&Body { page_offset: Some(at), ..looped });
        // Three NOPs, nine times, without the loop's own.
        assert_eq!(measured.counts.expect("counts").instructions, 27);
    }
}

/// Instructions, taken branches, conditional branches not taken: of the code without the bracket,
/// counted by hand.
const KNOWN: [(&str, &str, [u64; 3]); 24] = [
    ("nothing", "", [0, 0, 0]),
    ("straight", "nop; add rax, 1; xor ecx, ecx", [3, 0, 0]),
    ("a jump", "jmp 2f; ud2; 2: nop", [2, 1, 0]),
    ("a jump to the next instruction", "jmp 2f; 2: nop", [2, 1, 0]),
    ("a condition to the next instruction, taken", "xor eax, eax; jz 2f; 2: nop", [3, 1, 0]),
    ("a condition to the next instruction, not", "xor eax, eax; jnz 2f; 2: nop", [3, 0, 1]),
    // 1 + 10 * 2; taken except for the last.
    ("dec and jnz", "mov ecx, 10; 2: dec ecx; jnz 2b", [21, 9, 1]),
    ("loop", "mov ecx, 7; 2: loop 2b", [8, 6, 1]),
    // ZF is 0 after the first INC: LOOPE is not taken.
    ("loope that ends by ZF", "mov ecx, 7; 2: inc eax; loope 2b", [3, 0, 1]),
    ("loopne", "mov ecx, 5; 2: inc eax; loopne 2b", [11, 4, 1]),
    ("jrcxz taken", "xor ecx, ecx; jrcxz 2f; ud2; 2: nop", [3, 1, 0]),
    ("jrcxz not taken", "mov ecx, 1; jrcxz 2f; nop; 2: nop", [4, 0, 1]),
    // RCX is not zero, ECX is.
    ("jecxz", "mov rcx, 0x100000000; jecxz 2f; ud2; 2: nop", [3, 1, 0]),
    ("rep stosb is one", "mov ecx, 1000; rep stosb", [2, 0, 0]),
    ("rep movsb is one", "mov ecx, 300; rep movsb; nop", [3, 0, 0]),
    ("rep of zero is one", "xor ecx, ecx; rep stosb", [2, 0, 0]),
    ("repne scasb is one", "mov ecx, 50; mov al, 1; repne scasb", [3, 0, 0]),
    // MOV, LEA, MOVSXD, ADD, JMP, NOP
    (
        "an indirect jump through a table",
        "mov eax, 1; lea rdx, [rip + 3f]; movsxd rcx, dword ptr [rdx + rax * 4]; \
         add rcx, rdx; jmp rcx; ud2; .balign 4; 3: .long 4f - 3b, 5f - 3b; 4: ud2; 5: nop",
        [6, 1, 0],
    ),
    // Three rounds of LEA, MOVSXD, ADD, JMP and, in turn, the cases with their
    // JMP back and the INC, CMP, JB.
    (
        "a table in a loop",
        "xor eax, eax; 2: lea rdx, [rip + 3f]; movsxd rcx, dword ptr [rdx + rax * 4]; \
         add rcx, rdx; jmp rcx; 4: jmp 6f; 5: nop; jmp 6f; 6: inc eax; cmp eax, 3; jb 2b; \
         jmp 9f; .balign 4; 3: .long 4b - 3b, 5b - 3b, 6b - 3b; 9:",
        // 1; rounds 4+1+3, 4+2+3, 4+0+3; 1. Taken: 2+1, 2+1, 1+0, and 1.
        [26, 8, 1],
    ),
    ("call and return", "call 2f; jmp 3f; 2: ret; 3: nop", [4, 3, 0]),
    // A call of the next instruction, which this CPU records.
    ("a call of the next instruction", "call 2f; 2: pop rax", [2, 1, 0]),
    (
        // Depth n takes TEST, JZ (taken at 0), DEC, CALL, RET: n = 4 is
        // 4 * (TEST, JZ, DEC, CALL) + (TEST, JZ) + 5 RET, and MOV, CALL, JMP.
        "recursion",
        "mov edi, 4; call 2f; jmp 4f; 2: test edi, edi; jz 3f; dec edi; call 2b; 3: ret; 4:",
        [26, 12, 4],
    ),
    ("an indirect call", "lea rax, [rip + 2f]; call rax; jmp 3f; 2: ret; 3:", [4, 3, 0]),
    // PUSHF must not leave the trap flag in the word, nor POPF set it.
    ("flags by the stack", "pushf; pop rax; push rax; popf; bt eax, 8; jc 2f; nop; 2:", [7, 0, 1]),
];

#[test]
fn instructions_and_branches_are_exact() {
    for (name, source, [instructions, taken, not_taken]) in KNOWN {
        let Some(code) = assemble(source) else { return };
        let measured = measure(&Body { code, ..Body::default() });
        let counts = measured.counts.expect("counted");
        assert_eq!(counts.instructions, instructions, "instructions of {name}");
        assert_eq!(counts.branches, taken, "branches taken of {name}");
        assert_eq!(counts.not_taken, not_taken, "branches not taken of {name}");
        assert!(!measured.counts_vary, "{name}");
        assert_eq!(measured.runs.len(), 2, "{name}");
        // Each taken branch ends a block, and so does the end of the code.
        let blocks: u64 = measured.blocks.iter().map(|block| block.n).sum();
        let end = u64::from(instructions > 0);
        let reached = measured.blocks.iter().any(|block| block.exit == measured.layout.close);
        assert!(blocks == 2 * (taken + end) || !reached && blocks == 2 * taken, "{name}: {blocks}");
        for block in &measured.blocks {
            assert!(block.cycles.is_empty(), "{name}: cycles were not counted");
            assert_ne!(block.exit, measured.layout.open, "{name}: a bracket's block");
            assert!(measured.layout.code.contains(&block.entry), "{name}: not of the code");
        }
    }
}

#[test]
fn copies_and_rounds_multiply() {
    let Some(code) = assemble("dec ecx; jz 2f; nop; 2: nop") else { return };
    let body = Body { code, unroll: 5, rounds: Some(7), ..Body::default() };
    let measured = measure(&body);
    let counts = measured.counts.expect("counted");
    assert_eq!(measured.iterations, 35);
    assert_eq!(counts.instructions, 4 * 35);
    assert_eq!((counts.branches, counts.not_taken, counts.rounds), (0, 35, 7));
    // Six iterations end with the loop's branch, the last one at the end.
    let n = |exit| measured.blocks.iter().filter(|b| b.exit == exit).map(|b| b.n).sum::<u64>();
    assert_eq!(n(measured.layout.around.expect("a loop")), 2 * 6);
    assert_eq!(n(measured.layout.close), 2);
}

#[test]
fn set_up_code_is_not_counted_and_its_registers_arrive() {
    let Some(init) = assemble("mov ecx, 3; mov qword ptr [r14], 5; stc") else { return };
    let Some(code) = assemble("adc rcx, [r14]; mov rbx, rsp") else { return };
    let measured = measure(&Body { init, code, ..Body::default() });
    assert_eq!(measured.counts.expect("counted").instructions, 2);
    assert_eq!(measured.end.get(Gpr::Rcx), 9);
    assert_eq!(measured.end.get(Gpr::Rbx), measured.end.get(Gpr::Rsp));
}

#[test]
fn a_filter_merges_blocks_between_suppressed_branches() {
    let Some(code) = assemble("mov ecx, 3; 2: jmp 3f; 3: dec ecx; jnz 2b; call 4f; 4: nop") else {
        return;
    };
    let mut session = session();
    session.options().filter = "cond,u".parse().expect("a filter");
    session.options().stepped = 1;
    let measured = session.measure_code(&Body { code, ..Body::default() }).expect("it runs");
    let start = measured.layout.code.start;
    let seen: Vec<(u64, u64, u64)> = measured
        .blocks
        .iter()
        .map(|block| (block.entry - start, block.exit.wrapping_sub(start), block.n))
        .collect();
    let close = measured.layout.close - start;
    // MOV is 5 bytes, JMP 2, DEC 2, JNZ 2.
    assert_eq!(seen, [(0, 9, 1), (5, 9, 1), (5, close, 1)]);
    assert_eq!(measured.counts.expect("counted").branches, 6, "all branches are counted");
}

/// How the code failed, and its offset.
fn fault(source: &str, limit: Duration) -> Option<(FaultKind, Option<u64>)> {
    let code = assemble(source)?;
    let mut session = session();
    session.options().limit = limit;
    let error = session.measure_code(&Body { code, ..Body::default() }).expect_err(source);
    let MeasureError::Fault { fault, layout, .. } = error else { panic!("{source}: {error}") };
    Some((fault.kind, fault.at.map(|at| at.wrapping_sub(layout.code.start))))
}

#[test]
fn hostile_code_is_reported_and_survived() {
    const SIGILL: i32 = 4;
    const SIGTRAP: i32 = 5;
    const SIGFPE: i32 = 8;
    const SIGSEGV: i32 = 11;
    let signal = |signal| FaultKind::Signal { signal, address: None };
    let touching = |address| FaultKind::Signal { signal: SIGSEGV, address: Some(address) };
    let cases = [
        ("nop; mov rax, [0x10]", touching(0x10), Some(1)),
        ("nop; nop; ud2", signal(SIGILL), Some(2)),
        ("xor ecx, ecx; div ecx", signal(SIGFPE), Some(2)),
        ("nop; int3", signal(SIGTRAP), Some(1)),
        ("hlt", signal(SIGSEGV), Some(0)),
        ("nop; 2: jmp 2b", FaultKind::Hang { in_call: false }, Some(1)),
        ("mov eax, 34; syscall", FaultKind::Hang { in_call: true }, Some(5)),
        ("mov eax, 60; mov edi, 7; syscall", FaultKind::Exit(7), Some(10)),
        ("mov eax, 231; mov edi, 8; syscall", FaultKind::Exit(8), Some(10)),
        ("mov eax, 57; syscall", FaultKind::Fork, Some(5)),
        // The stack pointer is invalid.
        ("mov esp, 16; push rax", touching(8), Some(5)),
        ("push 64; ret", touching(64), None),
        // The whole stack is overwritten, down to the guard page.
        ("2: push rax; jmp 2b", signal(SIGSEGV), Some(0)),
    ];
    for (source, kind, at) in cases {
        // All others get enough time even on a busy machine.
        let hangs = matches!(kind, FaultKind::Hang { .. });
        let limit = Duration::from_secs(if hangs { 1 } else { 20 });
        let Some((found, place)) = fault(source, limit) else { return };
        match (found, kind) {
            // The guard page's address is unspecified.
            (FaultKind::Signal { signal, .. }, FaultKind::Signal { signal: SIGSEGV, .. })
                if source.starts_with("2: push") =>
            {
                assert_eq!(signal, SIGSEGV);
            }
            _ => assert_eq!(found, kind, "{source}"),
        }
        if at.is_some() {
            assert_eq!(place, at, "{source}");
        }
    }
}

#[test]
fn code_that_clobbers_its_environment_is_measured() {
    // Closes every descriptor up to 99, overwrites the stack around RSP, and ends with the
    // direction flag set.
    let source = "mov edi, 0; 2: mov eax, 3; syscall; inc edi; cmp edi, 100; jb 2b; \
                  lea rdi, [rsp - 4096]; mov ecx, 8192; mov al, 0xCC; rep stosb; std";
    let Some(code) = assemble(source) else { return };
    let counts = measure(&Body { code, ..Body::default() }).counts.expect("counted");
    assert_eq!(counts.system_calls, 100);
    assert_eq!(counts.instructions, 1 + 5 * 100 + 5);
    assert_eq!((counts.branches, counts.not_taken), (99, 1));
}

/// Compiles C into a temporary file.
fn compile(source: &str, flags: &[&str]) -> Option<(tempfile::TempDir, std::path::PathBuf)> {
    let folder = tempfile::tempdir().expect("a folder");
    let (input, output) = (folder.path().join("code.c"), folder.path().join("code.bin"));
    std::fs::write(&input, source).expect("a file");
    let status = tool("cc").args(flags).arg("-o").arg(&output).arg(&input).status();
    let Ok(status) = status else {
        skipped("no C compiler (cc)");
        return None;
    };
    assert!(status.success(), "cc {flags:?}");
    Some((folder, output))
}

fn call(path: &Path, symbol: &str) -> Result<Measurement, MeasureError> {
    let image = LoadedFile::load(path, symbol).unwrap_or_else(|error| panic!("{error}"));
    let body = Body { call: Some(image.function()), rounds: Some(3), ..Body::default() };
    let measured = session().measure_code(&body);
    if let Err(MeasureError::Fault { fault, .. }) = &measured {
        assert_eq!(fault.at.and_then(|at| image.absent(at)), Some("absent"));
    }
    measured
}

const FUNCTIONS: &str = "
    __asm__(\".globl bare\\nbare: nop; nop; ret\\n.type bare, @function\\n.size bare, 3\\n\");
    extern int absent(int);
    static int table[4] = {1, 2, 3, 4};
    int *volatile place = table;
    int sum(void) { int s = 0; for (int i = 0; i < 4; i++) s += place[i]; return s; }
    int check(void) { if (sum() != 10) __builtin_trap(); return 0; }
    int lost(void) { return absent(3) + 1; }
";

#[test]
fn registers_and_flags_are_loaded_and_stored() {
    // mov eax, 7, and then: mov rcx, rax; pushfq; pop rdx; inc r9
    let body = Body {
        init: vec![0xB8, 7, 0, 0, 0],
        code: vec![0x48, 0x89, 0xC1, 0x9C, 0x5A, 0x49, 0xFF, 0xC1],
        unroll: 3,
        rounds: Some(5),
        ..Body::default()
    };
    let end = measure(&body).end;
    assert_eq!(end.get(Gpr::Rcx), 7);
    assert_eq!(end.get(Gpr::R9), 3, "three copies; each of five rounds starts anew");
    assert_eq!(end.get(Gpr::R15), 0);
    assert_eq!(end.get(Gpr::Rdx) & 0x602, 0x202, "flags were loaded");
    let code = body.code.clone();
    let end = measure(&Body { code, unroll: 3, rounds: Some(5), ..Body::default() }).end;
    assert_eq!(end.get(Gpr::R9), 15, "without a set-up the registers keep their values");
}

#[test]
fn each_round_starts_from_the_set_up() {
    // RCX counts 5 down to 0: MOV to R10, then 5 times DEC and JNZ (4 taken). A second execution
    // with the RCX left by the first would loop 2^64 times.
    let Some(init) = assemble("mov ecx, 5; mov qword ptr [r14], 7") else { return };
    let source = "mov r10, [r14]; 2: dec rcx; jnz 2b; mov r15d, 9; xor r14d, r14d; \
                  movq xmm3, r10; add rsp, 4096";
    let Some(code) = assemble(source) else { return };
    for rounds in [1, 2, 100] {
        let (init, code) = (init.clone(), code.clone());
        let body = Body { init, code, rounds: Some(rounds), ..Body::default() };
        let measured = measure(&body);
        let (counts, n) = (measured.counts.expect("counted"), u64::from(rounds));
        assert_eq!(counts.instructions, n * 15, "the set-up is not counted");
        assert_eq!((counts.branches, counts.not_taken, counts.rounds), (n * 4, n, n));
        assert_eq!(measured.end.get(Gpr::R10), 7);
        // Two stepped runs: DEC and JNZ from the start, then around, then to the end.
        let start = measured.layout.code.start;
        let blocks: Vec<(u64, u64)> =
            measured.blocks.iter().map(|block| (block.entry - start, block.n)).collect();
        let after = blocks.iter().filter(|(entry, _)| *entry == 3).map(|(_, n)| n).sum::<u64>();
        assert_eq!((blocks.first(), after), (Some(&(0, 2 * n)), 2 * 4 * n), "{blocks:?}");
        assert!(measured.overhead.iter().all(|run| run.ticks > 0));
    }
}

#[test]
fn each_call_starts_from_the_set_up() {
    // The loop overwrites its argument.
    let source = "long down(long n) { long s = 0; do { s += n; __asm__(\"\"); } while (--n); \
                  __asm__ volatile(\"xor %%edi, %%edi\" ::: \"rdi\"); return s; }";
    let Some((_folder, path)) = compile(source, &["-c", "-O1"]) else { return };
    let Some(init) = assemble("mov edi, 4") else { return };
    let image = LoadedFile::load(&path, "down").expect("a function");
    let call = Some(image.function());
    let once = measure(&Body { init: init.clone(), call, ..Body::default() });
    assert_eq!(once.end.get(Gpr::Rax), 4 + 3 + 2 + 1);
    let of_one = once.counts.expect("counted").instructions;
    for (rounds, unroll) in [(Some(100), 1), (None, 3), (Some(2), 2)] {
        let body = Body { init: init.clone(), call, rounds, unroll, ..Body::default() };
        let measured = measure(&body);
        assert_eq!(measured.end.get(Gpr::Rax), 10, "{rounds:?}, {unroll}");
        let counted = measured.counts.expect("counted").instructions;
        assert_eq!(counted, of_one * measured.iterations, "{rounds:?}, {unroll}");
    }
}

#[test]
fn code_that_changes_the_counter_of_its_loop_is_refused() {
    let sources = ["mov r15d, 1", "xor r15d, r15d", "inc r15", "mov r15b, 3", "pop r15; push r15"];
    for source in sources {
        let Some(code) = assemble(source) else { return };
        for stepped in [0, 2] {
            let mut session = session();
            session.options().stepped = stepped;
            let body = Body { code: code.clone(), rounds: Some(100), ..Body::default() };
            let refused = session.measure_code(&body);
            assert!(matches!(refused, Err(MeasureError::Counter)), "{source}: {refused:?}");
            // Without a loop, and if registers are set up for each iteration, the code may use R15.
            for body in [Body { rounds: None, ..body.clone() }, Body { fresh: true, ..body }] {
                session.measure_code(&body).unwrap_or_else(|error| panic!("{source}: {error}"));
            }
        }
    }
    // Code that changes R15 only in the third iteration, which no run without a loop shows; and
    // code that restores it.
    let Some(late) = assemble("inc eax; cmp eax, 3; jne 2f; mov r15d, 1; 2:") else { return };
    let body = Body { code: late, rounds: Some(100), ..Body::default() };
    assert!(matches!(session().measure_code(&body), Err(MeasureError::Counter)));
    let Some(kept) = assemble("push r15; xor r15d, r15d; pop r15") else { return };
    let measured = measure(&Body { code: kept, rounds: Some(100), ..Body::default() });
    assert_eq!(measured.counts.expect("counted").rounds, 100);
}

#[test]
fn a_loop_is_chosen_and_short_code_copied() {
    // DEC ECX, JNZ: 300,000 iterations take long enough without a loop.
    let long = vec![0xB9, 0xE0, 0x93, 0x04, 0x00, 0xFF, 0xC9, 0x75, 0xFC];
    let alone = session().calibrate(&Body { code: long, ..Body::default() }, 20_000);
    let alone = alone.expect("it runs");
    assert_eq!((alone.unroll.max(1), alone.rounds), (1, Some(1)));
    let nop = Body { code: vec![0x90], ..Body::default() };
    let looped = session().calibrate(&nop, 20_000).expect("it runs");
    assert!(looped.unroll > 1 && looped.rounds > Some(1), "{looped:?}");
    // Code with a set-up is not copied.
    let fresh = Body { fresh: true, ..nop };
    let looped = session().calibrate(&fresh, 20_000).expect("it runs");
    assert!(looped.unroll < 2 && looped.rounds > Some(1), "{looped:?}");
    // MOV RDI, [RDI] reads from address 0 the second time.
    let code = vec![0x48, 0x8B, 0x3F];
    let failed = session().calibrate(&Body { code: code.clone(), ..Body::default() }, 20_000);
    assert!(matches!(failed, Err(MeasureError::Fault { again: true, .. })), "{failed:?}");
    session().calibrate(&Body { code, fresh: true, ..Body::default() }, 20_000).expect("anew");
}

/// Only the two marker jumps branch between the two system calls.
#[test]
fn only_the_two_marker_jumps_branch() {
    use lbr_msr::insn::{Insn, decode};
    use std::os::unix::fs::FileExt;

    let body = Body { code: vec![0x90; 5], ..Body::default() };
    let bracket = Bracket::new(&body).expect("a bracket");
    let layout = bracket.layout();
    let memory = std::fs::File::open("/proc/self/mem").expect("our own memory");
    let mut bytes = vec![0; (layout.text.end - layout.text.start) as usize];
    memory.read_exact_at(&mut bytes, layout.text.start).expect("it is mapped");
    let (mut ip, mut branches) = (layout.init.start, Vec::new());
    while ip < layout.home {
        match decode(&bytes[(ip - layout.text.start) as usize..], ip) {
            Insn::Branch(branch) => {
                let name = branch.branch_type.name().unwrap_or("-");
                branches.push((name, ip));
                if name == "RET" {
                    break;
                }
                ip = branch.target.unwrap_or(branch.next());
            }
            Insn::Straight { len } => ip += u64::from(len),
            Insn::Invalid => panic!("no instruction at {ip:#x}"),
        }
    }
    let names: Vec<_> = branches.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["SYSCALL", "UNCOND", "UNCOND", "SYSCALL", "RET"]);
    assert_eq!((branches[1].1, branches[2].1), (layout.open, layout.close));
}

#[test]
fn functions_in_files_are_measured() {
    let no_pic = ["-c", "-O1", "-fno-pic", "-fno-pie"];
    let pic = ["-c", "-O1", "-fPIC"];
    for flags in [&["-c", "-O1"][..], &no_pic, &pic, &["-shared", "-fPIC", "-O1"]] {
        let Some((_folder, path)) = compile(FUNCTIONS, flags) else { return };
        let counts = call(&path, "bare").expect("it runs").counts.expect("counted");
        assert_eq!((counts.instructions, counts.branches), (9, 3), "{flags:?}");
        // Its data is present and relocated.
        call(&path, "check").unwrap_or_else(|error| panic!("{flags:?}: {error}"));
        let error = LoadedFile::load(&path, "nowhere").expect_err("there is none");
        assert!(matches!(error, LoadError::NoSymbol { .. }), "{error}");
        match LoadedFile::load(&path, "lost") {
            // In an object file the function's own reference is missing.
            Err(LoadError::Unsatisfied { what, .. }) if flags[0] == "-c" => {
                assert_eq!(what, "absent");
            }
            Ok(_) if flags[0] == "-shared" => {
                call(&path, "lost").expect_err("its callee is missing");
            }
            other => panic!("{flags:?}: {other:?}"),
        }
    }
}

#[test]
fn vector_registers_are_clean_at_the_start_of_each_run() {
    // Reads XMM5 and MXCSR, then clobbers both, unmasks exceptions and leaves one pending in x87.
    let source = "movq rbx, xmm5; stmxcsr [r14]; mov r12d, [r14]; fnstsw ax; movzx r13d, ax; \
                  fnstcw [r14]; movzx r8d, word ptr [r14]; \
                  mov rcx, -1; movq xmm5, rcx; mov dword ptr [r14], 0x8040; ldmxcsr [r14]; \
                  fldz; fldz; mov dword ptr [r14], 0; fldcw [r14]";
    let Some(code) = assemble(source) else { return };
    let end = measure(&Body { code, ..Body::default() }).end;
    assert_eq!(end.get(Gpr::Rbx), 0);
    // SDM Vol. 1, 10.2.3.1 and 8.1.4, 8.1.5: as after FNINIT.
    assert_eq!(end.get(Gpr::R12), 0x1F80);
    assert_eq!(end.get(Gpr::R13), 0, "the x87 stack is empty");
    assert_eq!(end.get(Gpr::R8), 0x037F);
}

#[test]
fn the_upper_half_of_a_vector_is_clean_too() {
    if !std::arch::is_x86_feature_detected!("avx2") {
        skipped("no AVX2");
        return;
    }
    let source = "vextracti128 xmm1, ymm7, 1; vmovq rbx, xmm1; vpcmpeqd ymm7, ymm7, ymm7";
    let Some(code) = assemble(source) else { return };
    assert_eq!(measure(&Body { code, ..Body::default() }).end.get(Gpr::Rbx), 0);
}

/// Whether this process has a child that it traces. proc(5), `TracerPid`.
fn has_traced_child() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let tracer = |task: std::fs::DirEntry| format!("TracerPid:\t{}\n", task.file_name().display());
    let tracers: Vec<String> = tasks.flatten().map(tracer).collect();
    std::fs::read_dir("/proc").unwrap().flatten().any(|process| {
        let status = std::fs::read_to_string(process.path().join("status")).unwrap_or_default();
        tracers.iter().any(|tracer| status.contains(tracer))
    })
}

#[test]
fn stopping_ends_a_run() {
    let Some(code) = assemble("2: jmp 2b") else { return };
    // Ten runs at full speed are short; stepping through them takes minutes.
    let Some(long) = assemble("mov ecx, 300000000; 2: dec ecx; jnz 2b") else { return };
    for code in [code, long] {
        let mut session = session();
        session.options().limit = Duration::from_secs(600);
        let stop = std::sync::Arc::clone(&session.options().stop);
        let started = Instant::now();
        let other = std::thread::spawn(move || {
            // Stopped in a run, or a little before it.
            while !has_traced_child() {
                std::thread::yield_now();
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let measured = session.measure_code(&Body { code, ..Body::default() });
        assert!(matches!(measured, Err(MeasureError::Stopped)), "{measured:?}");
        assert!(started.elapsed() < Duration::from_secs(300));
        other.join().expect("it ends");
    }
}

/// An LBR stack whose registers are a file, and whose records never match a run.
#[derive(Debug)]
struct MismatchedStack {
    file: std::fs::File,
    line: std::fs::File,
    reading: Reading,
}

impl Ring for MismatchedStack {
    fn switch(&self) -> SwitchWrites {
        let descriptor = self.file.as_raw_fd();
        SwitchWrites { descriptor, msr: 0x1D9, on: 0x4801, off: 0x4800 }
    }

    fn lifeline(&self) -> Option<RawFd> {
        Some(self.line.as_raw_fd())
    }

    fn depth(&self) -> u32 {
        32
    }

    fn read(&mut self) -> Result<Reading, MsrError> {
        Ok(self.reading.clone())
    }

    fn stop(&mut self) -> Result<(), MsrError> {
        Ok(())
    }

    fn restore(self: Box<Self>) -> Result<Restored, MsrError> {
        Err(MsrError::NotAllowed { msr: Msr(0x1C8) })
    }
}

#[test]
fn discarded_runs_are_counted_and_a_failed_restore_is_reported() {
    let pipe = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC);
    let (reads, writes) = pipe.expect("a pipe");
    // Writes a byte to the pipe, if it is open, and to every other descriptor.
    let source = "xor ebx, ebx; 2: mov eax, 1; mov edi, ebx; lea rsi, [r14]; mov edx, 1; syscall; \
                  inc ebx; cmp ebx, 64; jb 2b";
    let Some(code) = assemble(source) else { return };
    let (line, reads) = (std::fs::File::from(writes), std::fs::File::from(reads));
    let none = || Reading::Records(Vec::new());
    for (reading, confined) in
        [(none(), false), (Reading::Torn, false), (Reading::Foreign, false), (none(), true)]
    {
        let file = tempfile::tempfile().expect("a file");
        let line = line.try_clone().expect("a descriptor");
        let ring = MismatchedStack { file, line, reading: reading.clone() };
        let mut options = session().options().clone();
        options.repeat = 3;
        options.stepped = 0;
        options.confined = confined;
        let mut session = Session::new(options, Some(Box::new(ring)));
        let body = Body { code: code.clone(), ..Body::default() };
        let measured = session.measure_code(&body).expect("it runs");
        assert_eq!((measured.runs.len(), measured.overhead.len()), (0, 0), "{reading:?}");
        // Three runs, and three of nothing.
        let expected = if reading == Reading::Foreign { (0, 6) } else { (6, 0) };
        assert_eq!((measured.unreadable, measured.foreign), expected, "{reading:?}");
        session.restore().expect_err("the LBR stack reports it");
    }
    drop(line);
    let mut heard = Vec::new();
    std::io::Read::read_to_end(&mut &reads, &mut heard).expect("bytes");
    // A warm-up and three runs, three times: the pipe is reached only if the code may write to it.
    assert_eq!(heard.len(), 12, "the code's process keeps the descriptor open");
}

/// Code that would affect others is stopped; code that affects only itself is not.
#[test]
fn confined_code_affects_only_itself() {
    let faults = |source: &str, confined| {
        let code = assemble(source)?;
        let mut session = session();
        session.options().confined = confined;
        let measured = session.measure_code(&Body { code, ..Body::default() });
        Some(match measured {
            Ok(_) => None,
            Err(MeasureError::Fault { fault, .. }) => Some(fault.kind),
            Err(error) => panic!("{source}: {error}"),
        })
    };
    let sigsys = Some(FaultKind::Signal { signal: nix::libc::SIGSYS, address: None });
    // kill(getppid(), 0), open(0), socket(1, 1, 0), ptrace, getpid by the 32-bit table.
    let parent = "mov eax, 110; syscall; mov edi, eax; xor esi, esi; mov eax, 62; syscall";
    let others = [
        parent,
        "xor edi, edi; mov eax, 2; syscall",
        "mov edi, 1; mov esi, 1; xor edx, edx; mov eax, 41; syscall",
        "mov eax, 101; syscall",
        "mov eax, 20; int 0x80",
    ];
    for source in others {
        let Some(fault) = faults(source, true) else { return };
        assert_eq!(fault, sigsys, "{source}");
    }
    assert_eq!(faults(parent, false), Some(None), "unconfined");
    let own = [
        "mov eax, 39; syscall; mov edi, eax; xor esi, esi; mov eax, 62; syscall",
        "mov eax, 228; mov edi, 1; mov rsi, r14; syscall",
        "mov eax, 1; mov edi, 1; mov rsi, r14; mov edx, 1; syscall",
    ];
    for source in own {
        assert_eq!(faults(source, true), Some(None), "{source}");
    }
    // getuid: `nobody`, or the user who called sudo.
    if nix::unistd::geteuid().is_root() {
        let root = "mov eax, 102; syscall; test eax, eax; jz 2f; jmp 3f; 2: ud2; 3: nop";
        assert_eq!(faults(root, true), Some(None), "not root");
    }
}
