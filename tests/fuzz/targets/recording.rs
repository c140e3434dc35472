//! Any file: perf.data in either form and order, compressed or not, or text.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use profile::{HotTable, Recording};

fuzz_target!(|bytes: &[u8]| {
    let stream = Box::new(Cursor::new(bytes.to_vec()));
    let Ok(mut recording) = Recording::from_stream(stream) else { return };
    if let Ok(table) = HotTable::count(&mut recording, |_, _| {}) {
        let sum = table.branches.iter().fold(0u64, |sum, b| sum.saturating_add(b.count));
        assert_eq!(sum, table.total);
    }
});
