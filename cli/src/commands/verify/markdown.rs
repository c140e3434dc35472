//! The report in Markdown, for a bug report.

use std::io::{self, Write};

use lab::verify::{Check, Verdict};

use super::report::Machine;

/// Writes the report of each group of CPUs.
pub(super) fn write(out: &mut dyn Write, machine: &Machine) -> io::Result<()> {
    writeln!(out, "# lbr verify {}", env!("CARGO_PKG_VERSION"))?;
    for verified in &machine.verified {
        writeln!(out, "\n## {}\n", verified.title())?;
        if let Some(lies) = &machine.soft_lies {
            writeln!(out, "Injected faults: {}.\n", lies.join(", "))?;
        }
        writeln!(out, "{}.\n", verified.verdict())?;
        writeln!(out, "Found with {}.\n", cell(&verified.origin(machine)))?;
        writeln!(out, "| check | expected | found | verdict |")?;
        writeln!(out, "|---|---|---|---|")?;
        let is_absent = |check: &&Check| matches!(check.verdict, Verdict::NotApplicable(_));
        let checks = verified.by_verdict().into_iter();
        let (absent, applicable): (Vec<&Check>, Vec<&Check>) = checks.partition(is_absent);
        for check in applicable {
            let expected = match (&check.expected, &check.source) {
                (Some(expected), Some(source)) => format!("{expected} [{source}]"),
                _ => "-".to_owned(),
            };
            let name = check.verdict.name();
            let verdict = match check.verdict.why() {
                Some(why) => format!("{name}: {why}"),
                None if check.verdict == Verdict::Differs => format!("**{name}**"),
                None => name.to_owned(),
            };
            writeln!(
                out,
                "| `{}`: {} | {} | {} | {} |",
                check.id,
                cell(check.what),
                cell(&expected),
                cell(check.found.as_deref().unwrap_or("-")),
                cell(&verdict)
            )?;
        }
        let absent: Vec<String> = absent.iter().map(|check| format!("`{}`", check.id)).collect();
        if !absent.is_empty() {
            writeln!(out, "\nNot applicable: {}.", absent.join(", "))?;
        }
    }
    Ok(())
}

/// A word that stays in its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
