//! The columns before an instruction, as text.

use profile::annotate::{Annotated, Branch, Instruction, Target, Timed};
use profile::interval::Interval;

use super::arrows::Arrows;
use crate::commands::report::hot::means;
use crate::present::{Heat, dash, escaped, grouped, joined, percent};

/// Minimum number of known predictions for a rate of a sample.
const ENOUGH: u64 = 30;
/// Maximum number of targets named after an indirect branch.
const TARGETS: usize = 3;

/// Headings of the columns. The last is only shown if events were counted.
const HEADINGS: [&str; 7] = ["count", "taken", "mispredict", "p50", "p90", "IPC", "events"];

/// The data of all rows.
pub(super) struct Columns<'a> {
    pub(super) annotated: &'a Annotated,
    peak: u64,
    ending: Vec<Option<&'a Timed>>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(annotated: &'a Annotated) -> Columns<'a> {
        Columns { annotated, peak: annotated.peak(), ending: annotated.blocks_by_end() }
    }

    /// Headings of the columns that are shown.
    pub(super) fn headings(&self) -> &'static [&'static str] {
        let counted = self.annotated.blocks.iter().any(|block| block.counters.is_some());
        if counted { &HEADINGS } else { &HEADINGS[..HEADINGS.len() - 1] }
    }

    /// The cells of a row, under all headings.
    pub(super) fn cells(&self, at: usize, insn: &Instruction) -> [String; 7] {
        let annotated = self.annotated;
        let branch = insn.branch.as_ref();
        let conditional = branch.filter(|branch| branch.conditional);
        let block = self.block(at);
        let of_block = |cell: &dyn Fn(&Timed) -> String| block.map(cell).unwrap_or_default();
        let quantile = |share: f64| {
            of_block(&|block| block.cycles.quantile(share).map_or_else(dash, |c| c.to_string()))
        };
        [
            insn.count.map_or_else(dash, grouped),
            conditional.map(|branch| taken(branch, annotated.exact)).unwrap_or_default(),
            branch.map(|branch| missed(branch, annotated.exact)).unwrap_or_default(),
            quantile(0.5),
            quantile(0.9),
            of_block(&ipc),
            of_block(&|block| means(block.counters.as_deref(), block.count).unwrap_or_default()),
        ]
    }

    /// The timed block that ends at an instruction.
    pub(super) fn block(&self, at: usize) -> Option<&'a Timed> {
        self.ending.get(at).copied().flatten()
    }

    /// The heat of code with this execution count.
    pub(super) fn heat(&self, count: Option<u64>) -> Heat {
        Heat::of(count.map(|count| count as f64), self.peak as f64)
    }
}

/// The share with the wider side of its interval; `~` if there are too few stacks for one.
fn taken(branch: &Branch, exact: bool) -> String {
    let Some(share) = branch.taken_share else { return dash() };
    match branch.taken_interval {
        _ if exact => percent(share),
        Some(Interval { low, high }) => {
            let half = (high - share).max(share - low) * 100.0;
            format!("{:.1}% ±{half:.1}", share * 100.0)
        }
        None => format!("~{:.0}%", share * 100.0),
    }
}

/// Never seen is not zero: a sample gives an upper bound. Few predictions are printed as a
/// fraction.
fn missed(branch: &Branch, exact: bool) -> String {
    let Some(missed) = branch.mispredicted else { return dash() };
    let known = branch.known;
    match branch.mispredict_interval {
        _ if exact => percent(missed as f64 / known as f64),
        Some(Interval { high, .. }) if missed == 0 && known >= ENOUGH => {
            format!("<{}", percent(high))
        }
        Some(_) if known >= ENOUGH => percent(missed as f64 / known as f64),
        _ => format!("{missed}/{known}"),
    }
}

/// Saturated cycles are a lower bound.
pub(super) fn ipc(block: &Timed) -> String {
    let bound = if block.cycles.saturated() > 0 { "<" } else { "" };
    block.ipc().map_or_else(dash, |ipc| format!("{bound}{ipc:.2}"))
}

/// Mnemonic and operands; bytes if they are not an instruction.
pub(super) fn words(insn: &Instruction) -> String {
    match &insn.text {
        Some(text) if text.operands.is_empty() => text.mnemonic.clone(),
        Some(text) => format!("{:<6} {}", text.mnemonic, text.operands),
        None => {
            let bytes = insn.bytes.iter().map(|byte| format!("{byte:#04x}"));
            format!("{:<6} {}", ".byte", joined(bytes, ","))
        }
    }
}

/// Text after an instruction: the names of its targets.
pub(super) fn remark(
    annotated: &Annotated,
    at: usize,
    insn: &Instruction,
    arrows: Option<&Arrows>,
) -> Option<String> {
    let Some(branch) = &insn.branch else {
        let address = insn.text.as_ref()?.rip_relative?;
        return Some(format!("# {address:#x}"));
    };
    if let Some(target) = &branch.target {
        let drawn = |to: usize| arrows.is_some_and(|arrows| arrows.has(at, to));
        return match target.inside {
            Some(to) if drawn(to) => None,
            _ => target_name(annotated, target).map(|name| format!("<{name}>")),
        };
    }
    use lbr_msr::record::BranchType;
    if !matches!(branch.branch_type, BranchType::IND | BranchType::IND_CALL) {
        return None;
    }
    let all = branch.taken as f64;
    let mut went: Vec<String> = branch
        .went
        .iter()
        .take(TARGETS)
        .map(|went| {
            let name = target_name(annotated, &went.target);
            let name = name.unwrap_or_else(|| format!("{:#x}", went.target.address));
            format!("{name} {}", percent(went.count as f64 / all))
        })
        .collect();
    let more = branch.went.len().saturating_sub(TARGETS);
    if more > 0 {
        went.push(format!("{more} more"));
    }
    (!went.is_empty()).then(|| format!("-> {}", went.join(", ")))
}

/// A target for people, escaped; inside the function as its offset.
fn target_name(annotated: &Annotated, target: &Target) -> Option<String> {
    if let Some(insn) = target.inside.and_then(|at| annotated.instructions.get(at)) {
        let offset = target.address.wrapping_sub(annotated.function.address);
        return Some(match &insn.label {
            Some(label) => escaped(label).into_owned(),
            None => format!("+{offset:#x}"),
        });
    }
    symbol_of(target)
}

/// A target's symbol, escaped, with the distance from its start.
pub(super) fn symbol_of(target: &Target) -> Option<String> {
    match target.name.as_ref()? {
        (name, 0) => Some(escaped(name).into_owned()),
        (name, offset) => Some(format!("{}+{offset:#x}", escaped(name))),
    }
}
