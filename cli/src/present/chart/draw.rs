//! Draws one chart on any backend.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::{
    ChartBuilder, Color, DashedLineSeries, DrawingArea, DrawingBackend, IntoFont, IntoLogRange,
    PathElement, Polygon, RGBColor, Ranged, Rectangle, Text, TextStyle, TriangleMarker,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::binning::Gaps;
use super::{Bins, Histogram, PICTURE_BINS, Series, one_line};
use crate::present::number::grouped;

/// Font family of the labels.
const FONT: &str = "monospace";
/// Colors of everything but series: a page may replace them.
pub(super) const PAPER: RGBColor = RGBColor(0xFF, 0xFF, 0xFF);
const INK: RGBColor = RGBColor(0x1F, 0x23, 0x28);
const GRID: RGBColor = RGBColor(0xD0, 0xD7, 0xDE);
/// Okabe and Ito's palette, which color-blind people can distinguish, in an order in which
/// neighbors also differ in grey; lines also differ in their dashes.
const PALETTE: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
];
/// Dashes and the gaps between them, pixels; 0 is a solid line.
const DASHES: [(u32, u32); 4] = [(0, 0), (9, 4), (2, 3), (16, 6)];
/// Height of a line of text, pixels.
pub(super) const LINE: u32 = 18;
const TITLE: u32 = 16;
const SMALL: u32 = 13;
const MARGIN: i32 = 14;
/// Height of the axis of cycles with its labels, pixels.
const X_AXIS: u32 = 42;
/// Height for the marks of modes above the highest bar, pixels.
const MARKS: u32 = 48;
/// Number of bars up to which there are gaps between them.
const APART: usize = 60;

type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;
type Area<B> = DrawingArea<B, Shift>;

fn colour(series: usize) -> RGBColor {
    PALETTE.get(series % PALETTE.len()).copied().unwrap_or(INK)
}

fn dashes(series: usize) -> (u32, u32) {
    DASHES.get(series % DASHES.len()).copied().unwrap_or((0, 0))
}

fn style(size: u32, colour: &RGBColor) -> TextStyle<'static> {
    (FONT, size).into_font().color(colour)
}

/// A text cut in its middle until it fits.
fn fitted<B: DrawingBackend>(area: &Area<B>, text: &str, size: u32, width: u32) -> String {
    let text = one_line(text);
    let fits = |text: &str| {
        let measured = area.estimate_text_size(text, &style(size, &INK));
        measured.is_ok_and(|(needed, _)| needed <= width)
    };
    if fits(&text) {
        return text;
    }
    let chars: Vec<char> = text.chars().collect();
    let mut keep = chars.len();
    while keep > 8 {
        keep -= 1;
        let (head, tail) = (keep.div_ceil(2), keep / 2);
        let begin = chars.iter().take(head);
        let end = chars.iter().skip(chars.len() - tail);
        let cut: String = begin.chain(['…'].iter()).chain(end).collect();
        if fits(&cut) {
            return cut;
        }
    }
    chars.into_iter().take(8).collect()
}

/// Draws a chart.
pub(super) fn histogram<B: DrawingBackend>(area: &Area<B>, chart: &Histogram) -> Drawn<B> {
    let (width, height) = area.dim_in_pixel();
    let room = width.saturating_sub(2 * MARGIN as u32);
    let mut y = MARGIN;
    if !chart.title.is_empty() {
        let title = fitted(area, &chart.title, TITLE, room);
        area.draw(&Text::new(title, (MARGIN, y), style(TITLE, &INK)))?;
        y += LINE as i32 + 4;
    }
    let bins = Bins::of(&chart.series, chart.bins.unwrap_or(PICTURE_BINS), Gaps::Drawn);
    for (index, series) in chart.series.iter().enumerate() {
        legend(area, index, series, y, room, chart.series.len() > 1)?;
        y += LINE as i32;
    }
    let below = remarks(chart, bins.as_ref());
    for (line, remark) in below.iter().rev().enumerate() {
        let at = height as i32 - MARGIN / 2 - (line as i32 + 1) * LINE as i32;
        area.draw(&Text::new(fitted(area, remark, SMALL, room), (MARGIN, at), style(SMALL, &INK)))?;
    }
    let Some(bins) = bins else {
        let text = style(SMALL, &INK).pos(Pos::new(HPos::Center, VPos::Center));
        let middle = (width as i32 / 2, height as i32 / 2);
        return area.draw(&Text::new("no run has a cycle count", middle, text));
    };
    let bottom = below.len() as u32 * LINE + MARGIN as u32;
    let plot = area.margin(y + 4, bottom, MARGIN, MARGIN);
    let highest = heights(chart, &bins).fold(0.0, f64::max);
    let least = heights(chart, &bins).filter(|height| *height > 0.0).fold(highest, f64::min);
    // Room for the marks above the highest bar.
    let room =
        f64::from(MARKS) / f64::from(plot.dim_in_pixel().1.saturating_sub(X_AXIS + MARKS).max(1));
    if chart.log {
        // One step below the smallest bar, so that it is visible.
        let floor = least / 2.0;
        let top = highest * (highest / floor).powf(room);
        bars(&plot, chart, &bins, (floor..top).log_scale(), floor)
    } else {
        bars(&plot, chart, &bins, 0.0..highest * (1.0 + room), 0.0)
    }
}

/// The line of a series above the bars.
fn legend<B: DrawingBackend>(
    area: &Area<B>,
    index: usize,
    series: &Series,
    y: i32,
    room: u32,
    several: bool,
) -> Drawn<B> {
    let facts = series.facts();
    let colour = colour(index);
    let middle = y + LINE as i32 / 2 - 4;
    if several {
        line(area, &[(MARGIN, middle), (MARGIN + 34, middle)], index)?;
    } else {
        area.draw(&Rectangle::new(
            [(MARGIN, middle - 5), (MARGIN + 12, middle + 5)],
            colour.filled(),
        ))?;
    }
    let indent = if several { 42 } else { 20 };
    let (facts_width, _) = area.estimate_text_size(&format!(": {facts}"), &style(SMALL, &INK))?;
    let label = fitted(area, &series.label, SMALL, room.saturating_sub(indent + facts_width));
    let text = if label.is_empty() { facts } else { format!("{label}: {facts}") };
    let text = fitted(area, &text, SMALL, room.saturating_sub(indent));
    area.draw(&Text::new(text, (MARGIN + indent as i32, y), style(SMALL, &INK)))
}

/// A line in pixels, dashed as its series is.
fn line<B: DrawingBackend>(area: &Area<B>, points: &[(i32, i32)], series: usize) -> Drawn<B> {
    let stroke = colour(series).stroke_width(2);
    match dashes(series) {
        (0, _) => area.draw(&PathElement::new(points.to_vec(), stroke)),
        (dash, space) => {
            let dashed = DashedLineSeries::new(points.to_vec(), dash, space, stroke);
            dashed.into_iter().try_for_each(|dash| area.draw(&dash))
        }
    }
}

/// Remarks below the bars.
fn remarks(chart: &Histogram, bins: Option<&Bins>) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(bins) = bins {
        let mut what = vec![match bins.width {
            1 => format!("bins of 1 {}", chart.unit.map_or("cycle", |_| "tick")),
            width => format!(
                "bins of {} {}",
                grouped(u64::from(width)),
                chart.unit.map_or("cycles", |_| "ticks")
            ),
        }];
        let beyond = bins.beyond.iter().fold(0u64, |sum, runs| sum.saturating_add(*runs));
        if let (Some(largest), Some(last)) = (bins.largest_beyond, bins.bins.last()) {
            what.push(format!(
                "{} runs above {} cycles not drawn, the largest {}",
                grouped(beyond),
                grouped(u64::from(last.first.saturating_add(bins.width - 1))),
                grouped(u64::from(largest)),
            ));
        }
        said.push(what.join("; "));
    }
    said.extend(chart.note.clone());
    said
}

/// The height of a series in a bin: runs, or percent if several are compared.
fn height(chart: &Histogram, series: usize, runs: f64) -> f64 {
    if chart.series.len() < 2 {
        return runs;
    }
    let n = chart.series.get(series).map_or(0, |series| series.n);
    if n == 0 { 0.0 } else { runs / n as f64 * 100.0 }
}

fn heights<'a>(chart: &'a Histogram, bins: &'a Bins) -> impl Iterator<Item = f64> + 'a {
    let of_bin = |bin: &'a super::Bin| bin.runs.iter().enumerate();
    bins.bins.iter().flat_map(of_bin).map(|(series, runs)| height(chart, series, *runs))
}

/// Axes, bars and marks.
fn bars<B, Y>(area: &Area<B>, chart: &Histogram, bins: &Bins, y: Y, floor: f64) -> Drawn<B>
where
    B: DrawingBackend,
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let first = bins.bins.first().map_or(0, |bin| bin.first);
    let last = bins.bins.last().map_or(0, |bin| bin.first);
    let width = f64::from(bins.width);
    // The bar of a count is centered over its number: a bin starts half a cycle before it.
    let left = |first: u32| f64::from(first) - 0.5;
    let span = f64::from(last - first) + width;
    let side = if bins.bins.len() < 8 { (8.0 * width - span).max(width) / 2.0 } else { width };
    // Nothing took less than no cycle.
    let x = (left(first) - side).max(-0.5)..left(last) + width + side;
    let mut plot = ChartBuilder::on(area);
    plot.x_label_area_size(X_AXIS).y_label_area_size(76);
    let mut plot = plot.build_cartesian_2d(x, y)?;
    let whole = |value: f64| (value - value.round()).abs() < 1e-6;
    let labels = (x_labels(area.dim_in_pixel().0)).min((span + 2.0 * side).max(2.0) as usize);
    let percent = |value: f64| match value {
        value if value >= 1.0 && whole(value) => format!("{value:.0}%"),
        value => format!("{}%", (value * 1e4).round() / 1e4),
    };
    let several = chart.series.len() > 1;
    plot.configure_mesh()
        .disable_x_mesh()
        .light_line_style(GRID.mix(0.0))
        .bold_line_style(GRID)
        .axis_style(INK)
        .x_labels(labels)
        .y_labels(6)
        .label_style(style(SMALL, &INK))
        .x_desc(chart.unit.unwrap_or("core cycles"))
        .y_desc(if several { "share of the runs" } else { "runs" })
        .axis_desc_style(style(SMALL, &INK))
        .x_label_formatter(&|value| match *value {
            value if whole(value) && value >= 0.0 => grouped(value.round() as u64),
            _ => String::new(),
        })
        .y_label_formatter(&|value| match *value {
            value if several => percent(value),
            value if whole(value) => grouped(value.round() as u64),
            _ => String::new(),
        })
        .draw()?;
    for series in 0..chart.series.len() {
        let top = |bin: &super::Bin| {
            height(chart, series, bin.runs.get(series).copied().unwrap_or(0.0)).max(floor)
        };
        let fill = colour(series).mix(if several { 0.15 } else { 1.0 }).filled();
        if !several && bins.bins.len() <= APART {
            plot.draw_series(bins.bins.iter().filter(|bin| top(bin) > floor).map(|bin| {
                let (left, gap) = (left(bin.first), width * 0.06);
                Rectangle::new([(left + gap, floor), (left + width - gap, top(bin))], fill)
            }))?;
            continue;
        }
        let mut steps = vec![(left(first), floor)];
        for bin in &bins.bins {
            let ends = [left(bin.first), left(bin.first) + width];
            steps.extend(ends.map(|x| (x, top(bin))));
        }
        steps.push((left(last) + width, floor));
        steps.dedup();
        plot.draw_series([Polygon::new(steps.clone(), fill)])?;
        if several {
            let stroke = colour(series).stroke_width(2);
            match dashes(series) {
                (0, _) => plot.draw_series([PathElement::new(steps, stroke)])?,
                (dash, gap) => plot.draw_series(DashedLineSeries::new(steps, dash, gap, stroke))?,
            };
        }
    }
    let mut marks = Vec::new();
    for bin in &bins.bins {
        for (series, modes) in bin.modes.iter().enumerate() {
            let runs = bin.runs.get(series).copied().unwrap_or(0.0);
            let top = height(chart, series, runs).max(floor);
            let at = |mode: &u32| plot.backend_coord(&(f64::from(*mode), top));
            marks.extend(modes.iter().map(|mode| Mark { at: at(mode), mode: *mode, series }));
        }
    }
    mode_marks(&plot.plotting_area().strip_coord_spec(), marks)
}

/// A mode to be marked.
struct Mark {
    /// The top of its bar, in pixels of the whole picture.
    at: (i32, i32),
    mode: u32,
    series: usize,
}

/// Triangles that point at the bars of modes, with as many non-overlapping labels as fit.
fn mode_marks<B: DrawingBackend>(area: &Area<B>, mut marks: Vec<Mark>) -> Drawn<B> {
    // The area counts from its own corner.
    let corner = area.get_base_pixel();
    let (width, _) = area.dim_in_pixel();
    marks.sort_by_key(|mark| (mark.mode, mark.at.1));
    let mut placed: Vec<(i32, i32, i32)> = Vec::new();
    let mut numbered: Vec<u32> = Vec::new();
    for Mark { at, mode, series } in marks {
        let (x, y) = (at.0 - corner.0, at.1 - corner.1);
        area.draw(&TriangleMarker::new((x, y - 8), -6, colour(series).filled()))?;
        if numbered.contains(&mode) {
            continue;
        }
        numbered.push(mode);
        let number = format!("mode {mode}");
        let (needed, _) = area.estimate_text_size(&number, &style(SMALL, &INK))?;
        let half = needed as i32 / 2 + 3;
        let x = x.clamp(half, (width as i32 - half).max(half));
        let is_free = |bottom: &i32| {
            placed.iter().all(|&(first, last, other)| {
                first >= x + half || x - half >= last || (other - bottom).abs() >= SMALL as i32
            })
        };
        let places = (SMALL as i32..=y - 14).rev().step_by(SMALL as usize);
        // The legend has them all.
        let Some(bottom) = places.into_iter().find(is_free) else { continue };
        placed.push((x - half, x + half, bottom));
        let text = style(SMALL, &INK).pos(Pos::new(HPos::Center, VPos::Bottom));
        area.draw(&Text::new(number, (x, bottom), text))?;
    }
    Ok(())
}

/// Number of labels below an axis of `width` pixels.
fn x_labels(width: u32) -> usize {
    (width / 80).max(2) as usize
}
