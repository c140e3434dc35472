//! Rows as JSON objects, their keys in the order of the alphabet.

use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::json;

use super::{Cell, Header, Member, Of, Table};
use crate::present::json;

impl<C: ?Sized, R> Table<'_, C, R> {
    /// Writes every row.
    pub(crate) fn write_json(
        &self,
        out: &mut impl Write,
        context: &mut C,
        rows: impl Iterator<Item = R>,
    ) -> io::Result<()> {
        let (object, keyed) = (Object::of(self.headers()), self.keyed());
        let mut line = Vec::new();
        for row in rows {
            object.write(&mut line, &self.cells(context, &row, &keyed))?;
            line.push(b'\n');
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
        Member::all(self.headers()).map(value).collect::<serde_json::Map<_, _>>().into()
    }
}

/// The members of a row in the order of their keys, each with the text before its value, which is
/// made once: there may be a million rows.
struct Object(Vec<(Member, String)>);

impl Object {
    fn of<'h>(headers: impl Iterator<Item = &'h Header>) -> Object {
        let mut members: Vec<Member> = Member::all(headers).collect();
        members.sort_by(|a, b| a.key.cmp(&b.key));
        let before = |(at, member): (usize, Member)| {
            let before = format!("{}\"{}\":", if at == 0 { "" } else { "," }, member.key);
            (member, before)
        };
        Object(members.into_iter().enumerate().map(before).collect())
    }

    /// Writes the cells of a row.
    fn write(&self, to: &mut Vec<u8>, row: &[Cell]) -> io::Result<()> {
        to.push(b'{');
        for (member, before) in &self.0 {
            to.extend_from_slice(before.as_bytes());
            match row.get(member.column) {
                Some(Cell::Json(json)) => to.extend_from_slice(json),
                cell => json::write(to, &cell.map(|cell| CellPart(cell, member.of)))?,
            }
        }
        to.push(b'}');
        Ok(())
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
            (Cell::Count(number) | Cell::Number(number), _) => number.serialize(to),
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
