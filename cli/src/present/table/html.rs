//! Rows in a page, which can be sorted and searched there.

use maud::{Markup, html};

use super::{Cell, Form, Header, Heat, Table};
use crate::present::out::cells;

/// Maximum width of a name on a page, and of its tooltip, in characters.
const NAME: usize = 160;
pub(crate) const TITLE: usize = 400;

impl<C: ?Sized, R> Table<'_, C, R> {
    /// The table; `name` is for screen readers.
    pub(crate) fn html(
        &self,
        name: &str,
        context: &mut C,
        rows: impl Iterator<Item = R> + Clone,
    ) -> Markup {
        let headers: Vec<&Header> = self.headers().collect();
        let shown: Vec<bool> = headers.iter().map(|header| header.is_for_people()).collect();
        let peak = self.peak(context, rows.clone());
        let rows = rows.map(|row| line(&headers, &self.cells(context, &row, &shown), peak));
        html! {
            div class="scroll" tabindex="0" role="region" aria-label=(name) {
                table class="sortable" {
                    thead { tr { @for header in headers.iter().filter(|header| header.is_for_people()) {
                        th scope="col" class=[(header.form == Form::Right).then_some("num")] { (header.heading) }
                    } } }
                    tbody { @for row in rows { (row) } }
                }
            }
        }
    }
}

/// A row of the table.
fn line(headers: &[&Header], row: &[Cell], peak: f64) -> Markup {
    let shown = headers.iter().zip(row).filter(|(header, _)| header.is_for_people());
    html! { tr { @for (header, cell) in shown { (cell.html(header, peak)) } } }
}

impl Cell {
    fn html(&self, header: &Header, peak: f64) -> Markup {
        let text = self.within(NAME);
        let title = (cells(&self.text()) > NAME).then(|| self.within(TITLE));
        match header.form {
            Form::Right => {
                let heat = header.heat.then(|| Heat::of(self.value(), peak).name);
                let class = heat.map_or_else(|| "num".to_owned(), |heat| format!("num {heat}"));
                // For other cells the page derives the number from the text.
                let stated =
                    matches!(self, Cell::Stated(..) | Cell::AtLeast(_) | Cell::Interval(_));
                html! { td class=(class) data-v=[self.value().filter(|_| stated)] { (text) } }
            }
            Form::Name => {
                let at = match self {
                    Cell::Place(place) => place.anchor(),
                    _ => None,
                };
                html! { td class="code" title=[&title] data-at=[at] { (text) } }
            }
            _ => html! { td { (text) } },
        }
    }
}
