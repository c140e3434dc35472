//! What is on the screen, as a file.

use std::path::{Path, PathBuf};

use anyhow::anyhow;

use super::app::App;
use super::lines::{Content, Lines, write};
use super::listing::Listing;
use super::page::{Body, Page};
use super::reading::Model;
use crate::commands::annotate::{self, graph, html, json};
use crate::commands::hist::output::page_of;
use crate::exit::{Failure, Result};
use crate::input::{Source, source_text::Sources};
use crate::output::Output;
use crate::present::chart::svg_sheet;
use crate::present::{Printer, Sheet, escaped};

/// Width of trees and charts in a file.
const WIDTH: usize = 120;

/// Writes the page; the ending of the path is the format.
pub(super) fn save(app: &mut App, path: &str) -> Result<()> {
    let App { model: Some(model), page, inputs, .. } = app else { return Ok(()) };
    let ending = Path::new(path).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let output = Output::new(Path::new(path), inputs.iter().map(PathBuf::as_path))?;
    let title = escaped(&page.title).into_owned();
    match &page.body {
        Body::Table(listing) => table(listing, model, &output, ending, &title),
        Body::Text(Lines { content, .. }) => text(content, page, model, &output, ending),
    }
}

fn table(
    listing: &Listing,
    model: &mut Model,
    output: &Output,
    ending: &str,
    title: &str,
) -> Result<()> {
    let modelled = Source::any_models_fields(&model.sources);
    let printer = match ending {
        "txt" => Printer::Text,
        "json" | "jsonl" => Printer::Json,
        "csv" => Printer::Csv,
        "html" => {
            let html = |sheet: &mut dyn Sheet| sheet.html(title, &listing.order);
            let table = listing.rows.with(model, &listing.ids, html).unwrap_or_default();
            return Ok(output.write(html::page(title, &[], &table))?);
        }
        _ => return Err(unknown("a table", ".txt, .csv, .json or .html")),
    };
    output.stream(|out| {
        out.modelled = modelled;
        let write = |sheet: &mut dyn Sheet| sheet.write(printer, out, &listing.order);
        listing.rows.with(model, &listing.ids, write).unwrap_or(Ok(())).map(Ok)
    })
}

fn text(
    content: &Content,
    page: &Page,
    model: &mut Model,
    output: &Output,
    ending: &str,
) -> Result<()> {
    match (content, ending) {
        (Content::Code(annotated, options), _) => {
            let flow = &model.overview.flow;
            let head = annotate::head(flow, Some(annotated), &model.sources);
            let mut lines = vec![annotate::title(annotated)];
            lines.extend(head.iter().cloned());
            match ending {
                "txt" => output
                    .stream(|out| annotate::text::print(out, &head, annotated, options).map(Ok))?,
                "json" | "jsonl" => output.stream(|out| {
                    json::print(out, flow, annotated, &model.sources, false).map(Ok)
                })?,
                "html" => {
                    let code = html::markup(annotated, &mut Sources::default());
                    output.write(html::page(&page.title, &head, &code))?
                }
                "svg" => output.write(graph::svg(annotated, &lines))?,
                "dot" => output.write(graph::dot(annotated, &lines))?,
                _ => return Err(unknown("code", ".txt, .json, .html, .svg or .dot")),
            }
        }
        (_, "txt") => output.stream(|out| write(content, model, out, WIDTH).map(|_| Ok(())))?,
        (Content::Chart(chart), "svg" | "html") => {
            let write = if ending == "svg" { svg_sheet } else { page_of };
            output.write(write(std::slice::from_ref(chart)))?
        }
        (Content::Chart(_), _) => return Err(unknown("a chart", ".txt, .svg or .html")),
        _ => return Err(unknown("text", ".txt")),
    }
    Ok(())
}

fn unknown(what: &str, endings: &str) -> Failure {
    anyhow!("{what} is written to a file whose name ends in {endings}").into()
}
