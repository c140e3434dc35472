//! A program that is generated at test time: a random graph of branches, with its path computed by
//! a walk over the graph.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::support::skip::{skipped, tool};

/// Multiplier of a 64-bit congruential generator that fits an immediate of 32
/// bits, as the program's IMUL has it.
const MULTIPLIER: u64 = 0x5851_F42D;
const INCREMENT: u64 = 0x1405_7B7F;

/// How a block ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// JC to a block if this bit is set, else on to the next block.
    Cond(u32, usize),
    /// JMP.
    Jump(usize),
    /// JMP through a table of four, chosen by two bits.
    Table(u32, [usize; 4]),
    /// CALL of a leaf, and on to the next block.
    Call(usize),
    /// CALL through a register.
    IndirectCall(usize),
}

/// A program of blocks.
#[derive(Debug)]
pub struct Graph {
    blocks: Vec<End>,
    seed: u64,
    rounds: u64,
    /// Rounds at the start that take long.
    slow: u64,
    /// Bytes that a slow round stores.
    bytes: u32,
}

/// A stream of numbers from a seed. SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}

const LEAVES: usize = 4;

impl Graph {
    pub fn random(seed: u64, rounds: u64, slow: u64) -> Graph {
        let mut random = Random(seed);
        let count = 24;
        let blocks = (0..count)
            .map(|n| {
                let bit = 20 + random.below(40) as u32;
                let mut block = || random.below(count);
                let (a, b, c, d) = (block(), block(), block(), block());
                match random.below(8) {
                    0 => End::Jump(a),
                    1 => End::Table(bit, [a, b, c, d]),
                    2 => End::Call(a % LEAVES),
                    3 => End::IndirectCall(a % LEAVES),
                    // The machine cannot tell whether a conditional branch to
                    // the next instruction is taken.
                    _ if a == n + 1 => End::Cond(bit, n),
                    _ => End::Cond(bit, a),
                }
            })
            .collect();
        Graph { blocks, seed, rounds, slow, bytes: 60_000 }
    }

    /// Another program each time, built as `name`; a failure prints its seed, which LBR_GRAPH_SEED
    /// repeats. `None`, with a message, if there is no compiler. The first `slow` rounds take long,
    /// because each stores many bytes.
    pub fn seeded(
        rounds: u64,
        (slow, bytes): (u64, u32),
        folder: &Path,
        name: &str,
    ) -> Option<(Graph, PathBuf)> {
        let given = std::env::var("LBR_GRAPH_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| u64::from(std::process::id()));
        eprintln!("LBR_GRAPH_SEED={seed}");
        let graph = Graph { bytes, ..Graph::random(seed, rounds, slow) };
        let file = graph.build(folder, name);
        if file.is_none() {
            skipped("no cc to assemble the program with");
        }
        Some((graph, file?))
    }

    /// Its source for the assembler.
    pub fn source(&self) -> String {
        // Nothing faults on the way, or the block of code that does would be
        // counted twice: the stack stays in a page that is there, and the tables
        // are mapped with the code.
        let mut s = String::from(".globl _start\n.text\n_start: or $0xff8, %rsp\n");
        let (seed, rounds, bytes) = (self.seed, self.rounds, self.bytes);
        let fast = self.rounds - self.slow;
        writeln!(s, " movabs $0x{seed:x}, %r12\n mov ${rounds}, %r13\n mov ${bytes}, %r15d")
            .unwrap();
        writeln!(s, " movabs $0x{INCREMENT:x}, %r11").unwrap();
        for (n, end) in self.blocks.iter().enumerate() {
            writeln!(s, "b{n}: dec %r13\n jz done\n xor %ecx, %ecx\n cmp ${fast}, %r13").unwrap();
            writeln!(s, " cmovae %r15, %rcx\n lea buffer(%rip), %rdi\n rep stosb").unwrap();
            writeln!(s, " imul $0x{MULTIPLIER:x}, %r12, %r12\n add %r11, %r12").unwrap();
            let next = (n + 1) % self.blocks.len();
            match end {
                End::Cond(bit, to) => writeln!(s, " bt ${bit}, %r12\n jc b{to}"),
                End::Jump(to) => writeln!(s, " jmp b{to}"),
                End::Call(leaf) => writeln!(s, " call f{leaf}"),
                End::IndirectCall(leaf) => writeln!(s, " lea f{leaf}(%rip), %rax\n call *%rax"),
                End::Table(bit, _) => writeln!(
                    s,
                    " mov %r12, %rax\n shr ${bit}, %rax\n and $3, %eax\n \
                     lea table{n}(%rip), %rdx\n jmp *(%rdx,%rax,8)"
                ),
            }
            .unwrap();
            if next == 0 {
                s.push_str("last: jmp b0\n");
            }
        }
        s.push_str("done: mov $60, %eax\n mov $9, %edi\n syscall\n");
        for leaf in 0..LEAVES {
            writeln!(s, "f{leaf}: lea {leaf}(%rax), %rbx\n ret").unwrap();
        }
        s.push_str(".balign 8\n");
        for (n, end) in self.blocks.iter().enumerate() {
            if let End::Table(_, to) = end {
                let [a, b, c, d] = to;
                writeln!(s, "table{n}: .quad b{a}, b{b}, b{c}, b{d}").unwrap();
            }
        }
        writeln!(s, ".bss\n.balign 64\nbuffer: .skip {}", self.bytes).unwrap();
        s
    }

    /// Assembles and links it; `None` without a compiler.
    pub fn build(&self, folder: &Path, name: &str) -> Option<PathBuf> {
        let (source, program) = (folder.join(format!("{name}.S")), folder.join(name));
        std::fs::write(&source, self.source()).unwrap();
        let cc = tool("cc")
            .args(["-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-o"])
            .args([&program, &source])
            .status()
            .ok()?;
        assert!(cc.success(), "the assembler takes it");
        Some(program)
    }

    /// The taken branches of a run, as labels: from the branch that ends a
    /// block, to where it goes.
    pub fn path(&self) -> Vec<Edge> {
        let mut path = Vec::new();
        let (mut value, mut left, mut at) = (self.seed, self.rounds, 0);
        loop {
            left -= 1;
            if left == 0 {
                path.push(Edge::Done(at));
                return path;
            }
            value = value.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
            let mut next = (at + 1) % self.blocks.len();
            let mut wraps = next == 0;
            match self.blocks[at] {
                End::Cond(bit, to) => {
                    if value >> bit & 1 != 0 {
                        path.push(Edge::Block(at, to));
                        (next, wraps) = (to, false);
                    }
                }
                End::Jump(to) => {
                    path.push(Edge::Block(at, to));
                    (next, wraps) = (to, false);
                }
                End::Table(bit, to) => {
                    let to = to[(value >> bit & 3) as usize];
                    path.push(Edge::Block(at, to));
                    (next, wraps) = (to, false);
                }
                End::Call(leaf) | End::IndirectCall(leaf) => {
                    path.push(Edge::Call(at, leaf));
                    path.push(Edge::Return(leaf, at));
                }
            }
            if wraps {
                path.push(Edge::Last);
            }
            at = next;
        }
    }
}

/// A taken branch, by the labels of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The end of a block, to a block.
    Block(usize, usize),
    /// The end of a block, to a leaf.
    Call(usize, usize),
    /// A leaf's return, to the instruction after the call that ends a block.
    Return(usize, usize),
    /// From the end of the last block to the first.
    Last,
    /// The way out, from a block's start.
    Done(usize),
}
