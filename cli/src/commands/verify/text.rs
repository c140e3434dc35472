//! The report on a terminal: a line for each check, what differs first.

use std::io::{self, Write};

use lab::verify::{Check, Verdict};

use super::report::Machine;

/// Writes the report of each group of CPUs.
pub(super) fn write(out: &mut impl Write, machine: &Machine, addresses: bool) -> io::Result<()> {
    let mut gap = "";
    for verified in &machine.verified {
        write!(out, "{gap}")?;
        gap = "\n";
        writeln!(out, "{}", verified.title())?;
        if let Some(lies) = &machine.soft_lies {
            writeln!(out, "lies switched on: {}", lies.join(", "))?;
        }
        let checks = verified.by_verdict();
        let width = checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
        for check in checks {
            write_check(out, check, width, addresses)?;
        }
        writeln!(out, "{}", verified.summary())?;
    }
    Ok(())
}

fn write_check(
    out: &mut impl Write,
    check: &Check,
    width: usize,
    addresses: bool,
) -> io::Result<()> {
    let verdict = match check.verdict {
        Verdict::CannotTell(_) => "cannot tell",
        ref verdict => verdict.name(),
    };
    write!(out, "{verdict:<14}  {:<width$}  ", check.id)?;
    match &check.verdict {
        Verdict::AsDocumented => {
            writeln!(out, "{}: {}", check.what, check.found.as_deref().unwrap_or("-"))
        }
        Verdict::CannotTell(why) | Verdict::NotApplicable(why) => writeln!(out, "{why}"),
        Verdict::Differs => {
            writeln!(out, "{}", check.what)?;
            let indent = 14 + 2 + width + 2;
            let expected = check.expected.as_deref().unwrap_or("-");
            let source = check.source.as_deref().unwrap_or("-");
            writeln!(out, "{:indent$}expected  {expected} [{source}]", "")?;
            writeln!(out, "{:indent$}found     {}", "", check.found.as_deref().unwrap_or("-"))?;
            for record in check.records.iter().filter(|_| addresses) {
                writeln!(out, "{:indent$}{record}", "")?;
            }
            Ok(())
        }
    }
}
