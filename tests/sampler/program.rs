//! A recorder that keeps all input.

use std::sync::Mutex;

use lbr_msr::record::Event;
use lbr_msr::soft::Retired;
use sampler::gate::{Closed, Recorder, Retire};
use sampler::source::ptrace::Ptrace;
use sampler::source::{Command, Exit, SourceError, SourceNotes};
use sampler::target::ThreadId;

pub(crate) use crate::support::programs::{BARE, Program, build};

/// The input of a recorder, in order.
#[derive(Clone, Debug)]
pub(crate) enum RecorderInput {
    Start(ThreadId),
    Branch(ThreadId, Retired),
    Finish(ThreadId),
    Event(Event),
}

/// Keeps all input; closes after `limit` branches.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    pub(crate) told: Mutex<Vec<RecorderInput>>,
    pub(crate) limit: Option<usize>,
    pub(crate) closed: std::sync::atomic::AtomicBool,
}

fn threads(told: &[RecorderInput]) -> Vec<ThreadId> {
    let started = told.iter().filter_map(|told| match told {
        RecorderInput::Start(id) => Some(*id),
        _ => None,
    });
    started.collect()
}

impl Keeper {
    /// The threads that started, in order.
    pub(crate) fn threads(&self) -> Vec<ThreadId> {
        threads(&self.told.lock().expect("no panic"))
    }

    fn tell(&self, what: RecorderInput) -> Result<(), Closed> {
        let mut told = self.told.lock().expect("no panic");
        told.push(what);
        if self.limit.is_some_and(|limit| told.len() >= limit) {
            self.closed.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        if self.is_closed() { Err(Closed) } else { Ok(()) }
    }
}

pub(crate) struct KeptRing<'a>(&'a Keeper, ThreadId);

impl<'a> Recorder for &'a Keeper {
    type Ring = KeptRing<'a>;
    fn start(&self, thread: ThreadId) -> Result<KeptRing<'a>, Closed> {
        self.tell(RecorderInput::Start(thread))?;
        Ok(KeptRing(self, thread))
    }
    fn emit(&self, event: Event) -> Result<(), Closed> {
        self.tell(RecorderInput::Event(event))
    }
    fn is_closed(&self) -> bool {
        self.closed.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Retire for KeptRing<'_> {
    fn retire(&mut self, branch: &Retired) -> Result<(), Closed> {
        self.0.tell(RecorderInput::Branch(self.1, *branch))
    }
    fn finish(self) -> Result<(), Closed> {
        self.0.tell(RecorderInput::Finish(self.1))
    }
}

/// One run and its results.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) exit: Exit,
    pub(crate) notes: SourceNotes,
    pub(crate) told: Vec<RecorderInput>,
}

impl Run {
    /// The threads that started, in order.
    pub(crate) fn threads(&self) -> Vec<ThreadId> {
        threads(&self.told)
    }

    /// Branches of every thread in order, as (from, to).
    pub(crate) fn edges(&self) -> Vec<(u64, u64)> {
        self.branches().map(|(_, b)| (b.from, b.to)).collect()
    }

    pub(crate) fn branches(&self) -> impl Iterator<Item = (ThreadId, Retired)> + '_ {
        self.told.iter().filter_map(|told| match told {
            RecorderInput::Branch(id, branch) => Some((*id, *branch)),
            _ => None,
        })
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> + '_ {
        self.told.iter().filter_map(|told| match told {
            RecorderInput::Event(event) => Some(event),
            _ => None,
        })
    }

    /// One letter for each input, in order: start, branch, finish, command name, mapping, exit.
    pub(crate) fn order(&self) -> String {
        let letter = |told: &RecorderInput| match told {
            RecorderInput::Start(_) => 's',
            RecorderInput::Branch(..) => 'b',
            RecorderInput::Finish(_) => 'f',
            RecorderInput::Event(Event::Comm(_)) => 'c',
            RecorderInput::Event(Event::Mmap(_)) => 'm',
            RecorderInput::Event(Event::Exit(_)) => 'x',
            RecorderInput::Event(_) => '?',
        };
        self.told.iter().map(letter).collect()
    }

    /// How often a branch from one address to another was retired.
    pub(crate) fn count(&self, from: u64, to: u64) -> usize {
        self.branches().filter(|(_, b)| (b.from, b.to) == (from, to)).count()
    }
}

/// Runs a command to its end.
pub(crate) fn try_run(command: Command) -> Result<Run, SourceError> {
    let keeper = Keeper::default();
    let (exit, notes) = Ptrace::new(command)?.run_into(&&keeper)?;
    Ok(Run { exit, notes, told: keeper.told.into_inner().expect("no panic") })
}

#[track_caller]
pub(crate) fn run(command: Command) -> Run {
    try_run(command).expect("the program runs")
}

/// A command that records from `main` on.
pub(crate) fn from_main(program: &Program, args: &[&str]) -> Command {
    Command { from: Some(program.at("main")), ..program.command(args) }
}

/// Iterations of `spin` per thread.
pub(crate) fn turns(run: &Run, program: &Program) -> std::collections::BTreeMap<u32, usize> {
    let mut turns = std::collections::BTreeMap::new();
    for (id, branch) in run.branches() {
        if (branch.from, branch.to) == (program.at("spin_b"), program.at("spin_l")) {
            *turns.entry(id.tid).or_default() += 1;
        }
    }
    turns
}
