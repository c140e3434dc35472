//! A thread's contexts: its program, and the signal handlers that interrupt it.
//!
//! To a view, a handler runs as if it were a thread: the frames, loops and paths of the interrupted
//! code continue when it returns.

use super::{Edges, Step, Visit};
use crate::clean::{ByThread, Cleaned, ContextChange, Continuity};
use crate::code::maps::Maps;
use crate::read::stack::Thread;

/// Threads with interrupted code, or whose last stack had any.
#[derive(Debug, Default)]
pub(super) struct Contexts(ByThread<Context>);

/// The current context of a thread, and those that it interrupts.
#[derive(Clone, Debug)]
pub(super) struct Context {
    /// Newest branch of each interrupted context, outermost first.
    interrupted: Vec<Option<usize>>,
    /// Newest branch of the current one.
    pub(super) last: Option<usize>,
    /// How its next branch continues it.
    pub(super) joins: Continuity,
}

/// The parts of one stack, each of one context.
pub(super) struct Parts<'a> {
    stack: &'a Cleaned<'a>,
    changes: &'a [ContextChange],
    pub(super) context: Context,
    /// The context was known before this stack.
    pub(super) is_known: bool,
}

impl Contexts {
    /// Starts a stack, whose previous branch is `before`.
    pub(super) fn begin<'a>(&mut self, stack: &'a Cleaned<'a>, before: Option<usize>) -> Parts<'a> {
        let known = if self.0.is_empty() { None } else { self.0.remove(&stack.thread) };
        let known = known.filter(|_| stack.joins == Continuity::Before);
        let is_known = known.is_some();
        let context = known.unwrap_or_else(|| Context {
            interrupted: Vec::new(),
            last: before,
            joins: stack.joins,
        });
        Parts { stack, changes: stack.contexts, context, is_known }
    }

    /// Keeps the context in which a stack ends.
    pub(super) fn keep(&mut self, stack: &Cleaned<'_>, ended: Context) {
        let differs = !ended.interrupted.is_empty() || !stack.contexts.is_empty();
        if differs && stack.goes_on {
            self.0.insert(stack.thread, ended);
        }
    }
}

impl Parts<'_> {
    /// The next change before the transition `at`.
    pub(super) fn next_before(&mut self, at: usize) -> Option<ContextChange> {
        let (first, rest) = self.changes.split_first()?;
        if first.at > at {
            return None;
        }
        self.changes = rest;
        Some(*first)
    }

    /// Passes the steps of the current context to a view, and changes it.
    pub(super) fn visit<V: Visit>(
        &mut self,
        visit: &mut V,
        steps: &mut Vec<Step>,
        edges: &Edges,
        maps: &mut Maps,
        change: Option<ContextChange>,
    ) {
        // Views count empty stacks too.
        if !steps.is_empty() || self.stack.contexts.is_empty() {
            let goes_on = change.map_or(self.stack.goes_on, |change| change.goes_on);
            let thread = thread(self.stack.thread, self.context.interrupted.len());
            let mut part = *self.stack;
            (part.thread, part.joins, part.goes_on) = (thread, self.context.joins, goes_on);
            visit.stack(&part, steps, edges, maps);
            steps.clear();
            self.context.joins = Continuity::Before;
        }
        if let Some(change) = change {
            self.context.change(change);
        }
    }
}

impl Context {
    fn change(&mut self, change: ContextChange) {
        let ContextChange { depth, joins, goes_on, .. } = change;
        self.joins = joins;
        if goes_on {
            self.interrupted.push(self.last.take());
            // Of too many nested handlers, the outermost are forgotten.
            let forgotten = self.interrupted.len().saturating_sub(depth);
            self.interrupted.drain(..forgotten);
            return;
        }
        self.last = None;
        if joins == Continuity::Before {
            self.interrupted.truncate(depth + 1);
            self.last = self.interrupted.pop().flatten();
        }
        self.interrupted.truncate(depth);
    }
}

/// The number of a context, as if it were a thread: Linux's thread numbers have 22 bits.
fn thread((pid, tid): Thread, depth: usize) -> Thread {
    (pid, tid.map(|tid| tid | (depth as u32) << 24))
}
