use super::{Index, hash};

/// Numbers are found after growth and among equal hashes.
#[test]
fn numbers_come_back() {
    let mut index = Index::default();
    let keys: Vec<u64> = (0..10_000).collect();
    // First only 100 hashes, then one per number.
    for spread in [100, u64::MAX] {
        let of = |key: u64| hash(key % spread, 0, 0);
        let base = if spread == 100 { 0 } else { keys.len() as u32 };
        let is = |key: u64| move |number: u32| u64::from(number - base) == key;
        for &key in &keys {
            assert_eq!(index.find(of(key), |n| n >= base && is(key)(n)), None);
            index.insert(of(key), base + key as u32);
        }
        for &key in &keys {
            let found = index.find(of(key), |n| n >= base && is(key)(n));
            assert_eq!(found, Some(base + key as u32));
        }
    }
    let mut none = Vec::new();
    Index::default().look_up(std::iter::once(7), &mut none, u64::from);
    assert_eq!(none, [(7, u32::MAX)]);
}
