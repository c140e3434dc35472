//! Traces any program: single-steps it, and reads the code between two branches from its memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use lbr_msr::disasm::{Disassembler, Syntax};
use lbr_msr::insn::{self, Insn};
use lbr_msr::record::{self, Mmap};
use lbr_msr::soft::{Model, Retired};
use nix::sys::ptrace::getregs;
use nix::unistd::Pid;
use sampler::gate::{Closed, Recorder, Retire};
use sampler::source::ptrace::{Ptrace, code};
use sampler::target::{Command, SourceError, ThreadId};

use super::{Did, Line, Program, Step, Trace};

/// Maximum number of bytes decoded between two branches.
const STRAIGHT: u64 = 4096;

/// A traced program.
#[derive(Debug)]
pub struct Own {
    /// The steps of its first thread in user mode.
    pub trace: Trace,
    /// The mappings of its code.
    pub maps: Vec<Mmap>,
    /// It was ended because it reached the limit of steps.
    pub cut: bool,
}

/// Runs a program until its first thread has made `steps` steps.
///
/// # Errors
/// [`SourceError`].
pub fn run(command: Command, steps: usize) -> Result<Own, SourceError> {
    let watch = Watch(Arc::new(Mutex::new(Seen { most: steps, ..Seen::default() })));
    let ran = Ptrace::new(command)?.run_into(&watch);
    let mut seen = watch.0.lock().unwrap_or_else(PoisonError::into_inner);
    let cut = seen.is_full();
    if !cut {
        ran?;
    }
    let lines = std::mem::take(&mut seen.lines).into_values().collect();
    let program = Program { lines, ..Program::default() };
    let trace =
        Trace { program, steps: std::mem::take(&mut seen.steps), end: seen.resume.unwrap_or(0) };
    Ok(Own { trace, maps: std::mem::take(&mut seen.maps), cut })
}

struct Watch(Arc<Mutex<Seen>>);

/// The first thread's steps so far.
#[derive(Default)]
struct Seen {
    most: usize,
    thread: Option<ThreadId>,
    /// The next instruction's address; `None` if it was not observed.
    resume: Option<u64>,
    lines: BTreeMap<u64, Line>,
    steps: Vec<Step>,
    maps: Vec<Mmap>,
    model: Model,
}

/// One thread. Only the first is traced.
struct Thread(Option<Arc<Mutex<Seen>>>);

impl Recorder for Watch {
    type Ring = Thread;

    fn start(&self, thread: ThreadId) -> Result<Thread, Closed> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = seen.thread.is_none();
        if first {
            seen.thread = Some(thread);
            // It is stopped, and this thread traces it.
            let registers = getregs(Pid::from_raw(thread.tid.cast_signed()));
            seen.resume = registers.ok().map(|registers| registers.rip);
        }
        Ok(Thread(first.then(|| Arc::clone(&self.0))))
    }

    fn emit(&self, event: record::Event) -> Result<(), Closed> {
        if let record::Event::Mmap(map) = event {
            let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            seen.maps.push(*map);
        }
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_full()
    }
}

impl Retire for Thread {
    fn retire(&mut self, branch: &Retired) -> Result<(), Closed> {
        let Some(seen) = &self.0 else { return Ok(()) };
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.branch(branch);
        if seen.is_full() { Err(Closed) } else { Ok(()) }
    }

    fn finish(self) -> Result<(), Closed> {
        Ok(())
    }
}

impl Seen {
    fn is_full(&self) -> bool {
        self.steps.len() >= self.most
    }

    /// Adds a branch and the straight-line code before it.
    fn branch(&mut self, branch: &Retired) {
        let from = branch.from;
        let start = self.resume.filter(|start| from.wrapping_sub(*start) < STRAIGHT);
        let start = start.unwrap_or(from);
        let tid = self.thread.map_or(0, |thread| thread.tid.cast_signed());
        let bytes = code::bytes_at(tid, start, (from - start) as usize + code::LONGEST);
        let mut disassembler = Disassembler::new(Syntax::Intel);
        let mut at = start;
        while at <= from && !self.is_full() {
            let rest = bytes.get((at - start) as usize..).unwrap_or_default();
            let Some(line) = Line::of(&mut disassembler, rest, at) else { break };
            let next = at + line.bytes.len() as u64;
            self.lines.entry(at).or_insert(line);
            self.model.tick(1);
            let did = match insn::decode(rest, at) {
                Insn::Branch(insn) if at == from => {
                    let modelled = self.model.taken(from, insn.next(), insn.class, branch.to);
                    Did::Branch(modelled.of(*branch))
                }
                _ if at == from => Did::Branch(*branch),
                Insn::Branch(insn) if insn.is_conditional() => {
                    Did::FellThrough { mispredicted: self.model.not_taken(at, next) }
                }
                _ => Did::Straight,
            };
            self.steps.push(Step { at, did });
            // The kernel returns to the instruction after the one that entered it.
            self.resume = Some(if at < from || branch.cpl_after == 0 { next } else { branch.to });
            at = next;
        }
    }
}
