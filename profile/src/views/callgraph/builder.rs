//! Builds the tree of calling contexts from stacks.

use std::num::NonZero;

use lbr_msr::record::Event;

use super::stitch::{Before, Frame, Missing, Stitched};
use super::tree::{NOBODY, ROOT, Tree};
use super::{CallGraph, Passage, Unit};
use crate::clean::{ByThread, Cleaned, CommonResult, Continuity, RecordedBranches};
use crate::code::maps::Maps;
use crate::read::KERNEL;
use crate::read::add;
use crate::read::note::Source;
use crate::views::walk::{Edge, Edges, Frames, Returned, Step, Transfer, Visit, touch};

/// Maximum number of threads whose last stack is remembered.
const THREADS: usize = 1 << 16;

/// Builds the tree, stack by stack.
#[derive(Debug, Default)]
pub(super) struct Builder {
    tree: Tree,
    passage: Passage,
    stitch: bool,
    /// Some stacks were taken in call-stack mode.
    snapshots: bool,
    before: ByThread<Before>,
    /// By branch number.
    ends: Vec<Ends>,
    /// The current context of each frame.
    running: ByThread<Frames<usize>>,
    deepest: usize,
    /// Outermost function of each thread, for stacks without an entry.
    outermost: ByThread<Outermost>,
}

/// A thread's outermost function, and the number of its empty stacks so far: samples without an
/// open call.
#[derive(Clone, Copy, Debug, Default)]
struct Outermost {
    function: Option<usize>,
    empty: u64,
}

/// The functions at a branch's target and source.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    target: Option<Target>,
    /// The context of the source function, if its caller is unknown.
    outermost: Option<NonZero<u32>>,
}

/// The function at a branch's target.
#[derive(Clone, Copy, Debug)]
struct Target {
    function: u32,
    named: bool,
    /// The target is the function's first address.
    at_first: bool,
}

impl Builder {
    /// `stitch` enables extending truncated stacks by earlier ones.
    pub(super) fn new(stitch: bool) -> Builder {
        Builder { tree: Tree::new(), stitch, ..Builder::default() }
    }

    /// Adds empty stacks to the outermost functions of their threads.
    fn count_empty(&mut self) {
        for (_, Outermost { function, empty }) in std::mem::take(&mut self.outermost) {
            if empty > 0 {
                let node = self.tree.child(ROOT, function.unwrap_or(NOBODY));
                self.tree.add(node, |node| &mut node.own, empty);
            }
        }
    }

    fn outermost_of_thread(&mut self, stack: &Cleaned<'_>) -> &mut Outermost {
        if self.outermost.len() >= THREADS && !self.outermost.contains_key(&stack.thread) {
            self.count_empty();
        }
        self.outermost.entry(stack.thread).or_default()
    }

    /// Adds a stack in call-stack mode.
    fn snapshot(&mut self, stack: &Cleaned<'_>, steps: &[Step], edges: &Edges, maps: &mut Maps) {
        let (head, weight) = (stack.head, stack.weight);
        self.snapshots = true;
        let mut frames: Vec<Frame> = Vec::with_capacity(steps.len());
        for step in steps.iter().rev() {
            let Some(&edge) = edges.get(step.edge) else { continue };
            let mut function = |addr| self.tree.function(maps, stack.space, addr).0;
            let (caller, callee) = (function(edge.from), function(edge.to));
            frames.push(Frame { from: edge.from, to: edge.to, caller, callee });
        }
        self.deepest = self.deepest.max(frames.len());
        let truncated = match head.source {
            // Another recorder's stack is probably as long as the LBR stack.
            Source::Unsaid => matches!((frames.len(), self.deepest), (32, _) | (16, 16)),
            Source::Hardware | Source::Software => head.integrity.truncated,
        };
        if truncated {
            add(&mut self.passage.truncated, weight);
        }
        if head.integrity.underflow {
            add(&mut self.passage.underflow, weight);
        }
        let missing = match (truncated, head.integrity.underflow) {
            (true, _) => Missing::Truncated,
            (false, true) => Missing::Underflow,
            (false, false) => Missing::Nothing,
        };
        let mut whole = missing == Missing::Nothing;
        if self.stitch {
            if self.before.len() >= THREADS && !self.before.contains_key(&stack.thread) {
                // Frames without a match count as truncated.
                self.before.clear();
            }
            let before = self.before.entry(stack.thread).or_default();
            match before.stitch(&mut frames, head.hw_idx, missing) {
                Stitched::Completed => {
                    add(&mut self.passage.completed, weight);
                    whole = true;
                }
                Stitched::Longer => add(&mut self.passage.lengthened, weight),
                Stitched::Whole | Stitched::Alone => {}
            }
        }
        let stood = head.ip.filter(|ip| *ip != 0);
        let innermost = frames.first().map(|frame| frame.to);
        let in_kernel = |addr: Option<u64>| addr.is_some_and(|addr| addr >= KERNEL);
        let mut path: Vec<usize> = frames.iter().rev().map(|frame| frame.caller).collect();
        let mut function = |addr| self.tree.function(maps, stack.space, addr).0;
        match (stood, innermost) {
            // The calls are the program's; the kernel was running on its behalf.
            (Some(ip), Some(to)) if in_kernel(stood) && !in_kernel(innermost) => {
                path.extend([function(to), function(ip)]);
            }
            (Some(addr), _) | (None, Some(addr)) => path.push(function(addr)),
            (None, None) => {
                add(&mut self.outermost_of_thread(stack).empty, weight);
                return;
            }
        }
        if let Some(outermost) = path.first().filter(|_| whole && !frames.is_empty()) {
            self.outermost_of_thread(stack).function.get_or_insert(*outermost);
        }
        let mut node = ROOT;
        if !whole {
            node = self.tree.child(node, NOBODY);
        }
        for function in path {
            node = self.tree.child(node, function);
        }
        self.tree.add(node, |node| &mut node.own, weight);
        if !frames.is_empty() {
            self.tree.add(node, |node| &mut node.moves, weight);
        }
    }

    /// Replays branches, or calls and returns.
    fn replay(&mut self, stack: &Cleaned<'_>, steps: &[Step], edges: &Edges, maps: &mut Maps) {
        let mut running = self.running.remove(&stack.thread);
        if stack.joins != Continuity::Before {
            running = None;
        }
        let (space, weight) = (stack.space, stack.weight);
        self.ends.resize(edges.list().len(), Ends::default());
        touch(steps, |edge| {
            self.ends.get(edge).map_or(0, |ends| u64::from(ends.outermost.is_some()))
        });
        for (index, step) in steps.iter().enumerate() {
            let Some(&edge) = edges.get(step.edge) else { continue };
            if !step.follows {
                running = None;
            }
            let frames = running.get_or_insert_with(|| {
                let begins = index == 0 && stack.joins == Continuity::Start;
                Frames::new(self.outermost_of(step.edge, &edge, begins, maps))
            });
            self.tree.add(*frames.top(), |node| &mut node.own, weight);
            let target = match self.ends.get(step.edge).and_then(|ends| ends.target) {
                Some(target) => target,
                None => {
                    let (function, offset) = self.tree.function(maps, space, edge.to);
                    let (named, at_first) =
                        (self.tree.named.get(function) == Some(&true), offset == 0);
                    let target = Target { function: function as u32, named, at_first };
                    if let Some(ends) = self.ends.get_mut(step.edge) {
                        ends.target = Some(target);
                    }
                    target
                }
            };
            if edge.kind == Transfer::Unknown {
                add(&mut self.passage.untyped, weight);
            }
            match edge.kind {
                Transfer::Call => {
                    let node = self.tree.child(*frames.top(), target.function as usize);
                    self.tree.add(node, |node| &mut node.calls, weight);
                    // Too deep: the outermost frame becomes the bottom.
                    let _ = frames.call(edge.from, node);
                    self.tree.add(node, |node| &mut node.moves, weight);
                }
                Transfer::Return => {
                    match frames.ret(edge.to) {
                        Returned::To(at) => drop(frames.close(at)),
                        Returned::Underflow => {
                            add(&mut self.passage.unseen_calls, weight);
                            *frames.top() = self.outermost(target.function as usize, false);
                        }
                        Returned::Unmatched => {
                            add(&mut self.passage.unmatched, weight);
                            self.jump(frames, target, weight);
                        }
                    }
                    if frames.depth() > 0 {
                        self.tree.add(*frames.top(), |node| &mut node.moves, weight);
                    }
                }
                _ => self.jump(frames, target, weight),
            }
        }
        if let Some(frames) = running.filter(|_| stack.goes_on) {
            self.running.insert(stack.thread, frames);
        }
    }

    /// A context whose caller is unknown.
    fn outermost(&mut self, function: usize, begins: bool) -> usize {
        let above = if begins { ROOT } else { self.tree.child(ROOT, NOBODY) };
        self.tree.child(above, function)
    }

    /// The context of a branch's source function, whose caller is unknown.
    fn outermost_of(&mut self, number: usize, edge: &Edge, begins: bool, maps: &mut Maps) -> usize {
        let known = self.ends.get(number).and_then(|ends| ends.outermost);
        if let Some(known) = known.filter(|_| !begins) {
            return known.get() as usize;
        }
        let (function, _) = self.tree.function(maps, edge.space, edge.from);
        let folded = self.tree.folded;
        let node = self.outermost(function, begins);
        // Without a stored context, it counts every time.
        if !begins
            && folded == self.tree.folded
            && let Some(ends) = self.ends.get_mut(number)
        {
            ends.outermost = u32::try_from(node).ok().and_then(NonZero::new);
        }
        node
    }

    /// Replays a jump: inside a function, to another one, or a longjmp.
    fn jump(&mut self, frames: &mut Frames<usize>, target: Target, weight: u64) {
        if !target.named {
            return;
        }
        let (node, function) = (*frames.top(), target.function as usize);
        let from = self.tree.function_of(node);
        if function == from || self.is_part(from, function) {
            return;
        }
        if target.at_first {
            add(&mut self.passage.tail_calls, weight);
            let node = self.tree.child(self.tree.parent(node), function);
            self.tree.add(node, |node| &mut node.calls, weight);
            *frames.top() = node;
            return;
        }
        let depth = frames.depth();
        let further_out = frames.iter().rev().skip(1);
        let at = further_out
            .enumerate()
            .find(|(_, node)| self.tree.function_of(**node) == function)
            .and_then(|(out, _)| depth.checked_sub(out + 1));
        if let Some(at) = at {
            let left = frames.close(at).len() as u64;
            add(&mut self.passage.unwound, left.saturating_mul(weight));
        }
    }

    /// Whether one function is the cold part of the other: compilers split off `f.cold`.
    fn is_part(&self, a: usize, b: usize) -> bool {
        let name = |function: usize| {
            let function = self.tree.functions.get(function)?;
            let name = function.name.as_deref()?;
            Some(name.strip_suffix(".cold").unwrap_or(name))
        };
        name(a).is_some_and(|a| Some(a) == name(b))
    }
}

impl Visit for Builder {
    type Table = CallGraph;

    fn stack(&mut self, stack: &Cleaned<'_>, steps: &[Step], edges: &Edges, maps: &mut Maps) {
        match stack.holds {
            RecordedBranches::CallStack => self.snapshot(stack, steps, edges, maps),
            RecordedBranches::Everything | RecordedBranches::CallsAndReturns => {
                self.replay(stack, steps, edges, maps)
            }
            RecordedBranches::Other => add(&mut self.passage.unusable, stack.weight),
        }
    }

    fn event(&mut self, event: &Event) {
        if let Event::Exit(task) = event {
            let thread = (Some(task.pid), Some(task.tid));
            self.running.remove(&thread);
            self.before.remove(&thread);
        }
    }

    fn next_recording(&mut self) {
        self.count_empty();
        self.running.clear();
        self.before.clear();
        self.deepest = 0;
    }

    fn finish(
        mut self,
        edges: Edges,
        CommonResult { quality, maps, .. }: CommonResult,
    ) -> CallGraph {
        self.count_empty();
        let Builder { mut tree, mut passage, snapshots, .. } = self;
        tree.add_up();
        passage.folded = tree.folded;
        let (entries, distinct) = edges.totals(&maps);
        CallGraph {
            nodes: tree.nodes,
            functions: tree.functions,
            unit: if snapshots { Unit::Stacks } else { Unit::Branches },
            passage,
            complete: !snapshots && quality.is_complete() && passage.unusable == 0,
            entries,
            distinct,
            quality,
            maps,
        }
    }
}
