//! Exact traces of textbook programs, of changing code, and of nested calls.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lbr_msr::record::HwBranchType as H;
use sampler::source::Exit;

use crate::program::{BARE, build, run, try_run};
use crate::support::skip::skipped;

#[test]
fn the_textbook_loop_has_the_history_of_the_text() {
    let flags = [BARE, &["-Wl,--section-start=.text=0x4ed000"]].concat();
    let Some(program) = build("textbook.S", &flags) else { return };
    assert_eq!(program.at("loop"), 0x4e_da10);
    let run = run(program.command(&[]));
    let mut wanted = Vec::new();
    let elements = [5, -1, -7, 12, 0];
    for (i, element) in elements.iter().enumerate() {
        if *element >= 0 {
            wanted.push((0x4e_da14, 0x4e_da1e, H::Cond));
        }
        wanted.push((0x4e_da1e, 0x4e_db26, H::RelCall));
        wanted.push((0x4e_db29, 0x4e_da23, H::Ret));
        if i + 1 < elements.len() {
            wanted.push((0x4e_da2d, 0x4e_da10, H::Cond));
        }
    }
    let got: Vec<_> = run.branches().map(|(_, b)| (b.from, b.to, b.class)).collect();
    // One jump before the loop, one system call after it.
    assert_eq!(got[1..got.len() - 1], wanted);
}

#[test]
fn nested_calls_and_recursion() {
    let Some(program) = build("nested.S", BARE) else { return };
    let edges: Vec<_> = run(program.command(&[])).edges();
    let wanted = [
        ("start_c", "a"),
        ("a_c", "b"),
        ("b_c1", "c"),
        ("c_r", "b_r1"),
        ("b_c2", "c"),
        ("c_r", "b_r2"),
        ("b_r2", "a_r"),
        ("a_r", "start_r"),
        ("start_d", "down"),
        ("down_c", "down"),
        ("down_c", "down"),
        ("down_c", "down"),
        ("down_b", "down_r"),
        ("down_r", "down_r"),
        ("down_r", "down_r"),
        ("down_r", "down_r"),
        ("down_r", "start_s"),
    ]
    .map(|(from, to)| (program.at(from), program.at(to)));
    assert_eq!(edges[..edges.len() - 1], wanted);
}

#[test]
fn code_is_decoded_as_it_is_when_executed() {
    const PAGE: u64 = 0x2000_0000;
    let Some(program) = build("jit.c", &["-no-pie", "-O1"]) else { return };
    let mut command = program.command(&[]);
    command.from = Some(program.at("main"));
    let run = run(command);
    assert_eq!(run.exit, Exit::Code(0));
    let inside = |page: u64| -> Vec<_> {
        let branches = run.branches().filter(|(_, b)| b.from >> 12 == page >> 12);
        branches.map(|(_, b)| (b.from - page, b.to >> 12 == page >> 12, b.class)).collect()
    };
    let back = (7, true, H::Cond);
    let (over, next, ret) = ((0, true, H::RelJmp), (7, true, H::RelJmp), (9, false, H::Ret));
    assert_eq!(inside(PAGE + 0x1000), [back, back, ret, over, next, ret], "mprotect in between");
    assert_eq!(
        inside(PAGE + 0x3000),
        [over, next, ret, back, back, ret, over, next, ret, back, back, ret],
        "madvise, mremap and pkey_mprotect in between"
    );
    assert_eq!(
        inside(PAGE),
        [back, back, ret, over, next, ret, over, next, ret, back, ret],
        "three turns, two of the jumps, two turns"
    );
    let anonymous = run.events().filter(|event| {
        matches!(event, lbr_msr::record::Event::Mmap(map) if map.addr == PAGE && map.path == "//anon")
    });
    assert!(anonymous.count() >= 1, "executable memory without a file is reported");
}

#[test]
fn an_emulated_vsyscall_is_a_call_without_a_return() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    if !maps.lines().any(|line| line.ends_with("[vsyscall]")) {
        skipped("this kernel has no vsyscall page");
        return;
    }
    let Some(program) = build("vsyscall.S", BARE) else { return };
    let run = run(program.command(&[]));
    assert_eq!(
        run.edges()[..2],
        [(program.at("time_c"), 0xffff_ffff_ff60_0400), (program.at("time_r"), program.at("over")),]
    );
    assert_eq!(run.exit, Exit::Code(0));
    assert_eq!(run.notes.undecoded, 0);
}

#[test]
fn from_main_of_a_relocated_program() {
    let Some(program) = build("children.c", &["-pie", "-fPIE"]) else { return };
    let mut command = program.command(&["spin", "9"]);
    let main = program.at("main");
    command.from = Some(main);
    let run = run(command);
    assert_eq!(run.exit, Exit::Code(3));
    let relocation = run
        .events()
        .find_map(|event| match event {
            lbr_msr::record::Event::Mmap(map) if map.path.ends_with("/program") => {
                Some(map.addr - map.pgoff)
            }
            _ => None,
        })
        .expect("a mapping of the program");
    assert!(relocation > main, "it was relocated");
    let at = |label: &str| program.at(label) + relocation;
    let (_, first) = run.branches().next().unwrap();
    assert!((at("main")..at("main") + 0x400).contains(&first.from), "{first:x?}");
    assert_eq!(run.count(at("spin_b"), at("spin_l")), 8);
    assert_eq!(run.branches().filter(|(_, b)| b.from == at("spin_ret")).count(), 1);
}

#[test]
fn a_start_that_is_never_reached_is_an_error() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let mut command = program.command(&[]);
    command.from = Some(program.at("sys_f"));
    let error = try_run(command).unwrap_err().to_string();
    let wanted = format!(
        "the program ended before it reached {:#x}: nothing was recorded",
        program.at("sys_f")
    );
    assert_eq!(error, wanted);
}
