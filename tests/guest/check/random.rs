//! Code that did not exist before, recorded by every filter.
#![allow(unsafe_code, reason = "code made at run time is called")]

use std::io;
use std::os::fd::AsRawFd;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Check;
use crate::cpus::{Cycles, Filter};
use crate::device::{open, pin};
use crate::graph::{Graph, Kind, Step};
use crate::known;
use crate::ring::{Captured, LOW_48, Record};

impl Check {
    /// The same on two CPUs at once, each with its own ring.
    pub(crate) fn two_cpus_record_at_once(&mut self) -> io::Result<()> {
        let Ok(msr) = open(1) else { return self.random_code_is_recorded_as_it_ran() };
        let mut other = Check { cpu: self.cpu, msr, failed: 0 };
        let failed = std::thread::scope(|scope| {
            let beside = scope.spawn(|| {
                pin(1)?;
                other.random_code_is_recorded_as_it_ran()?;
                io::Result::Ok(other.failed)
            });
            self.random_code_is_recorded_as_it_ran()?;
            beside.join().unwrap_or_else(|_| Err(io::Error::other("the second thread panicked")))
        })?;
        self.failed += failed;
        Ok(())
    }

    /// Random code, written now: the ring holds the end of its path, by every
    /// filter.
    fn random_code_is_recorded_as_it_ran(&mut self) -> io::Result<()> {
        if self.cpu.filter == Filter::None {
            return Ok(());
        }
        const FILTERS: [Captured; 6] = [
            Captured::UserWithoutFar,
            Captured::Only(&[Kind::Cond]),
            Captured::Only(&[Kind::RelCall, Kind::IndCall, Kind::ZeroLengthCall]),
            Captured::Only(&[Kind::Ret]),
            Captured::Only(&[Kind::IndJmp]),
            Captured::Only(&[Kind::RelJmp]),
        ];
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let first_seed = now.as_nanos() as u64;
        for captured in FILTERS {
            let mut wrong = None;
            for seed in (0..10).map(|n| first_seed.wrapping_add(n)) {
                if let Some(why) = self.random_code(seed, captured)? {
                    wrong = Some(format!("seed {seed}: {why}"));
                    break;
                }
            }
            self.fact(
                wrong.is_none(),
                &format!(
                    "the path of 10 random programs is recorded, {captured:?} {}",
                    wrong.unwrap_or_default()
                ),
            );
        }
        Ok(())
    }

    /// Why the ring is not what the path says.
    fn random_code(&self, seed: u64, captured: Captured) -> io::Result<Option<String>> {
        let graph = Graph::new(seed)?;
        let mut why = None;
        // The first run brings its pages in. An interrupt adds to the cycles,
        // so that one of some runs must be right.
        for _ in 0..5 {
            self.clear()?;
            let on = self.write_filter(captured)?;
            // SAFETY: the code returns with the stack as it was, and changes
            // RAX, RCX and RDX only.
            let call = unsafe {
                known::run_call(self.msr.as_raw_fd(), self.cpu.control, on, 0, graph.entry)?
            };
            why = self.difference(&self.ring()?, &self.expected(&graph, &call, captured));
            if why.is_none() {
                break;
            }
        }
        Ok(why)
    }

    /// The recorded steps, newest first. The cycles of an omitted step count for the next one.
    fn expected(&self, graph: &Graph, call: &known::Call, captured: Captured) -> Vec<Step> {
        let swallowed = |kind| {
            // SDM 17.7.2: on these the jump filters take calls and returns.
            self.cpu.jumps_swallow_calls
                && match kind {
                    Kind::RelCall | Kind::ZeroLengthCall => !captured.includes(Kind::RelJmp),
                    Kind::IndCall | Kind::Ret => !captured.includes(Kind::IndJmp),
                    Kind::Cond | Kind::IndJmp | Kind::RelJmp => false,
                }
        };
        let entered =
            Step { from: call.from, to: graph.entry, kind: Kind::IndCall, instructions: 0 };
        let mut steps = Vec::new();
        let mut instructions = 0;
        for mut step in std::iter::once(entered).chain(graph.path.iter().copied()) {
            if step.to == 0 {
                step.to = call.back;
            }
            instructions += step.instructions;
            let hidden = self.cpu.filter == Filter::Control && step.kind == Kind::ZeroLengthCall;
            if captured.includes(step.kind) && !hidden && !swallowed(step.kind) {
                steps.push(Step { instructions: std::mem::take(&mut instructions), ..step });
            }
        }
        steps.reverse();
        steps
    }

    fn difference(&self, ring: &[Record], steps: &[Step]) -> Option<String> {
        for (k, record) in ring.iter().enumerate() {
            let Some(step) = steps.get(k) else {
                if record.from & LOW_48 == 0 {
                    continue;
                }
                return Some(format!("record {k} should be empty, is {:#x}", record.from));
            };
            if !record.is(step.from, step.to) {
                return Some(format!(
                    "record {k} is {:#x} to {:#x}, the path has {step:x?}",
                    record.from, record.to
                ));
            }
            // The oldest of the path follows what was before it.
            let first = k + 1 == steps.len();
            let cycles = self.cycles(record);
            if !first && self.cpu.cycles != Cycles::None && cycles != Some(step.instructions) {
                return Some(format!("record {k} tells {cycles:?} cycles, the path has {step:x?}"));
            }
            if self.cpu.cycles == Cycles::InfoIfBit60
                && record.info.is_none_or(|info| info >> 56 & 0xF != step.kind as u64)
            {
                return Some(format!("record {k} tells {:x?}, the path {step:x?}", record.info));
            }
        }
        None
    }
}
