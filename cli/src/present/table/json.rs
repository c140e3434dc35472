//! Rows as JSON objects, their keys in the order of the alphabet.

use std::io::{self, Write};

use super::{Cell, Member, Table};
use crate::present::json;

impl<C: ?Sized, R> Table<'_, C, R> {
    /// Writes every row.
    pub(crate) fn write_json(
        &self,
        out: &mut impl Write,
        context: &mut C,
        rows: impl Iterator<Item = R>,
    ) -> io::Result<()> {
        let mut members: Vec<Member> = self.members().collect();
        members.sort_by(|a, b| a.key.cmp(&b.key));
        // There may be a million rows: what stands before a value is made once.
        let before = |(at, member): (usize, &Member)| {
            format!("{}\"{}\":", if at == 0 { '{' } else { ',' }, member.key)
        };
        let before: Vec<String> = members.iter().enumerate().map(before).collect();
        for row in rows {
            let cells = self.cells(context, &row);
            for (member, before) in members.iter().zip(&before) {
                out.write_all(before.as_bytes())?;
                match cells.get(member.column) {
                    Some(Cell::Nested(json)) => out.write_all(json.as_bytes())?,
                    cell => json::write(out, &cell.map(|cell| cell.json(member.of)))?,
                }
            }
            out.write_all(b"}\n")?;
        }
        Ok(())
    }

    /// A row with other members beside its own.
    pub(crate) fn object(&self, context: &mut C, row: &R) -> serde_json::Value {
        let cells = self.cells(context, row);
        let member = |member: Member| {
            let value = cells.get(member.column).map(|cell| cell.json(member.of));
            (member.key, value.unwrap_or_default())
        };
        self.members().map(member).collect::<serde_json::Map<_, _>>().into()
    }
}
