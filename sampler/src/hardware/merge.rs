//! The stacks of several CPUs, brought into the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use lbr_msr::record::Sink;
use rtrb::Consumer;

use super::thread::Progress;
use crate::decoder::{Decoded, Decoder};
use crate::drain::RawStack;

/// Stacks held back at most. A CPU that is this far behind the others loses
/// its place in the order.
const MOST_HELD: usize = 4096;

/// A stack that waits for older ones of other CPUs.
struct Held(RawStack);

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.0.time == other.0.time
    }
}
impl Eq for Held {}
impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Held {
    fn cmp(&self, other: &Held) -> std::cmp::Ordering {
        self.0.time.cmp(&other.0.time)
    }
}

/// Takes stacks until all samplers have gone and their queues are empty, which
/// it tells by `caught_up`; then events until nobody can send any.
pub(super) fn decode_all<S: Sink>(
    mut decoder: Decoder<'_, S>,
    mut queues: Vec<Consumer<RawStack>>,
    progress: &[Progress],
    caught_up: mpsc::Sender<()>,
) -> Result<Decoded, S::Error> {
    let mut held = BinaryHeap::new();
    loop {
        // Asked before looking: what was pushed before is seen.
        let is_last_look = queues.iter().all(|queue| queue.is_abandoned());
        let reached =
            progress.iter().map(|cpu| cpu.reached.load(Ordering::Acquire)).min().unwrap_or(0);
        for queue in &mut queues {
            while let Ok(stack) = queue.pop() {
                held.push(Reverse(Held(stack)));
            }
        }
        let mut emitted = false;
        while held.peek().is_some_and(|Reverse(Held(oldest))| {
            is_last_look || oldest.time < reached || held.len() > MOST_HELD
        }) {
            if let Some(Reverse(Held(stack))) = held.pop() {
                decoder.stack(&stack)?;
                emitted = true;
            }
        }
        if is_last_look {
            drop(caught_up);
            decoder.wait_for_the_rest();
            return decoder.finish();
        }
        if !emitted {
            decoder.collect();
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}
