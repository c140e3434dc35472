//! Targets that are refused before they run, and finding programs.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt;

use lbr_msr::insn::Isa;
use sampler::source::ptrace::Ptrace;
use sampler::source::{Command, Exit};
use sampler::target::{ProgramKind, inspect, isa};

use crate::program::{BARE, build, run, try_run};

fn command(program: &str) -> Command {
    Command { program: program.to_owned(), ..Command::default() }
}

#[track_caller]
fn refused(command: Command) -> String {
    Ptrace::new(command).expect_err("refused").to_string()
}

/// An executable file with these bytes.
fn file(folder: &tempfile::TempDir, name: &str, bytes: &[u8], mode: u32) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn each_refusal_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(refused(command("no-such-program-here")), "no-such-program-here: not found in PATH");
    assert_eq!(refused(command("")), ": not found in PATH");
    assert!(refused(command("/no/such/program")).starts_with("/no/such/program: No such file"));
    assert!(refused(command("/")).starts_with("/: Is a directory"));
    let plain = file(&folder, "plain", b"\x7fELF", 0o644);
    assert!(refused(command(&plain)).starts_with(&format!("{plain}: Permission denied")));

    // The relevant fields of an ELF header: class, data, version; type, machine (System V ABI,
    // figure 4-3).
    let elf = |class: u8, machine: u8, kind: u8| {
        let mut header = [0u8; 64];
        header[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
        header[16] = kind;
        header[18] = machine;
        header[20] = 1;
        header
    };
    for (name, bytes, what) in [
        ("text", &b"echo hello"[..], "neither an ELF program nor a script with #!"),
        ("empty", b"", "neither an ELF program nor a script with #!"),
        ("x86", &elf(1, 3, 2), "a 32-bit ELF file"),
        ("riscv", &elf(2, 243, 2), "an ELF file for machine 243"),
        ("object", &elf(2, 62, 1), "an ELF file other than a program"),
        ("short", &elf(2, 62, 2)[..40], "a damaged ELF file"),
    ] {
        let path = file(&folder, name, bytes, 0o755);
        let wanted =
            format!("{path}: {what}; the software LBR runs ELF programs of x86-64 and AArch64");
        assert_eq!(refused(command(&path)), wanted);
    }
    // AArch64 is machine 183; a big-endian file has the bytes of each number the other way round.
    let mut arm = elf(2, 183, 3);
    arm[24..28].copy_from_slice(&[0x78, 0x56, 0x34, 0x12]);
    let path = file(&folder, "arm", &arm, 0o755);
    let wanted = "the program is for AArch64: only lbr record and lbr dump run it, in QEMU";
    assert_eq!(refused(command(&path)), wanted);
    assert_eq!(isa(&path), Some(Isa::Aarch64));
    let kind = inspect(path.as_ref()).unwrap();
    assert_eq!(kind, ProgramKind::Elf { isa: Isa::Aarch64, entry: 0x1234_5678 });
    let mut big = elf(2, 0, 0);
    (big[5], big[17], big[19], big[20], big[23]) = (2, 2, 183, 0, 1);
    let path = file(&folder, "big", &big, 0o755);
    let told = refused(command(&path));
    assert!(told.starts_with(&format!("{path}: an ELF file for machine 183;")), "{told}");
    assert_eq!(isa(&path), None);
}

#[test]
fn a_cpu_out_of_range_is_refused() {
    for cpu in [1023, 1024, 5000, u32::MAX] {
        let told = refused(Command { cpu: Some(cpu), ..command("true") });
        let wanted = format!("CPU {cpu} is not available; this process may use: ");
        assert!(told.starts_with(&wanted), "{told}");
    }
}

#[test]
fn an_elf_file_that_does_not_load_says_so() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let mut bytes = std::fs::read(&program.path).unwrap();
    bytes.truncate(64);
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "cut", &bytes, 0o755);
    let told = try_run(command(&path)).expect_err("refused").to_string();
    assert!(told.starts_with(&format!("{path}: ")), "{told}");
}

#[test]
fn a_script_runs_its_interpreter() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let folder = tempfile::tempdir().unwrap();
    let line = format!("#!{}\n", program.path.display());
    let path = file(&folder, "script", line.as_bytes(), 0o755);
    let ran = run(command(&path));
    assert_eq!(ran.exit, Exit::Code(7));
    assert_eq!(ran.branches().count(), 17);
    let told = refused(Command { from: Some(0x1000), ..command(&path) });
    assert!(told.contains("a script, which has no addresses to start from"), "{told}");
}

#[test]
fn arguments_reach_the_program() {
    let Some(program) = build("children.c", &["-static", "-O1"]) else { return };
    let mut command = program.command(&["spin", "12"]);
    command.from = Some(program.at("main"));
    let ran = run(command);
    assert_eq!(ran.count(program.at("spin_b"), program.at("spin_l")), 11);
    let nul = program.command(&["a\0b"]);
    assert!(try_run(nul).is_err());
}
