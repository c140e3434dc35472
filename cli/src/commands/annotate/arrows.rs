//! Arrows from jumps to their targets, drawn in lanes next to the code.

use std::collections::{BTreeMap, BTreeSet};

use lbr_msr::record::BranchType;
use profile::annotate::Annotated;

/// Maximum number of lanes: more are unreadable.
const LANES: usize = 8;

/// Jumps that share a line: all to one target, or all of one indirect jump.
struct ArrowLine {
    from: BTreeSet<usize>,
    to: BTreeSet<usize>,
    first: usize,
    last: usize,
    lane: usize,
}

/// The arrows of a function.
pub(super) struct Arrows {
    lines: Vec<ArrowLine>,
    lanes: usize,
    /// Jumps that did not fit.
    pub(super) omitted: usize,
}

/// Directions that a line leaves a cell in.
const UP: u8 = 1;
const DOWN: u8 = 2;
const LEFT: u8 = 4;
const RIGHT: u8 = 8;
/// The character of each set of directions.
const GLYPHS: [char; 16] =
    [' ', '│', '│', '│', '─', '┴', '┬', '┼', '─', '└', '┌', '├', '─', '┴', '┬', '┼'];

impl Arrows {
    /// The arrows of a function. The most frequent jumps come first, then the shorter ones, whose
    /// lanes are inside those of longer ones.
    pub(super) fn of(annotated: &Annotated) -> Arrows {
        let mut wanted = wanted(annotated);
        wanted.sort_by_key(|(line, weight)| (std::cmp::Reverse(*weight), line.last - line.first));
        let mut depth = vec![0usize; annotated.instructions.len()];
        let (mut lines, mut omitted) = (Vec::new(), 0);
        for (line, _) in wanted {
            let rows = depth.get_mut(line.first..=line.last).unwrap_or_default();
            if rows.iter().any(|depth| *depth >= LANES) {
                omitted += line.jumps();
                continue;
            }
            rows.iter_mut().for_each(|depth| *depth += 1);
            lines.push(line);
        }
        lines.sort_by_key(|line| (line.last - line.first, line.first));
        let mut taken: Vec<Vec<(usize, usize)>> = Vec::new();
        for line in &mut lines {
            let free = |lane: &Vec<(usize, usize)>| {
                lane.iter().all(|(first, last)| *last < line.first || line.last < *first)
            };
            line.lane = taken.iter().position(free).unwrap_or(taken.len());
            if line.lane == taken.len() {
                taken.push(Vec::new());
            }
            taken[line.lane].push((line.first, line.last));
        }
        lines.retain(|line| {
            let fits = line.lane < LANES;
            omitted += if fits { 0 } else { line.jumps() };
            fits
        });
        Arrows { lines, lanes: taken.len().min(LANES), omitted }
    }

    /// Whether an arrow from one instruction to another is drawn.
    pub(super) fn has(&self, from: usize, to: usize) -> bool {
        self.lines.iter().any(|line| line.from.contains(&from) && line.to.contains(&to))
    }

    /// Columns that a row takes.
    pub(super) fn width(&self) -> usize {
        if self.lanes == 0 { 0 } else { self.lanes * 2 + 1 }
    }

    /// The arrows of an instruction's row.
    pub(super) fn row(&self, row: usize) -> String {
        let mut cells = vec![0u8; self.width()];
        let mut head = false;
        for line in self.lines.iter().filter(|line| (line.first..=line.last).contains(&row)) {
            let column = self.column(line);
            let up = if row > line.first { UP } else { 0 };
            let down = if row < line.last { DOWN } else { 0 };
            cells[column] |= up | down;
            if line.from.contains(&row) || line.to.contains(&row) {
                head |= line.to.contains(&row);
                cells[column] |= RIGHT;
                cells.iter_mut().skip(column + 1).for_each(|cell| *cell |= LEFT | RIGHT);
            }
        }
        let mut drawn: String = cells.iter().map(|cell| GLYPHS[usize::from(*cell)]).collect();
        if head {
            drawn.pop();
            drawn.push('>');
        }
        drawn
    }

    /// The arrows between an instruction and the previous one.
    pub(super) fn above(&self, row: usize) -> String {
        let mut cells = vec![0u8; self.width()];
        for line in self.lines.iter().filter(|line| line.first < row && row <= line.last) {
            cells[self.column(line)] |= UP | DOWN;
        }
        cells.iter().map(|cell| GLYPHS[usize::from(*cell)]).collect()
    }

    fn column(&self, line: &ArrowLine) -> usize {
        (self.lanes - 1 - line.lane) * 2
    }
}

impl ArrowLine {
    fn at(row: usize) -> ArrowLine {
        let (from, to) = (BTreeSet::new(), BTreeSet::new());
        ArrowLine { from, to, first: row, last: row, lane: 0 }
    }

    fn add(&mut self, from: usize, to: usize) {
        self.from.insert(from);
        self.to.insert(to);
        self.first = self.first.min(from).min(to);
        self.last = self.last.max(from).max(to);
    }

    fn jumps(&self) -> usize {
        self.from.len().max(self.to.len())
    }
}

/// Candidate lines, each with the number of times that its jumps were taken.
fn wanted(annotated: &Annotated) -> Vec<(ArrowLine, u64)> {
    // Direct jumps share lines by target; each indirect jump has its own.
    let mut lines: BTreeMap<(bool, usize), (ArrowLine, u64)> = BTreeMap::new();
    let mut add = |indirect: bool, from: usize, to: usize, count: u64| {
        let key = (indirect, if indirect { from } else { to });
        let (line, taken) = lines.entry(key).or_insert_with(|| (ArrowLine::at(from), 0));
        line.add(from, to);
        *taken = taken.saturating_add(count);
    };
    for (from, insn) in annotated.instructions.iter().enumerate() {
        let Some(branch) = &insn.branch else { continue };
        match branch.branch_type {
            BranchType::COND | BranchType::UNCOND => {
                if let Some(to) = branch.target.as_ref().and_then(|target| target.inside) {
                    add(false, from, to, branch.taken);
                }
            }
            BranchType::IND => {
                for went in &branch.went {
                    if let Some(to) = went.target.inside {
                        add(true, from, to, went.count);
                    }
                }
            }
            _ => {}
        }
    }
    lines.into_values().collect()
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/commands/annotate/arrows.rs"]
mod tests;
