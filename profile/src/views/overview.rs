//! Everything that a page about a recording shows, by one walk through it: the
//! hot branches, the flow and the verdict.

use lbr_msr::record::Event;

use crate::clean::collect::{self, Collect};
use crate::read::names::Symbol;
use crate::read::perf_data::{EventAttr, ReadError};
use crate::read::recording::Recording;
use crate::read::select::LeftOut;
use crate::read::stack::Stack;
use crate::views::flow::{Flow, FlowCounter};
use crate::views::hot::{Counter, HotTable};
use crate::views::lint::{Check, DEFAULT_STRIDE, Finding, Lint, Verdict};

/// The verdict on one recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// The findings, the worst first.
    pub findings: Vec<Finding>,
}

/// What one or several recordings say together.
#[derive(Debug)]
pub struct Overview {
    /// Branches by (from, to).
    pub hot: HotTable,
    /// Outcomes, blocks and their cycles.
    pub flow: Flow,
    /// The verdict on each recording.
    pub judged: Vec<Judged>,
}

/// Counts recordings as they come.
#[derive(Debug, Default)]
pub struct OverviewCounter {
    hot: Counter,
    /// The flow of all, where there are several: a verdict needs that of its
    /// recording alone.
    all: Option<FlowCounter>,
    last: Option<Flow>,
    judged: Vec<Judged>,
}

impl OverviewCounter {
    /// Begins with nothing. With `several` to come, their flows are counted
    /// together beside each for itself.
    #[must_use]
    pub fn new(several: bool) -> OverviewCounter {
        OverviewCounter { all: several.then(FlowCounter::new), ..OverviewCounter::default() }
    }

    /// Counts a recording to its end; `progress` as in [`HotTable::count`].
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn recording(
        &mut self,
        recording: &mut Recording,
        progress: impl FnMut(u64, Option<u64>),
    ) -> Result<(), ReadError> {
        self.hot.begin();
        if let Some(all) = &mut self.all {
            all.begin(recording);
        }
        let several = self.all.is_some();
        let flow = if several { FlowCounter::without_blocks() } else { FlowCounter::new() };
        let check = Check::new(DEFAULT_STRIDE, recording, flow);
        let mut walk = Walk { check, hot: &mut self.hot, all: self.all.as_mut() };
        collect::collect(recording, &mut walk, progress)?;
        let lint = walk.check.finish(recording);
        self.hot.end(recording);
        if let Some(all) = &mut self.all {
            all.end(recording);
        }
        let verdict = lint.verdict();
        let Lint { findings, flow, .. } = lint;
        self.judged.push(Judged { verdict, findings });
        self.last = Some(flow);
        Ok(())
    }

    /// What was counted.
    #[must_use]
    pub fn finish(self) -> Overview {
        let OverviewCounter { hot, all, last, judged } = self;
        let flow = match (all, last) {
            (None, Some(flow)) => flow,
            (all, _) => all.unwrap_or_default().finish(),
        };
        Overview { hot: hot.finish(), flow, judged }
    }
}

/// One walk.
struct Walk<'a> {
    check: Check,
    hot: &'a mut Counter,
    all: Option<&'a mut FlowCounter>,
}

impl Collect for Walk<'_> {
    fn events(&mut self, events: &[EventAttr]) {
        Collect::events(&mut self.check, events);
        Collect::events(self.hot, events);
        if let Some(all) = &mut self.all {
            Collect::events(*all, events);
        }
    }
    fn knows(&self, event: usize) -> bool {
        self.check.knows(event)
    }
    fn stack(&mut self, stack: &Stack<'_>) {
        Collect::stack(&mut self.check, stack);
        Collect::stack(self.hot, stack);
        if let Some(all) = &mut self.all {
            Collect::stack(*all, stack);
        }
    }
    fn event(&mut self, event: &Event) {
        Collect::event(&mut self.check, event);
        Collect::event(self.hot, event);
        if let Some(all) = &mut self.all {
            Collect::event(*all, event);
        }
    }
    fn left_out(&mut self, left: &LeftOut) {
        Collect::left_out(&mut self.check, left);
        Collect::left_out(self.hot, left);
        if let Some(all) = &mut self.all {
            Collect::left_out(*all, left);
        }
    }
    fn symbol(&mut self, symbol: &Symbol) {
        Collect::symbol(&mut self.check, symbol);
        Collect::symbol(self.hot, symbol);
        if let Some(all) = &mut self.all {
            Collect::symbol(*all, symbol);
        }
    }
}
