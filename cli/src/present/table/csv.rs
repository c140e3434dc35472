//! Rows as comma-separated values, under the keys of the JSON objects.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::json::CellPart;
use super::{Form, Member, Table};
use crate::present::csv;

impl<C: ?Sized, R> Table<'_, C, R> {
    /// Writes a line of keys, then every row. What is absent is empty; what holds
    /// more than one value is left to JSON.
    pub(crate) fn write_csv(
        &self,
        out: &mut impl Write,
        context: &mut C,
        rows: impl Iterator<Item = R>,
    ) -> io::Result<()> {
        let is_single = |member: &Member| {
            let column = self.columns.get(member.column);
            column.is_some_and(|column| !matches!(column.form, Form::Constant | Form::Nested))
                && !member.key.ends_with("_inlines")
        };
        let members: Vec<Member> = self.members().filter(is_single).collect();
        csv::write(out, members.iter().map(|member| &member.key))?;
        for row in rows {
            let cells = self.cells(context, &row);
            let value =
                |member: &Member| match json!(CellPart(cells.get(member.column)?, member.of)) {
                    Value::Null => None,
                    Value::String(text) => Some(text),
                    value => Some(value.to_string()),
                };
            csv::write(out, members.iter().map(|member| value(member).unwrap_or_default()))?;
        }
        Ok(())
    }
}
