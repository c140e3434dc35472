// flags: -C opt-level=2 -C debuginfo=1
use std::collections::BTreeMap;
#[inline(never)]
fn count(words: &[&str]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for word in words {
        *counts.entry(word.to_string()).or_default() += 1;
    }
    counts
}
fn main() {
    let counts = count(&["a", "b", "a", "c", "b", "a"]);
    let most = counts.iter().max_by_key(|(_, n)| **n).map(|(word, _)| word.as_str());
    std::process::exit(i32::from(most != Some("a")));
}
