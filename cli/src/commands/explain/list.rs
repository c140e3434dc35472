//! Lists the registers, and the documents that their sources cite.

use std::io;

use lbr_msr::explain::{Register, SOURCES};

use crate::present::json;
use crate::present::out::Out;
use crate::present::table::{Cell, Item, Table, write_list};

/// One row for each register and kind of CPU.
pub(super) fn write(out: &mut Out<'_>, registers: &[Register], json: bool) -> io::Result<()> {
    let table = Table::<(), Register>::new()
        .word("at", "at", |(), register| Cell::Word(at(register).into()))
        .word("name", "name", |(), register| Cell::Word(register.template().into()))
        .only("count", |(), register| Cell::number(register.count()))
        .only("on", |(), register| Cell::Word(register.variant().into()))
        .only("summary", |(), register| Cell::Word(register.summary().into()))
        .prose("", "purpose [on]", |(), register| {
            Cell::Word(format!("{} [{}]", register.summary(), register.variant()).into())
        })
        .only("source", |(), register| Cell::Word(register.source().into()));
    if json {
        table.write_json(out, &mut (), registers.iter().copied())
    } else {
        table.write_text(out, &mut (), registers.iter().copied())
    }
}

/// Its address, or the first and last for a register of each record; the encoding of an Arm
/// register.
fn at(register: &Register) -> String {
    match (register.msr(), register.last().msr()) {
        (Some(first), Some(last)) if first != last => format!("{first}-{last}"),
        (Some(only), _) => only.to_string(),
        _ => register.encoding().unwrap_or_default(),
    }
}

/// The documents that the tags in brackets cite.
pub(super) fn write_sources(out: &mut Out<'_>, json: bool) -> io::Result<()> {
    if json {
        return SOURCES.iter().try_for_each(|(tag, document)| {
            json::line(out, &[("tag", (*tag).into()), ("document", (*document).into())])
        });
    }
    let items =
        SOURCES.iter().map(|(tag, document)| (Cell::Empty, (*tag).into(), (*document).into()));
    write_list(out, &items.collect::<Vec<Item>>())
}
