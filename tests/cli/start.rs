//! `lbr` without a command, and its description of itself.

use crate::support::lbr::{PROGRAM, alone};

fn words(args: &[&str]) -> String {
    let output = alone(std::process::Command::new(PROGRAM)).args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// On any host. Each command that it names exists.
#[test]
fn without_a_command_it_reports_what_works_here() {
    let said = words(&[]);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() <= 13, "{said}");
    assert!(lines[0].starts_with("Hardware LBR: "), "{said}");
    for command in
        ["lbr record --report -- ls /usr", "lbr time '", "lbr explain DEBUGCTL", "lbr doctor"]
    {
        assert!(said.contains(command), "{command}: {said}");
    }
    let help = words(&["--help"]);
    let commands = lines.iter().filter_map(|line| line.split_once("lbr ").map(|(_, words)| words));
    for name in commands.filter_map(|words| words.split_whitespace().next()) {
        let name = name.trim_end_matches(',');
        assert!(name == "--help" || help.contains(&format!("\n  {name} ")), "{name}: {said}");
    }
}

#[test]
fn the_version_names_the_target() {
    let version = words(&["--version"]);
    assert!(version.starts_with(concat!("lbr ", env!("CARGO_PKG_VERSION"), " (")), "{version}");
    assert!(version.trim_end().ends_with("-linux-gnu)"), "{version}");
}
