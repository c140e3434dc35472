//! The result as JSON and CSV.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::figures::{Figures, Spread};
use super::place::CodePlace;
use super::text::name;
use crate::present::json::{self, hex};
use crate::present::{csv, joined};

/// JSON Lines: the totals, then each block.
pub(super) fn json(out: &mut impl Write, all: &Figures<'_>) -> io::Result<()> {
    let measured = all.measured;
    let counts = measured.counts;
    let [instructions, branches, mispredicted] = all.counted;
    let reads = measured.from_registers || measured.from_counters;
    let runs = |runs: &[lab::measure::Run]| -> Vec<Value> {
        let of = |run: &lab::measure::Run| {
            json!({
                "tsc_ticks": run.ticks,
                "cycles": run.cycles,
                "saturated": run.cycles.map(|_| run.saturated),
                "instructions": run.instructions,
                "branches": run.branches,
                "branch_misses": run.mispredicted,
            })
        };
        runs.iter().map(of).collect()
    };
    let rounds: Vec<Value> =
        measured.rounds.iter().map(|(cycles, n)| json!({ "cycles": cycles, "n": n })).collect();
    json::object!(out, {
        "kind": "time",
        "source": all.source.name,
        "modelled": all.source.absent.is_none().then_some(all.source.modelled),
        "depth": measured.depth,
        "code_bytes": all.code.image.is_none().then_some(all.code.body.code.len()),
        "unroll": all.code.body.unroll.max(1),
        "loop": all.code.body.rounds,
        "iterations": measured.iterations,
        "stepped_iterations": counts.map(|_| measured.stepped_iterations),
        "stepped_runs": measured.stepped,
        "counts_vary": counts.map(|_| measured.counts_vary),
        "instructions": counts.map(|c| c.instructions),
        "branches_taken": counts.map(|c| c.branches),
        "branches_not_taken": counts.map(|c| c.not_taken),
        "system_calls": counts.map(|c| c.system_calls),
        "undecoded": counts.map(|c| c.undecoded),
        "rounds_seen": all.code.body.rounds.and(counts).map(|c| c.rounds),
        "instructions_per_cycle": all.ipc(),
        "prediction": all.code.prediction,
        "tsc_ticks_per_cycle": all.ticks_per_cycle,
        "cycles_per_iteration": all.cycles,
        "counted_instructions_per_iteration": instructions,
        "counted_branches_per_iteration": branches,
        "counted_branch_misses_per_iteration": mispredicted,
        "round_cycles_per_iteration": all.rounds,
        "cycle_modes_per_iteration": all.cycles.map(|_| &all.cycle_modes),
        "tsc_ticks_per_iteration": all.ticks,
        "tsc_tick_modes_per_iteration": all.ticks.map(|_| &all.tick_modes),
        "overhead_cycles": all.overhead_cycles,
        "overhead_tsc_ticks": all.overhead_ticks,
        "runs": measured.runs.len(),
        "interrupted": reads.then_some(measured.interrupted),
        "unreadable": measured.from_registers.then_some(measured.unreadable),
        "foreign": measured.from_registers.then_some(measured.foreign),
        "overflowed": measured.from_registers.then_some(measured.overflowed),
        "stacks": measured.from_counters.then_some(measured.stacks),
        "stopped": measured.stopped,
        "each_run": runs(&measured.runs),
        "each_overhead": runs(&measured.overhead),
        "round_cycles": (!rounds.is_empty()).then_some(rounds),
    })?;
    for block in &all.blocks {
        let cycles = &block.cycles;
        let known = cycles.n() > 0;
        let distribution: Vec<Value> =
            cycles.iter().map(|(cycles, n)| json!({ "cycles": cycles, "n": n })).collect();
        json::object!(out, {
            "kind": "block",
            "entry": end(&block.entry),
            "exit": end(&block.exit),
            "copies_ahead": block.ahead,
            "executions": block.n,
            "n": cycles.n(),
            "min": cycles.min(),
            "median": cycles.quantile(0.5),
            "p99": cycles.quantile(0.99),
            "max": cycles.max(),
            "saturated": known.then(|| cycles.saturated()),
            "modes": known.then(|| cycles.modes()),
            "distribution": known.then_some(distribution),
        })?;
    }
    Ok(())
}

/// One end of a block.
fn end(place: &CodePlace) -> Value {
    match place {
        CodePlace::Code { offset, .. } => json!({ "at": "code", "offset": hex(*offset) }),
        CodePlace::Symbol(symbol, offset) => {
            json!({ "at": "symbol", "symbol": symbol, "offset": hex(*offset) })
        }
        CodePlace::Outside(address) => json!({ "at": "outside", "address": hex(*address) }),
        CodePlace::Init(offset) => json!({ "at": "init", "offset": hex(*offset) }),
        CodePlace::Around => json!({ "at": "loop" }),
        CodePlace::End => json!({ "at": "end" }),
        CodePlace::Ours => json!({ "at": "bracket" }),
    }
}

/// One line for each quantity and each block; unknown values are empty.
pub(super) fn csv(out: &mut impl Write, all: &Figures<'_>) -> io::Result<()> {
    csv::write(out, "quantity,block,n,value,min,median,p99,max,saturated,modes".split(','))?;
    let shown = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let mut row = |quantity: &str, cells: [String; 9]| {
        csv::write(out, std::iter::once(quantity.to_owned()).chain(cells))
    };
    let none = String::new;
    let measured = all.measured;
    let reads = measured.from_registers || measured.from_counters;
    let per = |count: fn(&lab::measure::StepCounts) -> u64| {
        measured.counts.as_ref().map(|counts| all.per_iteration(count(counts)))
    };
    let values = [
        ("instructions_per_iteration", per(|c| c.instructions)),
        ("branches_taken_per_iteration", per(|c| c.branches)),
        ("branches_not_taken_per_iteration", per(|c| c.not_taken)),
        ("instructions_per_cycle", all.ipc()),
        ("predicted_cycles_per_iteration", all.code.prediction.as_ref().map(|p| p.cycles)),
        ("runs", Some(measured.runs.len() as f64)),
        ("interrupted", reads.then_some(measured.interrupted as f64)),
        ("unreadable", measured.from_registers.then_some(measured.unreadable as f64)),
        ("foreign", measured.from_registers.then_some(measured.foreign as f64)),
        ("overflowed", measured.from_registers.then_some(measured.overflowed as f64)),
    ];
    for (name, value) in values {
        let mut cells = <[String; 9]>::default();
        cells[2] = shown(value);
        row(name, cells)?;
    }
    let spreads = [
        ("cycles_per_iteration", all.cycles),
        ("counted_instructions_per_iteration", all.counted[0]),
        ("counted_branches_per_iteration", all.counted[1]),
        ("counted_branch_misses_per_iteration", all.counted[2]),
        ("round_cycles_per_iteration", all.rounds),
        ("tsc_ticks_per_iteration", all.ticks),
        ("overhead_cycles", all.overhead_cycles),
        ("overhead_tsc_ticks", all.overhead_ticks),
    ];
    for (name, spread) in spreads {
        let part = |of: fn(&Spread) -> f64| shown(spread.as_ref().map(of));
        let n = spread.map(|spread| spread.n.to_string()).unwrap_or_default();
        let parts = [part(|s| s.min), part(|s| s.median), part(|s| s.p99), part(|s| s.max)];
        let [min, median, p99, max] = parts;
        row(name, [none(), n, none(), min, median, p99, max, none(), none()])?;
    }
    for block in &all.blocks {
        let cycles = &block.cycles;
        let cell = |value: Option<u32>| value.map(|v| v.to_string()).unwrap_or_default();
        let saturated = (cycles.n() > 0).then(|| cycles.saturated().to_string());
        row(
            "block_cycles",
            [
                name(block),
                block.n.to_string(),
                none(),
                cell(cycles.min()),
                cell(cycles.quantile(0.5)),
                cell(cycles.quantile(0.99)),
                cell(cycles.max()),
                saturated.unwrap_or_default(),
                joined(cycles.modes(), " "),
            ],
        )?;
    }
    Ok(())
}
