//! Rows as comma-separated values, under the keys of the JSON objects.

use std::io;

use serde_json::{Value, json};

use super::json::CellPart;
use super::{Form, Header, Member, Table};
use crate::present::csv;
use crate::present::out::Out;

impl<C: ?Sized, R> Table<'_, C, R> {
    /// Writes a line of keys, then every row. Absent values are empty; nested values are omitted.
    pub(crate) fn write_csv(
        &self,
        out: &mut Out<'_>,
        context: &mut C,
        rows: impl Iterator<Item = R>,
    ) -> io::Result<()> {
        let varies = |header: &Header| {
            !header.key.is_empty() && !matches!(header.form, Form::Constant | Form::Nested)
        };
        let wanted: Vec<bool> = self.headers().map(varies).collect();
        let is_single = |member: &Member| {
            wanted.get(member.column) == Some(&true) && !member.key.ends_with("_inlines")
        };
        let members: Vec<Member> = self.members().filter(is_single).collect();
        let modelled = out.modelled;
        let keys = members.iter().map(|member| member.key.as_str());
        csv::write(out, keys.chain(modelled.then_some("modelled")))?;
        for row in rows {
            let cells = self.cells(context, &row, &wanted);
            let value =
                |member: &Member| match json!(CellPart(cells.get(member.column)?, member.of)) {
                    Value::Null => None,
                    Value::String(text) => Some(text),
                    value => Some(value.to_string()),
                };
            let values = members.iter().map(|member| value(member).unwrap_or_default());
            csv::write(out, values.chain(modelled.then(|| "true".to_owned())))?;
        }
        Ok(())
    }
}
