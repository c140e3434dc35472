//! The answer for people: how many, how sure.

use std::io::{self, Write};

use super::TimeArgs;
use super::counted::{Block, Counted, Spread};
use crate::present::number::{counted, grouped};

fn dash() -> String {
    "-".to_owned()
}

/// Two places, and no `-0.00`.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    if text == "-0.00" { "0.00".to_owned() } else { text }
}

/// Prints everything.
pub(super) fn print(
    out: &mut impl Write,
    counted: &Counted<'_>,
    args: &TimeArgs,
) -> io::Result<()> {
    head(out, counted, args)?;
    counts(out, counted)?;
    times(out, counted)?;
    blocks(out, counted, args)
}

fn head(out: &mut impl Write, all: &Counted<'_>, args: &TimeArgs) -> io::Result<()> {
    let measured = all.measured;
    let mut what = all.code.title.clone();
    if args.unroll > 1 {
        what += &format!(", {} copies", grouped(u64::from(args.unroll)));
    }
    if let Some(rounds) = args.rounds {
        what += &format!(", {} of a loop", counted(u64::from(rounds), "round", "rounds"));
    }
    writeln!(out, "{what}: {} a run", counted(measured.iterations, "iteration", "iterations"))?;
    writeln!(out, "{}", all.source.words)?;
    let mut runs = format!(
        "{} at full speed after {} to warm up",
        counted(measured.runs.len() as u64, "run", "runs"),
        args.warm_up
    );
    if measured.from_registers {
        runs += &format!(", {} interrupted and dropped", grouped(measured.interrupted));
        if measured.unreadable > 0 {
            runs += &format!(", {} unreadable and dropped", grouped(measured.unreadable));
        }
        if measured.foreign > 0 {
            runs += &format!(
                ", {} dropped because something else writes these registers",
                grouped(measured.foreign)
            );
        }
    }
    if measured.stopped {
        runs += "; stopped before all were made";
    }
    writeln!(out, "{runs}")?;
    if measured.overflowed > 0 {
        writeln!(
            out,
            "more branches than the {} records in {}: the last ones are shown, and an interrupt before \
             them is not seen",
            measured.depth.unwrap_or(0),
            counted(measured.overflowed, "run", "runs"),
        )?;
    }
    if let Some(seen) = all.strayed() {
        writeln!(
            out,
            "the code changes R15: the loop went round {} instead of {}",
            counted(seen, "time", "times"),
            grouped(u64::from(args.rounds.unwrap_or(1))),
        )?;
    }
    writeln!(out)
}

fn counts(out: &mut impl Write, all: &Counted<'_>) -> io::Result<()> {
    let measured = all.measured;
    writeln!(out, "{:<20} {:>13} {:>15}", "counted", "per iteration", "per run")?;
    let sure = match (measured.counts, measured.counts_vary, measured.stepped) {
        (None, ..) => "not counted",
        (_, true, _) => "NOT the same in every stepped run; of the last one",
        (_, false, 1) => "exact: one stepped run",
        (_, false, _) => "exact: the same in every stepped run",
    };
    let mut row = |name: &str, value: Option<u64>, sure: &str| {
        let per = value.map_or_else(dash, |value| number(all.per_iteration(value)));
        let total = value.map_or_else(dash, grouped);
        writeln!(out, "{}", format!("{name:<20} {per:>13} {total:>15}  {sure}").trim_end())
    };
    let counts = measured.counts;
    row("instructions", counts.map(|counts| counts.instructions), sure)?;
    row("branches taken", counts.map(|counts| counts.branches), "")?;
    row("branches not taken", counts.map(|counts| counts.not_taken), "")?;
    if let Some(counts) = counts {
        if counts.system_calls > 0 {
            row("system calls", Some(counts.system_calls), "")?;
        }
        if counts.undecoded > 0 {
            row("not decoded", Some(counts.undecoded), "the counts are not complete")?;
        }
    }
    writeln!(out)
}

fn times(out: &mut impl Write, all: &Counted<'_>) -> io::Result<()> {
    let modelled = if all.source.modelled { ", modelled" } else { "" };
    writeln!(
        out,
        "{:<20} {:>10} {:>10} {:>10} {:>10}",
        "per iteration", "min", "median", "p99", "max"
    )?;
    let mut row = |name: &str, spread: Option<Spread>, sure: &str| {
        let cell = |value: fn(&Spread) -> f64| {
            spread.as_ref().map_or_else(dash, |spread| number(value(spread)))
        };
        let line = format!(
            "{name:<20} {:>10} {:>10} {:>10} {:>10}  {sure}",
            cell(|s| s.min),
            cell(|s| s.median),
            cell(|s| s.p99),
            cell(|s| s.max),
        );
        writeln!(out, "{}", line.trim_end())
    };
    let of = |spread: &Spread, less: Option<Spread>| {
        let less = less.map_or(String::new(), |less| {
            format!(", {} of overhead taken off each", number(less.median))
        });
        format!("{}{less}", counted(spread.n, "run", "runs"))
    };
    let sure = match all.cycles {
        Some(spread) => {
            let mut sure = of(&spread, all.overhead_cycles) + modelled;
            if all.saturated > 0 {
                sure += &format!("; at least: {} saturated", grouped(all.saturated));
            }
            sure
        }
        None if all.source.cycles => "no run whose records go back to its start".to_owned(),
        None => "not recorded here".to_owned(),
    };
    row("core cycles", all.cycles, &sure)?;
    if all.code.body.rounds.is_some() {
        let sure = all.rounds.map_or_else(String::new, |spread| {
            format!("{}{modelled}", counted(spread.n, "round", "rounds"))
        });
        row("  round to round", all.rounds, &sure)?;
    }
    let mut ticks = all.ticks.map(|spread| of(&spread, all.overhead_ticks)).unwrap_or_default();
    if let (Some(net), Some(less)) = (all.ticks, all.overhead_ticks)
        && net.median * (all.measured.iterations as f64) < less.p99 - less.min
    {
        ticks += "; less than the overhead varies by: --loop or --unroll tells more";
    }
    row("TSC ticks", all.ticks, &ticks)?;
    let per_cycle = all.ipc().map_or_else(dash, number);
    let sure = if all.ipc().is_some() && all.source.modelled { "modelled" } else { "" };
    let line = format!(
        "{:<20} {:>10} {per_cycle:>10} {:>10} {:>10}  {sure}",
        "instructions/cycle", "", "", ""
    );
    writeln!(out, "{}", line.trim_end())?;
    writeln!(out)?;
    writeln!(
        out,
        "{:<20} {:>10} {:>10} {:>10} {:>10}",
        "bracket of nothing", "min", "median", "p99", "max"
    )?;
    let mut row = |name: &str, spread: Option<Spread>| {
        let cell = |value: fn(&Spread) -> f64| {
            spread.as_ref().map_or_else(dash, |spread| format!("{:.0}", value(spread)))
        };
        writeln!(
            out,
            "{name:<20} {:>10} {:>10} {:>10} {:>10}",
            cell(|s| s.min),
            cell(|s| s.median),
            cell(|s| s.p99),
            cell(|s| s.max),
        )
    };
    row("core cycles", all.overhead_cycles)?;
    row("TSC ticks", all.overhead_ticks)?;
    writeln!(out)
}

fn blocks(out: &mut impl Write, all: &Counted<'_>, args: &TimeArgs) -> io::Result<()> {
    if all.blocks.is_empty() {
        return writeln!(out, "no block of the code was recorded");
    }
    let measured = all.measured;
    let of = match measured.from_registers {
        true => counted(measured.runs.len() as u64, "run", "runs"),
        false => counted(u64::from(measured.stepped), "stepped run", "stepped runs"),
    };
    writeln!(
        out,
        "{:>12} {:>8} {:>6} {:>6} {:>6} {:>6} {:>9}  {:<12}  block, of {of}",
        "executions", "share", "min", "median", "p99", "max", "saturated", "modes"
    )?;
    let total: u64 = all.blocks.iter().map(|block| block.n).sum();
    for block in all.blocks.iter().take(args.rows) {
        let cycles = &block.cycles;
        let cell = |value: Option<u32>| value.map_or_else(dash, |value| value.to_string());
        writeln!(
            out,
            "{:>12} {:>6.2} % {:>6} {:>6} {:>6} {:>6} {:>9}  {:<12}  {}",
            grouped(block.n),
            block.n as f64 * 100.0 / total.max(1) as f64,
            cell(cycles.min()),
            cell(cycles.quantile(0.5)),
            cell(cycles.quantile(0.99)),
            cell(cycles.max()),
            if cycles.n() > 0 { grouped(cycles.saturated()) } else { dash() },
            modes(block),
            name(block),
        )?;
    }
    if all.blocks.len() > args.rows {
        let hidden = (all.blocks.len() - args.rows) as u64;
        writeln!(out, "{} more; --rows shows more", counted(hidden, "block", "blocks"))?;
    }
    Ok(())
}

fn modes(block: &Block) -> String {
    let modes: Vec<String> = block.cycles.modes().iter().map(ToString::to_string).collect();
    if modes.is_empty() { dash() } else { modes.join(",") }
}

/// Entry and exit.
pub(super) fn name(block: &Block) -> String {
    let ahead = match block.ahead {
        0 => String::new(),
        1 => " of the next copy".to_owned(),
        n => format!(", {n} copies on"),
    };
    format!("{} .. {}{ahead}", block.entry, block.exit)
}
