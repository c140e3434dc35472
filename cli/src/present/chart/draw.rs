//! Draws charts as SVG.

use maud::{Markup, PreEscaped, html};

use super::binning::Gaps;
use super::{Bins, Histogram, PICTURE_BINS, Series};
use crate::present::escape::escaped;
use crate::present::number::grouped;
use crate::present::shorten::without_middle;

/// Colors of everything but series: a page may replace them.
const PAPER: &str = "#FFFFFF";
const INK: &str = "#1F2328";
const GRID: &str = "#D0D7DE";
/// Okabe and Ito's palette, which color-blind people can distinguish, in an order in which
/// neighbors also differ in grey; lines also differ in their dashes.
const PALETTE: [&str; 6] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];
/// Dashes and the gaps between them, pixels.
const DASHES: [&str; 4] = ["none", "9 4", "2 3", "16 6"];
/// Size of one picture, of one of several on a sheet, and of one in a page, pixels.
const SINGLE: (usize, usize) = (960, 480);
const CELL: (usize, usize) = (720, 360);
const SMALL: (usize, usize) = (620, 300);
/// Charts in a row.
const ACROSS: usize = 2;
/// Height of a line of text, width of a character at its size, and margin, pixels.
const LINE: usize = 18;
const CHAR: f64 = 7.9;
const MARGIN: f64 = 14.0;
/// Space for the axes with their labels, and for the marks of modes above the highest bar, pixels.
const X_AXIS: f64 = 42.0;
const Y_AXIS: f64 = 76.0;
const MARKS: f64 = 48.0;
/// Number of bars up to which there are gaps between them.
const APART: usize = 60;

/// The chart as SVG for a page with several charts.
pub(crate) fn small_svg(chart: &Histogram) -> String {
    document(SMALL, std::slice::from_ref(chart))
}

/// Several charts, side by side, as an SVG document.
pub(crate) fn svg_sheet(charts: &[Histogram]) -> String {
    document(if charts.len() > 1 { CELL } else { SINGLE }, charts)
}

fn document((width, height): (usize, usize), charts: &[Histogram]) -> String {
    // Each further series has a line above the bars.
    let lines = charts.iter().map(|chart| chart.series.len()).max().unwrap_or(1).max(1);
    let height = height + LINE * (lines - 1);
    let across = charts.len().clamp(1, ACROSS);
    let (whole, tall) = (width * across, height * charts.len().div_ceil(across).max(1));
    let document = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(whole) height=(tall) viewBox={ "0 0 " (whole) " " (tall) }
            font-family="monospace" font-size="13" {
            rect width=(whole) height=(tall) fill=(PAPER) {}
            @for (at, chart) in charts.iter().enumerate() {
                g transform={ "translate(" (width * (at % across)) " " (height * (at / across)) ")" } {
                    (histogram(chart, width as f64, height as f64))
                }
            }
        }
    };
    document.into_string()
}

/// A chart with its caption; `block` links it to the row of its block.
pub(crate) fn figure(title: &str, drawing: &str, block: Option<&str>) -> Markup {
    html! {
        figure class="chart" data-block=[block] {
            figcaption class="code" { (title) }
            div role="img" aria-label={ "Cycles of " (title) } { (PreEscaped(drawing)) }
        }
    }
}

/// A text cut in its middle to fit the width.
fn fitted(text: &str, width: f64) -> String {
    without_middle(&escaped(text), (width / CHAR).max(8.0) as usize)
}

fn label(x: f64, y: f64, anchor: &str, text: &str) -> Markup {
    html! { text x=(px(x)) y=(px(y)) fill=(INK) text-anchor=(anchor) { (text) } }
}

fn px(pixels: f64) -> String {
    format!("{pixels:.1}")
}

fn colour(series: usize) -> &'static str {
    PALETTE[series % PALETTE.len()]
}

fn dashes(series: usize) -> &'static str {
    DASHES[series % DASHES.len()]
}

fn histogram(chart: &Histogram, width: f64, height: f64) -> Markup {
    let room = width - 2.0 * MARGIN;
    let bins = Bins::of(&chart.series, PICTURE_BINS, Gaps::Drawn);
    let below = remarks(chart, bins.as_ref());
    let line = |lines: usize| (lines * LINE) as f64;
    let top = MARGIN + if chart.title.is_empty() { 0.0 } else { line(1) + 4.0 };
    let bottom = height - MARGIN - line(below.len());
    html! {
        @if !chart.title.is_empty() {
            g font-size="16" { (label(MARGIN, MARGIN + 14.0, "start", &fitted(&chart.title, room * 13.0 / 16.0))) }
        }
        @for (at, series) in chart.series.iter().enumerate() {
            (legend(chart, at, series, top + line(at), room))
        }
        @for (at, remark) in below.iter().enumerate() {
            (label(MARGIN, bottom + line(at + 1), "start", &fitted(remark, room)))
        }
        @match &bins {
            Some(bins) => (Plot::new(chart, bins, width, top + line(chart.series.len()), bottom).draw()),
            None => (label(width / 2.0, height / 2.0, "middle", "no run has a cycle count")),
        }
    }
}

/// The line of a series above the bars.
fn legend(chart: &Histogram, at: usize, series: &Series, y: f64, room: f64) -> Markup {
    let several = chart.series.len() > 1;
    let indent = if several { 42.0 } else { 20.0 };
    let facts = series.facts();
    let left = room - indent - (facts.chars().count() + 2) as f64 * CHAR;
    let text = match series.label.is_empty() {
        true => facts,
        false => format!("{}: {facts}", fitted(&series.label, left)),
    };
    html! {
        @if several {
            line x1=(MARGIN) x2=(MARGIN + 34.0) y1=(y + 5.0) y2=(y + 5.0) stroke=(colour(at)) stroke-width="2"
                stroke-dasharray=(dashes(at)) {}
        } @else {
            rect x=(MARGIN) y=(y) width="12" height="10" fill=(colour(at)) {}
        }
        (label(MARGIN + indent, y + 10.0, "start", &fitted(&text, room - indent)))
    }
}

/// Remarks below the bars.
fn remarks(chart: &Histogram, bins: Option<&Bins>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(bins) = bins {
        let mut what = match bins.width {
            1 => "bins of 1 cycle".to_owned(),
            width => format!("bins of {} cycles", grouped(u64::from(width))),
        };
        let beyond = bins.beyond.iter().fold(0u64, |sum, runs| sum.saturating_add(*runs));
        if let (Some(largest), Some(last)) = (bins.largest_beyond, bins.bins.last()) {
            what += &format!(
                "; {} runs above {} cycles not drawn, the largest {}",
                grouped(beyond),
                grouped(u64::from(last.first.saturating_add(bins.width - 1))),
                grouped(u64::from(largest)),
            );
        }
        notes.push(what);
    }
    notes.extend(chart.note.clone());
    notes
}

/// The space between marks of an axis: 1, 2 or 5 times a power of ten, `least` or more.
fn step(span: f64, most: f64, least: f64) -> f64 {
    let rough = (span / most).max(least);
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|digit| digit * power);
    steps.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(10.0 * power)
}

/// The bars and their axes.
struct Plot<'a> {
    chart: &'a Histogram,
    bins: &'a Bins,
    /// The edges of the area of the bars, pixels.
    left: f64,
    right: f64,
    top: f64,
    base: f64,
    /// The cycles at the left and the right edge.
    start: f64,
    end: f64,
    /// The highest bar: runs, or percent.
    highest: f64,
}

impl<'a> Plot<'a> {
    fn new(chart: &'a Histogram, bins: &'a Bins, width: f64, top: f64, bottom: f64) -> Plot<'a> {
        let first = bins.bins.first().map_or(0, |bin| bin.first);
        let last = bins.bins.last().map_or(0, |bin| bin.first);
        let each = f64::from(bins.width);
        let span = f64::from(last - first) + each;
        let side = if bins.bins.len() < 8 { (8.0 * each - span).max(each) / 2.0 } else { each };
        let mut plot = Plot {
            chart,
            bins,
            left: MARGIN + Y_AXIS,
            right: width - MARGIN,
            top,
            base: bottom - X_AXIS,
            // The bar of a count is centered over its number. Nothing took less than no cycle.
            start: (f64::from(first) - 0.5 - side).max(-0.5),
            end: f64::from(last) - 0.5 + each + side,
            highest: f64::MIN_POSITIVE,
        };
        let heights = (0..bins.bins.len())
            .flat_map(|bin| (0..chart.series.len()).map(move |series| (bin, series)));
        plot.highest =
            heights.map(|(bin, series)| plot.height(bin, series)).fold(plot.highest, f64::max);
        plot
    }

    fn is_of_several(&self) -> bool {
        self.chart.series.len() > 1
    }

    /// The height of a series in a bin: runs, or percent if several are compared.
    fn height(&self, bin: usize, series: usize) -> f64 {
        let runs = self.bins.bins.get(bin).and_then(|bin| bin.runs.get(series)).copied();
        let n = self.chart.series.get(series).map_or(0, |series| series.n).max(1) as f64;
        runs.unwrap_or(0.0) * if self.is_of_several() { 100.0 / n } else { 1.0 }
    }

    fn x(&self, cycles: f64) -> f64 {
        let share = (cycles - self.start) / (self.end - self.start);
        self.left + share * (self.right - self.left)
    }

    fn y(&self, height: f64) -> f64 {
        self.base - height / self.highest * (self.base - self.top - MARKS)
    }

    fn draw(&self) -> Markup {
        let several = self.is_of_several();
        html! {
            (self.axes())
            @for series in 0..self.chart.series.len() {
                @if !several && self.bins.bins.len() <= APART { (self.bars(series)) } @else { (self.outline(series)) }
            }
            (self.modes())
        }
    }

    fn axes(&self) -> Markup {
        let several = self.is_of_several();
        let y = step(self.highest, 6.0, if several { 1e-4 } else { 1.0 });
        let heights = (0..).map(|n| f64::from(n) * y).take_while(|at| *at <= self.highest);
        let width = self.right - self.left;
        let x = step(self.end - self.start, (width / 80.0).max(2.0), 1.0);
        let first = (self.start.max(0.0) / x).ceil() as u32;
        let cycles = (first..).map(|n| f64::from(n) * x).take_while(|at| *at <= self.end);
        let middle = f64::midpoint(self.top, self.base);
        let of = if several { "share of the runs" } else { "runs" };
        html! {
            @for at in heights {
                @let height = self.y(at);
                line x1=(px(self.left)) x2=(px(self.right)) y1=(px(height)) y2=(px(height)) stroke=(GRID) {}
                (label(self.left - 6.0, height + 4.0, "end", &match several {
                    true => format!("{}%", (at * 1e4).round() / 1e4),
                    false => grouped(at as u64),
                }))
            }
            path fill="none" stroke=(INK)
                d=(format!("M{:.1} {:.1}V{:.1}H{:.1}", self.left, self.top, self.base, self.right)) {}
            @for at in cycles { (label(self.x(at), self.base + 16.0, "middle", &grouped(at as u64))) }
            (label(f64::midpoint(self.left, self.right), self.base + 34.0, "middle", "core cycles"))
            g transform=(format!("translate({:.1} {middle:.1}) rotate(-90)", MARGIN + 12.0)) { (label(0.0, 0.0, "middle", of)) }
        }
    }

    fn bars(&self, series: usize) -> Markup {
        let each = f64::from(self.bins.width);
        let width = self.x(each * 0.88) - self.x(0.0);
        html! {
            @for (at, bin) in self.bins.bins.iter().enumerate() {
                @let top = self.y(self.height(at, series));
                @if top < self.base {
                    rect x=(px(self.x(f64::from(bin.first) - 0.5 + each * 0.06))) y=(px(top))
                        width=(px(width)) height=(px(self.base - top)) fill=(colour(series)) {}
                }
            }
        }
    }

    /// The bars as one line, filled.
    fn outline(&self, series: usize) -> Markup {
        let several = self.is_of_several();
        let mut points = String::new();
        let mut to = |cycles: f64, y: f64| points += &format!("{:.1},{y:.1} ", self.x(cycles));
        let mut end = 0.0;
        for (at, bin) in self.bins.bins.iter().enumerate() {
            let start = f64::from(bin.first) - 0.5;
            if at == 0 {
                to(start, self.base);
            }
            end = start + f64::from(self.bins.width);
            let top = self.y(self.height(at, series));
            to(start, top);
            to(end, top);
        }
        to(end, self.base);
        html! {
            polyline points=(points.trim_end()) fill=(colour(series)) fill-opacity=(if several { "0.15" } else { "1" })
                stroke=[several.then(|| colour(series))] stroke-width="2" stroke-dasharray=(dashes(series)) {}
        }
    }

    /// Triangles that point at the bars of modes, with as many non-overlapping labels as fit.
    fn modes(&self) -> Markup {
        let mut marks: Vec<(u32, f64, usize)> = Vec::new();
        for (at, bin) in self.bins.bins.iter().enumerate() {
            for (series, modes) in bin.modes.iter().enumerate() {
                let top = self.y(self.height(at, series));
                marks.extend(modes.iter().map(|mode| (*mode, top, series)));
            }
        }
        marks.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut placed: Vec<(f64, f64, f64)> = Vec::new();
        let mut labels: Vec<(u32, f64, f64)> = Vec::new();
        for &(mode, top, _) in &marks {
            if labels.last().is_some_and(|last| last.0 == mode) {
                continue;
            }
            let half = format!("mode {mode}").len() as f64 * CHAR / 2.0 + 3.0;
            let x = self.x(f64::from(mode)).clamp(self.left + half, self.right - half);
            let is_free = |y: &f64| {
                placed.iter().all(|(other, reach, at)| {
                    (other - x).abs() >= reach + half || (at - y).abs() >= 13.0
                })
            };
            let rows = (0..).map(|row| top - 14.0 - 13.0 * f64::from(row));
            // The legend has them all.
            if let Some(y) = rows.take_while(|y| *y > self.top + 9.0).find(is_free) {
                placed.push((x, half, y));
                labels.push((mode, x, y));
            }
        }
        html! {
            @for (mode, top, series) in &marks {
                path fill=(colour(*series))
                    d=(format!("M{:.1} {:.1}l-5 -8h10z", self.x(f64::from(*mode)), top - 3.0)) {}
            }
            @for (mode, x, y) in &labels { (label(*x, *y, "middle", &format!("mode {mode}"))) }
        }
    }
}
