//! The registers of samples, and the arguments of functions.

use std::fmt::Write as _;
use std::io::Cursor;

use lbr_msr::record::{Event, Sample};
use profile::arguments::{ArgumentCounts, MOST_VALUES};
use profile::perf_data::Meta;
use profile::registers::ARGUMENTS;
use profile::symbols::Sources;
use profile::{Counter, Item, Recording};

use crate::reader::Crafted;
use crate::recorded::{entry, exact, jit, map, meta, sample, stream};

const IP: u64 = 1;
const TID: u64 = 1 << 1;
const BRANCH_STACK: u64 = 1 << 11;
const REGS_USER: u64 = 1 << 12;
const STACK_USER: u64 = 1 << 13;
const WEIGHT: u64 = 1 << 14;
const DATA_SRC: u64 = 1 << 15;
const TRANSACTION: u64 = 1 << 17;
const REGS_INTR: u64 = 1 << 18;
const ANY: u64 = 8;
/// di, si and r8, by perf's numbers 5, 4 and 16.
const MASK: u64 = 1 << 5 | 1 << 4 | 1 << 16;
const ABI_32: u64 = 1;
const ABI_64: u64 = 2;

fn open(file: &Crafted) -> Recording {
    Recording::from_stream(Box::new(Cursor::new(file.bytes.clone()))).unwrap()
}

/// The six registers of each stack.
fn registers(file: &Crafted) -> Vec<Option<[Option<u64>; 6]>> {
    let mut recording = open(file);
    let mut all = Vec::new();
    while let Some(item) = recording.next_item().unwrap() {
        if let Item::Stack(stack) = item {
            all.push(stack.registers.map(|of| ARGUMENTS.map(|(register, _)| of.get(register))));
        }
    }
    all
}

/// Words are in the order of the register numbers: si, di, r8.
#[test]
fn registers_are_found_in_either_byte_order() {
    for big in [false, true] {
        let mut file = Crafted::new(big);
        file.attr(128, IP | BRANCH_STACK | REGS_USER, 0, ANY, &[]);
        file.registers(MASK, 0);
        file.sample(&[0x20, 1, 0x10, 0x20, 0, ABI_64, 7, 8, 9]);
        file.sample(&[0x20, 0, 0]);
        file.sample(&[0x20, 1, 0x10, 0x20, 0, ABI_32, 7, 8, 9]);
        let some = Some([Some(8), Some(7), None, None, Some(9), None]);
        assert_eq!(registers(&file), [some, None, None], "big: {big}");
    }
}

/// The sample's registers follow the user-mode registers, a part of the stack, the weight, the data
/// source and the transaction; they are closer to the sample and take precedence.
#[test]
fn registers_at_the_sample_come_first() {
    // `PERF_SAMPLE_WEIGHT_STRUCT` replaces the weight.
    for between in [WEIGHT, 1 << 24, DATA_SRC, TRANSACTION] {
        let mut file = Crafted::new(false);
        let fields = IP | BRANCH_STACK | REGS_USER | STACK_USER | between | REGS_INTR;
        file.attr(128, fields, 0, ANY, &[]);
        file.registers(1 << 5, 1 << 5);
        // 16 bytes of stack, and how many of them are valid.
        file.sample(&[0x20, 0, ABI_64, 1, 16, 0, 0, 16, 99, ABI_64, 2]);
        file.sample(&[0x20, 0, ABI_64, 1, 0, 99, ABI_64, 2]);
        file.sample(&[0x20, 0, ABI_64, 1, 0, 99, 0]);
        // Truncated.
        file.sample(&[0x20, 0, ABI_64, 1, 16, 0]);
        let of = |value| Some([Some(value), None, None, None, None, None]);
        assert_eq!(registers(&file), [of(2), of(2), of(1), None], "{between:#x}");
    }
}

/// Also of a sample without them.
#[test]
fn written_arguments_are_read_back() {
    let with = |arguments| match sample(1, vec![entry(0x10, 0x20)], exact()) {
        Event::Sample(sample) => Event::Sample(Sample { arguments, ..sample }),
        other => other,
    };
    let samples = [with(Some([11, 12, 13, 14, 15, 16])), with(None)];
    let mut file = Crafted::new(false);
    file.bytes = stream(Meta { arguments: true, ..meta() }, &samples);
    assert_eq!(registers(&file), [Some([11, 12, 13, 14, 15, 16].map(Some)), None]);
}

/// A callee with four callers, the most frequent one first: only samples at the target of their
/// newest branch count, and only at the function's first byte.
#[test]
fn values_are_counted_by_caller() {
    let (_names, sources) =
        jit("1000 40 callee\n1100 40 one\n1200 40 other\n1280 40 again\n1300 40 most\n");
    let mut file = Crafted::new(false);
    file.attr(128, IP | TID | BRANCH_STACK | REGS_USER, 0, ANY, &[]);
    file.registers(1 << 5, 0);
    let task = 100 | 100 << 32;
    let mut sample = |ip: u64, from: u64, to: u64, di: u64| {
        file.sample(&[ip, task, 1, from, to, 0, ABI_64, di]);
    };
    for value in [3, 3, 3, 4] {
        sample(0x1000, 0x1110, 0x1000, value);
    }
    // From another address in the same caller.
    sample(0x1000, 0x1120, 0x1000, 4);
    sample(0x1000, 0x1290, 0x1000, 6);
    sample(0x1000, 0x1210, 0x1000, 5);
    for _ in 0..6 {
        sample(0x1000, 0x1310, 0x1000, 7);
    }
    // Later in the function; and a loop inside it.
    sample(0x1004, 0x1110, 0x1000, 77);
    sample(0x1008, 0x1010, 0x1008, 77);
    let mut counter = Counter::<ArgumentCounts>::default();
    counter.maps().set_sources(sources);
    counter.event(&map("//anon", 0x1000, 0x1000, 0));
    let made = counter.count(&mut open(&file), |_, _| ()).unwrap();
    assert_eq!((made.with_registers, made.at_entry), (15, 13));
    let calls: Vec<_> =
        made.calls.iter().map(|of| (of.count, of.values[0].frequent(), of.values[1].n())).collect();
    let once = |value| (1, vec![(value, 1)], 0);
    let expected = [(6, vec![(7, 6)], 0), (5, vec![(3, 3), (4, 2)], 0), once(5), once(6)];
    assert_eq!(calls, expected);
    assert_eq!(made.hot.total, 15);
}

/// More distinct values than are kept: the others are counted together.
#[test]
fn values_are_bounded() {
    let mut file = Crafted::new(false);
    file.attr(128, IP | BRANCH_STACK | REGS_USER, 0, ANY, &[]);
    file.registers(1 << 5, 0);
    let more = MOST_VALUES as u64 + 10;
    for value in 0..more {
        file.sample(&[0xffff_ffff_8100_0000, 1, 0x10, 0xffff_ffff_8100_0000, 0, ABI_64, value]);
    }
    let mut list = String::new();
    let _ = writeln!(list, "ffffffff81000000 T entered\nffffffff81000100 T end");
    let names = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(names.path(), list).unwrap();
    let mut counter = Counter::<ArgumentCounts>::default();
    let sources = Sources { kallsyms: Some(names.path().to_owned()), ..Sources::default() };
    counter.maps().set_sources(sources);
    let made = counter.count(&mut open(&file), |_, _| ()).unwrap();
    let [calls] = &made.calls[..] else { panic!("{:?}", made.calls) };
    let values = &calls.values[0];
    assert_eq!((values.distinct(), values.others, values.n()), (MOST_VALUES, 10, more));
}
