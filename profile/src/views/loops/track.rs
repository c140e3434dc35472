//! Tracks each thread into, around and out of loops.

use super::describe::{Ground, describe};
use super::graph::Ends;
use super::inside::{Active, Inside};
use super::{Loop, Loops};
use crate::clean::few::Few;
use crate::clean::{ByThread, CommonResult, Continuity};
use crate::read::add;
use crate::read::stack::{EntryFlags, Thread};
use crate::views::walk::{Edge, Edges, Follow, Frames, Part, Returned, Step, Transfer, touch};

#[derive(Debug)]
struct Running {
    frames: Frames<Inside>,
    /// Of its last stack.
    weight: u64,
    clock: u64,
    untimed: u64,
}

/// Walks over the recording with known loops.
#[derive(Debug)]
pub(super) struct Tracker {
    ground: Ground,
    /// The loops, of which only the counts are filled.
    seen: Vec<Loop>,
    threads: ByThread<Running>,
    /// Exits and rounds in the current stack, by loop.
    here: Few<(u64, u64)>,
    /// By loop: how often a frame was found in it and in no inner loop, and whether one made a call
    /// before another event in the loop.
    found: Vec<(u64, bool)>,
    weight: u64,
    /// Whether the current step counts for the estimate.
    counts: bool,
}

impl Tracker {
    pub(super) fn new(ground: Ground) -> Tracker {
        let seen = vec![Loop::default(); ground.forest.loops.len()];
        let found = vec![(0, false); seen.len()];
        let (threads, here) = (ByThread::default(), Few::default());
        Tracker { ground, seen, threads, here, found, weight: 1, counts: false }
    }

    /// Prefetches the data that steps will need.
    fn touch(&self, steps: &[Step], edges: &Edges) {
        let Ground { graph, forest, .. } = &self.ground;
        let to = |edge: usize| graph.ends.get(edge).map_or(0, |ends| ends.to as usize);
        touch(steps, |edge| to(edge) as u64 ^ edges.get(edge).map_or(0, |edge| edge.to));
        touch(steps, |edge| forest.innermost(to(edge)).unwrap_or(0) as u64);
    }

    /// Ends the tracking of a thread.
    fn lose(&mut self, running: Running) {
        // Loops without events have no data.
        for active in running.frames.into_frames().flat_map(|inside| inside.active) {
            let tested = self.ground.tests.get(active.number).copied().flatten().is_some();
            let at_least = active.arrivals.saturating_sub(u64::from(tested));
            self.stay(&active, at_least, running.weight);
        }
    }

    /// Counts an entry whose end is not known, and its minimum of trips.
    fn stay(&mut self, active: &Active, at_least: u64, weight: u64) {
        let Some(seen) = self.seen.get_mut(active.number) else { return };
        match active.entry_seen {
            true => seen.trips.add_open(at_least, weight),
            false => seen.longest_headless = seen.longest_headless.max(at_least),
        }
    }

    fn count(&mut self, number: usize, exits: u64, rounds: u64) {
        if !self.counts {
            return;
        }
        let (y, r) = self.here.at(number as u32);
        *y += exits;
        *r += rounds;
    }

    /// Ends a loop that is left from a node.
    fn leave(&mut self, active: Active, source: usize) {
        let tested = self.ground.tests.get(active.number).copied().flatten() == Some(source);
        let trips = active.arrivals.saturating_sub(u64::from(tested));
        self.count(active.number, 1, u64::from(!tested));
        if let Some(seen) = self.seen.get_mut(active.number) {
            match active.entry_seen {
                true => seen.trips.add(trips, self.weight),
                false => seen.longest_headless = seen.longest_headless.max(trips),
            }
        }
    }

    /// Ends all loops of a frame that is left from a node.
    fn leave_all(&mut self, inside: Inside, source: usize) {
        for active in inside.active {
            self.leave(active, source);
        }
        self.leave_found(inside.found, None, source);
    }

    /// Ends loops without events that a frame was found in, and that are left from a node: the
    /// first of these and its enclosing loops, up to the second.
    fn leave_found(&mut self, from: Option<usize>, until: Option<usize>, source: usize) {
        let mut at = from;
        while let Some(number) = at.filter(|_| at != until) {
            let tested = self.ground.tests.get(number).copied().flatten() == Some(source);
            self.count(number, 1, u64::from(!tested));
            at = self.ground.forest.around(number);
        }
    }

    /// The frame of a thread found at a node, with the loops that contain the node: their entry was
    /// not recorded.
    fn found_at(&mut self, node: usize, start: bool) -> Inside {
        let Ground { forest, graph, .. } = &self.ground;
        let innermost = forest.innermost(node);
        if !start {
            if let Some((found, _)) = innermost.and_then(|number| self.found.get_mut(number)) {
                *found = found.saturating_add(self.weight);
            }
            return Inside { found: innermost, ..Inside::default() };
        }
        let mut inside = Inside::default();
        for number in forest.chain(innermost) {
            // From its start the thread ran to here without a taken branch: past the head.
            let shape = forest.loops.get(number);
            let past = shape.is_some_and(|shape| graph.is_backward(node, shape.head));
            if let Some(seen) = self.seen.get_mut(number).filter(|_| !past) {
                seen.headless = seen.headless.saturating_add(self.weight);
            }
            inside.active.push(Active { arrivals: u64::from(past), ..Active::new(number, past) });
        }
        inside.active.reverse();
        inside
    }

    /// Adds the data of loops that frames were found in.
    fn add_found(&mut self) {
        // Outer loops come before inner ones.
        for number in (0..self.found.len()).rev() {
            let (found, calls) = self.found[number];
            add(&mut self.seen[number].headless, found);
            self.seen[number].calls |= calls;
            if let Some(around) = self.ground.forest.around(number) {
                add(&mut self.found[around].0, found);
                self.found[around].1 |= calls;
            }
        }
    }

    /// Control reaches a node, maybe by a branch that closes a loop.
    fn arrive(&mut self, running: &mut Running, node: usize, source: usize, closes: Option<u32>) {
        let ground = &self.ground;
        let innermost = ground.forest.innermost(node);
        let headed = ground.forest.headed_by(node);
        let inside = running.frames.top();
        // Usually nothing changes.
        if headed.is_none() && closes.is_none() && inside.innermost() == innermost {
            return;
        }
        let mut left: Vec<Active> = Vec::new();
        while let Some(active) =
            inside.active.pop_if(|active| !ground.forest.is_in(innermost, active.number))
        {
            left.push(active);
        }
        let found = inside.found;
        if inside.active.is_empty() {
            let still = |number: &usize| ground.forest.is_in(innermost, *number);
            inside.found = ground.forest.chain(found).find(still);
        }
        let (still, known) = (inside.found, inside.active.len());
        let around = inside.innermost();
        let new = ground.forest.chain(innermost).take_while(|number| Some(*number) != around);
        inside.active.extend(new.map(|number| Active::new(number, true)));
        if let Some(entered) = inside.active.get_mut(known..) {
            entered.reverse();
        }
        // The loop of this head is the innermost one here.
        let inside_before = inside.active.len() <= known;
        if headed.is_some()
            && let Some(active) = inside.last_mut(&ground.forest)
        {
            active.arrivals = active.arrivals.saturating_add(1);
        }
        let again = headed.filter(|_| inside_before);
        if let Some(number) = closes.map(|number| number as usize)
            && let Some(active) = inside.find_mut(&ground.forest, number)
        {
            let now = (running.clock, running.untimed);
            let before = active.closed.replace(now).filter(|before| before.1 == now.1);
            if let (Some(before), Some(seen)) = (before, self.seen.get_mut(number)) {
                let cycles = u32::try_from(now.0 - before.0).unwrap_or(u32::MAX);
                seen.cycles.add(cycles, self.weight);
            }
        }
        for active in left {
            self.leave(active, source);
        }
        self.leave_found(found, still, source);
        if let Some(number) = again {
            if let Some(seen) = self.seen.get_mut(number) {
                seen.rounds = seen.rounds.saturating_add(self.weight);
            }
            self.count(number, 0, 1);
        }
    }

    /// Control fell through from one node to another.
    fn run(&mut self, running: &mut Running, from: usize, to: usize) {
        let mut at = from;
        while let Some(next) = self.ground.forest.next_mark(at).filter(|next| *next <= to) {
            self.arrive(running, next, next - 1, None);
            at = next;
        }
    }

    fn branch(&mut self, running: &mut Running, number: usize, edge: &Edge) {
        let Some(&Ends { from, to, closes }) = self.ground.graph.ends.get(number) else { return };
        let (from, to) = (from as usize, to as usize);
        match edge.kind {
            Transfer::Call => {
                // The enclosing frames made calls earlier.
                let inside = running.frames.top();
                for active in &inside.active {
                    if let Some(seen) = self.seen.get_mut(active.number) {
                        seen.calls = true;
                    }
                }
                if let Some((_, calls)) = inside.found.and_then(|at| self.found.get_mut(at)) {
                    *calls = true;
                }
                if let Some(forgotten) = running.frames.call(edge.from, Inside::default()) {
                    for active in forgotten.active {
                        self.stay(&active, active.arrivals, self.weight);
                    }
                }
                self.arrive(running, to, from, closes);
            }
            Transfer::Return => match running.frames.ret(edge.to) {
                Returned::To(at) => {
                    for inside in running.frames.close(at) {
                        self.leave_all(inside, from);
                    }
                    self.arrive(running, to, from, closes);
                }
                Returned::Underflow => {
                    let caller = self.found_at(to, false);
                    self.leave_all(std::mem::replace(running.frames.top(), caller), from);
                }
                Returned::Unmatched => self.arrive(running, to, from, closes),
            },
            _ => self.arrive(running, to, from, closes),
        }
    }

    /// The loops with their trips, after the last stack.
    pub(super) fn finish(mut self, edges: Edges, whole: CommonResult) -> Loops {
        for (_, running) in std::mem::take(&mut self.threads) {
            self.lose(running);
        }
        self.add_found();
        let complete = whole.is_complete();
        let (taken, distinct) = edges.totals(&whole.maps);
        Loops {
            loops: describe(&edges, &self.ground, self.seen, complete, &whole.maps),
            taken,
            distinct,
            filtered: whole.gaps.filtered,
            broken: whole.gaps.unjoined(),
            complete,
            quality: whole.quality,
            maps: whole.maps,
        }
    }
}

impl Follow for Tracker {
    fn exit(&mut self, thread: Thread) {
        if let Some(running) = self.threads.remove(&thread) {
            self.lose(running);
        }
    }

    fn part(&mut self, part: Part, steps: &[Step], edges: &Edges) {
        self.weight = part.weight;
        self.touch(steps, edges);
        let mut running = self.threads.remove(&part.thread);
        if part.joins != Continuity::Before
            && let Some(running) = running.take()
        {
            self.lose(running);
        }
        if let Some(joined) = &mut running {
            joined.weight = part.weight;
        }
        for step in steps {
            let Some(edge) = edges.get(step.edge) else { continue };
            let ends = &self.ground.graph.ends;
            let Some(from) = ends.get(step.edge).map(|ends| ends.from as usize) else { continue };
            let before = step.before.and_then(|before| ends.get(before));
            let before = before.map(|before| before.to as usize);
            self.counts = before.is_some();
            match (&mut running, before) {
                (Some(thread), Some(before)) => self.run(thread, before, from),
                (lost, _) => {
                    let start = lost.is_none() && part.joins == Continuity::Start;
                    if let Some(lost) = lost.take() {
                        self.lose(lost);
                    }
                    let frames = Frames::new(self.found_at(from, start));
                    *lost = Some(Running { frames, weight: part.weight, clock: 0, untimed: 0 });
                }
            }
            let Some(thread) = &mut running else { continue };
            match step.cycles {
                Some(cycles) if cycles < EntryFlags::MAX_CYCLES => {
                    thread.clock = thread.clock.saturating_add(u64::from(cycles));
                }
                _ => thread.untimed += 1,
            }
            self.branch(thread, step.edge, edge);
        }
        for (number, (exits, rounds)) in self.here.drain() {
            self.seen[number as usize].exits.add(part.weight, exits + rounds, exits);
        }
        match running {
            Some(running) if part.goes_on => {
                self.threads.insert(part.thread, running);
            }
            Some(running) => self.lose(running),
            None => {}
        }
    }
}
