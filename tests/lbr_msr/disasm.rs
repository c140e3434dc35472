//! Instructions as text, compared with hand-written text and with binutils' objdump.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use lbr_msr::disasm::{Disassembler, Syntax};

use crate::support::skip::{skipped, tool};

fn text(syntax: Syntax, bytes: &[u8], ip: u64) -> (String, String) {
    let text = Disassembler::new(syntax).text(bytes, ip).unwrap();
    assert_eq!(usize::from(text.len), bytes.len());
    (text.mnemonic, text.operands)
}

/// The textbook's loop as printed there, and in AT&T syntax by its rules.
#[test]
fn the_textbook_loop() {
    type Line = (u64, &'static [u8], [&'static str; 2], [&'static str; 2]);
    let lines: [Line; 7] = [
        (0x4e_da10, &[0x8b, 0x3b], ["mov", "edi,DWORD PTR [rbx]"], ["mov", "(%rbx),%edi"]),
        (0x4e_da12, &[0x85, 0xff], ["test", "edi,edi"], ["test", "%edi,%edi"]),
        (0x4e_da14, &[0x79, 0x08], ["jns", "0x4eda1e"], ["jns", "0x4eda1e"]),
        (0x4e_da18, &[0xc1, 0xe0, 0x07], ["shl", "eax,0x7"], ["shl", "$0x7,%eax"]),
        (0x4e_da1b, &[0x8d, 0x3c, 0xf8], ["lea", "edi,[rax+rdi*8]"], ["lea", "(%rax,%rdi,8),%edi"]),
        (0x4e_da1e, &[0xe8, 3, 1, 0, 0], ["call", "0x4edb26"], ["call", "0x4edb26"]),
        (
            0x4e_da27,
            &[0x89, 0x43, 0xfc],
            ["mov", "DWORD PTR [rbx-0x4],eax"],
            ["mov", "%eax,-0x4(%rbx)"],
        ),
    ];
    let words = |[mnemonic, operands]: [&str; 2]| (mnemonic.to_owned(), operands.to_owned());
    for (ip, bytes, intel, att) in lines {
        assert_eq!(text(Syntax::Intel, bytes, ip), words(intel));
        assert_eq!(text(Syntax::Att, bytes, ip), words(att));
    }
}

#[test]
fn addresses_and_prefixes() {
    // lea r8,[rip+0xfef] at 0x40100a, 7 bytes long.
    let lea = [0x4c, 0x8d, 0x05, 0xef, 0x0f, 0, 0];
    let read = Disassembler::new(Syntax::Intel).text(&lea, 0x40_100a).unwrap();
    assert_eq!((read.operands.as_str(), read.rip_relative), ("r8,[rip+0xfef]", Some(0x40_2000)));
    assert_eq!(text(Syntax::Intel, &[0xf3, 0xaa], 0).0, "rep stosb");
    assert_eq!(text(Syntax::Intel, &[0xf0, 0xff, 0x07], 0).0, "lock inc");
    // Invalid in 64-bit code; truncated.
    for bytes in [&[0x06][..], &[0xe8, 0, 0], &[]] {
        assert_eq!(Disassembler::new(Syntax::Intel).text(bytes, 0), None);
    }
}

/// Number of this program's instructions to compare; more take longer and find nothing else.
const COMPARED: usize = 20_000;

/// objdump's output for this program: address, bytes, text.
fn objdump(syntax: &str) -> Option<Vec<(u64, Vec<u8>, String)>> {
    let program = std::env::current_exe().unwrap();
    let args = ["-d", "-w", "-M", syntax, "-j", ".text", "--insn-width=16"];
    let objdump = tool("objdump").args(args).arg(program).stdout(Stdio::piped()).spawn();
    let Ok(mut objdump) = objdump else {
        skipped("objdump is not installed");
        return None;
    };
    let mut symbols = 0;
    let lines = BufReader::new(objdump.stdout.take().unwrap()).lines().map_while(Result::ok);
    let compared: Vec<_> = lines
        .inspect(|line| symbols += usize::from(line.ends_with(">:")))
        .filter_map(|line| {
            let (address, rest) = line.trim_start().split_once(":\t")?;
            let (bytes, words) = rest.split_once('\t')?;
            let bytes: Vec<u8> =
                bytes.split_whitespace().filter_map(|b| u8::from_str_radix(b, 16).ok()).collect();
            Some((u64::from_str_radix(address, 16).ok()?, bytes, words.trim().to_owned()))
        })
        .take(COMPARED)
        .collect();
    // The rest of the program is not needed.
    let _ = objdump.kill();
    objdump.wait().unwrap();
    if compared.is_empty() {
        skipped("objdump for x86 is not installed");
        return None;
    }
    // Only symbols separate functions from the data between them.
    if symbols < 2 {
        skipped("the tests were built without symbols");
        return None;
    }
    Some(compared)
}

/// The mnemonic in a form common to both.
fn plain(words: &str) -> String {
    // Only one of the two prints prefixes without effect.
    let prefixes = ["lock", "rep", "repz", "repe", "repnz", "repne", "cs", "ds", "data16"];
    let mut words = words.split_whitespace().skip_while(|word| prefixes.contains(word));
    let mnemonic = words.next().unwrap_or("nothing but prefixes");
    match mnemonic {
        // Newer versions of objdump omit this suffix.
        "callq" | "jmpq" | "pushq" | "popq" => mnemonic.trim_end_matches('q').to_owned(),
        // gas's name for the form with a wide immediate.
        "movabs" => "mov".to_owned(),
        // The size of string instructions is in the operands or in the mnemonic.
        "movsb" | "movsw" | "movsd" | "movsq" => "movs".to_owned(),
        "stosb" | "stosw" | "stosd" | "stosq" => "stos".to_owned(),
        other => other.to_owned(),
    }
}

#[test]
fn objdump_agrees() {
    for (name, syntax) in [("intel", Syntax::Intel), ("att", Syntax::Att)] {
        let Some(theirs) = objdump(name) else { return };
        assert_eq!(theirs.len(), COMPARED);
        let mut disassembler = Disassembler::new(syntax);
        for (address, bytes, words) in theirs {
            let ours = disassembler.text(&bytes, address).unwrap();
            assert_eq!(usize::from(ours.len), bytes.len(), "{address:x}: {words}");
            assert_eq!(plain(&ours.mnemonic), plain(&words), "{address:x}: {words}");
        }
    }
}
