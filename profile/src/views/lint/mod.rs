//! A verdict on the quality of a recording.
//!
//! Each finding states what was found, how often, what it means, and how the reports treat it.
//! Findings use the same rules (*clean*, [`flow`](crate::views::flow)) as the reports.

mod binary;
mod judge;
mod rules;
mod runs;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use lbr_msr::record::{BranchType, Event};

use crate::clean::{Cleaned, CommonResult, Counter, Transition, View};
use crate::code::maps::Maps;
use crate::code::straight;
use crate::code::symbols::Sources;
use crate::index::Product;
use crate::read::add;
use crate::read::names;
use crate::read::perf_data::ReadError;
use crate::read::recording::Recording;
use crate::read::stack::{Entries, EntryFlags};
use crate::read::{KERNEL, crosses};
use crate::views::flow::{self, Flow, Site};
pub use binary::BinaryCoverage;
use runs::Runs;

/// How severe a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; the numbers are valid.
    Note,
    /// Some numbers are inaccurate or unavailable.
    Warning,
    /// The numbers are not reliable.
    Error,
}

impl Severity {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Only notes, or nothing.
    Sound,
    /// Warnings.
    Doubtful,
    /// Errors.
    Poor,
}

impl Verdict {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Sound => "sound",
            Verdict::Doubtful => "doubtful",
            Verdict::Poor => "poor",
        }
    }
}

/// A property of a recording that affects its numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Its name, in lower case with underscores.
    pub id: &'static str,
    /// Its severity.
    pub severity: Severity,
    /// The number of occurrences.
    pub count: u64,
    /// The number of checked items.
    pub of: u64,
    /// The items: `stacks`, `entries`, `blocks`, `branches`, `lines`, `records`, `processes` and so on.
    pub unit: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
    /// How the reports treat it.
    pub report: &'static str,
    /// The count by cause, if that adds information.
    pub parts: Vec<(String, u64)>,
}

impl Finding {
    /// Share, 0 to 1; `None` if nothing was checked.
    pub fn share(&self) -> Option<f64> {
        (self.of > 0).then(|| self.count as f64 / self.of as f64)
    }
}

/// Findings about a recording, most severe first.
#[derive(Debug)]
pub struct Lint {
    /// The findings with a count above 0.
    pub findings: Vec<Finding>,
    /// The flow counted in the same pass, without its blocks.
    pub flow: Flow,
}

impl Lint {
    /// Reads a recording to its end. `stride` is the longest block, in bytes, for which a repeated
    /// newest entry is not suspicious. Executed files are searched for in `sources`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn check(
        recording: &mut Recording,
        stride: u64,
        sources: Sources,
        progress: impl FnMut(u64, Option<u64>),
    ) -> Result<Lint, ReadError> {
        let flow = flow::FlowCounts::without_clusters();
        let mut counter = Counter::of(Check { scan: Scan::new(stride), flow });
        counter.maps().set_sources(sources);
        counter.recording(recording, progress)?;
        let (scan, flow) = counter.finish();
        Ok(Lint::of(&scan, flow, &ReaderNotes::by(recording)))
    }

    /// Judges a recording that was read to its end.
    pub(super) fn of(scan: &Scan, mut flow: Flow, notes: &ReaderNotes) -> Lint {
        let code = CodeCheck::of(&mut flow);
        let mut findings = judge::findings(scan, &flow, &code, notes);
        sort(&mut findings);
        Lint { findings, flow }
    }

    /// The verdict.
    pub fn verdict(&self) -> Verdict {
        match self.findings.iter().map(|finding| finding.severity).max() {
            Some(Severity::Error) => Verdict::Poor,
            Some(Severity::Warning) => Verdict::Doubtful,
            _ => Verdict::Sound,
        }
    }
}

/// Most severe first.
fn sort(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
}

/// The default for the longest block, in bytes, for which a repeated newest entry is not
/// suspicious. Loops of one block above 80 bytes exist: a longer block is a suspicion that proves
/// nothing about a single stack.
pub const DEFAULT_STRIDE: u64 = 0x50;

/// Counts of the reader at the end of a recording.
#[derive(Debug, Default)]
pub(super) struct ReaderNotes {
    /// Whether the file ends inside a record.
    cut_off: bool,
    /// Records that are shorter than they claim.
    malformed: u64,
    /// Lines of text that are not stacks.
    refused: u64,
}

impl ReaderNotes {
    pub(super) fn by(recording: &Recording) -> ReaderNotes {
        let notes = recording.notes();
        let refused = recording.refused().map_or(0, |refused| refused.lines);
        ReaderNotes { cut_off: notes.cut_at.is_some(), malformed: notes.malformed, refused }
    }
}

/// The scan and the flow, in one pass.
struct Check {
    scan: Scan,
    flow: flow::FlowCounts,
}

impl View for Check {
    type Table = (Scan, Flow);

    fn stack(&mut self, stack: &Cleaned<'_>, maps: &mut Maps) {
        self.scan.stack(stack, maps);
        self.flow.stack(stack, maps);
        self.scan.newest(self.flow.newest(), stack.weight);
    }

    fn code(&mut self, code: (u64, u32, u32), ended: bool, weight: u64, maps: &mut Maps) {
        self.flow.code(code, ended, weight, maps);
    }

    fn event(&mut self, event: &Event) {
        self.scan.event(event);
    }

    fn finish(mut self, whole: CommonResult) -> (Scan, Flow) {
        self.scan.branches(&self.flow);
        (self.scan, self.flow.flow(whole))
    }
}

/// How often a branch was the newest of its stack, and how often it occurred at all.
#[derive(Debug, Default)]
struct Position {
    at_top: u64,
    /// Set at the end.
    all: u64,
}

/// Counts besides the flow.
#[derive(Debug, Default)]
pub(super) struct Scan {
    stride: u64,
    runs: Runs,
    /// Stacks with at least two entries.
    pairs: u64,
    /// Suspected duplicates in a process's own program.
    suspected: u64,
    /// Suspected duplicates elsewhere.
    suspected_elsewhere: u64,
    repeated_oldest: u64,
    /// Entries that can have a cycle count: all but a stack's oldest.
    inner: u64,
    with_cycles: u64,
    saturated: u64,
    /// The only cycle count so far, if there is only one.
    constant: Option<u32>,
    varied: bool,
    user_only: u64,
    from_kernel: u64,
    to_kernel: u64,
    /// By the flow's number of a branch: how often it was the newest of its stack.
    at_top: Vec<u64>,
    /// Branches that were the newest, by address and space.
    places: HashMap<(u64, u32), Position, BuildHasherDefault<Product>>,
    newest: u64,
    counted: u64,
    /// Entries with symbols instead of addresses.
    named: u64,
    /// Entries with an end that has neither an address nor a symbol.
    unknown: u64,
}

impl Scan {
    /// `stride` as in [`Lint::check`].
    pub(super) fn new(stride: u64) -> Scan {
        Scan { stride, ..Scan::default() }
    }

    pub(super) fn event(&mut self, event: &Event) {
        self.runs.event(event);
    }

    pub(super) fn stack(&mut self, stack: &Cleaned<'_>, maps: &Maps) {
        let (entries, weight) = (&stack.branches, stack.weight);
        if stack.entries.len() > 1 {
            add(&mut self.pairs, weight);
        }
        if stack.newest_stride.is_some_and(|stride| stride > self.stride) {
            let from = entries.get(0).map_or(0, |newest| newest.from);
            let program = stack.head.pid.and_then(|pid| maps.program_of(pid));
            let file = maps.locate(stack.space as usize, from).file();
            if program.is_some() && program != file {
                add(&mut self.suspected_elsewhere, weight);
            } else {
                add(&mut self.suspected, weight);
            }
        }
        self.oldest(stack);
        self.runs.stack(stack);
        if maps.has_names() {
            self.names(entries, weight);
        }
        if entries.is_empty() {
            return;
        }
        add(&mut self.newest, weight);
        add(&mut self.counted, weight.saturating_mul(entries.len() as u64));
        if stack.user_only {
            let (mut from_kernel, mut to_kernel) = (0, 0);
            entries.for_each(|branch| {
                from_kernel += u64::from(branch.from >= KERNEL);
                to_kernel += u64::from(branch.to >= KERNEL);
            });
            add(&mut self.user_only, weight.saturating_mul(entries.len() as u64));
            add(&mut self.from_kernel, weight.saturating_mul(from_kernel));
            add(&mut self.to_kernel, weight.saturating_mul(to_kernel));
        }
        self.cycles(stack.transitions, weight);
    }

    /// Counts a stack's newest branch, given its number in the flow.
    pub(super) fn newest(&mut self, number: Option<u32>, weight: u64) {
        let Some(number) = number.filter(|number| *number != u32::MAX) else { return };
        let at = number as usize;
        self.at_top.resize(self.at_top.len().max(at + 1), 0);
        self.at_top.get_mut(at).into_iter().for_each(|times| add(times, weight));
    }

    /// Adds the total count of each branch of a recording, from the flow.
    pub(super) fn branches(&mut self, flow: &flow::FlowCounts) {
        flow.each_branch(|number, space, from, _| {
            let at_top = self.at_top.get(number as usize).copied().unwrap_or(0);
            if at_top > 0 {
                add(&mut self.places.entry((from, space)).or_default().at_top, at_top);
            }
        });
        flow.each_branch(|_, space, from, count| {
            let place = self.places.get_mut(&(from, space));
            place.into_iter().for_each(|place| add(&mut place.all, count));
        });
    }

    fn names(&mut self, entries: &Entries<'_>, weight: u64) {
        for branch in entries.iter() {
            let ends = [branch.from, branch.to];
            let has = |is: fn(u64) -> bool| u64::from(ends.into_iter().any(is));
            add(&mut self.named, weight * has(names::is_name));
            add(&mut self.unknown, weight * has(names::is_unknown));
        }
    }

    /// Checks the oldest pair of a stack for a repetition that no loop of one block can cause.
    fn oldest(&mut self, stack: &Cleaned<'_>) {
        let entries = &stack.branches;
        let Some(newer) = entries.len().checked_sub(2) else { return };
        let pair = entries.get(newer).zip(entries.get(newer + 1));
        let stride = pair.and_then(|(newer, older)| stack.repeated(newer, older));
        if stride.is_some_and(Cleaned::is_duplicate) {
            add(&mut self.repeated_oldest, stack.weight);
        }
    }

    /// Checks the cycles of all branches except the oldest.
    fn cycles(&mut self, transitions: &[Transition], weight: u64) {
        let inner = transitions.get(1..).unwrap_or_default();
        let (mut with, mut saturated) = (0, 0);
        for step in inner {
            let Some(cycles) = step.branch.flags.cycles() else { continue };
            with += 1;
            saturated += u64::from(cycles >= EntryFlags::MAX_CYCLES);
            if !self.varied {
                self.varied = *self.constant.get_or_insert(cycles) != cycles;
            }
        }
        add(&mut self.inner, weight.saturating_mul(inner.len() as u64));
        add(&mut self.with_cycles, weight.saturating_mul(with));
        add(&mut self.saturated, weight.saturating_mul(saturated));
    }
}

/// Comparison of the code bytes with the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CodeCheck {
    /// Entries with code bytes at FROM.
    checked: u64,
    /// FROM is not a branch.
    no_branch: u64,
    /// FROM is a direct branch to another target.
    elsewhere: u64,
}

impl CodeCheck {
    fn of(flow: &mut Flow) -> CodeCheck {
        let mut check = CodeCheck::default();
        let Flow { sites, maps, .. } = flow;
        for site in sites.iter() {
            for target in &site.targets {
                let Site { location, from, branch_type, .. } = *site;
                let (code, branch) = straight::branch_at(maps, location, from, target.to);
                // Interrupts and faults can occur at any instruction.
                let event = crosses(from, target.to) || branch_type == Some(BranchType::IRQ);
                if !code || event {
                    continue;
                }
                add(&mut check.checked, target.count);
                match branch {
                    None => add(&mut check.no_branch, target.count),
                    Some(branch) if branch.can_reach(target.to) => {}
                    Some(_) => add(&mut check.elsewhere, target.count),
                }
            }
        }
        check
    }
}
