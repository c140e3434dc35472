use lbr_msr::record::HwBranchType;

use super::super::record::{Corrupt, Record, branch_word};
use super::consumer::Consumer;
use super::*;

/// A region on the heap, all zero like new shared memory.
fn region() -> Box<Region> {
    let mut region = Box::<Region>::new_uninit();
    #[allow(unsafe_code, reason = "a region is too large to be built on the stack")]
    // SAFETY: the pointer is the box's, and all-zero bytes are a valid `Region`, which consists
    // only of atomic integers.
    unsafe {
        region.as_mut_ptr().write_bytes(0, 1);
        region.assume_init()
    }
}

fn branch(n: u64) -> Words {
    let word = branch_word(0x40_0000 + n, HwBranchType::Ret, false);
    [word.expect("a user address"), !n]
}

#[test]
fn a_full_ring_makes_the_producer_wait_and_loses_nothing() {
    let region = region();
    let mut producer = region.claim().expect("a free ring");
    for n in 0..CAPACITY as u64 {
        producer.push(branch(n), || panic!("full at {n}")).expect("room");
    }
    let mut waits = 0;
    let refused = producer.push(branch(0xdead), || {
        waits += 1;
        waits < 3
    });
    assert_eq!((refused, waits), (Err(Stopped), 3));

    let mut consumer = Consumer::new(&region.rings[0]);
    assert_eq!(consumer.available(), Ok(CAPACITY as u64));
    consumer.release(1);
    producer.push(branch(CAPACITY as u64), || panic!("there is room for one")).expect("room");
    for n in 1..=CAPACITY as u64 {
        assert_eq!(consumer.words(0), branch(n));
        consumer.release(1);
    }
    assert_eq!(consumer.available(), Ok(0));
    assert_eq!(producer.flush(|| false), Ok(()));
}

#[test]
fn counters_wrap() {
    let region = region();
    let ring = &region.rings[0];
    ring.tail.0.store(u64::MAX - 2, Ordering::Relaxed);
    ring.head.0.store(u64::MAX - 2, Ordering::Relaxed);
    let mut producer = region.claim().expect("a free ring");
    let mut consumer = Consumer::new(ring);
    for n in 0..CAPACITY as u64 {
        producer.push(branch(n), || false).expect("room for all");
    }
    assert_eq!(producer.push(branch(0), || false), Err(Stopped));
    assert_eq!(consumer.available(), Ok(CAPACITY as u64));
    assert_eq!(consumer.words(5), branch(5));
    consumer.release(CAPACITY as u64);
    assert_eq!(consumer.available(), Ok(0));
}

#[test]
fn an_impossible_counter_is_corrupt() {
    let region = region();
    let ring = &region.rings[0];
    ring.tail.0.store(CAPACITY as u64 + 1, Ordering::Relaxed);
    assert_eq!(Consumer::new(ring).available(), Err(Corrupt));
}

#[test]
fn a_filter_applies_to_mispredicted_branches_too() {
    let region = region();
    let call = |zero| record::branch_word(0x40_0000, HwBranchType::RelCall, zero).expect("a tag");
    // The calls of the next instruction alone: tag 5, with 16 added.
    region.header.open(1 << 21, None, false);
    // 32 is added to the tag of a mispredicted branch.
    for mispredicted in [0, 0x20 << 56] {
        assert!(region.header.wants(call(true) | mispredicted));
        assert!(!region.header.wants(call(false) | mispredicted));
    }
}

#[test]
fn two_threads_agree_on_order() {
    const RECORDS: u64 = 40 * CAPACITY as u64 + 13;
    let region = region();
    let mut producer = region.claim().expect("a free ring");
    let mut consumer = Consumer::new(&region.rings[0]);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..RECORDS {
                let pushed = producer.push(branch(n), || {
                    std::thread::yield_now();
                    true
                });
                pushed.expect("the wait never gives up");
            }
        });
        let mut seen = 0;
        while seen < RECORDS {
            let count = consumer.available().expect("sound");
            for n in 0..count {
                assert_eq!(consumer.words(n), branch(seen + n));
            }
            consumer.release(count);
            seen += count;
            std::thread::yield_now();
        }
    });
    assert_eq!(consumer.available(), Ok(0));
}

#[test]
fn the_newest_are_written_after_a_batch_or_on_request() {
    let region = region();
    region.header.open(!0, Some((3, Some(5))), false);
    let mut producer = region.claim().expect("a free ring");
    let mut consumer = Consumer::new(&region.rings[0]);
    let newest = |total| Record::Newest { count: 3, total }.encode().expect("it has a form");
    for n in 0..12 {
        assert_eq!(consumer.available(), Ok(n / 5 * 4));
        producer.branch(branch(n), || false).expect("room");
    }
    let wanted = [newest(5), branch(2), branch(3), branch(4)];
    assert_eq!([0, 1, 2, 3].map(|n| consumer.words(n)), wanted);
    assert_eq!(consumer.words(4), newest(10));
    assert_eq!(consumer.words(7), branch(9));
    consumer.release(8);
    // A producer that dies leaves two.
    let (left, words) = consumer.left(10, 3);
    assert_eq!((left, words.collect::<Vec<_>>()), (2, vec![branch(10), branch(11)]));
    consumer.ask();
    assert!(!producer.offer(branch(12)));
    producer.branch(branch(12), || false).expect("room");
    let words = [0, 1, 2, 3].map(|n| consumer.words(n));
    assert_eq!(words, [newest(13), branch(10), branch(11), branch(12)]);
    assert!(producer.offer(branch(13)), "asked and answered");
}

#[test]
fn channels_are_claimed_once_and_released() {
    let region = region();
    let mut producers: Vec<_> = (0..RINGS).map(|_| region.claim()).collect();
    assert!(producers.iter().all(Option::is_some));
    assert!(region.claim().is_none(), "all in use");
    producers.remove(3);
    Consumer::new(&region.rings[3]).free();
    assert!(region.claim().is_some() && region.claim().is_none());
    assert_eq!(region.claimed().len(), RINGS);
}
