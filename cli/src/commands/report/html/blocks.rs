//! Straight code: how often it ran and in how many cycles.

use maud::{Markup, PreEscaped, html};
use profile::flow::{Block, Flow};

use super::tables::{Column, table};
use super::{number, place, rest, shortened};
use crate::commands::hist;
use crate::commands::report::{blocks, percent, share};
use crate::present::chart::Histogram;
use crate::present::number::grouped;
use crate::symbols;

/// Distributions that are drawn.
const DRAWN: usize = 12;

/// The table of blocks, and the distributions of those with most cycle counts.
pub(super) fn section(flow: &mut Flow, modelled: bool, limit: usize) -> anyhow::Result<Markup> {
    if flow.blocks.iter().all(|block| block.contradicted) {
        let why = if flow.block_quality.filtered > 0 {
            "There are no blocks: not every branch was recorded (record with -j any,u)."
        } else {
            "There are no blocks."
        };
        return Ok(html! { p { (why) } });
    }
    let charts = charts(flow, modelled || flow.quality.software > 0)?;
    let total = flow.block_quality.blocks;
    let Flow { blocks, maps, .. } = flow;
    let ran = || blocks.iter().filter(|block| !block.contradicted);
    let cell = |value: Option<u32>| number(value.map(|value| grouped(u64::from(value))));
    let rows = html! {
        @for block in ran().take(limit) {
            @let cycles = &block.cycles;
            @let known = cycles.n() > 0;
            @let modes = blocks::modes(cycles);
            tr {
                td class="num" { (grouped(block.count)) }
                (number(share(block.count, total).map(percent)))
                (number(known.then(|| grouped(cycles.n()))))
                (cell(cycles.min()))
                (cell(cycles.quantile(0.5)))
                (cell(cycles.quantile(0.9)))
                (cell(cycles.quantile(0.99)))
                (cell(cycles.max()))
                (number(known.then(|| grouped(cycles.saturated()))))
                td class="num" data-v=[cycles.modes().first()] { (modes) }
                td class="code" { (place(maps, block.entry_location, block.entry)) }
                td class="code" { (place(maps, block.exit_location, block.exit)) }
            }
        }
    };
    let columns = [
        Column("Runs", true),
        Column("Share", true),
        Column("With cycles", true),
        Column("Min", true),
        Column("p50", true),
        Column("p90", true),
        Column("p99", true),
        Column("Max", true),
        Column("Saturated", true),
        Column("Modes", true),
        Column("Entry", false),
        Column("Exit", false),
    ];
    Ok(html! {
        p { "A block is straight code, from the target of a branch to the next branch taken. Cycles are core cycles of one run." }
        (table("Blocks", &columns, &rows))
        (rest(ran().count(), ran().count().min(limit), "blocks"))
        (charts)
    })
}

fn charts(flow: &mut Flow, modelled: bool) -> anyhow::Result<Markup> {
    let Flow { blocks, maps, .. } = flow;
    let mut timed: Vec<&Block> =
        blocks.iter().filter(|block| block.cycles.n() > 0 && !block.contradicted).collect();
    if timed.is_empty() {
        return Ok(html! { p { "The recording has no cycle counts: no distributions." } });
    }
    timed.sort_by_key(|block| std::cmp::Reverse(block.cycles.n()));
    let all = timed.len();
    timed.truncate(DRAWN);
    let mut figures = Vec::new();
    for block in timed {
        let entry = symbols::place(maps, block.entry_location, block.entry);
        let exit = symbols::place(maps, block.exit_location, block.exit);
        let title = format!("{} .. {}", shortened(&entry), shortened(&exit));
        let chart = Histogram {
            series: vec![hist::series(String::new(), block)],
            note: modelled.then(|| "modelled, not measured".to_owned()),
            ..Histogram::default()
        };
        figures.push((title, chart.small_svg()?));
    }
    Ok(html! {
        h3 { "Distributions of cycles" }
        div class="charts" {
            @for (title, drawing) in &figures {
                figure class="chart" {
                    figcaption class="code" { (title) }
                    div role="img" aria-label={ "Cycles of " (title) } { (PreEscaped(drawing)) }
                }
            }
        }
        @if all > figures.len() {
            p class="faint" {
                "The " (figures.len()) " blocks with most cycle counts are drawn; "
                (grouped((all - figures.len()) as u64)) " more have counts (lbr hist --block draws any)."
            }
        }
    })
}
