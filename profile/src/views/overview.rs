//! All data of a page about recordings, from one pass over each: hot branches, flow and verdicts.

use std::collections::BTreeMap;

use lbr_msr::record::Event;

use crate::clean::{ByThread, Cleaned, CommonResult, Counter, View};
use crate::code::maps::Maps;
use crate::read::add;
use crate::read::perf_data::ReadError;
use crate::read::recording::Recording;
use crate::read::select::Comms;
use crate::read::stack::Thread;
use crate::views::flow::{self, Flow};
use crate::views::hot::{self, HotBranch};
use crate::views::lint::{DEFAULT_STRIDE, Finding, Lint, ReaderNotes, Scan, Verdict};

/// The verdict on one recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// The findings, most severe first.
    pub findings: Vec<Finding>,
}

/// A thread with samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its process; `None` if not recorded.
    pub pid: Option<u32>,
    /// Its number; `None` if not recorded.
    pub tid: Option<u32>,
    /// Its last name; `None` if unknown.
    pub name: Option<String>,
    /// Its samples with branches.
    pub samples: u64,
}

/// Merged data of one or several recordings.
#[derive(Debug)]
pub struct Overview {
    /// The threads, those with most samples first.
    pub tasks: Vec<Task>,
    /// Branches by (from, to), hottest first.
    pub branches: Vec<HotBranch>,
    /// Outcomes, blocks with their cycles, and totals.
    pub flow: Flow,
    /// The verdict on each recording.
    pub judged: Vec<Judged>,
}

/// Counts recordings one after another.
#[derive(Debug, Default)]
pub struct OverviewCounter {
    counter: Counter<Page>,
    /// Whether there is more than one recording.
    several: bool,
    /// The reader's counts for the last recording.
    notes: ReaderNotes,
    judged: Vec<Judged>,
}

/// All counts of one pass.
#[derive(Debug, Default)]
struct Page {
    hot: hot::BranchCounts,
    flow: flow::FlowCounts,
    scan: Scan,
    tasks: ByThread<u64>,
    comms: Comms,
    /// With several recordings, the flow of the current one alone, for its verdict.
    own: Option<flow::FlowCounts>,
}

impl View for Page {
    type Table = (Vec<HotBranch>, Flow, Scan, Vec<Task>);

    fn stack(&mut self, stack: &Cleaned<'_>, maps: &mut Maps) {
        add(self.tasks.entry(stack.thread).or_default(), stack.weight);
        self.hot.stack(stack, maps);
        self.flow.stack(stack, maps);
        self.scan.stack(stack, maps);
        if let Some(own) = &mut self.own {
            own.stack(stack, maps);
        }
        let counted = self.own.as_ref().unwrap_or(&self.flow);
        self.scan.newest(counted.newest(), stack.weight);
    }

    fn code(&mut self, code: (u64, u32, u32), ended: bool, weight: u64, maps: &mut Maps) {
        self.flow.code(code, ended, weight, maps);
        if let Some(own) = &mut self.own {
            own.code(code, ended, weight, maps);
        }
    }

    fn event(&mut self, event: &Event) {
        self.comms.event(event);
        self.scan.event(event);
    }

    fn next_recording(&mut self) {
        self.scan = Scan::new(DEFAULT_STRIDE);
    }

    fn finish(mut self, whole: CommonResult) -> Self::Table {
        self.scan.branches(&self.flow);
        let branches = self.hot.branches(&whole.maps);
        let name = |tid| self.comms.at(tid, None).map(str::to_owned);
        let task = |((pid, tid), samples): (Thread, u64)| Task {
            pid,
            tid,
            name: tid.and_then(name),
            samples,
        };
        let mut tasks: Vec<Task> = self.tasks.into_iter().map(task).collect();
        tasks.sort_by_key(|task| (std::cmp::Reverse(task.samples), task.pid, task.tid));
        (branches, self.flow.flow(whole), self.scan, tasks)
    }
}

impl OverviewCounter {
    /// Starts empty. With `several`, the flow of each recording is also counted separately.
    pub fn new(several: bool) -> OverviewCounter {
        OverviewCounter { several, ..OverviewCounter::default() }
    }

    /// The locations of code, and their names.
    pub fn maps(&mut self) -> &mut Maps {
        self.counter.maps()
    }

    /// Counts a recording to its end; `progress` as in [`Counter::recording`].
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn recording(
        &mut self,
        recording: &mut Recording,
        progress: impl FnMut(u64, Option<u64>),
    ) -> Result<(), ReadError> {
        if !self.several {
            self.counter.recording(recording, progress)?;
            self.notes = ReaderNotes::by(recording);
            return Ok(());
        }
        let Counter { cleaner, .. } = &mut self.counter;
        let before = (std::mem::take(&mut cleaner.quality), std::mem::take(&mut cleaner.gaps));
        self.counter.view.own = Some(flow::FlowCounts::without_clusters());
        self.counter.recording(recording, progress)?;
        let Counter { cleaner, view, .. } = &mut self.counter;
        let whole = CommonResult {
            quality: cleaner.quality.clone(),
            gaps: cleaner.gaps,
            maps: std::mem::take(&mut cleaner.maps),
            open: BTreeMap::new(),
        };
        let own = view.own.take().unwrap_or_default();
        view.scan.branches(&own);
        let flow = own.flow(whole);
        let lint = Lint::of(&view.scan, flow, &ReaderNotes::by(recording));
        self.judged.push(Judged { verdict: lint.verdict(), findings: lint.findings });
        cleaner.maps = lint.flow.maps;
        cleaner.quality.add(&before.0);
        cleaner.gaps.add(&before.1);
        Ok(())
    }

    /// The results.
    #[must_use]
    pub fn finish(self) -> Overview {
        let OverviewCounter { counter, several, notes, mut judged } = self;
        let (branches, mut flow, scan, tasks) = counter.finish();
        if !several {
            let lint = Lint::of(&scan, flow, &notes);
            judged.push(Judged { verdict: lint.verdict(), findings: lint.findings });
            flow = lint.flow;
        }
        Overview { tasks, branches, flow, judged }
    }
}
