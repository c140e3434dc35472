//! Decoded records per second, by layout, into a buffer that stays in the cache.
#![allow(missing_docs, reason = "criterion's macros write undocumented items")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lbr_msr::{BranchEntry, LbrFormat, RawEntry, caps::Layout, decode::decode};

/// 256 records, so that they and the decoded entries fit in the first-level cache.
const RECORDS: usize = 256;

/// Non-empty records with every bit set that the layout may hold.
fn records() -> Vec<RawEntry> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..RECORDS).map(|_| RawEntry { from: next() | 1, to: next(), info: Some(next()) }).collect()
}

fn records_of_each_layout(c: &mut Criterion) {
    let legacy = |format| Layout::Legacy { format: LbrFormat(format), tsx: true };
    let arch = |tsx| Layout::Arch { mispredict: true, timed: true, types: true, counters: 0, tsx };
    let layouts = [
        ("format 0", legacy(0)),
        ("format 1", legacy(1)),
        ("format 3", legacy(3)),
        ("format 4", legacy(4)),
        ("format 5", legacy(5)),
        ("format 6", legacy(6)),
        ("arch", arch(false)),
        ("arch with TSX", arch(true)),
        ("arch with counters", Layout::ARCH_ALL_FIELDS),
        ("AMD LbrExtV2", Layout::AmdV2 { virt_bits: 48 }),
    ];
    let raw = records();
    let mut out: Vec<Option<BranchEntry>> = vec![None; RECORDS];
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements(RECORDS as u64));
    for (name, layout) in layouts {
        group.bench_function(name, |b| {
            b.iter(|| {
                for (slot, raw) in out.iter_mut().zip(std::hint::black_box(&raw)) {
                    *slot = decode(layout, raw);
                }
            });
        });
    }
    // The upper bound: copies the same number of bytes without decoding.
    let mut copy = raw.clone();
    group.bench_function("copy", |b| {
        b.iter(|| copy.copy_from_slice(std::hint::black_box(&raw)));
    });
    group.finish();
}

criterion_group!(benches, records_of_each_layout);
criterion_main!(benches);
