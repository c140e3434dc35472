//! The consumer's end of the queues: merges the stacks of all samplers by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lbr_msr::record::Sink;
use rtrb::Consumer;

use super::decoder::{Decoded, Decoder};
use crate::drain::RawStack;

/// The maximum number of stacks held back. A sampler that lags by more is no longer in order.
const MOST_HELD: usize = 4096;

/// Stacks decoded before their queue space is released.
const BATCH: usize = 32;

/// A stack held back for older ones of other samplers.
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

/// Decodes stacks until all samplers have ended and their queues are empty, which it reports
/// through `caught_up`; then events until the source `is_over` and can send no more.
/// `reached`: for each sampler, the time up to which it has delivered all stacks.
pub(super) fn decode_all<S: Sink>(
    mut decoder: Decoder<'_, S>,
    mut queues: Vec<Consumer<RawStack>>,
    reached: &[Arc<AtomicU64>],
    caught_up: mpsc::Sender<()>,
    is_over: &mpsc::Receiver<()>,
) -> Result<Decoded, S::Error> {
    let mut held = BinaryHeap::new();
    loop {
        // Checked before the queues, so that everything pushed earlier is seen.
        let is_last_look = queues.iter().all(Consumer::is_abandoned);
        let mut is_idle = true;
        if let [queue] = &mut *queues {
            // A single queue is in order already.
            while let Ok(stacks) = queue.read_chunk(queue.slots().clamp(1, BATCH)) {
                let (front, back) = stacks.as_slices();
                front.iter().chain(back).try_for_each(|stack| decoder.stack(stack))?;
                stacks.commit_all();
                is_idle = false;
            }
        } else {
            let reached = reached.iter().map(|time| time.load(Ordering::Acquire)).min();
            for queue in &mut queues {
                while let Ok(stack) = queue.pop() {
                    held.push(Reverse(Held(stack)));
                }
            }
            while held.peek().is_some_and(|Reverse(Held(oldest))| {
                is_last_look || Some(oldest.time) < reached || held.len() > MOST_HELD
            }) {
                if let Some(Reverse(Held(stack))) = held.pop() {
                    decoder.stack(&stack)?;
                    is_idle = false;
                }
            }
        }
        if is_last_look {
            drop(caught_up);
            // The channel only ever closes.
            let _ = is_over.recv();
            return decoder.finish();
        }
        if is_idle {
            decoder.collect();
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}
