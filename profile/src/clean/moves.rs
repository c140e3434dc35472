//! Straight-line code at the start and the end of a thread, and where a signal interrupts it.
//!
//! Code that a signal interrupts continues when the handler returns, so it is one block. Code that
//! never continues, because the thread ends or the handler leaves by `siglongjmp`, ends at the last
//! executed instruction.

use std::collections::VecDeque;

use lbr_msr::record::{MoveKind, ThreadMove};

use crate::code::maps::Maps;
use crate::code::straight;
use crate::read::LONGEST_BLOCK;
use crate::read::note::Moves;

/// Maximum number of interrupted blocks kept for a thread. Those of handlers that never return stay
/// until the thread ends.
const NESTING: usize = 64;

/// How a stack's oldest branch continues the thread's earlier branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuity {
    /// It directly follows the newest branch of the thread's previous stack.
    Before,
    /// It is the thread's first branch since recording started.
    Start,
    /// Unknown.
    No,
}

/// Code that a signal interrupted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interrupted {
    /// Its first instruction; `None` if unknown.
    entry: Option<u64>,
    /// The first instruction that did not execute.
    from: u64,
    /// The branch at `from` did execute, and is recorded when the handler returns.
    at_branch: bool,
}

/// A change of context: a signal handler interrupts code, which continues when the handler returns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContextChange {
    /// Number of the stack's transitions before it.
    pub(crate) at: usize,
    /// Number of interrupted contexts after it.
    pub(crate) depth: usize,
    /// How the context after it begins.
    pub(crate) joins: Continuity,
    /// Whether the context before it may continue.
    pub(crate) goes_on: bool,
}

/// Code of one stack that no branch ended.
#[derive(Debug, Default)]
pub(super) struct Cuts {
    /// The first instruction of each piece, and the first one after it that did not execute.
    pieces: Vec<(u64, u64)>,
    /// Starts of straight-line code whose end is unknown.
    pub(super) open: Vec<u64>,
    /// Changes of context, the oldest first.
    pub(super) contexts: Vec<ContextChange>,
}

/// Follows the moves of one stack, the oldest first.
pub(super) struct Passage<'a> {
    pub(super) moves: Moves<'a>,
    pub(super) interrupted: &'a mut VecDeque<Interrupted>,
    pub(super) cuts: &'a mut Cuts,
}

impl Passage<'_> {
    /// Follows the moves before the stack's `newer` newest entries. `entry` is the start of the
    /// current code. Returns its new start; `None` without moves.
    #[inline]
    pub(super) fn before(
        &mut self,
        newer: u64,
        entry: Option<u64>,
        at: usize,
    ) -> Option<Option<u64>> {
        if self.moves.is_empty() { None } else { self.pass(newer, entry, at) }
    }

    #[cold]
    fn pass(&mut self, newer: u64, mut entry: Option<u64>, at: usize) -> Option<Option<u64>> {
        let mut moved = None;
        while let Some(next) = self.moves.iter().next().filter(|m| u64::from(m.newer) >= newer) {
            self.moves = Moves(self.moves.0.get(1..).unwrap_or_default());
            entry = self.take(next, entry, at);
            moved = Some(entry);
        }
        moved
    }

    fn take(&mut self, moved: ThreadMove, entry: Option<u64>, at: usize) -> Option<u64> {
        let ThreadMove { kind, from, to, .. } = moved;
        let (mut joins, goes_on) = match kind {
            MoveKind::Start => (Continuity::Start, false),
            MoveKind::Signal | MoveKind::SignalAtBranch => (Continuity::Start, true),
            MoveKind::End | MoveKind::Return | MoveKind::Unknown => (Continuity::No, false),
        };
        let entry = match kind {
            MoveKind::Start => {
                self.abandon(0);
                Some(to)
            }
            MoveKind::End => {
                self.cuts.end(entry, from);
                self.abandon(0);
                None
            }
            MoveKind::Signal | MoveKind::SignalAtBranch => {
                if self.interrupted.len() == NESTING
                    && let Some(oldest) = self.interrupted.pop_front()
                {
                    self.cuts.leave(oldest);
                }
                let at_branch = kind == MoveKind::SignalAtBranch;
                self.interrupted.push_back(Interrupted { entry, from, at_branch });
                Some(to)
            }
            MoveKind::Return => {
                self.cuts.end(entry, from);
                let mut all = self.interrupted.iter();
                let back = all.rposition(|interrupted| interrupted.from == to);
                // A handler may continue its program elsewhere.
                self.abandon(back.map_or(self.interrupted.len().saturating_sub(1), |at| at + 1));
                match back.and_then(|_| self.interrupted.pop_back()) {
                    Some(interrupted) => {
                        joins = Continuity::Before;
                        interrupted.entry
                    }
                    None => Some(to),
                }
            }
            MoveKind::Unknown => {
                self.cuts.open.extend(entry);
                Some(to).filter(|to| *to != 0)
            }
        };
        let depth = self.interrupted.len();
        self.cuts.contexts.push(ContextChange { at, depth, joins, goes_on });
        entry
    }

    /// Ends interrupted code that does not continue: all but the outermost `keep`.
    fn abandon(&mut self, keep: usize) {
        while self.interrupted.len() > keep {
            let Some(interrupted) = self.interrupted.pop_back() else { return };
            self.cuts.leave(interrupted);
        }
    }
}

impl Cuts {
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.open.clear();
        self.contexts.clear();
    }

    fn leave(&mut self, Interrupted { entry, from, at_branch }: Interrupted) {
        self.end(entry, from);
        self.open.extend(Some(from).filter(|_| at_branch));
    }

    fn end(&mut self, entry: Option<u64>, end: u64) {
        self.pieces.extend(entry.filter(|entry| *entry != end).map(|entry| (entry, end)));
    }

    /// Converts each piece to its first instruction and the distance of its last one. Without code
    /// bytes the last one is unknown, and the piece is dropped.
    pub(super) fn ended(&mut self, space: u32, maps: &mut Maps, ended: &mut Vec<(u64, u32, u32)>) {
        for (entry, end) in self.pieces.drain(..) {
            if end.wrapping_sub(entry) > LONGEST_BLOCK {
                continue;
            }
            let location = maps.locate(space as usize, entry);
            let last =
                straight::each_instruction(maps, location, entry, end.wrapping_sub(1), |_, _| ());
            ended.extend(last.map(|last| (entry, last.wrapping_sub(entry) as u32, space)));
        }
    }
}
