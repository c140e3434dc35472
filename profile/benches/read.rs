//! Branches per second for reading and counting perf.data and text, compared with a plain scan.
#![allow(missing_docs, reason = "criterion's macros write undocumented items")]

mod made_up;

use std::collections::HashMap;
use std::io::Cursor;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lbr_msr::record::{BranchStack, Event, Integrity, Sample, Sink, SourceKnowledge};
use lbr_profile::brstack::Printed;
use lbr_profile::flow::FlowCounter;
use lbr_profile::note::Source;
use lbr_profile::perf_data::{Meta, Writer};
use lbr_profile::{HotTable, Item, Recording};

const STACKS: u64 = 60_000;

/// A recording with as many distinct edges as `scripts/bench` uses.
fn recording() -> Vec<u8> {
    let mut program = made_up::Program::new(0x5555_5555_4000, 8 << 20);
    let mut meta = Meta::of_this_machine();
    meta.knowledge = SourceKnowledge::HARDWARE;
    meta.source = Source::Unsaid;
    let mut bytes = Vec::new();
    let mut out = Writer::new(&mut bytes, meta).expect("memory takes everything");
    for time in 0..STACKS {
        let entries = program.stack();
        let stack = BranchStack { entries, integrity: Integrity::UNKNOWN, moves: Vec::new() };
        let sample =
            Sample { time, pid: 1, tid: 1, cpu: 0, ip: 0, period: 1, arguments: None, stack };
        out.event(&Event::Sample(sample)).expect("memory takes everything");
    }
    out.finish_stream().expect("memory takes everything");
    bytes
}

fn open(bytes: &Arc<[u8]>) -> Recording {
    Recording::from_stream(Box::new(Cursor::new(Arc::clone(bytes)))).expect("a sound recording")
}

fn text_of(bytes: &Arc<[u8]>, typed: bool) -> Arc<[u8]> {
    use std::fmt::Write as _;
    let mut recording = open(bytes);
    let mut text = String::new();
    while let Some(item) = recording.next_item().expect("a sound recording") {
        let Item::Stack(stack) = item else { continue };
        stack.entries.for_each(|mut branch| {
            if !typed {
                branch.flags = branch.flags.with_type(None);
            }
            write!(text, " {} ", Printed(branch)).expect("memory takes everything");
        });
        text.push('\n');
    }
    text.into_bytes().into()
}

/// Sums up everything, so that nothing is optimized away.
fn scan(bytes: &Arc<[u8]>) -> u64 {
    let mut recording = open(bytes);
    let mut sum = 0u64;
    while let Some(item) = recording.next_item().expect("a sound recording") {
        if let Item::Stack(stack) = item {
            stack.entries.for_each(|b| sum = sum.wrapping_add(b.from ^ b.to ^ b.flags.0));
        }
    }
    sum
}

/// A straightforward program: only counts by (from, to).
fn plain(bytes: &[u8]) -> usize {
    let mut counts: HashMap<(u64, u64), u64, Multiply> =
        HashMap::with_capacity_and_hasher(made_up::EDGES * 2, Multiply);
    let mut rest = &bytes[16..];
    while let Some((header, _)) = rest.split_first_chunk::<8>() {
        let [a, b, c, d, _, _, e, f] = *header;
        let size = usize::from(u16::from_le_bytes([e, f]));
        if u32::from_le_bytes([a, b, c, d]) == 9 {
            // identifier, ip, task, time, CPU, period, 16 bytes of note, nr.
            for entry in rest[8 + 48 + 16 + 8..size].chunks_exact(24) {
                let word =
                    |at: usize| u64::from_le_bytes(*entry[at..].first_chunk().expect("24 bytes"));
                *counts.entry((word(0), word(8))).or_default() += 1;
            }
        }
        rest = &rest[size..];
    }
    counts.len()
}

#[derive(Clone, Copy)]
struct Multiply;

impl std::hash::BuildHasher for Multiply {
    type Hasher = Product;
    fn build_hasher(&self) -> Product {
        Product(0)
    }
}

struct Product(u64);

impl std::hash::Hasher for Product {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(32) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

fn read(c: &mut Criterion) {
    let data: Arc<[u8]> = recording().into();
    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Elements(STACKS * made_up::DEPTH as u64));
    group.sample_size(10);
    group.bench_function("perf.data, plain hash count", |b| b.iter(|| plain(&data)));
    group.bench_function("perf.data, scan", |b| b.iter(|| scan(&data)));
    let count = |bytes: &Arc<[u8]>| {
        HotTable::count(&mut open(bytes), |_, _| {}).expect("a sound recording").total
    };
    group.bench_function("perf.data, hot table", |b| b.iter(|| count(&data)));
    let flow = |bytes: &Arc<[u8]>| {
        FlowCounter::default().count(&mut open(bytes), |_, _| {}).expect("a sound recording").taken
    };
    group.bench_function("perf.data, flow", |b| b.iter(|| flow(&data)));
    let lint = |bytes: &Arc<[u8]>| {
        let stride = lbr_profile::lint::DEFAULT_STRIDE;
        let lint = lbr_profile::lint::Lint::check(
            &mut open(bytes),
            stride,
            lbr_profile::symbols::Sources::default(),
            |_, _| {},
        );
        lint.expect("a sound recording").flow.quality.entries
    };
    group.bench_function("perf.data, lint", |b| b.iter(|| lint(&data)));
    for (name, typed) in [("text", false), ("text with types", true)] {
        let text = text_of(&data, typed);
        group.bench_function(format!("{name}, scan"), |b| b.iter(|| scan(&text)));
        group.bench_function(format!("{name}, hot table"), |b| b.iter(|| count(&text)));
    }
    group.finish();
}

/// From a file on disk to its table, including everything a user waits for except program start and
/// printing.
fn whole_path(c: &mut Criterion) {
    let data: Arc<[u8]> = recording().into();
    let texts = [("text", text_of(&data, false)), ("text with types", text_of(&data, true))];
    let dir = tempfile::tempdir().expect("a folder for files");
    let mut group = c.benchmark_group("whole path");
    group.throughput(Throughput::Elements(STACKS * made_up::DEPTH as u64));
    group.sample_size(10);
    for (name, bytes) in std::iter::once(("perf.data", data)).chain(texts) {
        let path = dir.path().join(name);
        std::fs::write(&path, &bytes).expect("room for a file");
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut recording = Recording::open(&path).expect("a recording");
                HotTable::count(&mut recording, |_, _| {}).expect("a sound recording").total
            })
        });
    }
    // The reverse: a recording printed as text.
    group.bench_function("perf.data, printed", |b| {
        b.iter(|| {
            let mut recording =
                Recording::open(&dir.path().join("perf.data")).expect("a recording");
            let (mut text, mut bytes) = (Vec::new(), 0);
            while let Some(item) = recording.next_item().expect("a sound recording") {
                let Item::Stack(stack) = item else { continue };
                text.clear();
                stack.entries.for_each(|branch| Printed(branch).append(&mut text));
                bytes += text.len();
            }
            bytes
        })
    });
    group.finish();
}

criterion_group!(benches, read, whole_path);
criterion_main!(benches);
