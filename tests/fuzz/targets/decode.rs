//! Any register values, with any layout.
#![no_main]

use lbr_msr::caps::Layout;
use lbr_msr::decode::decode;
use lbr_msr::{LbrFormat, RawEntry};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&[kind, option], bytes)) = bytes.split_first_chunk::<2>() else { return };
    let bit = |n: u8| option >> n & 1 == 1;
    let layout = match kind % 6 {
        0 => Layout::Legacy { format: LbrFormat(option & 0x3F), tsx: bit(6) },
        1 => Layout::of_leaf_1c(u32::from(option & 7) | u32::from(option >> 3 & 15) << 16, bit(7)),
        2 => Layout::AmdV2 { virt_bits: option },
        3 => Layout::AmdBrs { virt_bits: option },
        4 => Layout::AmdSingle,
        _ => Layout::Packed32,
    };
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    for record in bytes.chunks_exact(25) {
        let raw = RawEntry {
            from: word(record),
            to: word(&record[8..]),
            info: (record[24] & 1 == 1).then(|| word(&record[16..])),
        };
        let entry = decode(layout, &raw);
        if raw.from == 0 && matches!(layout, Layout::Legacy { .. } | Layout::Arch { .. }) {
            assert_eq!(entry, None, "FROM is 0: the record holds nothing");
        }
    }
});
