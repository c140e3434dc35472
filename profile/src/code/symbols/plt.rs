//! Stubs of the procedure linkage table, which have no symbols: `puts@plt`, as disassemblers name
//! them.

use lbr_msr::text::AsText;
use std::collections::{HashMap, HashSet};

use object::read::ReadRef;
use object::{
    Architecture, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget,
    SymbolFlags, elf,
};

use super::table::SymbolTable;

/// `R_X86_64_IRELATIVE`: the dynamic linker asks a function, whose address is the
/// addend, for the address of another (AMD64 supplement of the System V ABI, table
/// 4.10).
const IRELATIVE: u64 = 37;
/// Sections of relocations: `Elf64_Rela`, 24 bytes each.
const RELOCATIONS: [&str; 3] = [".rela.plt", ".rela.dyn", ".rela.iplt"];
/// Sections with stubs. In the last, stubs may have eight bytes; all others have sixteen.
const SECTIONS: [&str; 3] = [".plt", ".plt.sec", ".plt.got"];
/// A stub is identified by its jump, `jmp *disp32(%rip)`.
const JUMP: [u8; 2] = [0xFF, 0x25];
/// The optional instruction before it, besides a `bnd` prefix.
const ENDBR64: [u8; 4] = [0xF3, 0x0F, 0x1E, 0xFA];
const BND: u8 = 0xF2;
/// Typed symbols take precedence over stubs at the same address.
const RANK: u8 = 1 << 4;
/// Maximum size of a section.
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
        let slots = slots.get_or_insert_with(|| {
            let mut slots = ifunc_slots(object);
            slots.extend(named_slots(object));
            slots
        });
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

/// The symbol whose address the dynamic linker stores in each slot.
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

/// Slots of functions that a resolver chooses (IFUNC), with the function's symbol, which
/// has the resolver's address. Without a symbol, the name that objdump prints.
fn ifunc_slots<'data, R: ReadRef<'data>>(object: &object::File<'data, R>) -> HashMap<u64, String> {
    let mut slots = Vec::new();
    for section in RELOCATIONS.iter().filter_map(|name| object.section_by_name(name)) {
        if section.size() > MAX_SECTION {
            continue;
        }
        let data = section.data().unwrap_or_default();
        for entry in data.chunks_exact(24) {
            let word = |at: usize| {
                let bytes = entry.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
                u64::from_le_bytes(bytes.unwrap_or_default())
            };
            if word(8) == IRELATIVE {
                slots.push((word(0), word(16)));
            }
        }
    }
    let resolvers: HashSet<u64> = slots.iter().map(|(_, resolver)| *resolver).collect();
    // The IFUNC symbol before the resolver's own; then strong and short names.
    let mut names: HashMap<u64, (bool, bool, usize, String)> = HashMap::new();
    for symbol in object.dynamic_symbols().chain(object.symbols()) {
        let Ok(name) = symbol.name_bytes() else { continue };
        if !resolvers.contains(&symbol.address()) || name.is_empty() {
            continue;
        }
        let name = name.as_text().into_owned();
        let is_ifunc = matches!(symbol.flags(), SymbolFlags::Elf { st_info, .. } if st_info.st_type() == elf::STT_GNU_IFUNC);
        let name = (!is_ifunc, symbol.is_weak(), name.len(), name);
        let known = names.entry(symbol.address()).or_insert_with(|| name.clone());
        *known = name.min(known.clone());
    }
    let named = slots.into_iter().map(|(slot, resolver)| {
        let name = names.get(&resolver).map(|(.., name)| name.clone());
        (slot, name.unwrap_or_else(|| format!("*ABS*+{resolver:#x}")))
    });
    named.collect()
}
