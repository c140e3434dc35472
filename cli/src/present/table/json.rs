//! Rows as JSON objects, their keys in the order of the alphabet.

use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::json;

use super::{Cell, Member, Of, Table};
use crate::present::json;

impl<C: ?Sized, R> Table<'_, C, R> {
    /// Writes every row.
    pub(crate) fn write_json(
        &self,
        out: &mut impl Write,
        context: &mut C,
        rows: impl Iterator<Item = R>,
    ) -> io::Result<()> {
        let (keyed, mut members) = (self.keyed(), self.members().collect::<Vec<Member>>());
        members.sort_by(|a, b| a.key.cmp(&b.key));
        // The text before each value is made once: there may be a million rows.
        let before = |(at, member): (usize, &Member)| {
            format!("{}\"{}\":", if at == 0 { "" } else { "," }, member.key)
        };
        let before: Vec<String> = members.iter().enumerate().map(before).collect();
        let mut line = Vec::new();
        for row in rows {
            let cells = self.cells(context, &row, &keyed);
            line.push(b'{');
            for (member, before) in members.iter().zip(&before) {
                line.extend_from_slice(before.as_bytes());
                match cells.get(member.column) {
                    Some(Cell::Json(json)) => line.extend_from_slice(json),
                    cell => json::write(&mut line, &cell.map(|cell| CellPart(cell, member.of)))?,
                }
            }
            line.extend_from_slice(b"}\n");
            out.write_all(&line)?;
            line.clear();
        }
        Ok(())
    }

    /// A row as an object, for adding other members.
    pub(crate) fn object(&self, context: &mut C, row: &R) -> serde_json::Value {
        let cells = self.cells(context, row, &self.keyed());
        let value = |member: Member| {
            let value = match cells.get(member.column) {
                Some(Cell::Json(json)) => serde_json::from_slice(json).unwrap_or_default(),
                cell => json!(cell.map(|cell| CellPart(cell, member.of))),
            };
            (member.key, value)
        };
        self.members().map(value).collect::<serde_json::Map<_, _>>().into()
    }
}

/// A cell, or a part of it, as a JSON value.
pub(super) struct CellPart<'a>(pub(super) &'a Cell, pub(super) Of);

/// Allocates nothing: there may be a million rows.
impl Serialize for CellPart<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match (self.0, self.1) {
            (Cell::Place(place), Of::Part(part)) => place.part(part).serialize(to),
            (Cell::Interval(interval), Of::Low) => interval.low.serialize(to),
            (Cell::Interval(interval), Of::High) => interval.high.serialize(to),
            (Cell::Count(number) | Cell::Number(number) | Cell::AtLeast(number), _) => {
                number.serialize(to)
            }
            (Cell::Share(number) | Cell::Decimal(number, _), _) => number.serialize(to),
            (Cell::Stated(_, number), _) => number.serialize(to),
            (Cell::Flag(flag), _) => flag.serialize(to),
            (Cell::Word(word), _) => word.serialize(to),
            (Cell::Mark(word, _), _) => word.serialize(to),
            (Cell::Name(name), _) => name.serialize(to),
            _ => to.serialize_none(),
        }
    }
}
