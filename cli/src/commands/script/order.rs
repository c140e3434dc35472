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
#[derive(Debug)]
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
mod tests {
    use super::Ordered;

    fn text(ordered: Ordered<Vec<u8>>) -> String {
        String::from_utf8(ordered.out).unwrap()
    }

    /// A round is held until the next but one starts; equal times keep the order of the file.
    #[test]
    fn two_rounds_wait() {
        let mut ordered = Ordered::new(Vec::new());
        for (time, round, line) in [(10, 0, "a"), (30, 0, "c"), (20, 0, "b"), (25, 1, "B")] {
            ordered.line(time, round, line.as_bytes()).unwrap();
        }
        assert_eq!(ordered.out, b"");
        ordered.line(30, 1, b"C").unwrap();
        ordered.line(50, 2, b"e").unwrap();
        assert_eq!(ordered.out, b"abBcC");
        ordered.line(40, 2, b"d").unwrap();
        ordered.flush().unwrap();
        assert_eq!(ordered.late, 0);
        assert_eq!(text(ordered), "abBcCde");
    }

    /// Without ends of rounds the buffer is bounded: it prints early, and counts samples that come
    /// too late.
    #[test]
    fn waiting_has_a_limit() {
        let mut ordered = Ordered { most: 2, ..Ordered::new(Vec::new()) };
        for (time, line) in [(3, "c"), (1, "a"), (4, "d"), (2, "b"), (0, "-")] {
            ordered.line(time, 0, line.as_bytes()).unwrap();
        }
        ordered.flush().unwrap();
        assert_eq!(ordered.late, 1);
        assert_eq!(text(ordered), "ab-cd");
    }
}
