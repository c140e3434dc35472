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

/// `R_X86_64_IRELATIVE` and `R_AARCH64_IRELATIVE`: the dynamic linker asks a function, whose address
/// is the addend, for the address of another (AMD64 supplement of the System V ABI, table 4.10; ELF
/// for the Arm 64-bit Architecture, "Dynamic relocations").
const IRELATIVE: [u64; 2] = [37, 1032];
/// Sections of relocations: `Elf64_Rela`, 24 bytes each.
const RELOCATIONS: [&str; 3] = [".rela.plt", ".rela.dyn", ".rela.iplt"];
/// Sections with stubs. In the last, those of x86-64 may have eight bytes; all others have sixteen.
const SECTIONS: [&str; 3] = [".plt", ".plt.sec", ".plt.got"];
/// A stub of x86-64 is identified by its jump, `jmp *disp32(%rip)`.
const JUMP: [u8; 2] = [0xFF, 0x25];
/// The optional instruction before it, besides a `bnd` prefix.
const ENDBR64: [u8; 4] = [0xF3, 0x0F, 0x1E, 0xFA];
const BND: u8 = 0xF2;
/// A stub of AArch64 loads its slot by `adrp x16, PAGE; ldr x17, [x16, #OFFSET]`, here with their
/// masks, and may start with `bti c`.
const ADRP: (u32, u32) = (0x9F00_001F, 0x9000_0010);
const LOAD: (u32, u32) = (0xFFC0_03FF, 0xF940_0211);
const BTI: u32 = 0xD503_245F;
/// Typed symbols take precedence over stubs at the same address.
const RANK: u8 = 1 << 4;
/// Maximum size of a section.
const MAX_SECTION: u64 = 16 << 20;

/// A stub: its distance from the section's start, its size, and its slot.
type Stub = (u64, u64, u64);

/// Adds the stubs of an x86-64 or AArch64 program.
pub(super) fn add<'data, R: ReadRef<'data>>(
    object: &object::File<'data, R>,
    table: &mut SymbolTable,
) {
    let stubs_of: fn(&str, u64, &[u8]) -> Vec<Stub> = match object.architecture() {
        Architecture::X86_64 => x86_64,
        Architecture::Aarch64 => aarch64,
        _ => return,
    };
    let mut slots: Option<HashMap<u64, String>> = None;
    for name in SECTIONS {
        let Some(section) = object.section_by_name(name) else { continue };
        if section.size() > MAX_SECTION {
            continue;
        }
        let Ok(code) = section.data() else { continue };
        let slots = slots.get_or_insert_with(|| {
            let mut slots = ifunc_slots(object);
            slots.extend(named_slots(object).into_iter().flatten());
            slots
        });
        for (start, size, slot) in stubs_of(name, section.address(), code) {
            let Some(symbol) = slots.get(&slot) else { continue };
            table.push(section.address().wrapping_add(start), size, &format!("{symbol}@plt"), RANK);
        }
    }
}

fn x86_64(section: &str, address: u64, code: &[u8]) -> Vec<Stub> {
    let stub = |(at, window): (usize, &[u8])| {
        let disp = i32::from_le_bytes(window.strip_prefix(&JUMP)?.try_into().ok()?);
        let ip = address.wrapping_add(at as u64);
        let slot = ip.wrapping_add(6).wrapping_add_signed(i64::from(disp));
        let before = code.get(..at).unwrap_or_default();
        let bare = before.strip_suffix(&[BND]).unwrap_or(before);
        let marked = bare.strip_suffix(&ENDBR64);
        let start = marked.unwrap_or(bare).len() as u64;
        let size = if section == ".plt.got" && marked.is_none() { 8 } else { 16 };
        Some((start, size, slot))
    };
    code.windows(6).enumerate().filter_map(stub).collect()
}

fn aarch64(_: &str, address: u64, code: &[u8]) -> Vec<Stub> {
    let bytes = |word: &[u8]| u32::from_le_bytes(word.try_into().unwrap_or_default());
    let words: Vec<u32> = code.chunks_exact(4).map(bytes).collect();
    let stub = |(at, pair): (usize, &[u32])| {
        let is = |word: u32, (mask, value)| (word & mask == value).then_some(word);
        let &[adrp, load] = pair else { return None };
        let (adrp, load) = (is(adrp, ADRP)?, is(load, LOAD)?);
        let pages = i64::from((adrp << 8).cast_signed() >> 13) << 2 | i64::from(adrp >> 29 & 3);
        let page = address.wrapping_add(4 * at as u64) & !0xFFF;
        let slot =
            page.wrapping_add_signed(pages << 12).wrapping_add(8 * u64::from(load >> 10 & 0xFFF));
        let marked = at > 0 && words.get(at - 1) == Some(&BTI);
        Some((4 * (at as u64 - u64::from(marked)), if marked { 24 } else { 16 }, slot))
    };
    words.windows(2).enumerate().filter_map(stub).collect()
}

/// The symbol whose address the dynamic linker stores in each slot.
fn named_slots<'data, R: ReadRef<'data>>(
    object: &object::File<'data, R>,
) -> Option<impl Iterator<Item = (u64, String)>> {
    let symbols = object.dynamic_symbol_table()?;
    Some(object.dynamic_relocations()?.filter_map(move |(slot, relocation)| {
        let RelocationTarget::Symbol(index) = relocation.target() else { return None };
        let name = symbols.symbol_by_index(index).ok()?.name_bytes().ok()?.as_text().into_owned();
        (!name.is_empty()).then_some((slot, name))
    }))
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
            if IRELATIVE.contains(&word(8)) {
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
