//! The consumer's end of the queues: merges the stacks of all samplers by time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lbr_msr::record::Sink;

use super::decoder::Decoder;
use super::summary::Summary;
use crate::drain::RawStack;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::queue::Consumer;
use crate::sync::{mpsc, thread};

/// The maximum number of stacks held back. A sampler that lags by more is no longer in order.
const MOST_HELD: usize = 4096;

/// Stacks decoded before their queue space is released.
const BATCH: usize = 32;

/// Decodes stacks until all samplers have ended and their queues are empty, which it reports
/// through `caught_up`; then events until the source `is_over` and can send no more.
/// `reached`: for each sampler, the time up to which it has delivered all stacks.
pub(super) fn decode_all<S: Sink>(
    mut decoder: Decoder<'_, S>,
    mut queues: Vec<Consumer<RawStack>>,
    reached: &[Arc<AtomicU64>],
    caught_up: mpsc::Sender<()>,
    is_over: &mpsc::Receiver<()>,
) -> Result<Summary, S::Error> {
    // Stacks held back for older ones of other samplers, by time and order of arrival.
    let mut held = BTreeMap::new();
    let mut arrived = 0u64;
    loop {
        // Checked before the queues, so that everything pushed earlier is seen.
        let is_last_look = queues.iter().all(|queue| queue.is_abandoned());
        let mut is_idle = true;
        if let [queue] = &mut *queues {
            // A single queue is in order already.
            loop {
                let most = queue.slots().clamp(1, BATCH);
                let Ok(stacks) = queue.read_chunk(most) else { break };
                let (front, back) = stacks.as_slices();
                front.iter().chain(back).try_for_each(|stack| decoder.stack(stack))?;
                stacks.commit_all();
                is_idle = false;
            }
        } else {
            let reached = reached.iter().map(|time| time.load(Ordering::Acquire)).min();
            for queue in &mut queues {
                while let Ok(stack) = queue.pop() {
                    arrived += 1;
                    held.insert((stack.time, arrived), stack);
                }
            }
            while let Some((&(time, _), _)) = held.first_key_value()
                && (is_last_look || Some(time) < reached || held.len() > MOST_HELD)
                && let Some((_, stack)) = held.pop_first()
            {
                decoder.stack(&stack)?;
                is_idle = false;
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
            thread::sleep(Duration::from_micros(500));
        }
    }
}
