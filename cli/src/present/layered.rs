//! Layered drawing of a directed graph (Sugiyama's method): boxes in rows, edges that pass between
//! the boxes and never through one.
//!
//! Tried before writing this, on 2026-11-23: `layout-rs` 0.1.3 takes 4.4 s for a function of 300
//! blocks, and `rust-sugiyama` 0.4.0 panics on some graphs with cycles.

/// Space between neighbours in a row.
const APART: f64 = 26.0;
/// Width that an edge takes where it passes a row.
const LANE: f64 = 12.0;
/// Height of the space between rows; grows with the number of edges in it.
const GAP: f64 = 44.0;
const MOST_GAP: f64 = 150.0;
const MARGIN: f64 = 12.0;
/// Height of an arrow head, between the end of a route and its box.
pub(crate) const HEAD: f64 = 9.0;
/// Passes over all rows, for the order inside rows and for the horizontal positions.
const PASSES: usize = 12;

/// An edge to draw. Without the edges marked `back`, the graph must be acyclic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) back: bool,
    /// Priority of drawing it as a straight line.
    pub(crate) weight: f64,
}

/// A vertical line. A route consists of these, joined by curves between the rows.
pub(crate) struct Leg {
    pub(crate) x: f64,
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) is_down: bool,
}

/// Positions of all boxes and edges.
pub(crate) struct Layout {
    /// Left and top of each box.
    pub(crate) boxes: Vec<(f64, f64)>,
    /// Route of each link.
    pub(crate) routes: Vec<Vec<Leg>>,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// Lays out boxes, given by width and height, and the links between them.
pub(crate) fn layout(sizes: &[(f64, f64)], links: &[Link]) -> Layout {
    let mut rows = Rows::new(sizes, links);
    rows.order();
    rows.place();
    rows.route(sizes, links)
}

/// A box, or the place where a link passes a row.
#[derive(Default)]
struct Item {
    row: usize,
    width: f64,
    x: f64,
    /// Neighbours in the rows above and below, with the weight of the link.
    above: Vec<(usize, f64)>,
    below: Vec<(usize, f64)>,
    /// The box in the same row that the turn of a back link belongs to.
    anchor: Option<usize>,
}

struct Rows {
    items: Vec<Item>,
    rows: Vec<Vec<usize>>,
    /// The items that each link passes, from its source to its target.
    passed: Vec<Vec<usize>>,
}

impl Rows {
    fn new(sizes: &[(f64, f64)], links: &[Link]) -> Rows {
        let item = |row, width| Item { row, width, ..Item::default() };
        let ranks = ranks(sizes.len(), links);
        let mut items: Vec<Item> =
            sizes.iter().zip(&ranks).map(|((width, _), row)| item(*row, *width)).collect();
        let mut passed = Vec::new();
        for link in links {
            let (from, to) = (ranks[link.from], ranks[link.to]);
            let is_up = to <= from;
            let rows: Vec<usize> =
                if is_up { (to..=from).rev().collect() } else { (from + 1..to).collect() };
            let first = items.len();
            items.extend(rows.iter().map(|row| item(*row, LANE)));
            let lanes: Vec<usize> = (first..items.len()).collect();
            let mut chain = lanes.clone();
            if is_up {
                items[lanes[0]].anchor = Some(link.from);
                items[lanes[lanes.len() - 1]].anchor = Some(link.to);
            } else {
                chain.insert(0, link.from);
                chain.push(link.to);
            }
            for pair in chain.windows(2) {
                // Lanes are straightened first: bends are what makes a long edge hard to follow.
                let weight =
                    if pair.iter().all(|at| *at >= sizes.len()) { 8.0 } else { link.weight };
                let (up, down) = if is_up { (pair[1], pair[0]) } else { (pair[0], pair[1]) };
                items[up].below.push((down, weight));
                items[down].above.push((up, weight));
            }
            passed.push(lanes);
        }
        let mut rows = vec![Vec::new(); ranks.iter().max().map_or(0, |last| last + 1)];
        for (at, item) in items.iter().enumerate() {
            rows[item.row].push(at);
        }
        Rows { items, rows, passed }
    }

    /// Orders each row so that few edges cross: by the mean position of the neighbours.
    fn order(&mut self) {
        (0..self.rows.len()).for_each(|row| self.number_row(row));
        let mut best = (self.crossings(), self.rows.clone());
        for pass in 0..PASSES {
            let down = pass % 2 == 0;
            for step in 0..self.rows.len() {
                let row = if down { step } else { self.rows.len() - 1 - step };
                let key = |at: usize| self.wanted(at, down).unwrap_or(self.items[at].x);
                let mut keyed: Vec<(f64, usize)> = self.rows[row]
                    .iter()
                    .map(|&at| match self.items[at].anchor {
                        Some(anchor) if self.neighbours(at, down).is_empty() => {
                            (key(anchor) + 0.25, at)
                        }
                        _ => (key(at), at),
                    })
                    .collect();
                keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
                self.rows[row] = keyed.into_iter().map(|(_, at)| at).collect();
                self.number_row(row);
            }
            let crossings = self.crossings();
            if crossings < best.0 {
                best = (crossings, self.rows.clone());
            }
        }
        self.rows = best.1;
    }

    fn number_row(&mut self, row: usize) {
        for (position, at) in self.rows[row].iter().enumerate() {
            self.items[*at].x = position as f64;
        }
    }

    fn neighbours(&self, at: usize, down: bool) -> &[(usize, f64)] {
        let item = &self.items[at];
        if down { &item.above } else { &item.below }
    }

    /// The weighted mean position of the neighbours on one side.
    fn wanted(&self, at: usize, down: bool) -> Option<f64> {
        let near = self.neighbours(at, down);
        let weight: f64 = near.iter().map(|(_, weight)| weight).sum();
        let sum: f64 = near.iter().map(|(at, weight)| self.items[*at].x * weight).sum();
        (weight > 0.0).then(|| sum / weight)
    }

    /// Crossings between all neighbouring rows: inversions of the edges' ends.
    fn crossings(&self) -> u64 {
        let mut crossings = 0;
        for row in &self.rows {
            let mut ends: Vec<f64> = Vec::new();
            for at in row {
                let below = &self.items[*at].below;
                let mut below: Vec<f64> = below.iter().map(|(to, _)| self.items[*to].x).collect();
                below.sort_by(f64::total_cmp);
                for to in below {
                    // Ends beyond this one belong to edges that start before it.
                    let place = ends.partition_point(|end| *end <= to);
                    crossings += (ends.len() - place) as u64;
                    ends.insert(place, to);
                }
            }
        }
        crossings
    }

    /// Moves boxes and lanes towards their neighbours, keeping order and distances.
    fn place(&mut self) {
        for row in 0..self.rows.len() {
            let (mut x, mut last) = (0.0, 0.0);
            for at in self.rows[row].clone() {
                x += last + self.items[at].width / 2.0;
                self.items[at].x = x;
                last = self.items[at].width / 2.0 + APART;
            }
        }
        for pass in 0..2 * PASSES {
            let down = pass % 2 == 0;
            let both = pass + 2 >= 2 * PASSES;
            for step in 0..self.rows.len() {
                let row = if down { step } else { self.rows.len() - 1 - step };
                self.place_row(row, down, both);
            }
        }
    }

    /// Least squares under the order and distances of a row: isotonic regression by merging
    /// neighbours that would overlap.
    fn place_row(&mut self, row: usize, down: bool, both: bool) {
        let mut runs: Vec<(f64, f64, usize)> = Vec::new();
        let mut offsets = Vec::with_capacity(self.rows[row].len());
        let (mut offset, mut last) = (0.0, None);
        for &at in &self.rows[row] {
            let item = &self.items[at];
            if let Some(last) = last {
                offset += last + item.width / 2.0 + APART;
            }
            last = Some(item.width / 2.0);
            offsets.push(offset);
            let weight: f64 = self.neighbours(at, down).iter().map(|near| near.1).sum();
            let wanted = match (self.wanted(at, down), self.wanted(at, !down), item.anchor) {
                (Some(one), Some(other), _) if both => f64::midpoint(one, other),
                (Some(wanted), ..) => wanted,
                (None, _, Some(anchor)) => self.items[anchor].x + self.items[anchor].width / 2.0,
                (None, ..) => item.x,
            };
            let mut run = (wanted - offset, weight.max(0.1), 1);
            while let Some(before) = runs.last().filter(|before| before.0 > run.0) {
                let weight = before.1 + run.1;
                let mean = (before.0 * before.1 + run.0 * run.1) / weight;
                run = (mean, weight, before.2 + run.2);
                runs.pop();
            }
            runs.push(run);
        }
        let starts = runs.iter().flat_map(|(mean, _, len)| std::iter::repeat_n(*mean, *len));
        for ((&at, offset), start) in self.rows[row].iter().zip(offsets).zip(starts) {
            self.items[at].x = start + offset;
        }
    }

    /// Turns positions into boxes and routes.
    fn route(&self, sizes: &[(f64, f64)], links: &[Link]) -> Layout {
        let left = |item: &Item| item.x - item.width / 2.0;
        let shift = MARGIN - self.items.iter().map(left).fold(f64::INFINITY, f64::min);
        let right = self.items.iter().map(|item| item.x + item.width / 2.0);
        let width = right.fold(0.0, f64::max) + shift + MARGIN;
        let mut tops = Vec::new();
        let mut bottoms = Vec::new();
        let mut y = MARGIN + GAP / 2.0;
        for row in &self.rows {
            let heights = row.iter().filter_map(|at| sizes.get(*at)).map(|size| size.1);
            let height = heights.fold(0.0, f64::max);
            tops.push(y);
            bottoms.push(y + height);
            let edges: usize = row.iter().map(|at| self.items[*at].below.len()).sum();
            y += height + (GAP + 2.0 * edges as f64).min(MOST_GAP);
        }
        let at = |item: usize| self.items[item].x + shift;
        let boxes: Vec<(f64, f64)> = (0..sizes.len())
            .map(|node| (at(node) - sizes[node].0 / 2.0, tops[self.items[node].row]))
            .collect();
        // Links leave and reach a box side by side, in the order of where they go.
        let mut ports = vec![(0.0, 0.0); links.len()];
        for out in [true, false] {
            let mut near: Vec<Vec<(f64, usize)>> = vec![Vec::new(); sizes.len()];
            for (index, link) in links.iter().enumerate() {
                let (node, other) = if out { (link.from, link.to) } else { (link.to, link.from) };
                let lanes = &self.passed[index];
                let next = if out { lanes.first() } else { lanes.last() };
                near[node].push((at(next.copied().unwrap_or(other)), index));
            }
            for (node, mut near) in near.into_iter().enumerate() {
                near.sort_by(|a, b| a.0.total_cmp(&b.0));
                let step = ((sizes[node].0 - 16.0) / near.len().max(1) as f64).min(22.0);
                for (place, (_, index)) in near.iter().enumerate() {
                    let x = at(node) + (place as f64 - (near.len() - 1) as f64 / 2.0) * step;
                    let port = if out { &mut ports[*index].0 } else { &mut ports[*index].1 };
                    *port = x;
                }
            }
        }
        let routes =
            links.iter().zip(&self.passed).zip(ports).map(|((link, lanes), (out, into))| {
                let row = |item: usize| self.items[item].row;
                let is_up = row(link.to) <= row(link.from);
                let bottom = tops[row(link.from)] + sizes[link.from].1;
                let mut legs =
                    vec![Leg { x: out, from: bottom, to: bottoms[row(link.from)], is_down: true }];
                legs.extend(lanes.iter().map(|&lane| {
                    let (top, bottom) = (tops[row(lane)], bottoms[row(lane)]);
                    let (from, to) = if is_up { (bottom, top) } else { (top, bottom) };
                    Leg { x: at(lane), from, to, is_down: !is_up }
                }));
                let end = tops[row(link.to)] - HEAD;
                legs.push(Leg { x: into, from: end, to: end, is_down: true });
                legs
            });
        Layout { boxes, routes: routes.collect(), width, height: y + MARGIN }
    }
}

/// The row of each box: one below the lowest that leads to it.
fn ranks(count: usize, links: &[Link]) -> Vec<usize> {
    let mut leaving: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut waiting = vec![0; count];
    for link in links.iter().filter(|link| !link.back) {
        leaving[link.from].push(link.to);
        waiting[link.to] += 1;
    }
    let mut ranks = vec![0; count];
    let mut ready: Vec<usize> = (0..count).filter(|node| waiting[*node] == 0).collect();
    while let Some(node) = ready.pop() {
        for &to in &leaving[node] {
            ranks[to] = ranks[to].max(ranks[node] + 1);
            waiting[to] -= 1;
            if waiting[to] == 0 {
                ready.push(to);
            }
        }
    }
    ranks
}

/// An SVG path along a route.
pub(crate) fn path(route: &[Leg]) -> String {
    let mut path = String::new();
    let mut before: Option<&Leg> = None;
    for leg in route {
        match before {
            None => path += &format!("M{:.1} {:.1}", leg.x, leg.from),
            Some(last) => {
                let [(ax, ay), (bx, by)] = bends(last, leg);
                path += &format!("C{ax:.1} {ay:.1} {bx:.1} {by:.1} {:.1} {:.1}", leg.x, leg.from);
            }
        }
        if leg.to != leg.from {
            path += &format!("V{:.1}", leg.to);
        }
        before = Some(leg);
    }
    path
}

/// Points along a route, those near its start first.
pub(crate) fn points(route: &[Leg]) -> impl Iterator<Item = (f64, f64)> {
    route.windows(2).flat_map(|pair| {
        let steps = [0.5, 0.35, 0.65, 0.2, 0.8].map(|t| curve(&pair[0], &pair[1], t));
        let (x, length) = (pair[1].x, pair[1].to - pair[1].from);
        let along = [0.1, 0.5, 0.9].map(|t| (x, pair[1].from + length * t));
        steps.into_iter().chain(along)
    })
}

/// A point of the curve between two legs, at 0 to 1.
fn curve(a: &Leg, b: &Leg, t: f64) -> (f64, f64) {
    let [(cx, cy), (dx, dy)] = bends(a, b);
    let s = 1.0 - t;
    let mix = |p: f64, q: f64, r: f64, u: f64| {
        s * s * s * p + 3.0 * s * s * t * q + 3.0 * s * t * t * r + t * t * t * u
    };
    (mix(a.x, cx, dx, b.x), mix(a.to, cy, dy, b.from))
}

/// The control points of the curve between two legs: in the space between the rows.
fn bends(a: &Leg, b: &Leg) -> [(f64, f64); 2] {
    let reach = if a.is_down == b.is_down { (b.from - a.to).abs() / 2.0 } else { GAP * 0.45 };
    let along = |leg: &Leg| if leg.is_down { reach } else { -reach };
    [(a.x, a.to + along(a)), (b.x, b.from - along(b))]
}

#[cfg(test)]
#[path = "../../../tests/cli/unit/present/layered.rs"]
mod tests;
