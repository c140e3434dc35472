//! The report on a terminal: the verdict, what differs, and with `-v` every check.

use std::io;

use lab::verify::{Check, SubjectKind, Verdict};

use super::report::{Machine, NEEDS_WRITE, Verified};
use crate::present::{
    BAD, Cell, DOUBTFUL, FAINT, GOOD, Item, Out, counted, dash, joined, write_list,
};

/// Writes the report of each group of CPUs.
pub(super) fn write(out: &mut Out<'_>, machine: &Machine, verbose: bool) -> io::Result<()> {
    for (at, verified) in machine.verified.iter().enumerate() {
        if at > 0 {
            out.gap()?;
        }
        let cpus = if machine.verified.len() > 1 {
            format!("{}: ", verified.cpus())
        } else {
            String::new()
        };
        out.line(format_args!("{cpus}{}", verified.verdict()))?;
        out.line(verified.title())?;
        if let Some(faults) = machine.soft_lies.as_ref().filter(|faults| !faults.is_empty()) {
            out.line(format_args!("injected faults: {}", faults.join(", ")))?;
        }
        if verified.report.kind == SubjectKind::Hardware {
            out.line(verified.origin(machine))?;
        }
        let checks = verified.by_verdict().into_iter();
        let items: Vec<Item> =
            checks.filter(|check| verbose || is_unusual(check)).flat_map(items).collect();
        write_list(out, &items)?;
        if let Some(line) = without_write(verified).filter(|_| !verbose) {
            out.line(line)?;
        }
    }
    Ok(())
}

/// Whether a check is printed without `-v`.
fn is_unusual(check: &Check) -> bool {
    match &check.verdict {
        Verdict::Differs => true,
        Verdict::CannotTell(why) => why != NEEDS_WRITE,
        Verdict::AsDocumented | Verdict::NotApplicable(_) => false,
    }
}

/// The checks that `--write` would add.
fn without_write(verified: &Verified) -> Option<String> {
    const NAMED: usize = 6;
    let needs = |check: &&Check| check.verdict.why() == Some(NEEDS_WRITE);
    let missing: Vec<&Check> = verified.report.checks.iter().filter(needs).collect();
    let whole = missing.iter().map(|check| check.id).filter(|id| !id.contains('.'));
    let named = joined(whole.take(NAMED), ", ");
    (!missing.is_empty()).then(|| {
        format!(
            "--write adds {}: {named} and more",
            counted(missing.len() as u64, "check", "checks")
        )
    })
}

/// A check; below one that differs what was expected and found.
fn items(check: &Check) -> Vec<Item> {
    let mark = match check.verdict {
        Verdict::AsDocumented => Cell::Mark("as documented", GOOD),
        Verdict::CannotTell(_) => Cell::Mark("cannot tell", DOUBTFUL),
        Verdict::NotApplicable(_) => Cell::Mark("not applicable", FAINT),
        Verdict::Differs => Cell::Mark("differs", BAD),
    };
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(dash);
    let text = match &check.verdict {
        Verdict::AsDocumented => format!("{}: {}", check.what, or_dash(&check.found)),
        Verdict::CannotTell(why) | Verdict::NotApplicable(why) => why.to_string(),
        Verdict::Differs => check.what.to_owned(),
    };
    let mut items = vec![(mark, check.id.to_owned(), text)];
    if check.verdict == Verdict::Differs {
        let source = or_dash(&check.source);
        let mut below = |text| items.push((Cell::Empty, String::new(), text));
        below(format!("expected  {} [{source}]", or_dash(&check.expected)));
        below(format!("found     {}", or_dash(&check.found)));
    }
    items
}
