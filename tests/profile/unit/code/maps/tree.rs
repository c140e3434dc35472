use super::*;
use std::collections::BTreeMap;

fn mapping(start: u64) -> Mapping {
    Mapping { start, len: 1, pgoff: 0, file: 0 }
}

fn starts(of: &Mappings) -> Vec<u64> {
    of.values().map(|mapping| mapping.start).collect()
}

/// Returns the height, and checks it and the balance of every node.
fn checked(link: &Link) -> u8 {
    let Some(node) = link else { return 0 };
    let [low, high] = node.children.each_ref().map(checked);
    assert!(low.abs_diff(high) <= 1, "{low} and {high}");
    assert_eq!(node.height, 1 + low.max(high));
    node.height
}

#[test]
fn it_holds_what_a_map_holds_and_clones_do_not_change() {
    let (mut tree, mut map) = (Mappings::default(), BTreeMap::new());
    let (mut word, mut clones) = (1u64, Vec::new());
    for step in 0..4000 {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let start = (word >> 33) % 500;
        if word >> 63 == 0 || step < 300 {
            tree.insert(mapping(start));
            map.insert(start, ());
        } else {
            tree.remove(start);
            map.remove(&start);
        }
        checked(&tree.root);
        assert_eq!(tree.len(), map.len());
        let before = map.range(..=250).next_back().map(|(start, ())| *start);
        assert_eq!(tree.last_from(250).map(|mapping| mapping.start), before);
        if step % 500 == 0 {
            clones.push((tree.clone(), starts(&tree)));
        }
    }
    assert_eq!(starts(&tree), map.into_keys().collect::<Vec<_>>());
    for (clone, before) in clones {
        assert_eq!(starts(&clone), before);
    }
}

/// 1.44 log2 of their number, and a change of a clone copies no more than a
/// path with its rotations.
#[test]
fn a_change_copies_a_path() {
    let mut tree = Mappings::default();
    (0..100_000).for_each(|start| tree.insert(mapping(start)));
    assert!(checked(&tree.root) <= 24);
    assert_eq!(tree.take_copied(), 0);
    let clone = tree.clone();
    tree.insert(mapping(100_000));
    assert!(tree.take_copied() <= 26, "{tree:?}");
    assert_eq!(clone.len(), 100_000);
}
