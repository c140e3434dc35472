//! The loops that contain a thread's frame.

use super::forest::Forest;

/// A loop that a frame is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Active {
    pub(super) number: usize,
    /// Number of times the head was reached.
    pub(super) arrivals: u64,
    pub(super) entry_seen: bool,
    /// The clock at the last back edge, and the number of entries without cycles before it.
    pub(super) closed: Option<(u64, u64)>,
}

impl Active {
    pub(super) fn new(number: usize, entry_seen: bool) -> Active {
        Active { number, arrivals: 0, entry_seen, closed: None }
    }
}

/// The loops that contain a frame. Most stacks start inside loops and end before any event in the
/// outer ones, so these are not stored one by one.
#[derive(Clone, Debug, Default)]
pub(super) struct Inside {
    /// The frame was found in this loop and its enclosing loops, and none of them had an event yet.
    /// They enclose the active ones.
    pub(super) found: Option<usize>,
    /// Active loops, innermost last.
    pub(super) active: Vec<Active>,
}

impl Inside {
    pub(super) fn innermost(&self) -> Option<usize> {
        self.active.last().map(|active| active.number).or(self.found)
    }

    /// The innermost one, for changes.
    pub(super) fn last_mut(&mut self, forest: &Forest) -> Option<&mut Active> {
        if self.active.is_empty()
            && let Some(number) = self.found
        {
            self.found = forest.around(number);
            self.active.push(Active::new(number, false));
        }
        self.active.last_mut()
    }

    /// The loop with a number, for changes.
    pub(super) fn find_mut(&mut self, forest: &Forest, number: usize) -> Option<&mut Active> {
        if forest.is_in(self.found, number) {
            let outside = forest.around(number);
            let now = forest.chain(self.found).take_while(|at| Some(*at) != outside);
            let now: Vec<Active> = now.map(|at| Active::new(at, false)).collect();
            drop(self.active.splice(0..0, now.into_iter().rev()));
            self.found = outside;
        }
        self.active.iter_mut().rev().find(|active| active.number == number)
    }
}
