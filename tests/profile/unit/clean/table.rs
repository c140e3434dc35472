use super::{Keyed, Table};
use crate::index;

/// Ten keys share each hash.
impl Keyed for u64 {
    type Key = u64;
    fn key(&self) -> u64 {
        *self
    }
    fn hash(key: u64) -> u32 {
        index::hash(key / 10, 0, 0)
    }
}

#[test]
fn things_are_found_by_key_alone() {
    let mut table = Table::default();
    for key in 0..1000u64 {
        assert_eq!(table.find(u64::hash(key), key), None);
        assert_eq!(table.push(key), Some(key as u32));
    }
    let mut found = Vec::new();
    table.look_up(0..1000u64, &mut found, |key| *key);
    for (key, (hash, guess)) in (0..1000u64).zip(found) {
        // For all but the first with this hash, it is a wrong guess.
        assert_eq!((hash, u64::from(guess)), (u64::hash(key), key / 10 * 10));
        assert_eq!(table.find_near(guess, hash, key), Some(key as u32));
    }
    assert_eq!(table.find(u64::hash(1000), 1000), None);
}
