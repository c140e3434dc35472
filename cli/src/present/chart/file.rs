//! The chart as SVG.

use anyhow::anyhow;
use plotters::prelude::{IntoDrawingArea, SVGBackend};

use super::Histogram;
use super::draw;

/// Size of one picture, pixels.
const SINGLE: (u32, u32) = (960, 480);
/// Size of one of several charts on a sheet, pixels.
const CELL: (u32, u32) = (720, 360);
/// Size of one in a page, pixels.
const SMALL: (u32, u32) = (620, 300);
/// Charts in a row.
const ACROSS: usize = 2;

impl Histogram {
    /// The chart as SVG for a page with several charts.
    pub(crate) fn small_svg(&self) -> anyhow::Result<String> {
        let mut svg = String::new();
        let (width, height) = SMALL;
        let size = (width, height + draw::LINE * (self.series.len().max(1) as u32 - 1));
        render(SVGBackend::with_string(&mut svg, size), std::slice::from_ref(self))?;
        Ok(svg)
    }
}

/// Several charts, side by side, as an SVG document.
pub(crate) fn svg_sheet(charts: &[Histogram]) -> anyhow::Result<String> {
    let mut svg = String::new();
    render(SVGBackend::with_string(&mut svg, size(charts)), charts)?;
    Ok(svg)
}

/// Columns and rows of a sheet.
fn grid(charts: usize) -> (usize, usize) {
    let across = charts.clamp(1, ACROSS);
    (across, charts.div_ceil(across).max(1))
}

fn size(charts: &[Histogram]) -> (u32, u32) {
    let (across, down) = grid(charts.len());
    let (width, height) = if charts.len() > 1 { CELL } else { SINGLE };
    // Each further series has a line above the bars.
    let lines = charts.iter().map(|chart| chart.series.len()).max().unwrap_or(1).max(1) as u32;
    (width * across as u32, (height + draw::LINE * (lines - 1)) * down as u32)
}

fn render(backend: SVGBackend<'_>, charts: &[Histogram]) -> anyhow::Result<()> {
    let cannot = |error: String| anyhow!("the picture cannot be drawn: {error}");
    let root = backend.into_drawing_area();
    root.fill(&draw::PAPER).map_err(|e| cannot(e.to_string()))?;
    let (across, down) = grid(charts.len());
    for (area, chart) in root.split_evenly((down, across)).iter().zip(charts) {
        draw::histogram(area, chart).map_err(|e| cannot(e.to_string()))?;
    }
    root.present().map_err(|e| cannot(e.to_string()))
}
