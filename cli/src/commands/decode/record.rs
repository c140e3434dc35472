//! A record: raw values, then decoded fields.

use lbr_msr::caps::Layout;
use lbr_msr::decode::brbe::{self, BrbeRecord};
use lbr_msr::decode::decode;
use lbr_msr::record::{BranchSpec, SourceKnowledge};
use lbr_msr::{BranchEntry, RawEntry};
use serde_json::{Value, json};

use super::Records;
use crate::present::json;
use crate::present::number::dash;
use crate::present::table::{Cell, Table};

/// A record of a ring or of a line.
pub(crate) struct RecordRow {
    slot: Option<u32>,
    /// The registers: FROM, TO and INFO, or INF, SRC and TGT.
    raw: [Option<u64>; 3],
    /// The decoded fields; `None` for an empty record.
    decoded: Option<Decoded>,
}

/// The fields of a branch that are printed.
struct Decoded {
    from: Option<u64>,
    to: Option<u64>,
    mispredicted: Option<bool>,
    in_tx: Option<bool>,
    abort: Option<bool>,
    cycles: Option<u64>,
    cycles_saturated: Option<bool>,
    branch_type: Option<String>,
    spec: Option<String>,
    counters: Option<[Option<u8>; 4]>,
    /// BRBE: exception level, and whether a transaction failed before.
    brbe: Option<(u8, bool)>,
}

impl From<BranchEntry> for Decoded {
    fn from(entry: BranchEntry) -> Decoded {
        Decoded {
            from: Some(entry.from),
            to: Some(entry.to),
            mispredicted: entry.mispredicted,
            in_tx: entry.in_tx,
            abort: entry.abort,
            cycles: entry.cycles.map(u64::from),
            cycles_saturated: entry.cycles_saturated,
            branch_type: entry.hw_type.map(|class| class.name().to_owned()),
            spec: entry.spec.map(BranchSpec::name).map(str::to_ascii_lowercase),
            counters: entry.counters,
            brbe: None,
        }
    }
}

impl From<BrbeRecord> for Decoded {
    fn from(record: BrbeRecord) -> Decoded {
        Decoded {
            from: record.from,
            to: record.to,
            mispredicted: Some(record.mispredicted),
            in_tx: Some(record.transactional),
            abort: None,
            cycles: record.cycles,
            cycles_saturated: record.cycles_saturated,
            branch_type: record.branch_type.name().map(str::to_ascii_lowercase),
            spec: None,
            counters: None,
            brbe: Some((record.el, record.last_failed)),
        }
    }
}

impl RecordRow {
    /// From an LBR, as far as its source knows the fields.
    pub(crate) fn of(
        slot: Option<u32>,
        layout: Layout,
        raw: RawEntry,
        knowledge: SourceKnowledge,
    ) -> RecordRow {
        let decoded = decode(layout, &raw).map(|entry| Decoded::from(knowledge.mask(entry)));
        RecordRow { slot, raw: [Some(raw.from), Some(raw.to), raw.info], decoded }
    }

    /// From Arm's BRBE.
    pub(super) fn of_brbe(raw: RawEntry) -> RecordRow {
        let decoded = brbe::decode(&raw).map(Decoded::from);
        RecordRow { slot: None, raw: [raw.info, Some(raw.from), Some(raw.to)], decoded }
    }

    /// The decoded fields, as `--json` prints them.
    pub(crate) fn json(&self) -> Vec<(&'static str, Value)> {
        let Some(entry) = &self.decoded else { return vec![("empty", Value::Bool(true))] };
        let address = |ip: Option<u64>| ip.map_or(Value::Null, json::hex);
        let mut fields = vec![
            ("from", address(entry.from)),
            ("to", address(entry.to)),
            ("mispredicted", json!(entry.mispredicted)),
            ("in_tx", json!(entry.in_tx)),
            ("abort", json!(entry.abort)),
            ("cycles", json!(entry.cycles)),
            ("cycles_saturated", json!(entry.cycles_saturated)),
            ("type", json!(entry.branch_type)),
            ("spec", json!(entry.spec)),
            ("counters", json!(entry.counters)),
        ];
        if let Some((el, last_failed)) = entry.brbe {
            fields.push(("el", json!(el)));
            fields.push(("last_failed", json!(last_failed)));
        }
        fields
    }
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
            .least(16)
            .spare(9);
    }
    let table = table
        .word("", "|", |(), _| Cell::Word("|".into()))
        .spare(9)
        .word("", "from", |(), row| match &row.decoded {
            None => Cell::Word("empty".into()),
            Some(entry) => address(entry.from),
        })
        .least(18)
        .word("", "to", of(|entry| address(entry.to)))
        .least(18)
        .word("", "mispredicted", of(|entry| flag(entry.mispredicted)))
        .word("", "in_tx", of(|entry| flag(entry.in_tx)))
        .spare(3)
        .word("", "abort", of(|entry| flag(entry.abort)))
        .spare(2)
        .word("", "cycles", of(cycles))
        .least(7);
    match layout {
        Some(Layout::Arch { .. }) => table
            .word("", "type", of(|entry| Cell::word(entry.branch_type.clone())))
            .least(8)
            .word("", "counters", of(counters))
            .spare(4),
        Some(Layout::AmdV2 { .. }) => {
            table.word("", "spec", of(|entry| Cell::word(entry.spec.clone()))).least(21).spare(1)
        }
        None => table
            .word("", "type", of(|entry| Cell::word(entry.branch_type.clone())))
            .least(15)
            .word("", "el", of(|entry| Cell::number(entry.brbe.map(|(el, _)| el))))
            .word("", "last_failed", of(|entry| flag(entry.brbe.map(|(_, failed)| failed))))
            .spare(1),
        Some(_) => table,
    }
}

/// A decoded field; empty for an empty record.
fn of(cell: fn(&Decoded) -> Cell) -> impl Fn(&mut (), &RecordRow) -> Cell {
    move |(), row| row.decoded.as_ref().map_or(Cell::Empty, cell)
}

fn address(address: Option<u64>) -> Cell {
    Cell::word(address.map(|address| format!("{address:#x}")))
}

fn flag(flag: Option<bool>) -> Cell {
    Cell::or_absent(flag, Cell::Flag)
}

fn cycles(entry: &Decoded) -> Cell {
    // The true count may be larger.
    let more = if entry.cycles_saturated == Some(true) { "+" } else { "" };
    Cell::word(entry.cycles.map(|cycles| format!("{cycles}{more}")))
}

fn counters(entry: &Decoded) -> Cell {
    let count = |count: Option<u8>| count.map_or_else(dash, |count| count.to_string());
    Cell::word(entry.counters.map(|counters| counters.map(count).join(" ")))
}
