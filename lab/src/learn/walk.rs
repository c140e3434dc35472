//! Simulates a lesson's program: decodes instructions as a CPU would, and takes outcomes that
//! depend on data from the lesson's marks.

use std::collections::HashMap;

use lbr_msr::insn::{self, BranchInsn, Insn, Isa};
use lbr_msr::record::HwBranchType;
use lbr_msr::soft::{Model, Retired};

use super::program::{Line, Mark};
use super::{Did, Program, Step, Trace};

/// Limit of steps, above any lesson's.
const MOST: usize = 2000;

impl Trace {
    /// Runs a program from its first instruction to the return of the function that starts there.
    pub fn of(program: Program) -> Trace {
        let mut walk = Walk::new(&program);
        while walk.steps.len() < MOST && walk.step().is_some() {}
        let (steps, end) = (walk.steps, walk.ip);
        Trace { program, steps, end }
    }
}

/// The pattern's element for the `run`th execution, counted from 1.
fn nth<T>(pattern: &[T], run: u32) -> Option<&T> {
    pattern.get((run as usize - 1).checked_rem(pattern.len())?)
}

struct Walk<'a> {
    program: &'a Program,
    ip: u64,
    kernel: bool,
    /// Return addresses, innermost last.
    calls: Vec<u64>,
    /// Return addresses of kernel entries, each with whether it returns into the kernel.
    entries: Vec<(u64, bool)>,
    /// The fallback address, in a transaction.
    fallback: Option<u64>,
    /// Executions of each instruction, and the last execution that an event preceded.
    runs: HashMap<u64, u32>,
    due: HashMap<u64, u32>,
    model: Model,
    steps: Vec<Step>,
}

impl<'a> Walk<'a> {
    fn new(program: &'a Program) -> Walk<'a> {
        Walk {
            program,
            ip: program.lines.first().map_or(0, |line| line.address),
            kernel: false,
            calls: Vec::new(),
            entries: Vec::new(),
            fallback: None,
            runs: HashMap::new(),
            due: HashMap::new(),
            model: Model::default(),
            steps: Vec::new(),
        }
    }

    /// Executes one instruction, or the event before it; `None` at the end.
    fn step(&mut self) -> Option<()> {
        let line = self.program.at(self.ip)?;
        if line.marks.contains(&Mark::Stop) {
            return None;
        }
        if self.comes_before(line).is_some() {
            return Some(());
        }
        self.model.tick(1);
        let run = *self.runs.entry(self.ip).and_modify(|run| *run += 1).or_insert(1);
        let next = self.ip + line.bytes.len() as u64;
        let isa = self.program.isa;
        if isa == Isa::X86_64
            && let Some(fallback) = insn::abort_target(&line.bytes, self.ip)
        {
            self.fallback = Some(fallback);
        }
        let did = match isa.decode(&line.bytes, self.ip) {
            Insn::Branch(branch) => self.branch(line, &branch, run)?,
            _ => match (line.text.split(' ').next(), self.fallback) {
                (Some("xabort"), Some(fallback)) => {
                    self.fallback = None;
                    let branch = Retired {
                        abort: true,
                        in_tx: true,
                        ..self.to(fallback, HwBranchType::Other)
                    };
                    Did::Branch(self.take(branch, next))
                }
                (Some("xend"), _) => {
                    self.fallback = None;
                    self.go_on(next)
                }
                _ => self.go_on(next),
            },
        };
        self.steps.push(Step { at: line.address, did });
        Some(())
    }

    /// An interrupt or event before the next execution of an instruction.
    fn comes_before(&mut self, line: &Line) -> Option<()> {
        let run = self.runs.get(&self.ip).copied().unwrap_or(0) + 1;
        // Once per execution, although the event returns to this same instruction.
        if self.due.insert(self.ip, run) == Some(run) {
            return None;
        }
        let did = line.marks.iter().find_map(|mark| match mark {
            Mark::Interrupt(handler, runs) if runs.contains(&run) => {
                self.entries.push((self.ip, self.kernel));
                let branch = self.to(*handler, HwBranchType::Other);
                Some(Did::Interrupt(self.take(Retired { cpl_after: 0, ..branch }, line.address)))
            }
            Mark::Event(event, runs) if runs.contains(&run) => Some(Did::Event(*event)),
            _ => None,
        })?;
        self.steps.push(Step { at: line.address, did });
        Some(())
    }

    fn branch(&mut self, line: &Line, branch: &BranchInsn, run: u32) -> Option<Did> {
        let mark = line.marks.iter().find(|mark| matches!(mark, Mark::Taken(_) | Mark::To(_)));
        let class = branch.class;
        let to = match (class, mark) {
            (HwBranchType::Cond, Some(Mark::Taken(pattern))) if !*nth(pattern, run)? => {
                let mispredicted = self.model.not_taken(branch.ip, branch.next());
                self.ip = branch.next();
                return Some(Did::FellThrough { mispredicted });
            }
            (_, Some(Mark::To(places))) => *nth(places, run)?,
            (HwBranchType::Ret, _) => self.calls.pop()?,
            (HwBranchType::Other, _) => return self.far(branch),
            _ => branch.target?,
        };
        if matches!(class, HwBranchType::RelCall | HwBranchType::IndCall)
            && !branch.is_zero_length_call()
        {
            self.calls.push(branch.next());
        }
        let mut retired = self.to(to, class);
        retired.zero_length_call = branch.is_zero_length_call();
        Some(Did::Branch(self.take(retired, branch.next())))
    }

    /// A system call or a return from the kernel.
    fn far(&mut self, branch: &BranchInsn) -> Option<Did> {
        let (to, kernel) = if self.kernel {
            self.entries.pop()?
        } else {
            self.entries.push((branch.next(), false));
            (self.program.address_of("entry")?, true)
        };
        let mut retired = self.to(to, branch.class);
        retired.cpl_after = if kernel { 0 } else { 3 };
        Some(Did::Branch(self.take(retired, branch.next())))
    }

    fn to(&self, to: u64, class: HwBranchType) -> Retired {
        let ring = if self.kernel { 0 } else { 3 };
        Retired {
            cpl_before: ring,
            cpl_after: ring,
            in_tx: self.fallback.is_some(),
            ..Retired::user(self.ip, to, class)
        }
    }

    /// Takes a branch. `next` is the address of the instruction after it.
    fn take(&mut self, branch: Retired, next: u64) -> Retired {
        self.ip = branch.to;
        self.kernel = branch.cpl_after == 0;
        let modelled = self.model.taken(branch.from, next, branch.class, branch.to);
        modelled.of(branch)
    }

    fn go_on(&mut self, next: u64) -> Did {
        self.ip = next;
        Did::Straight
    }
}
