//! The result as text: the figures, and how reliable they are.

use std::io;

use super::TimeArgs;
use super::figures::{Block, Figures, Spread, number};
use super::mca;
use super::place::CodePlace;
use crate::commands::report::blocks::modes;
use crate::present::{Cell, Out, Table, counted, dash, grouped, joined, share};

/// Prints the result, and the blocks if they add to it; everything with `--verbose`.
pub(super) fn print(out: &mut Out<'_>, counted: &Figures<'_>, args: &TimeArgs) -> io::Result<()> {
    answer(out, counted)?;
    mca::print(out, counted)?;
    if args.verbose {
        out.gap()?;
        head(out, counted, args)?;
        counts(out, counted)?;
        times(out, counted)?;
    }
    // Without cycles the one block of straight-line code shows nothing.
    let timed = counted.blocks.iter().any(|block| block.cycles.n() > 0);
    let branches = counted.blocks.iter().any(|block| {
        matches!(block.exit, CodePlace::Code { .. } | CodePlace::Symbol(..) | CodePlace::Outside(_))
    });
    if args.verbose || timed || branches {
        if !args.verbose {
            out.gap()?;
        }
        blocks(out, counted, args)?;
    }
    Ok(())
}

/// Core cycles or why there are none, instructions and branches, and the spread.
fn answer(out: &mut Out<'_>, all: &Figures<'_>) -> io::Result<()> {
    let measured = all.measured;
    let cycles = all.rounds.or(all.cycles);
    let modelled = if all.source.modelled { ", modelled" } else { "" };
    match (cycles, &all.source.absent) {
        (Some(cycles), _) => {
            let per_cycle =
                all.ipc().map(|ipc| format!("; {} instructions per cycle", number(ipc)));
            let per_cycle = per_cycle.unwrap_or_default();
            let saturated = if all.saturated > 0 { "at least " } else { "" };
            out.line(format_args!(
                "{saturated}{} core cycles{modelled}{per_cycle}",
                number(cycles.median)
            ))?;
        }
        (None, Some(absent)) => out.line(format_args!("core cycles: {absent}"))?,
        (None, None) => out.line("core cycles: unknown, no run can be used (-v shows why)")?,
    }
    let ticks = all.ticks.map_or_else(
        || "no TSC ticks".to_owned(),
        |ticks| match all.is_below_overhead() {
            true => "fewer TSC ticks than can be measured".to_owned(),
            false => format!("{} TSC ticks", number(ticks.median)),
        },
    );
    let counts = match measured.counts {
        None => "instructions not counted".to_owned(),
        Some(counts) => {
            let per = |count| number(all.per_iteration(count));
            let vary =
                if measured.counts_vary { " (NOT the same in every stepped run)" } else { "" };
            let calls = match counts.system_calls {
                0 => String::new(),
                calls => format!(", {} system calls", per(calls)),
            };
            let branches = match (counts.branches, counts.not_taken) {
                (0, 0) => "no branches".to_owned(),
                (taken, not) => format!("branches {} taken, {} not taken", per(taken), per(not)),
            };
            format!("{} instructions, {branches}{calls}{vary}", per(counts.instructions))
        }
    };
    let per = if measured.iterations > 1 { "per iteration: " } else { "" };
    out.line(format_args!("{per}{ticks}, {counts}"))?;
    let (spread, unit, gather) = match all.cycles.or(all.rounds) {
        Some(spread) => (Some(spread), "cycles", &all.cycle_modes),
        None => (all.ticks.filter(|_| !all.is_below_overhead()), "ticks", &all.tick_modes),
    };
    if let Some(spread) = spread {
        let preempted = measured.runs.iter().filter(|run| run.preempted).count();
        let preempted = match preempted {
            0 => String::new(),
            n => format!("; {n} preempted"),
        };
        let stopped = if measured.stopped { "; stopped early" } else { "" };
        out.line(format_args!(
            "{unit} of {}: {} to {}, 99% within {}{}{preempted}{stopped}",
            counted(measured.runs.len() as u64, "run", "runs"),
            number(spread.min),
            number(spread.max),
            number(spread.p99),
            gathering(gather),
        ))?;
    }
    if let Some(counts) = measured.counts.filter(|counts| counts.undecoded > 0) {
        let undecoded = counted(counts.undecoded, "instruction", "instructions");
        out.line(format_args!(
            "warning: {undecoded} could not be decoded: the counts are not complete"
        ))?;
    }
    if measured.overflowed > 0 {
        out.line(format_args!(
            "more branches than the {} records in {}: the last ones are shown, and an interrupt before \
             them is not seen",
            measured.depth.unwrap_or(0),
            counted(measured.overflowed, "run", "runs"),
        ))?;
    }
    if all.is_below_overhead() && all.cycles.is_none() {
        out.line("less time than the overhead varies by: leave --loop away, or --unroll more")?;
    }
    Ok(())
}

fn head(out: &mut Out<'_>, all: &Figures<'_>, args: &TimeArgs) -> io::Result<()> {
    let measured = all.measured;
    let mut what = all.code.title.clone();
    if all.code.body.unroll > 1 {
        what += &format!(", {} copies", grouped(u64::from(all.code.body.unroll)));
    }
    if let Some(rounds) = all.code.body.rounds {
        what += &format!(", {} of a loop", counted(u64::from(rounds), "round", "rounds"));
    }
    let iterations = counted(measured.iterations, "iteration", "iterations");
    out.line(format_args!("{what}: {iterations} a run"))?;
    out.line(&all.source.words)?;
    let mut runs = format!(
        "{} at full speed after {} to warm up",
        counted(measured.runs.len() as u64, "run", "runs"),
        args.warm_up
    );
    if measured.from_registers || measured.from_counters {
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
    out.line(runs)?;
    out.gap()
}

/// A quantity: its name, its count in a run, and a remark.
type Counts<'a> = (&'static str, Option<u64>, &'a str);

fn counts(out: &mut Out<'_>, all: &Figures<'_>) -> io::Result<()> {
    let measured = all.measured;
    let sure = match (measured.counts, measured.counts_vary, measured.stepped) {
        (None, ..) => "not counted",
        (_, true, _) => "NOT the same in every stepped run; of the last one",
        (_, false, 1) => "exact: one stepped run",
        (_, false, _) => "exact: the same in every stepped run",
    };
    let counts = measured.counts;
    let mut rows: Vec<Counts<'_>> = vec![
        ("instructions", counts.map(|counts| counts.instructions), sure),
        ("branches taken", counts.map(|counts| counts.branches), ""),
        ("branches not taken", counts.map(|counts| counts.not_taken), ""),
    ];
    if let Some(counts) = counts {
        if counts.system_calls > 0 {
            rows.push(("system calls", Some(counts.system_calls), ""));
        }
        if counts.undecoded > 0 {
            rows.push(("not decoded", Some(counts.undecoded), "the counts are not complete"));
        }
    }
    let table = Table::<(), Counts<'_>>::new()
        .word("", "counted", |(), (name, ..)| Cell::Word((*name).into()))
        .least(NAME)
        .number("", "per iteration", |(), (_, count, _)| {
            Cell::or_absent(*count, |count| two_places(all.per_iteration(count)))
        })
        .number("", "per run", |(), (_, count, _)| Cell::count(*count))
        .prose("", " ", |(), (.., sure)| Cell::Word((*sure).to_owned().into()));
    table.write_text(out, &mut (), rows.into_iter())?;
    out.gap()
}

/// Width of the first column, the same in all tables.
const NAME: usize = 20;

/// A number with two places, and no `-0.00`.
fn two_places(value: f64) -> Cell {
    Cell::Stated(number(value), Some(value))
}

/// A time: its name, its spread, and a remark.
type Times = (&'static str, Option<Spread>, String);

fn spreads(heading: &'static str, show: fn(f64) -> Cell) -> Table<'static, (), Times> {
    let cell = move |value: fn(&Spread) -> f64| {
        move |(): &mut (), (_, spread, _): &Times| {
            Cell::or_absent(spread.as_ref(), |spread| show(value(spread)))
        }
    };
    Table::new()
        .word("", heading, |(), (name, ..): &Times| Cell::Word((*name).into()))
        .least(NAME)
        .number("", "min", cell(|s| s.min))
        .number("", "median", cell(|s| s.median))
        .number("", "p99", cell(|s| s.p99))
        .number("", "max", cell(|s| s.max))
        .prose("", " ", |(), (.., sure)| Cell::Word(sure.clone().into()))
}

/// The modes of times, if there are several.
fn gathering(modes: &[f64]) -> String {
    match modes {
        [] | [_] => String::new(),
        modes => {
            format!("; they gather at {}", joined(modes.iter().copied().map(number), " and "))
        }
    }
}

fn times(out: &mut Out<'_>, all: &Figures<'_>) -> io::Result<()> {
    let modelled = if all.source.modelled { ", modelled" } else { "" };
    let of = |spread: &Spread, less: Option<Spread>| {
        let less = less.map_or(String::new(), |less| {
            format!(", {} of overhead taken off each", number(less.median))
        });
        format!("{}{less}", counted(spread.n, "run", "runs"))
    };
    let sure = match all.cycles {
        Some(spread) => {
            let mut sure = of(&spread, all.overhead_cycles) + modelled;
            sure += &gathering(&all.cycle_modes);
            if all.saturated > 0 {
                sure += &format!("; at least: {} saturated", grouped(all.saturated));
            }
            sure
        }
        None if all.measured.from_counters => "no counter".to_owned(),
        None if all.source.absent.is_none() => {
            "no run whose records go back to its start".to_owned()
        }
        None => "not recorded here".to_owned(),
    };
    let mut rows: Vec<Times> = vec![("core cycles", all.cycles, sure)];
    if all.code.body.rounds.is_some() {
        let sure = all.rounds.map_or_else(String::new, |spread| {
            format!("{}{modelled}", counted(spread.n, "round", "rounds"))
        });
        rows.push(("  round to round", all.rounds, sure));
    }
    if all.measured.from_counters {
        let names = ["instructions", "branches", "mispredicted"];
        for (name, spread) in names.into_iter().zip(all.counted) {
            let own = if all.code.body.rounds.is_some() { ", those of the loop too" } else { "" };
            let runs = |spread: Spread| counted(spread.n, "run", "runs") + own + modelled;
            rows.push((name, spread, spread.map_or_else(|| "no counter".to_owned(), runs)));
        }
    }
    let mut ticks = all.ticks.map(|spread| of(&spread, all.overhead_ticks)).unwrap_or_default();
    ticks += &gathering(&all.tick_modes);
    rows.push(("TSC ticks", all.ticks, ticks));
    spreads("per iteration", two_places).write_text(out, &mut (), rows.into_iter())?;
    let sure = if all.ipc().is_some() { modelled } else { "" };
    let per_cycle = all.ipc().map_or_else(dash, number);
    out.line(format_args!("{:<NAME$}  {per_cycle}{sure}", "instructions/cycle"))?;
    out.gap()?;
    let rows: [Times; 2] = [
        ("core cycles", all.overhead_cycles, String::new()),
        ("TSC ticks", all.overhead_ticks, String::new()),
    ];
    let whole = |value| Cell::Decimal(value, 0);
    spreads("bracket of nothing", whole).write_text(out, &mut (), rows.into_iter())?;
    out.gap()
}

fn blocks(out: &mut Out<'_>, all: &Figures<'_>, args: &TimeArgs) -> io::Result<()> {
    if all.blocks.is_empty() {
        return out.line("no block of the code was recorded");
    }
    let measured = all.measured;
    let source = match measured.from_registers {
        _ if measured.stacks > 0 => counted(measured.stacks, "branch stack", "branch stacks"),
        true => counted(measured.runs.len() as u64, "run", "runs"),
        false => counted(u64::from(measured.stepped), "stepped run", "stepped runs"),
    };
    let joint = if measured.stacks > 0 { "in" } else { "of" };
    out.line(format_args!("blocks {joint} {source}"))?;
    let total: u64 = all.blocks.iter().map(|block| block.n).sum();
    let quantile =
        |of: f64| move |(): &mut (), block: &&Block| Cell::number(block.cycles.quantile(of));
    let table = Table::<(), &Block>::new()
        .number("", "executions", |(), block| Cell::Count(block.n))
        .heat()
        .number("", "share", move |(), block| Cell::share(share(block.n, total)))
        .number("", "min", |(), block| Cell::number(block.cycles.min()))
        .number("", "median", quantile(0.5))
        .number("", "p99", quantile(0.99))
        .number("", "max", |(), block| Cell::number(block.cycles.max()))
        .number("", "saturated", |(), block| {
            Cell::count((block.cycles.n() > 0).then(|| block.cycles.saturated()))
        })
        .word("", "modes", |(), block| modes(&block.cycles))
        .name("", "block", |(), block| Cell::Name(name(block)))
        .spares(&["modes", "saturated", "max", "p99"]);
    table.write_text(out, &mut (), all.blocks.iter().take(args.limit))?;
    if all.blocks.len() > args.limit {
        let hidden = counted((all.blocks.len() - args.limit) as u64, "block", "blocks");
        out.line(format_args!("{hidden} more; -n shows more"))?;
    }
    Ok(())
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
