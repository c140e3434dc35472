//! Annotated code for programs.

use std::io::{self, Write};

use profile::Flow;
use profile::annotate::{Annotated, Branch, Target, Timed};
use profile::brstack::type_name;
use serde_json::{Value, json};

use crate::input::{Source, selected};
use crate::present::ends;
use crate::present::json::{self, hex};

/// Prints the function, its instructions, its blocks.
pub(crate) fn print(
    out: &mut impl Write,
    flow: &Flow,
    annotated: &Annotated,
    sources: &[Source],
    hottest: bool,
) -> io::Result<()> {
    let mut line = |value: &Value| json::value(out, value);
    line(&function(flow, annotated, sources))?;
    let mut blocks = annotated.basic_blocks();
    if hottest {
        blocks.sort_by_key(|block| std::cmp::Reverse(block.count));
    }
    for at in blocks.iter().flat_map(|block| block.first..block.end) {
        line(&instruction(annotated, at))?;
    }
    let modelled = flow.quality.software > 0 || sources.iter().any(Source::says_modelled);
    for block in &annotated.blocks {
        line(&timed(modelled, block))?;
    }
    Ok(())
}

fn function(flow: &Flow, annotated: &Annotated, sources: &[Source]) -> Value {
    let function = &annotated.function;
    let quality = &flow.quality;
    let mut json = json!({
        "view": "annotate",
        "kind": "function",
        "symbol": function.name,
        "file": function.path,
        "address": hex(function.address),
        "end": hex(function.address.wrapping_add(function.len)),
        "file_address": hex(function.file_address),
        "instructions": annotated.instructions.len(),
        "executed": annotated.executed(),
        "exact": annotated.exact,
        "blocks_contradicted": annotated.contradicted,
        "stacks_filtered": annotated.filtered,
        "inputs": sources.iter().map(|source| source.name.as_str()).collect::<Vec<_>>(),
        "partial": sources.iter().any(Source::is_partial),
        "samples": quality.samples,
        "branches": flow.taken,
        "lost": quality.lost_total(),
        "excluded": quality.excluded,
        "software": quality.software,
        "hardware": quality.hardware,
    });
    selected::put_json(&mut json, sources, &quality.left_out);
    json
}

fn instruction(annotated: &Annotated, at: usize) -> Value {
    let insn = &annotated.instructions[at];
    let text = insn.text.as_ref();
    json!({
        "view": "annotate",
        "kind": "instruction",
        "index": at,
        "address": hex(insn.address),
        "offset": insn.address.wrapping_sub(annotated.function.address),
        "bytes": profile::hex(&insn.bytes),
        "mnemonic": text.map(|text| &text.mnemonic),
        "operands": text.map(|text| &text.operands),
        "rip_relative": text.and_then(|text| text.rip_relative).map(hex),
        "label": insn.label,
        "source_file": insn.source.as_ref().map(|source| &*source.file),
        "source_line": insn.source.as_ref().map(|source| source.line),
        "leads": insn.leads,
        "count": insn.count,
        "branch": insn.branch.as_ref().map(|b| branch(b, insn.count.is_some() || b.taken > 0)),
    })
}

fn branch(branch: &Branch, seen: bool) -> Value {
    let (taken_low, taken_high) = ends(branch.taken_interval);
    let (low, high) = ends(branch.mispredict_interval);
    let went: Vec<Value> = branch
        .went
        .iter()
        .map(|went| {
            let mut value = target(&went.target);
            value["count"] = json!(went.count);
            value
        })
        .collect();
    let rate = branch.mispredicted.map(|missed| missed as f64 / branch.known as f64);
    json!({
        "type": type_name(branch.branch_type),
        "conditional": branch.conditional,
        "target": branch.target.as_ref().map(target),
        "taken": seen.then_some(branch.taken),
        "not_taken": seen.then_some(branch.not_taken),
        "taken_share": branch.taken_share,
        "taken_low": taken_low,
        "taken_high": taken_high,
        "predictions_known": branch.known,
        "mispredicted": branch.mispredicted,
        "mispredict_rate": rate,
        "mispredict_low": low,
        "mispredict_high": high,
        "targets": went,
    })
}

fn target(target: &Target) -> Value {
    let (symbol, offset) = target.name.clone().unzip();
    json!({
        "address": hex(target.address),
        "index": target.inside,
        "symbol": symbol,
        "offset": offset,
    })
}

fn timed(modelled: bool, block: &Timed) -> Value {
    let cycles = &block.cycles;
    let known = cycles.n() > 0;
    json!({
        "view": "annotate",
        "kind": "block",
        "entry": hex(block.entry),
        "exit": hex(block.exit),
        "first": block.first,
        "last": block.last,
        "instructions": block.instructions,
        "count": block.count,
        "n": cycles.n(),
        "mean": block.mean(),
        "p50": cycles.quantile(0.5),
        "p90": cycles.quantile(0.9),
        "ipc": block.ipc(),
        "saturated": known.then(|| cycles.saturated()),
        "counters": block.counters,
        "modelled": known.then_some(modelled),
    })
}
