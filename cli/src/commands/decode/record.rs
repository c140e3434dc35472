//! A record: raw values, then decoded fields.

use lbr_msr::caps::Layout;
use lbr_msr::decode::brbe::{self, BrbeRecord};
use lbr_msr::decode::decode;
use lbr_msr::record::SourceKnowledge;
use lbr_msr::{BranchEntry, RawEntry};
use serde_json::{Value, json};

use super::Records;
use crate::present::{Cell, Table, joined, json};

/// A record of a ring or of a line.
pub(crate) struct RecordRow {
    slot: Option<u32>,
    /// The registers: FROM, TO and INFO, or INF, SRC and TGT.
    raw: [Option<u64>; 3],
    /// The decoded fields, as `--json` prints them; an empty record has the field `empty` alone.
    pub(crate) fields: Vec<(&'static str, Value)>,
}

impl RecordRow {
    /// From an LBR, as far as its source knows the fields.
    pub(crate) fn of(
        slot: Option<u32>,
        layout: Layout,
        raw: RawEntry,
        knowledge: SourceKnowledge,
    ) -> RecordRow {
        let fields = decode(layout, &raw).map(|entry| lbr_fields(&knowledge.mask(entry)));
        let fields = fields.unwrap_or_else(empty);
        RecordRow { slot, raw: [Some(raw.from), Some(raw.to), raw.info], fields }
    }

    /// From Arm's BRBE.
    pub(super) fn of_brbe(raw: RawEntry) -> RecordRow {
        let fields = brbe::decode(&raw).map_or_else(empty, |record| brbe_fields(&record));
        RecordRow { slot: None, raw: [raw.info, Some(raw.from), Some(raw.to)], fields }
    }

    /// A decoded field; `None` in an empty record.
    fn field(&self, key: &str) -> Option<&Value> {
        self.fields.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }
}

fn empty() -> Vec<(&'static str, Value)> {
    vec![("empty", Value::Bool(true))]
}

fn lbr_fields(entry: &BranchEntry) -> Vec<(&'static str, Value)> {
    vec![
        ("from", json::hex(entry.from)),
        ("to", json::hex(entry.to)),
        ("mispredicted", json!(entry.mispredicted)),
        ("in_tx", json!(entry.in_tx)),
        ("abort", json!(entry.abort)),
        ("cycles", json!(entry.cycles)),
        ("cycles_saturated", json!(entry.cycles_saturated)),
        ("type", json!(entry.hw_type.map(|class| class.name()))),
        ("spec", json!(entry.spec.map(|spec| spec.name().to_ascii_lowercase()))),
        ("counters", json!(entry.counters)),
    ]
}

fn brbe_fields(record: &BrbeRecord) -> Vec<(&'static str, Value)> {
    vec![
        ("from", json!(record.from.map(json::hex))),
        ("to", json!(record.to.map(json::hex))),
        ("mispredicted", json!(record.mispredicted)),
        ("in_tx", json!(record.transactional)),
        ("abort", Value::Null),
        ("cycles", json!(record.cycles)),
        ("cycles_saturated", json!(record.cycles_saturated)),
        ("type", json!(record.branch_type.name().map(str::to_ascii_lowercase))),
        ("spec", Value::Null),
        ("counters", Value::Null),
        ("el", json!(record.el)),
        ("last_failed", json!(record.last_failed)),
    ]
}

/// The columns: raw registers, a rule, decoded fields. Rows may come one by one, so widths are
/// fixed.
pub(crate) fn table(records: Records, slots: bool) -> Table<'static, (), RecordRow> {
    let layout = match records {
        Records::Lbr(layout) | Records::Pebs(_, layout) => Some(layout),
        Records::Brbe => None,
    };
    let raw: &[&'static str] = match layout {
        Some(layout) if layout.is_packed() => &["FROM/TO"],
        Some(layout) if layout.has_info() => &["FROM", "TO", "INFO"],
        Some(_) => &["FROM", "TO"],
        None => &["INF", "SRC", "TGT"],
    };
    let slot = if slots { "slot" } else { "" };
    let mut table = Table::new().number("", slot, |(), row: &RecordRow| Cell::number(row.slot));
    for (at, heading) in raw.iter().enumerate() {
        table = table
            .word("", heading, move |(), row: &RecordRow| {
                let value = row.raw.get(at).copied().flatten();
                Cell::word(value.map(|value| format!("{value:016x}")))
            })
            .least(16);
    }
    let table = table
        .word("", "|", |(), _| Cell::Word("|".into()))
        .word("", "from", |(), row| match row.field("from") {
            None => Cell::Word("empty".into()),
            Some(address) => cell(address),
        })
        .least(18)
        .word("", "to", field("to"))
        .least(18)
        .word("", "mispredicted", field("mispredicted"))
        .word("", "in_tx", field("in_tx"))
        .word("", "abort", field("abort"))
        .word("", "cycles", cycles)
        .least(7);
    let table = match layout {
        Some(Layout::Arch { .. }) => {
            table.word("", "type", field("type")).least(8).word("", "counters", field("counters"))
        }
        Some(Layout::AmdV2 { .. }) => table.word("", "spec", field("spec")).least(21),
        None => {
            let table = table.word("", "type", field("type")).least(15).word("", "el", field("el"));
            table.word("", "last_failed", field("last_failed"))
        }
        Some(_) => table,
    };
    let decoded = ["counters", "in_tx", "abort", "spec", "last_failed"];
    let spares = ["|"].into_iter().chain(raw.iter().rev().copied()).chain(decoded);
    table.spares(&spares.collect::<Vec<_>>())
}

/// A decoded field; nothing for an empty record.
fn field(key: &'static str) -> impl Fn(&mut (), &RecordRow) -> Cell {
    move |(), row| row.field(key).map_or(Cell::Empty, cell)
}

fn cycles((): &mut (), row: &RecordRow) -> Cell {
    match (row.field("cycles"), row.field("cycles_saturated")) {
        // The true count may be larger.
        (Some(Value::Number(cycles)), Some(Value::Bool(true))) => {
            Cell::Word(format!("{cycles}+").into())
        }
        (cycles, _) => cycles.map_or(Cell::Empty, cell),
    }
}

fn cell(value: &Value) -> Cell {
    match value {
        Value::Null => Cell::Absent,
        Value::Bool(flag) => Cell::Flag(*flag),
        Value::Array(values) => {
            let values = values.iter().map(cell);
            Cell::Word(joined(values.map(|value| value.text().into_owned()), " ").into())
        }
        Value::String(text) => Cell::Word(text.clone().into()),
        value => Cell::Word(value.to_string().into()),
    }
}
