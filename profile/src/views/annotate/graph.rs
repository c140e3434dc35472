//! The control-flow graph of an annotated function: executed basic blocks, and the recorded edges
//! between them.

use std::collections::HashMap;

use lbr_msr::record::BranchType;

use super::{Annotated, BasicBlock, Target};
use crate::read::add;

/// A control-flow graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Nodes; the function's first block is the first one if it was executed.
    pub nodes: Vec<Node>,
    /// Edges, in the order of their source.
    pub edges: Vec<Edge>,
    /// Basic blocks without a recorded execution. Those next to executed code are folded into
    /// [`Node::Folded`], the others have no node.
    pub cold: usize,
}

/// A node of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A basic block.
    Block(BasicBlock),
    /// Connected basic blocks without a recorded execution.
    Folded {
        /// The number of blocks.
        blocks: usize,
    },
    /// Code outside the function, as one block of the function reaches it.
    Outside(Target),
}

/// An edge of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// Index of the source node.
    pub from: usize,
    /// Index of the target node.
    pub to: usize,
    /// How control gets there.
    pub kind: EdgeKind,
    /// Times taken or fallen through; `None` if the recording does not tell.
    pub count: Option<u64>,
    /// Mispredicted of the taken executions of the branch, 0 to 1; `None` if unknown.
    pub mispredicted: Option<f64>,
    /// Whether it closes a cycle, in a depth-first search from the function's entry.
    pub back: bool,
    /// For a back edge, mean executions of its target per entry into the loop.
    pub trips: Option<f64>,
}

/// How control passes along an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    /// A taken jump.
    Taken,
    /// No branch, or one that was not taken.
    FallThrough,
    /// A call.
    Call,
    /// A return into the function itself.
    Return,
    /// From a call to the instruction after it; not an entry of the recording.
    AfterCall,
}

impl Annotated {
    /// Its control-flow graph.
    pub fn graph(&self) -> Graph {
        let blocks = self.basic_blocks();
        // A function that was never seen to run is shown whole.
        let all = self.executed() == 0;
        let is_shown = |at: &usize| all || blocks[*at].count.is_some_and(|count| count > 0);
        let shown: Vec<usize> = (0..blocks.len()).filter(is_shown).collect();
        let mut nodes = vec![None; blocks.len()];
        shown.iter().enumerate().for_each(|(node, at)| nodes[*at] = Some(node));
        let graph = Graph {
            nodes: shown.iter().map(|at| Node::Block(blocks[*at])).collect(),
            cold: blocks.len() - shown.len(),
            ..Graph::default()
        };
        let mut builder = Builder { annotated: self, blocks, nodes, near: HashMap::new(), graph };
        builder.join_cold();
        shown.into_iter().enumerate().for_each(|(from, at)| builder.leave(at, from));
        mark_back_edges(&mut builder.graph);
        builder.graph
    }
}

struct Builder<'a> {
    annotated: &'a Annotated,
    blocks: Vec<BasicBlock>,
    /// The node of each executed block, and of the others that an edge leads to.
    nodes: Vec<Option<usize>>,
    /// The unexecuted blocks that an unexecuted block is connected to.
    near: HashMap<usize, Vec<usize>>,
    graph: Graph,
}

impl<'a> Builder<'a> {
    /// The block that starts at an instruction.
    fn block_at(&self, first: usize) -> Option<usize> {
        self.blocks.binary_search_by_key(&first, |block| block.first).ok()
    }

    /// The blocks that the code of a block can lead to.
    fn successors(&self, at: usize) -> impl Iterator<Item = usize> {
        let block = self.blocks[at];
        let branch = self.last(&block).and_then(|insn| insn.branch.as_ref());
        let target = branch.and_then(|branch| branch.target.as_ref()?.inside);
        let falls = branch.is_none_or(|branch| branch.conditional || is_call(branch.branch_type));
        let next = falls.then_some(block.end);
        target.into_iter().chain(next).filter_map(|first| self.block_at(first))
    }

    fn last(&self, block: &BasicBlock) -> Option<&'a super::Instruction> {
        self.annotated.instructions.get(block.end.checked_sub(1)?)
    }

    /// Finds the connections of the unexecuted code.
    fn join_cold(&mut self) {
        let mut near: HashMap<usize, Vec<usize>> = HashMap::new();
        for at in (0..self.blocks.len()).filter(|at| self.nodes[*at].is_none()) {
            for to in self.successors(at).filter(|to| self.nodes[*to].is_none()) {
                near.entry(at).or_default().push(to);
                near.entry(to).or_default().push(at);
            }
        }
        self.near = near;
    }

    /// The node of a block. When an edge first leads to unexecuted code, everything connected with
    /// it gets one node.
    fn node(&mut self, at: usize) -> usize {
        if let Some(node) = self.nodes[at] {
            return node;
        }
        let node = self.graph.nodes.len();
        let (mut open, mut blocks) = (vec![at], 0);
        while let Some(at) = open.pop() {
            if self.nodes[at].replace(node).is_none() {
                blocks += 1;
                open.extend(self.near.get(&at).into_iter().flatten());
            }
        }
        self.graph.nodes.push(Node::Folded { blocks });
        node
    }

    /// The edges that leave a block.
    fn leave(&mut self, at: usize, from: usize) {
        let block = self.blocks[at];
        let Some(insn) = self.last(&block) else { return };
        let next = self.block_at(block.end);
        let Some(branch) = &insn.branch else {
            self.edge(from, next, EdgeKind::FallThrough, insn.count, None);
            return;
        };
        let kind = match branch.branch_type {
            kind if is_call(kind) => EdgeKind::Call,
            BranchType::RET | BranchType::COND_RET => EdgeKind::Return,
            _ => EdgeKind::Taken,
        };
        let missed = branch.mispredicted.map(|missed| missed as f64 / branch.known as f64);
        for went in &branch.went {
            let inside = went.target.inside.and_then(|first| self.block_at(first));
            match inside {
                Some(_) => self.edge(from, inside, kind, Some(went.count), missed),
                // A caller has its own graph.
                None if kind == EdgeKind::Return => {}
                None => {
                    let to = self.graph.nodes.len();
                    self.graph.nodes.push(Node::Outside(went.target.clone()));
                    let (count, mispredicted) = (Some(went.count), missed);
                    let edge =
                        Edge { from, to, kind, count, mispredicted, back: false, trips: None };
                    self.graph.edges.push(edge);
                }
            }
        }
        let never = branch
            .target
            .as_ref()
            .filter(|target| branch.went.iter().all(|went| went.target.address != target.address));
        if let Some(inside) = never.and_then(|target| target.inside) {
            let inside = self.block_at(inside);
            self.edge(from, inside, kind, self.annotated.exact.then_some(0), None);
        }
        if kind == EdgeKind::Call {
            self.edge(from, next, EdgeKind::AfterCall, None, None);
        } else if branch.conditional {
            self.edge(from, next, EdgeKind::FallThrough, Some(branch.not_taken), None);
        }
    }

    fn edge(
        &mut self,
        from: usize,
        block: Option<usize>,
        kind: EdgeKind,
        count: Option<u64>,
        mispredicted: Option<f64>,
    ) {
        if let Some(to) = block.map(|block| self.node(block)) {
            let (back, trips) = (false, None);
            self.graph.edges.push(Edge { from, to, kind, count, mispredicted, back, trips });
        }
    }
}

/// Whether control is expected to come back to the next instruction.
fn is_call(kind: BranchType) -> bool {
    matches!(
        kind,
        BranchType::CALL | BranchType::IND_CALL | BranchType::COND_CALL | BranchType::SYSCALL
    )
}

/// Marks the edges that close a cycle, without recursion: a function can have many blocks.
fn mark_back_edges(graph: &mut Graph) {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let mut leaving: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes.len()];
    for (at, edge) in graph.edges.iter().enumerate() {
        leaving[edge.from].push(at);
    }
    let mut states = vec![State::New; graph.nodes.len()];
    for root in 0..graph.nodes.len() {
        if states[root] != State::New {
            continue;
        }
        states[root] = State::Open;
        let mut path = vec![(root, 0)];
        while let Some((node, next)) = path.last_mut() {
            let Some(&at) = leaving[*node].get(*next) else {
                states[*node] = State::Done;
                path.pop();
                continue;
            };
            *next += 1;
            let to = graph.edges[at].to;
            match states[to] {
                State::New => {
                    states[to] = State::Open;
                    path.push((to, 0));
                }
                State::Open => graph.edges[at].back = true,
                State::Done => {}
            }
        }
    }
    let mut again: HashMap<usize, u64> = HashMap::new();
    for edge in graph.edges.iter().filter(|edge| edge.back) {
        add(again.entry(edge.to).or_default(), edge.count.unwrap_or(0));
    }
    for edge in graph.edges.iter_mut().filter(|edge| edge.back) {
        let Some(Node::Block(BasicBlock { count: Some(count), .. })) = graph.nodes.get(edge.to)
        else {
            continue;
        };
        let entries = count.saturating_sub(again.get(&edge.to).copied().unwrap_or(0));
        edge.trips = (entries > 0).then(|| *count as f64 / entries as f64);
    }
}
