//! Several pieces of code side by side: how many times as long each takes as the
//! first.

use anyhow::anyhow;
use lab::measure::bracket::Body;
use lab::measure::{MeasureError, Measurement, Options};

use super::code::TimedCode;
use super::figures::{Figures, Source};
use super::{ENOUGH, TimeArgs, failed, machine};
use crate::exit::{DONE, FAILED, OrExit, Outcome};
use crate::present::number::counted;
use crate::present::out::Out;
use crate::present::table::{Cell, Printer, Table};

/// Each piece of code has so many turns, one after the other, so that what
/// changes over time, such as the frequency of the core, changes all alike.
const TURNS: u32 = 12;

/// Rounds of a loop that are single-stepped at most.
const STEPPED_ROUNDS: u32 = 64;

/// A piece of code, with what its turns came to.
struct Side {
    source: String,
    rounds: Option<u32>,
    /// Per iteration, by single-stepping.
    instructions: Option<f64>,
    /// Medians of the turns, per iteration.
    cycles: Vec<Option<f64>>,
    ticks: Vec<Option<f64>>,
    /// Turn by turn how many times as long it takes as the first, from low to
    /// high; empty for the first.
    ratios: Vec<f64>,
}

impl Side {
    fn new(
        code: &TimedCode,
        turns: &[Measurement],
        source: &Source,
        instructions: Option<f64>,
    ) -> Side {
        let counted: Vec<Figures<'_>> =
            turns.iter().map(|turn| Figures::new(turn, code, source.clone())).collect();
        let cycles = |of: &Figures<'_>| of.rounds.or(of.cycles).map(|spread| spread.median);
        Side {
            source: code.source.clone(),
            rounds: code.body.rounds,
            instructions,
            cycles: counted.iter().map(cycles).collect(),
            ticks: counted.iter().map(|of| of.ticks.map(|spread| spread.median)).collect(),
            ratios: Vec::new(),
        }
    }

    fn compare(&mut self, mine: &[Option<f64>], first: &[Option<f64>]) {
        let ratio = |(mine, first): (&Option<f64>, &Option<f64>)| {
            let (mine, first) = ((*mine)?, (*first)?);
            (mine > 0.0 && first > 0.0).then(|| mine / first)
        };
        self.ratios = mine.iter().zip(first).filter_map(ratio).collect();
        self.ratios.sort_by(f64::total_cmp);
    }

    /// Where the median of such ratios lies in more than 99 of 100 cases: between
    /// the second from either end of 12, the outermost of 8 (David and Nagaraja,
    /// Order Statistics, 7.1). `None` with fewer.
    fn interval(&self) -> Option<(f64, f64)> {
        let n = self.ratios.len();
        let skipped = match n {
            ..8 => return None,
            8..12 => 0,
            _ => 1,
        };
        Some((*self.ratios.get(skipped)?, *self.ratios.get(n - 1 - skipped)?))
    }

    fn verdict(&self) -> &'static str {
        match self.interval() {
            None => "not known",
            Some((low, _)) if low > 1.0 => "slower",
            Some((_, high)) if high < 1.0 => "faster",
            Some(_) => "no difference seen",
        }
    }
}

/// Of those that are known; of an even number the lower.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// Measures them in turns and prints them.
pub(super) fn run(args: &TimeArgs, options: Options, codes: &mut [TimedCode]) -> Outcome {
    let mut bodies: Vec<_> = codes.iter().map(|code| code.body.clone()).collect();
    let Some(alike) = bodies.first().cloned() else { return Ok(DONE) };
    let repeat = args.repeat.div_ceil(TURNS);
    // Which of them did not come to its end is asked for behind it.
    let mut at = 0;
    let mut instructions = Vec::new();
    let (measured, source) = machine::measure(args, options, &alike, |session| {
        let stepped = session.options().stepped;
        let mut turns: Vec<Vec<Measurement>> = vec![Vec::new(); bodies.len()];
        if args.calibrates() {
            for (i, body) in bodies.iter_mut().enumerate() {
                at = i;
                body.rounds = Some(session.calibrate(body, ENOUGH)?);
            }
        }
        // Stepping takes thousands of times as long: a part of a long loop tells
        // the instructions of an iteration.
        session.options().repeat = 1;
        for (i, body) in bodies.iter().enumerate().filter(|_| stepped > 0) {
            at = i;
            let rounds = body.rounds.map(|rounds| rounds.min(STEPPED_ROUNDS));
            let counted = session.measure_code(&Body { rounds, ..body.clone() })?;
            instructions.push(
                counted
                    .counts
                    .map(|counts| counts.instructions as f64 / counted.iterations.max(1) as f64),
            );
        }
        session.options().repeat = repeat;
        session.options().stepped = 0;
        for turn in 0..TURNS {
            for (i, (body, own)) in bodies.iter().zip(&mut turns).enumerate() {
                at = i;
                match session.measure_code(body) {
                    Ok(measured) if !measured.stopped => own.push(measured),
                    Ok(_) | Err(MeasureError::Stopped) if turn > 0 => return Ok(turns),
                    Ok(_) => return Err(MeasureError::Stopped),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(turns)
    })?;
    let turns = match (measured, codes.get(at)) {
        (Ok(turns), _) => turns,
        (Err(error), Some(code)) => {
            let mut failure = failed(error, code);
            failure.error = failure.error.context(format!("`{}`", code.source));
            return Err(failure);
        }
        (Err(error), None) => return Err(anyhow!("{error}")).or_exit(FAILED),
    };
    for (code, body) in codes.iter_mut().zip(bodies) {
        code.body = body;
    }
    let made = turns.iter().map(Vec::len).min().unwrap_or(0);
    let mut sides: Vec<Side> = Vec::new();
    for (i, (code, turns)) in codes.iter().zip(&turns).enumerate() {
        let turns = turns.get(..made).unwrap_or_default();
        sides.push(Side::new(code, turns, &source, instructions.get(i).copied().flatten()));
    }
    // Both of a ratio have to be of one kind.
    let in_cycles = sides.iter().all(|side| side.cycles.iter().all(Option::is_some));
    let of = |side: &Side| if in_cycles { side.cycles.clone() } else { side.ticks.clone() };
    let each: Vec<Vec<Option<f64>>> = sides.iter().map(of).collect();
    for (side, mine) in sides.iter_mut().zip(&each).skip(1) {
        side.compare(mine, each.first().map_or(&[], Vec::as_slice));
    }
    let mut out = Out::stdout();
    let table = table(in_cycles, source.modelled);
    match Printer::of(args.json, args.csv) {
        Printer::Json => table.write_json(&mut out, &mut (), sides.iter())?,
        Printer::Csv => table.write_csv(&mut out, &mut (), sides.iter())?,
        Printer::Text => {
            out.line(format_args!(
                "{} of code in {} of {} each{}",
                counted(sides.len() as u64, "piece", "pieces"),
                counted(made as u64, "turn", "turns"),
                counted(u64::from(repeat), "run", "runs"),
                if made < TURNS as usize { "; stopped before all were made" } else { "" },
            ))?;
            out.line(&source.words)?;
            out.line(if in_cycles {
                "ratios of core cycles; per iteration, medians:"
            } else {
                "ratios of TSC ticks; per iteration, medians:"
            })?;
            out.gap()?;
            table.write_text(&mut out, &mut (), sides.iter())?;
        }
    }
    std::io::Write::flush(&mut out)?;
    Ok(DONE)
}

fn table<'a>(in_cycles: bool, modelled: bool) -> Table<'a, (), &'a Side> {
    let two = |value: Option<f64>| Cell::or_absent(value, |value| Cell::Decimal(value, 2));
    let of = |turns: &[Option<f64>]| median(turns.iter().flatten().copied());
    let end = |of: fn((f64, f64)) -> f64| {
        move |(): &mut (), side: &&Side| {
            Cell::or_absent(side.interval().map(of), |end| Cell::Decimal(end, 4))
        }
    };
    Table::<(), &Side>::new()
        .constant("kind", "comparison")
        .number(
            "instructions_per_iteration",
            "instructions",
            move |(), side| two(side.instructions),
        )
        .number("cycles_per_iteration", "core cycles", move |(), side| two(of(&side.cycles)))
        .number("tsc_ticks_per_iteration", "TSC ticks", move |(), side| two(of(&side.ticks)))
        .number("loop", "rounds", |(), side| Cell::count(side.rounds.map(u64::from)))
        .spare(1)
        .number("ratio", "ratio", |(), side| {
            Cell::or_absent(median(side.ratios.iter().copied()), |ratio| Cell::Decimal(ratio, 3))
        })
        .only("ratio_low", end(|(low, _)| low))
        .only("ratio_high", end(|(_, high)| high))
        .word("", "99 % interval", |(), side| {
            Cell::word(side.interval().map(|(low, high)| format!("{low:.3} .. {high:.3}")))
        })
        .only("ratio_of", move |(), _| {
            Cell::Word(if in_cycles { "cycles" } else { "tsc_ticks" }.into())
        })
        .only("modelled", move |(), _| if in_cycles { Cell::Flag(modelled) } else { Cell::Absent })
        .word("verdict", "than the first", |(), side| match side.ratios.is_empty() {
            true => Cell::Absent,
            false => Cell::Word(side.verdict().into()),
        })
        .name("code", "code", |(), side| Cell::Name(side.source.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(ratios: &[f64]) -> Side {
        let each: Vec<Option<f64>> = ratios.iter().copied().map(Some).collect();
        let mut side = Side {
            source: String::new(),
            rounds: None,
            instructions: None,
            cycles: Vec::new(),
            ticks: Vec::new(),
            ratios: Vec::new(),
        };
        side.compare(&each, &vec![Some(1.0); each.len()]);
        side
    }

    #[test]
    fn one_turn_in_twelve_that_is_off_decides_nothing() {
        let mut ratios = vec![1.5; 12];
        ratios[3] = 0.9;
        assert_eq!(side(&ratios).interval(), Some((1.5, 1.5)));
        assert_eq!(side(&ratios).verdict(), "slower");
        ratios[7] = 0.95;
        assert_eq!(side(&ratios).verdict(), "no difference seen");
        let faster: Vec<f64> = ratios.iter().map(|ratio| ratio / 2.0).collect();
        assert_eq!(side(&faster).verdict(), "faster");
    }

    #[test]
    fn few_turns_tell_nothing() {
        assert_eq!(side(&[2.0; 7]).verdict(), "not known");
        assert_eq!(side(&[2.0; 8]).interval(), Some((2.0, 2.0)));
    }

    #[test]
    fn what_is_not_above_the_overhead_gives_no_ratio() {
        let mut of = side(&[]);
        of.compare(&[Some(3.0), Some(-1.0), None], &[Some(2.0), Some(1.0), Some(1.0)]);
        assert_eq!(of.ratios, [1.5]);
    }
}
