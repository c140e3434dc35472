//! Finds the call that a return belongs to.

use std::collections::VecDeque;

use lbr_msr::insn::Isa;

/// Maximum number of frames: a deeper recursion loses its outermost ones.
const DEEPEST: usize = 1 << 16;

/// Whether `to` can be the return address of a call at `call`. Interrupts return to the address at
/// which they occurred.
pub(crate) fn returns_after(call: u64, to: u64) -> bool {
    to.checked_sub(call).is_some_and(|length| length <= Isa::X86_64.longest().into())
}

/// The open calls, innermost last, each with the data of the callee. The bottom frame is the one
/// that was running at the start.
#[derive(Clone, Debug)]
pub(crate) struct Frames<T> {
    bottom: T,
    open: VecDeque<(u64, T)>,
}

/// Where a return leads.
#[derive(Debug)]
pub(crate) enum Returned {
    /// To after this open call: it and the calls inside it, which never return, are to be
    /// [closed](Frames::close).
    To(usize),
    /// Out of the bottom frame, whose call was not recorded.
    Underflow,
    /// It matches no open call: code that pushes an address and returns to it.
    Unmatched,
}

impl<T> Frames<T> {
    pub(crate) fn new(bottom: T) -> Frames<T> {
        Frames { bottom, open: VecDeque::new() }
    }

    /// The current frame.
    pub(crate) fn top(&mut self) -> &mut T {
        match self.open.back_mut() {
            Some((_, frame)) => frame,
            None => &mut self.bottom,
        }
    }

    /// Adds a call. Returns the frame beyond the limit, if any.
    pub(crate) fn call(&mut self, from: u64, frame: T) -> Option<T> {
        self.open.push_back((from, frame));
        if self.open.len() <= DEEPEST {
            return None;
        }
        let (_, outermost) = self.open.pop_front()?;
        Some(std::mem::replace(&mut self.bottom, outermost))
    }

    /// A return to an address.
    pub(crate) fn ret(&self, to: u64) -> Returned {
        if self.open.is_empty() {
            return Returned::Underflow;
        }
        let call = self.open.iter().rposition(|(call, _)| returns_after(*call, to));
        call.map_or(Returned::Unmatched, Returned::To)
    }

    /// Closes the calls from this one on: their frames, innermost first.
    pub(crate) fn close(&mut self, from: usize) -> impl ExactSizeIterator<Item = T> {
        let from = from.min(self.open.len());
        self.open.drain(from..).rev().map(|(_, frame)| frame)
    }

    /// Number of open calls.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    /// The frames from the outermost to the current one.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        std::iter::once(&self.bottom).chain(self.open.iter().map(|(_, frame)| frame))
    }

    /// Every frame, innermost first.
    pub(crate) fn into_frames(self) -> impl Iterator<Item = T> {
        self.open.into_iter().rev().map(|(_, frame)| frame).chain([self.bottom])
    }
}
