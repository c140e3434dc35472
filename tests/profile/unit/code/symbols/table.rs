use super::SymbolTable;

/// By hand: a function with a label, an assembler function that ends with its section, and two
/// functions, one inside the other.
#[test]
fn symbols_cover_addresses() {
    let mut table = SymbolTable::default();
    table.bounds.push(0x50);
    for (addr, size, name) in [
        (0x80, 0x40, "outer"),
        (0x90, 0x10, "inner"),
        (0x10, 0x20, "f"),
        (0x18, 0, "label"),
        (0x40, 0, "asm"),
        (0x60, 0, "next"),
    ] {
        table.push(addr, size, name, 0);
    }
    table.sort();
    for (addr, expected) in [
        (0xf, None),
        (0x10, Some(("f", 0x30))),
        (0x18, Some(("f", 0x30))),
        (0x2f, Some(("f", 0x30))),
        (0x30, None),
        (0x40, Some(("asm", 0x50))),
        (0x4f, Some(("asm", 0x50))),
        (0x50, None),
        (0x60, Some(("next", 0x80))),
        (0x7f, Some(("next", 0x80))),
        (0x8f, Some(("outer", 0xc0))),
        (0x90, Some(("inner", 0xa0))),
        (0x9f, Some(("inner", 0xa0))),
        (0xa0, Some(("outer", 0xc0))),
        (0xbf, Some(("outer", 0xc0))),
        (0xc0, None),
    ] {
        let found = table.at(addr).map(|found| (found.name, found.end.unwrap_or(0)));
        assert_eq!(found, expected, "{addr:#x}");
    }
}
