//! The branches of the first pass by number, in order, for a second pass.
//!
//! A branch is usually followed by the branch that followed it first. Such a step only extends a
//! run; any other one takes some three bytes.

use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::PathBuf;

use tempfile::SpooledTempFile;
use zstd::stream::read::Decoder;

use super::{Edges, Step};
use crate::clean::{Cleaned, Continuity};
use crate::read::stack::Thread;
use crate::varint;

/// Number of bytes that are compressed at once.
const PIECE: usize = if cfg!(any(test, fuzzing)) { 1 << 6 } else { 8 << 20 };
/// Number of compressed bytes in memory; more are in a temporary file.
const IN_MEMORY: usize = if cfg!(any(test, fuzzing)) { 1 << 7 } else { 8 << 20 };
/// Of zstd: the fastest.
const LEVEL: i32 = 1;

/// The branches of a long recording do not fit into a temporary file.
#[derive(Debug, thiserror::Error)]
#[error("cannot keep branches in a temporary file in {} (set TMPDIR to use another folder)", folder.display())]
pub struct SpillError {
    folder: PathBuf,
    source: io::Error,
}

impl From<io::Error> for SpillError {
    fn from(source: io::Error) -> SpillError {
        SpillError { folder: std::env::temp_dir(), source }
    }
}

/// Receives the stacks of a trace.
pub(crate) trait Follow {
    /// A stack, its steps oldest first, and the branches by number.
    fn part(&mut self, part: Part, steps: &[Step], edges: &Edges);
    /// A thread ended.
    fn exit(&mut self, _thread: Thread) {}
}

/// The properties of a stack that the second pass needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) thread: Thread,
    pub(crate) weight: u64,
    pub(crate) joins: Continuity,
    /// Whether the thread's next stack may continue it.
    pub(crate) goes_on: bool,
}

impl Part {
    pub(crate) fn of(stack: &Cleaned<'_>) -> Part {
        let Cleaned { thread, weight, joins, goes_on, .. } = *stack;
        Part { thread, weight, joins, goes_on }
    }
}

// The first byte of a stack.
/// [`Continuity::Before`].
const JOINED: u8 = 1;
const GOES_ON: u8 = 2;
/// Its thread differs from the previous stack's.
const OTHER_THREAD: u8 = 4;
const WEIGHTED: u8 = 8;
/// [`Continuity::Start`].
const STARTS: u8 = 32;
/// The cycles of each step follow the steps.
const TIMED: u8 = 64;
/// Not a stack: a thread ended.
const EXIT: u8 = 128;

// The lowest bits of a number. That of a step says which step is before it; the others are its edge.
const NONE: u64 = 0;
const PREVIOUS: u64 = 1;
const OTHER: u64 = 2;
/// The others are the number of steps that extend a run.
const RUN: u64 = 3;

/// Stacks with their steps.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    bytes: Vec<u8>,
    /// The compressed bytes before them.
    packed: Option<SpooledTempFile>,
    /// Why nothing more is kept.
    failed: Option<io::Error>,
    has_cycles: bool,
    thread: Thread,
    successors: Successors,
}

/// By branch, the one that followed it first.
#[derive(Debug, Default)]
struct Successors(Vec<u32>);

impl Successors {
    /// Whether `next` is the branch that followed `before` first. If there was none, it is now.
    #[inline]
    fn is_first(&mut self, before: usize, next: usize) -> bool {
        if self.0.len() <= before {
            self.0.resize(before + 1, u32::MAX);
        }
        match self.0.get_mut(before) {
            Some(first) if *first == u32::MAX => {
                *first = next as u32;
                false
            }
            first => first.is_some_and(|first| *first as usize == next),
        }
    }

    fn first(&self, before: usize) -> Option<usize> {
        self.0.get(before).map(|first| *first as usize)
    }
}

impl Trace {
    /// Keeps cycles too.
    pub(crate) fn with_cycles() -> Trace {
        Trace { has_cycles: true, ..Trace::default() }
    }

    pub(crate) fn exit(&mut self, thread: Thread) {
        self.bytes.push(EXIT);
        self.ids(thread);
        self.pack_if_long();
    }

    fn ids(&mut self, (pid, tid): Thread) {
        for id in [pid, tid] {
            self.number(id.map_or(0, |id| u64::from(id) + 1));
        }
    }

    pub(crate) fn stack(&mut self, part: Part, steps: &[Step]) {
        let other = part.thread != self.thread;
        let is_timed = self.has_cycles && steps.iter().any(|step| step.cycles.is_some());
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        self.bytes.push(
            flag(part.joins == Continuity::Before, JOINED)
                | flag(part.joins == Continuity::Start, STARTS)
                | flag(is_timed, TIMED)
                | flag(part.goes_on, GOES_ON)
                | flag(other, OTHER_THREAD)
                | flag(part.weight != 1, WEIGHTED),
        );
        if other {
            self.thread = part.thread;
            self.ids(part.thread);
        }
        if part.weight != 1 {
            self.number(part.weight);
        }
        self.number(steps.len() as u64);
        let mut previous = None;
        let mut run = 0;
        for Step { edge, before, .. } in steps {
            let follows = before.filter(|before| previous == Some(*before));
            previous = Some(*edge);
            if follows.is_some_and(|before| self.successors.is_first(before, *edge)) {
                run += 1;
                continue;
            }
            self.run(std::mem::take(&mut run));
            let (kind, other) = match (follows, before) {
                (Some(_), _) => (PREVIOUS, None),
                (None, Some(before)) => (OTHER, Some(*before)),
                (None, None) => (NONE, None),
            };
            self.number((*edge as u64) << 2 | kind);
            if let Some(before) = other {
                self.number(before as u64);
            }
        }
        self.run(run);
        if is_timed {
            for step in steps {
                self.number(step.cycles.map_or(0, |cycles| u64::from(cycles) + 1));
            }
        }
        self.pack_if_long();
    }

    fn pack_if_long(&mut self) {
        if self.bytes.len() >= PIECE {
            self.pack();
        }
    }

    /// Moves the bytes so far to the compressed ones.
    fn pack(&mut self) {
        if self.failed.is_none() {
            let packed = self.packed.get_or_insert_with(|| SpooledTempFile::new(IN_MEMORY));
            self.failed = zstd::stream::copy_encode(self.bytes.as_slice(), packed, LEVEL).err();
        }
        self.bytes.clear();
    }

    fn run(&mut self, steps: u64) {
        if steps > 0 {
            self.number(steps << 2 | RUN);
        }
    }

    #[inline]
    fn number(&mut self, number: u64) {
        varint::push(&mut self.bytes, number);
    }

    /// Passes everything on, in order.
    ///
    /// # Errors
    /// [`SpillError`].
    pub(crate) fn replay(
        mut self,
        edges: &Edges,
        follow: &mut impl Follow,
    ) -> Result<(), SpillError> {
        if self.packed.is_some() {
            self.pack();
        }
        if let Some(failed) = self.failed {
            return Err(failed.into());
        }
        let (mut bytes, mut replay) = (self.bytes, Replay::default());
        let Some(mut packed) = self.packed else {
            replay.stacks(&bytes, edges, follow);
            return Ok(());
        };
        packed.rewind()?;
        let mut packed = BufReader::new(packed);
        while !packed.fill_buf()?.is_empty() {
            bytes.clear();
            Decoder::with_buffer(&mut packed)?.single_frame().read_to_end(&mut bytes)?;
            replay.stacks(&bytes, edges, follow);
        }
        Ok(())
    }
}

/// Reads a trace.
#[derive(Default)]
struct Replay {
    thread: Thread,
    successors: Successors,
    steps: Vec<Step>,
}

impl Replay {
    fn stacks(&mut self, bytes: &[u8], edges: &Edges, follow: &mut impl Follow) {
        let Replay { thread, successors, steps } = self;
        let mut bytes = bytes.iter().copied();
        while let Some(flags) = bytes.next() {
            let mut ids = || {
                let mut id = || varint::take(&mut bytes).checked_sub(1).map(|id| id as u32);
                (id(), id())
            };
            if flags == EXIT {
                follow.exit(ids());
                continue;
            }
            if flags & OTHER_THREAD != 0 {
                *thread = ids();
            }
            let part = Part {
                thread: *thread,
                weight: if flags & WEIGHTED != 0 { varint::take(&mut bytes) } else { 1 },
                joins: match (flags & JOINED, flags & STARTS) {
                    (0, 0) => Continuity::No,
                    (0, _) => Continuity::Start,
                    _ => Continuity::Before,
                },
                goes_on: flags & GOES_ON != 0,
            };
            steps.clear();
            let (mut left, mut previous) = (varint::take(&mut bytes), None);
            while left > 0 {
                let word = varint::take(&mut bytes);
                if word & 3 == RUN {
                    let run = (word >> 2).min(left);
                    for _ in 0..run {
                        let next = previous.and_then(|before| successors.first(before));
                        let edge = next.unwrap_or_default();
                        steps.push(step(edge, previous));
                        previous = Some(edge);
                    }
                    left -= run;
                    continue;
                }
                let edge = (word >> 2) as usize;
                let before = match word & 3 {
                    PREVIOUS => previous,
                    OTHER => Some(varint::take(&mut bytes) as usize),
                    _ => None,
                };
                if word & 3 == PREVIOUS
                    && let Some(before) = before
                {
                    successors.is_first(before, edge);
                }
                steps.push(step(edge, before));
                previous = Some(edge);
                left -= 1;
            }
            if flags & TIMED != 0 {
                for step in &mut *steps {
                    let cycles = varint::take(&mut bytes).checked_sub(1);
                    step.cycles = cycles.map(|cycles| cycles as u32);
                }
            }
            follow.part(part, steps, edges);
        }
    }
}

/// A second pass needs no more of a step, and the cycles where they are kept.
fn step(edge: usize, before: Option<usize>) -> Step {
    Step { edge, before, follows: before.is_some(), cycles: None }
}

#[cfg(test)]
#[path = "../../../../tests/profile/unit/views/walk/trace.rs"]
mod tests;
