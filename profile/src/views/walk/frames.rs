//! Which call a return belongs to.

use std::collections::VecDeque;

/// Longest instruction, bytes: a return goes to at most this far behind its
/// call.
const LONGEST_INSN: u64 = 15;
/// Frames that are kept: a recursion deeper than this loses its outermost.
const DEEPEST: usize = 1 << 16;

/// Whether `to` can be where a call at `call` returns to. Interrupts return to
/// the very address that they were taken at.
pub(crate) fn returns_behind(call: u64, to: u64) -> bool {
    to.checked_sub(call).is_some_and(|length| length <= LONGEST_INSN)
}

/// The calls that are open, the innermost last, each with what belongs to the
/// callee. The bottom frame is the one that was running when nothing was known
/// yet.
#[derive(Clone, Debug)]
pub(crate) struct Frames<T> {
    bottom: T,
    open: VecDeque<(u64, T)>,
}

/// What a return did.
#[derive(Debug)]
pub(crate) enum Returned<T> {
    /// Closed these frames, the innermost first: the last one is the call's
    /// that it belongs to, those before were never returned from.
    Closed(Vec<T>),
    /// Left the bottom frame: its caller was not seen calling.
    Underflow,
    /// It belongs to no open call: code that pushes its target and returns
    /// to it.
    Unmatched,
}

impl<T> Frames<T> {
    pub(crate) fn new(bottom: T) -> Frames<T> {
        Frames { bottom, open: VecDeque::new() }
    }

    /// The frame that runs.
    pub(crate) fn top(&mut self) -> &mut T {
        match self.open.back_mut() {
            Some((_, frame)) => frame,
            None => &mut self.bottom,
        }
    }

    /// A call. The frame that became too many, if one did.
    pub(crate) fn call(&mut self, from: u64, frame: T) -> Option<T> {
        self.open.push_back((from, frame));
        if self.open.len() <= DEEPEST {
            return None;
        }
        let (_, outermost) = self.open.pop_front()?;
        Some(std::mem::replace(&mut self.bottom, outermost))
    }

    /// A return to an address.
    pub(crate) fn ret(&mut self, to: u64) -> Returned<T> {
        if self.open.is_empty() {
            return Returned::Underflow;
        }
        match (0..self.open.len())
            .rev()
            .find(|&at| self.open.get(at).is_some_and(|(call, _)| returns_behind(*call, to)))
        {
            Some(at) => Returned::Closed(self.close(at)),
            None => Returned::Unmatched,
        }
    }

    /// Closes all frames from this one on, the innermost first.
    pub(crate) fn close(&mut self, from: usize) -> Vec<T> {
        let from = from.min(self.open.len());
        self.open.drain(from..).rev().map(|(_, frame)| frame).collect()
    }

    /// Open calls.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    /// The frames from the outermost to the one that runs.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        std::iter::once(&self.bottom).chain(self.open.iter().map(|(_, frame)| frame))
    }

    /// Every frame, the innermost first.
    pub(crate) fn into_frames(mut self) -> Vec<T> {
        let mut all = self.close(0);
        all.push(self.bottom);
        all
    }
}
