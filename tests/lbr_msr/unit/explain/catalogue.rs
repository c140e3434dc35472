use super::*;
use crate::table::GENERATIONS;

#[test]
fn generations_are_named_as_in_the_table() {
    let known =
        |name: &&str| EVERY_AMD.contains(name) || GENERATIONS.iter().any(|g| &g.group == name);
    for entry in ENTRIES {
        let on = entry.variants.iter().flat_map(|variant| variant.on);
        let unknown: alloc::vec::Vec<_> = on.filter(|name| !known(name)).collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", entry.name);
    }
}
