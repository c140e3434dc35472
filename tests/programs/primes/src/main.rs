use std::collections::BTreeMap;

use primes::{Prime, Square, Test};

fn main() {
    let tests: Vec<Box<dyn Test>> = vec![Box::new(Prime), Box::new(Square(25))];
    let mut counts = BTreeMap::new();
    for n in 0..600u64 {
        for (at, test) in tests.iter().enumerate() {
            if test.holds(n) {
                *counts.entry((at, n % 10)).or_insert(0) += 1;
            }
        }
    }
    println!("{counts:?}");
}
