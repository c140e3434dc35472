//! The report on a terminal: a line for each check, what differs first.

use std::io;

use lab::verify::{Check, SubjectKind, Verdict};

use super::report::Machine;
use crate::present::number::dash;
use crate::present::out::{BAD, DOUBTFUL, FAINT, GOOD, Out};
use crate::present::table::{Cell, Item, write_list};

/// Writes the report of each group of CPUs.
pub(super) fn write(out: &mut Out<'_>, machine: &Machine, addresses: bool) -> io::Result<()> {
    for (at, verified) in machine.verified.iter().enumerate() {
        if at > 0 {
            out.gap()?;
        }
        out.line(verified.title())?;
        if let Some(lies) = &machine.soft_lies {
            out.line(format_args!("lies switched on: {}", lies.join(", ")))?;
        }
        let checks = verified.by_verdict().into_iter();
        let items: Vec<Item> = checks.flat_map(|check| items(check, addresses)).collect();
        write_list(out, &items)?;
        if verified.report.kind == SubjectKind::Hardware {
            out.line(verified.origin(machine))?;
        }
        out.line(verified.summary())?;
    }
    Ok(())
}

/// A check; below one that differs what was expected and found.
fn items(check: &Check, addresses: bool) -> Vec<Item> {
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
        check.records.iter().filter(|_| addresses).for_each(|record| below(record.to_string()));
    }
    items
}
