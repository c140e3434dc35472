//! Rows in a page, which can be sorted and searched there.

use maud::{Markup, html};

use super::{Cell, Column, Form, Heat, Table};
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
        let columns: Vec<&Column<'_, C, R>> =
            self.columns.iter().filter(|column| column.is_for_people()).collect();
        let is_number = |column: &Column<'_, C, R>| column.form == Form::Right;
        let peak = self.peak(context, rows.clone());
        html! {
            div class="scroll" tabindex="0" role="region" aria-label=(name) {
                table class="sortable" {
                    thead { tr { @for column in &columns {
                        th scope="col" class=[is_number(column).then_some("num")] { (column.heading) }
                    } } }
                    tbody { @for row in rows { tr { @for column in &columns {
                        ((column.get)(context, &row).html(column, peak))
                    } } } }
                }
            }
        }
    }
}

impl Cell {
    fn html<C: ?Sized, R>(&self, column: &Column<'_, C, R>, peak: f64) -> Markup {
        let text = self.within(NAME);
        let title = (cells(&self.text()) > NAME).then(|| self.within(TITLE));
        match column.form {
            Form::Right => {
                let heat = column.heat.then(|| Heat::of(self.value(), peak).name());
                let class = heat.map_or_else(|| "num".to_owned(), |heat| format!("num {heat}"));
                // For other cells the page derives the number from the text.
                let stated = matches!(self, Cell::Stated(..) | Cell::Interval(_));
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
