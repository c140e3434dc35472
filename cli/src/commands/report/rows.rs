//! The rows of a view, up to a limit, and how many are hidden.

use std::io;

use maud::{Markup, html};

use super::Report;
use crate::present::{Out, Printer, Table, grouped};

impl Report {
    /// Writes rows up to the limit; for people, also how many are hidden.
    pub(super) fn write_rows<C: ?Sized, R>(
        &self,
        out: &mut Out<'_>,
        table: &Table<'_, C, R>,
        context: &mut C,
        rows: impl ExactSizeIterator<Item = R> + Clone,
        what: (&str, &str),
    ) -> io::Result<()> {
        let printer = self.printer();
        table.write(printer, out, context, rows.clone().take(self.rows()))?;
        match printer {
            Printer::Text => print_hidden(out, rows.len(), self.rows(), what),
            Printer::Json | Printer::Csv => Ok(()),
        }
    }
}

/// Prints how many rows are not shown.
pub(crate) fn print_hidden(
    out: &mut Out<'_>,
    all: usize,
    shown: usize,
    (one, many): (&str, &str),
) -> io::Result<()> {
    if all == 0 {
        return out.line(format_args!("no {many}"));
    }
    let hidden = all.saturating_sub(shown);
    if hidden == 0 {
        return Ok(());
    }
    let what = if hidden == 1 { one } else { many };
    out.line(format_args!("{} more {what} (--limit 0 shows all)", grouped(hidden as u64)))
}

/// The number of rows that are not on a page.
pub(super) fn rest(all: usize, shown: usize, what: &str) -> Markup {
    let hidden = all.saturating_sub(shown);
    html! {
        @if hidden > 0 {
            p class="faint" {
                "The first " (grouped(shown as u64)) " are shown; " (grouped(hidden as u64)) " more "
                (what) " are not on this page (lbr report --limit 0 --html has all). "
                "Sorting and searching act on what is shown."
            }
        }
    }
}
