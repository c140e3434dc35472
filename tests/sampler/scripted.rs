//! A source that retires scripted branches, and helpers for its tests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lbr_msr::access::Op;
use lbr_msr::record::{Event, HwBranchType, Sample, Sink, SourceKnowledge};
use lbr_msr::soft::Retired;
use lbr_msr::{Msr, MsrError, MsrRead, MsrWrite};
use sampler::gate::{BranchRegisters, Gate, OpenRegisters, Recorder, Retire};
use sampler::source::{Decoding, Exit, Source, SourceError, SourceNotes};
use sampler::target::ThreadId;
use sampler::{RecordConfig, RecordError, Summary};

use crate::model::{Model, Shape, caps};

/// Only addresses and types of branches.
pub(crate) const ENDS_ONLY: SourceKnowledge =
    SourceKnowledge { mispredict: false, cycles: false, kernel: false };

/// The actions of a thread.
pub(crate) type Script = Box<dyn Fn(&Gate, ThreadId) + Send + Sync>;

/// Runs each script in a separate thread.
pub(crate) struct Scripted {
    pub(crate) scripts: Vec<Script>,
    pub(crate) knowledge: SourceKnowledge,
    pub(crate) decoding: Decoding,
    pub(crate) result: Option<SourceError>,
    pub(crate) notes: SourceNotes,
}

impl Scripted {
    pub(crate) fn new(scripts: Vec<Script>) -> Scripted {
        let (decoding, notes) = (Decoding::default(), SourceNotes::default());
        Scripted { scripts, knowledge: ENDS_ONLY, decoding, result: None, notes }
    }

    /// `branches` distinct branches on each thread.
    pub(crate) fn straight(threads: usize, branches: u64) -> Scripted {
        let script = move || -> Script {
            Box::new(move |gate, thread| {
                let mut ring = gate.start(thread).unwrap();
                for n in 0..branches {
                    if ring.retire(&branch(thread.tid, n)).is_err() {
                        break;
                    }
                }
                let _ = ring.finish();
            })
        };
        Scripted::new((0..threads).map(|_| script()).collect())
    }
}

pub(crate) fn branch(tid: u32, n: u64) -> Retired {
    let from = 0x40_0000 + (u64::from(tid) << 32) + n * 4;
    Retired::user(from, from + 2, HwBranchType::Cond)
}

impl Source<'_> for Scripted {
    fn name(&self) -> &'static str {
        "script"
    }

    fn knowledge(&self) -> SourceKnowledge {
        self.knowledge
    }

    fn decoding(&mut self) -> Decoding {
        std::mem::take(&mut self.decoding)
    }

    fn run(&mut self, gate: &Gate) -> Result<(Exit, SourceNotes), SourceError> {
        std::thread::scope(|threads| {
            for (tid, script) in (1..).zip(&self.scripts) {
                threads.spawn(move || script(gate, ThreadId { pid: 100, tid }));
            }
        });
        match self.result.take() {
            Some(error) => Err(error),
            None => Ok((Exit::Code(3), self.notes)),
        }
    }
}

/// The register accesses of each drain: a new list starts at each freeze.
pub(crate) type Log = Arc<Mutex<Vec<Vec<Msr>>>>;

/// Splits a log into drains at the writes to the control register.
pub(crate) struct Logged {
    pub(crate) model: Model,
    pub(crate) log: Log,
    pub(crate) frozen: bool,
}

impl Logged {
    fn note(&mut self, msr: Msr) {
        let mut log = self.log.lock().unwrap();
        log.last_mut().unwrap().push(msr);
    }
}

impl MsrRead for Logged {
    fn cpu(&self) -> u32 {
        self.model.cpu()
    }
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        if msr == self.model.caps.registers.control && !self.frozen {
            self.log.lock().unwrap().push(Vec::new());
        }
        self.note(msr);
        self.model.read(msr)
    }
}

impl MsrWrite for Logged {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        self.note(msr);
        if msr == self.model.caps.registers.control {
            self.frozen = value & self.model.caps.registers.enable == 0;
        }
        self.model.write(msr, value)
    }
    fn run(&mut self, batch: &mut [Op]) -> Result<(), MsrError> {
        self.model.run(batch)
    }
}

impl BranchRegisters for Logged {
    fn retire(&mut self, branch: &Retired) -> bool {
        self.model.retire(branch)
    }
}

pub(crate) fn config(shape: Shape, depth: u32) -> RecordConfig {
    RecordConfig::new(caps(shape, depth))
}

/// Opens armed models.
pub(crate) fn models(shape: Shape, depth: u32, call_stack: bool) -> OpenRegisters {
    Box::new(move |_| Ok(Box::new(Model { call_stack, ..Model::armed(shape, depth) })))
}

/// Records with these armed registers.
pub(crate) fn record_on<S: Sink + Send>(
    source: &mut Scripted,
    config: RecordConfig,
    open: OpenRegisters,
    sink: &mut S,
) -> Result<Summary, RecordError<S::Error>>
where
    S::Error: Send,
{
    sampler::record(source, RecordConfig { open: Some(open), ..config }, sink)
}

/// The samples among events.
pub(crate) fn samples(events: &[Event]) -> impl Iterator<Item = &Sample> {
    events.iter().filter_map(|event| match event {
        Event::Sample(sample) => Some(sample),
        _ => None,
    })
}

/// Accepts a number of events, then fails.
#[derive(Debug)]
pub(crate) struct FullDisk {
    pub(crate) room: usize,
}

impl Sink for FullDisk {
    type Error = &'static str;
    fn event(&mut self, _: &Event) -> Result<(), &'static str> {
        self.room = self.room.checked_sub(1).ok_or("no space left on device")?;
        Ok(())
    }
}

/// Delays each event.
#[derive(Debug, Default)]
pub(crate) struct Slow {
    pub(crate) events: Vec<Event>,
}

impl Sink for Slow {
    type Error = std::convert::Infallible;
    fn event(&mut self, event: &Event) -> Result<(), Self::Error> {
        std::thread::sleep(Duration::from_millis(1));
        self.events.push(event.clone());
        Ok(())
    }
}
