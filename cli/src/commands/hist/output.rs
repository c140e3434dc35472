//! Charts as files.

use std::path::PathBuf;

use maud::html;

use crate::present::chart::{Histogram, figure, small_svg, svg_sheet};
use crate::present::page;

/// Writes charts in the format of a file.
pub(crate) type Format = fn(&[Histogram]) -> String;

/// A file and what it holds, by its ending.
pub(crate) fn file(path: &str) -> Result<(Format, PathBuf), String> {
    let path = PathBuf::from(path);
    let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_lowercase);
    let format: Format = match ending.as_deref() {
        Some("svg") => svg_sheet,
        Some("html" | "htm") => page_of,
        _ => return Err("its ending must be .svg or .html".to_owned()),
    };
    Ok((format, path))
}

/// A page with the drawings in it.
pub(crate) fn page_of(charts: &[Histogram]) -> String {
    let drawing = |chart: &Histogram| match charts.len() {
        1 => svg_sheet(std::slice::from_ref(chart)),
        // The caption has the title.
        _ => small_svg(&Histogram { title: String::new(), ..chart.clone() }),
    };
    let drawings: Vec<String> = charts.iter().map(drawing).collect();
    let title = match charts {
        [chart] => chart.title.clone(),
        _ => "Cycles of blocks".to_owned(),
    };
    let content = html! {
        h1 { (title) }
        div class=[(charts.len() > 1).then_some("charts")] {
            @for (chart, drawing) in charts.iter().zip(&drawings) {
                (figure(&chart.title, drawing, None))
            }
        }
    };
    page::page(&title, &content, "")
}
