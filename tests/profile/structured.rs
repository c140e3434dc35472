//! Random programs of loops, conditions, switches and calls, interpreted here: their behaviour is
//! known without analysing branches.

use std::collections::BTreeMap;

use lbr_msr::record::BranchType;

use crate::support::random::Random;

/// A taken branch.
pub(crate) type Branch = (u64, u64, BranchType);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// Tested at the bottom: one trip at least.
    Bottom,
    /// Tested at the top.
    Top,
    /// Entered at the test below the body.
    Turned,
}

#[derive(Clone, Debug)]
enum Statement {
    Straight(u64),
    Loop { form: Form, most: usize, leaves: bool, body: Vec<Statement> },
    If(Vec<Statement>),
    Switch(usize),
    Call(usize),
}

/// A statement with its address.
#[derive(Clone, Debug)]
struct Placed {
    at: u64,
    end: u64,
    what: Statement,
    inner: Vec<Placed>,
}

/// A program.
pub(crate) struct Structured {
    functions: Vec<Vec<Placed>>,
    random: Random,
    /// Branches taken so far, in order.
    pub(crate) trace: Vec<Branch>,
    /// Trip counts with their number of entries, by head address.
    pub(crate) trips: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// Branches taken by stack of functions.
    pub(crate) stacks: BTreeMap<Vec<u64>, u64>,
    open: Vec<u64>,
    budget: usize,
}

/// Functions call only later ones, except for this many recursions in a row.
const RECURSION: usize = 40;

impl Structured {
    pub(crate) fn new(seed: u64, budget: usize) -> Structured {
        let mut random = Random(seed);
        let count = 2 + random.below(4);
        let mut at = 0x10_0000;
        let mut functions = Vec::new();
        for function in 0..count {
            let body = block(&mut random, 3, function, count);
            let mut placed = Vec::new();
            at = place(body, at, &mut placed);
            functions.push(placed);
            // The return, and some room.
            at += 0x40;
        }
        Structured {
            functions,
            random,
            trace: Vec::new(),
            trips: BTreeMap::new(),
            stacks: BTreeMap::new(),
            open: Vec::new(),
            budget,
        }
    }

    /// A program whose `main` runs these loops in sequence, repeatedly: number of the form, most
    /// trips, whether it can exit from the middle.
    pub(crate) fn of_loops(seed: u64, budget: usize, loops: &[(u8, usize, bool)]) -> Structured {
        let one = |&(form, most, leaves): &(u8, usize, bool)| Statement::Loop {
            form: [Form::Bottom, Form::Top, Form::Turned][usize::from(form)],
            most,
            leaves,
            body: vec![Statement::Straight(3), Statement::If(vec![Statement::Straight(2)])],
        };
        let mut placed = Vec::new();
        place(loops.iter().map(one).collect(), 0x10_0000, &mut placed);
        let mut program = Structured::new(seed, budget);
        program.functions = vec![placed];
        program
    }

    fn entry(&self, function: usize) -> u64 {
        // One byte before the first statement.
        self.functions[function].first().map_or(0, |first| first.at) - 1
    }

    fn end(&self, function: usize) -> u64 {
        self.functions[function].last().unwrap().end
    }

    /// Runs it repeatedly until there are enough branches, from and to an address outside every
    /// function.
    pub(crate) fn run(&mut self) {
        let start = 0x1000;
        self.open = vec![start];
        while self.trace.len() < self.budget {
            self.call(start, 0, 0);
            self.take(start + 6, start, BranchType::UNCOND);
        }
    }

    fn take(&mut self, from: u64, to: u64, kind: BranchType) {
        self.trace.push((from, to, kind));
        *self.stacks.entry(self.open.clone()).or_default() += 1;
    }

    fn call(&mut self, at: u64, function: usize, depth: usize) {
        let entry = self.entry(function);
        self.take(at, entry, BranchType::CALL);
        self.open.push(entry);
        let body = self.functions[function].clone();
        self.statements(&body, None, depth);
        self.take(self.end(function), at + 5, BranchType::RET);
        self.open.pop();
    }

    /// Whether a loop exited from its middle.
    fn statements(&mut self, block: &[Placed], exit: Option<u64>, depth: usize) -> bool {
        for (index, placed) in block.iter().enumerate() {
            let at = placed.at;
            match &placed.what {
                Statement::Straight(_) => {}
                Statement::If(_) => {
                    if self.random.below(2) == 0 {
                        self.take(at, placed.end, BranchType::COND);
                    } else if self.statements(&placed.inner, exit, depth) {
                        return true;
                    }
                }
                Statement::Switch(cases) => {
                    let case = self.random.below(*cases) as u64;
                    self.take(at, at + 2 + 4 * case, BranchType::IND);
                    self.take(at + 4 + 4 * case, placed.end - 1, BranchType::UNCOND);
                }
                Statement::Call(function) => {
                    let enough = self.trace.len() > self.budget || depth > RECURSION;
                    if !enough && self.random.below(3) > 0 {
                        self.call(at, *function, depth + 1);
                    } else {
                        self.take(at, placed.end, BranchType::UNCOND);
                    }
                }
                Statement::Loop { form, most, leaves, .. } => {
                    self.round(placed, *form, *most, *leaves, depth);
                }
            }
            // The possible exit of a loop: after its first statement.
            if let Some(exit) = exit.filter(|_| index == 0)
                && self.random.below(12) == 0
            {
                self.take(placed.end, exit, BranchType::COND);
                return true;
            }
        }
        false
    }

    fn round(&mut self, placed: &Placed, form: Form, most: usize, leaves: bool, depth: usize) {
        let (at, end) = (placed.at, placed.end);
        let exit = leaves.then_some(end);
        let wanted = self.random.below(most + 1) as u64;
        let wanted = if form == Form::Bottom { wanted.max(1) } else { wanted };
        let mut trips = 0;
        let bottom = end - 3;
        match form {
            Form::Bottom => loop {
                trips += 1;
                // The first branch of the body is not an exit.
                self.take(at + 1, at + 4, BranchType::UNCOND);
                if self.statements(&placed.inner, exit, depth) {
                    break;
                }
                if trips == wanted {
                    break;
                }
                self.take(bottom, at, BranchType::COND);
            },
            Form::Top => loop {
                if trips == wanted {
                    self.take(at + 1, end, BranchType::COND);
                    break;
                }
                trips += 1;
                if self.statements(&placed.inner, exit, depth) {
                    break;
                }
                self.take(bottom, at, BranchType::UNCOND);
            },
            Form::Turned => {
                self.take(at, bottom - 2, BranchType::UNCOND);
                while trips < wanted {
                    self.take(bottom, at + 2, BranchType::COND);
                    trips += 1;
                    if self.statements(&placed.inner, exit, depth) {
                        break;
                    }
                }
            }
        }
        let head = if form == Form::Turned { bottom - 2 } else { at };
        *self.trips.entry(head).or_default().entry(trips).or_default() += 1;
    }
}

fn block(random: &mut Random, depth: usize, function: usize, functions: usize) -> Vec<Statement> {
    (0..1 + random.below(3))
        .map(|_| match random.below(if depth > 0 { 9 } else { 4 }) {
            0 => Statement::Straight(1 + random.below(20) as u64),
            1 => Statement::Switch(2 + random.below(3)),
            2 if function + 1 < functions => {
                Statement::Call(function + 1 + random.below(functions - function - 1))
            }
            3 => Statement::Call(function),
            4 if depth > 0 => Statement::If(block(random, depth - 1, function, functions)),
            5.. => Statement::Loop {
                form: [Form::Bottom, Form::Top, Form::Turned][random.below(3)],
                most: [1, 2, 3, 9, 40][random.below(5)],
                leaves: random.below(3) == 0,
                body: block(random, depth - 1, function, functions),
            },
            _ => Statement::Straight(7),
        })
        .collect()
}

/// Assigns addresses to statements. Returns the end address.
fn place(block: Vec<Statement>, at: u64, placed: &mut Vec<Placed>) -> u64 {
    // A separating byte, so that no two addresses are equal.
    let mut at = at + 1;
    for what in block {
        let mut inner = Vec::new();
        let end = match &what {
            Statement::Straight(bytes) => at + bytes,
            Statement::If(body) => place(body.clone(), at + 2, &mut inner) + 1,
            Statement::Switch(cases) => at + 2 + 4 * *cases as u64 + 2,
            Statement::Call(_) => at + 8,
            // Head, code before the body, the body, the back edge.
            Statement::Loop { body, .. } => place(body.clone(), at + 4, &mut inner) + 8,
        };
        placed.push(Placed { at, end, what, inner });
        // The branch that can exit a loop comes after a statement.
        at = end + 4;
    }
    at
}
