//! Samples of several buffers in the order of their times.
//!
//! perf writes a buffer for each CPU, one after the other, and then says that a round is finished:
//! no sample of the round after the next is older than one of this round. So only two rounds are
//! buffered, however long the recording is. As `perf script` does it (`ordered_events__flush`).

use std::collections::BTreeMap;
use std::io::Write;

/// Maximum bytes of buffered lines. Rounds are as large as the buffers of all CPUs; a recording
/// without rounds would be buffered to its end.
const MOST: usize = 32 << 20;

/// Lines on their way out.
pub(super) struct Ordered<W> {
    pub(super) out: W,
    /// Ordered by time, then by number.
    waiting: BTreeMap<(u64, u64), Box<[u8]>>,
    bytes: usize,
    most: usize,
    next: u64,
    round: u32,
    /// The newest time so far, and that of the rounds before this one.
    newest: u64,
    settled: u64,
    /// The time printed last, and the number of lines that came too late.
    printed: u64,
    pub(super) late: u64,
}

impl<W: Write> Ordered<W> {
    pub(super) fn new(out: W) -> Ordered<W> {
        Ordered {
            out,
            waiting: BTreeMap::new(),
            bytes: 0,
            most: MOST,
            next: 0,
            round: 0,
            newest: 0,
            settled: 0,
            printed: 0,
            late: 0,
        }
    }

    /// Takes the line of a sample of a round.
    pub(super) fn line(&mut self, time: u64, round: u32, line: &[u8]) -> std::io::Result<()> {
        // Two rounds without a sample settle as much as many do.
        for _ in 0..round.wrapping_sub(self.round).min(2) {
            self.flush_to(self.settled)?;
            self.settled = self.newest;
        }
        self.round = round;
        self.newest = self.newest.max(time);
        self.late += u64::from(time < self.printed);
        self.waiting.insert((time, self.next), line.into());
        self.next += 1;
        self.bytes += line.len();
        while self.bytes > self.most {
            self.first()?;
        }
        Ok(())
    }

    fn first(&mut self) -> std::io::Result<()> {
        let Some(((time, _), line)) = self.waiting.pop_first() else {
            self.bytes = 0;
            return Ok(());
        };
        self.bytes -= line.len();
        self.printed = self.printed.max(time);
        self.out.write_all(&line)
    }

    fn flush_to(&mut self, time: u64) -> std::io::Result<()> {
        while self.waiting.first_key_value().is_some_and(|((first, _), _)| *first <= time) {
            self.first()?;
        }
        Ok(())
    }

    /// Prints all that waits.
    pub(super) fn flush(&mut self) -> std::io::Result<()> {
        self.flush_to(u64::MAX)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#[path = "../../../../tests/cli/unit/commands/script/order.rs"]
mod tests;
