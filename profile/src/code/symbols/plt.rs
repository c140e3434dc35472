//! Stubs of the procedure linkage table, which have no symbols of their own:
//! `puts@plt`, as disassemblers call them.

use lbr_msr::text::AsText;
use std::collections::HashMap;

use object::read::ReadRef;
use object::{
    Architecture, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget,
};

use super::table::SymbolTable;

/// Sections of stubs. The stubs of the last may have eight bytes, all others
/// have sixteen.
const SECTIONS: [&str; 3] = [".plt", ".plt.sec", ".plt.got"];
/// A stub is found by its jump, `jmp *disp32(%rip)`.
const JUMP: [u8; 2] = [0xFF, 0x25];
/// What may stand before it: `endbr64`, and a `bnd` prefix.
const ENDBR64: [u8; 4] = [0xF3, 0x0F, 0x1E, 0xFA];
const BND: u8 = 0xF2;
/// Symbols with a type go before stubs of the same address.
const RANK: u8 = 1 << 4;
/// No program has a longer one.
const MAX_SECTION: u64 = 16 << 20;

/// Adds the stubs of an x86-64 program.
pub(super) fn add<'data, R: ReadRef<'data>>(
    object: &object::File<'data, R>,
    table: &mut SymbolTable,
) {
    if object.architecture() != Architecture::X86_64 {
        return;
    }
    let mut slots: Option<HashMap<u64, String>> = None;
    for name in SECTIONS {
        let Some(section) = object.section_by_name(name) else { continue };
        if section.size() > MAX_SECTION {
            continue;
        }
        let Ok(code) = section.data() else { continue };
        let slots = slots.get_or_insert_with(|| named_slots(object));
        for (at, window) in code.windows(6).enumerate() {
            let Some(disp) = window.strip_prefix(&JUMP) else { continue };
            let Ok(disp) = <[u8; 4]>::try_from(disp) else { continue };
            let ip = section.address().wrapping_add(at as u64);
            let slot = ip.wrapping_add(6).wrapping_add_signed(i64::from(i32::from_le_bytes(disp)));
            let Some(symbol) = slots.get(&slot) else { continue };
            let before = code.get(..at).unwrap_or_default();
            let bare = before.strip_suffix(&[BND]).unwrap_or(before);
            let marked = bare.strip_suffix(&ENDBR64);
            let start = marked.unwrap_or(bare).len() as u64;
            let size = if name == ".plt.got" && marked.is_none() { 8 } else { 16 };
            table.push(section.address().wrapping_add(start), size, &format!("{symbol}@plt"), RANK);
        }
    }
}

/// Which symbol's address the dynamic linker puts where.
fn named_slots<'data, R: ReadRef<'data>>(object: &object::File<'data, R>) -> HashMap<u64, String> {
    let (Some(relocations), Some(symbols)) =
        (object.dynamic_relocations(), object.dynamic_symbol_table())
    else {
        return HashMap::new();
    };
    let named = relocations.filter_map(|(slot, relocation)| {
        let RelocationTarget::Symbol(index) = relocation.target() else { return None };
        let name = symbols.symbol_by_index(index).ok()?.name_bytes().ok()?.as_text().into_owned();
        (!name.is_empty()).then_some((slot, name))
    });
    named.collect()
}
