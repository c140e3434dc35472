//! Several pieces of code side by side: how many times as long each takes as the first.

use lab::measure::{Options, Ratio, TURNS, Turn, TurnRatio, median, ticks_of};

use super::code::TimedCode;
use super::figures::{Figures, Source};
use super::{ENOUGH, TimeArgs, failed, machine};
use crate::exit::{Failure, Result, done};
use crate::present::{Cell, Out, Printer, Table, counted, dash, joined};

/// A piece of code with its results over all turns.
pub(super) struct Side<'a> {
    number: usize,
    code: &'a TimedCode,
    /// As much of its source as identifies it.
    pub(super) label: String,
    /// Per iteration, by single-stepping, which no other load disturbs.
    instructions: Option<f64>,
    /// Medians of the undisturbed turns, per iteration.
    pub(super) cycles: Option<f64>,
    pub(super) ticks: Option<f64>,
    /// Compared with the first; `None` for the first itself.
    pub(super) ratio: Option<Ratio>,
    /// The verdict on its code, at all offsets.
    pub(super) at_all_offsets: Option<&'static str>,
}

impl Side<'_> {
    /// The 99% interval of its ratio.
    pub(super) fn interval(&self) -> Option<(f64, f64)> {
        self.ratio.as_ref().and_then(Ratio::interval)
    }

    pub(super) fn verdict(&self) -> Option<&'static str> {
        self.ratio.as_ref()?;
        Some(match self.interval() {
            None => "not known",
            Some((low, _)) if low > 1.0 => "slower",
            Some((_, high)) if high < 1.0 => "faster",
            Some(_) => "no difference seen",
        })
    }
}

/// The turns made, and the undisturbed ones.
pub(super) struct Turns<'a> {
    args: &'a TimeArgs,
    source: Source,
    made: usize,
    whole: Vec<Turn>,
    /// Ratios are of core cycles, not of ticks.
    pub(super) in_cycles: bool,
}

/// Measures them in turns, and compares each with the first. Of `alike` consecutive pieces that
/// differ only in their address, the first decides the rounds of the loop.
pub(super) fn measure<'a>(
    args: &'a TimeArgs,
    options: Options,
    codes: &'a mut [TimedCode],
    alike: usize,
) -> Result<(Turns<'a>, Vec<Side<'a>>)> {
    let mut bodies: Vec<_> = codes.iter().map(|code| code.body.clone()).collect();
    // Which of them did not finish is determined afterwards.
    let mut at = 0;
    let all = bodies.clone();
    let (measured, source) = machine::measure(args, options, &all, |session| {
        for (i, group) in bodies.chunks_mut(alike).enumerate().filter(|_| args.calibrates()) {
            at = i * alike;
            let Some((first, rest)) = group.split_first_mut() else { continue };
            *first = session.calibrate(first, ENOUGH)?;
            rest.iter_mut().for_each(|body| body.rounds = first.rounds);
        }
        // Many pieces make a turn long enough to be disturbed.
        let shorter = if alike > 1 { 3 } else { 1 };
        session.options().repeat = args.repeat.div_ceil(shorter * TURNS as u32);
        session.take_turns(&bodies).map_err(|(i, error)| {
            at = i;
            error
        })
    })?;
    let turns = measured.map_err(|error| {
        let Failure { code, error } = failed(error, &codes[at]);
        Failure { code, error: error.context(format!("`{}`", codes[at].source)) }
    })?;
    for (code, body) in codes.iter_mut().zip(bodies) {
        code.body = body;
    }
    let made = turns.len();
    // Single-stepping counts the same, whatever else ran.
    let instructions = |i: usize| {
        turns.iter().filter_map(|turn| turn.pieces.get(i)).find_map(|piece| {
            Some(piece.counts?.instructions as f64 / piece.stepped_iterations.max(1) as f64)
        })
    };
    let instructions: Vec<Option<f64>> = (0..codes.len()).map(instructions).collect();
    let whole = turns.into_iter().filter(|turn| !turn.is_disturbed()).collect();
    let mut turns = Turns { args, source, made, whole, in_cycles: false };
    let sides = turns.sides(codes, &instructions);
    Ok((turns, sides))
}

/// Measures them and prints the comparison.
pub(super) fn run(args: &TimeArgs, options: Options, codes: &mut [TimedCode]) -> Result {
    let (turns, sides) = measure(args, options, codes, 1)?;
    let mut out = Out::stdout();
    let table = turns.table();
    let printer = Printer::of(args.json, args.csv);
    if printer == Printer::Text {
        turns.head(&mut out, &sides)?;
    }
    table.write(printer, &mut out, &mut (), sides.iter())?;
    done(&mut out)
}

impl Turns<'_> {
    fn sides<'c>(&mut self, codes: &'c [TimedCode], instructions: &[Option<f64>]) -> Vec<Side<'c>> {
        let of = |i: usize| self.whole.iter().filter_map(move |turn| turn.pieces.get(i));
        let cycles: Vec<Vec<Option<f64>>> = (0..codes.len())
            .zip(codes)
            .map(|(i, code)| {
                let each = |piece| {
                    let counted = Figures::new(piece, code, self.source.clone());
                    counted.rounds.or(counted.cycles).map(|spread| spread.median)
                };
                of(i).map(each).collect()
            })
            .collect();
        // A ratio compares either cycles or ticks.
        let in_cycles = cycles.iter().flatten().all(Option::is_some) && !self.whole.is_empty();
        let ratio = |i: usize| match in_cycles {
            true => {
                let pairs =
                    cycles.get(i).into_iter().flatten().zip(cycles.first().into_iter().flatten());
                let ratio = |mine: f64, first: f64| {
                    (mine > 0.0 && first > 0.0)
                        .then(|| TurnRatio { ratio: mine / first, error: 0.0 })
                };
                Ratio::new(pairs.filter_map(|(mine, first)| ratio((*mine)?, (*first)?)))
            }
            false => Ratio::of_ticks(&self.whole, i, 0),
        };
        let side = |(i, code)| Side {
            number: i + 1,
            code,
            label: label(codes, i),
            instructions: instructions.get(i).copied().flatten(),
            cycles: cycles.get(i).and_then(|each| median(each.iter().flatten().copied())),
            ticks: median(of(i).filter_map(ticks_of)),
            ratio: (i > 0).then(|| ratio(i)),
            at_all_offsets: None,
        };
        let sides = codes.iter().enumerate().map(side).collect();
        self.in_cycles = in_cycles;
        sides
    }

    /// The answer, then what it is measured by.
    fn head(&self, out: &mut Out<'_>, sides: &[Side<'_>]) -> std::io::Result<()> {
        let answers = sides.iter().filter_map(|side| {
            let verdict = side.verdict()?;
            let ratio = side.ratio.as_ref().and_then(Ratio::median);
            let ratio = ratio.map_or(String::new(), |ratio| format!(" ({ratio:.3}\u{d7})"));
            Some(match verdict {
                "not known" => format!("{} is not known", side.number),
                "no difference seen" => {
                    format!("{} {}{ratio}", side.number, no_difference(side.interval()))
                }
                verdict => format!("{} is {verdict}{ratio}", side.number),
            })
        });
        out.line(format_args!("compared with 1: {}", joined(answers, ", ")))?;
        self.limits(out)?;
        if self.args.verbose {
            out.line(&self.source.words)?;
            let first = self.whole.first().and_then(|turn| turn.pieces.first());
            out.line(format_args!(
                "{} count, of {} each; medians, per iteration",
                counted(self.whole.len() as u64, "turn", "turns"),
                counted(first.map_or(0, |piece| piece.runs.len()) as u64, "run", "runs"),
            ))?;
            if let Some(ticks) = median(self.whole.iter().filter_map(Turn::ticks_per_cycle)) {
                out.line(format_args!(
                    "an ADD that waits for the one before it: {ticks:.3} ticks"
                ))?;
            }
        }
        out.gap()
    }

    /// Prints the limits of the measurement: its unit, modelled cycles, disturbed turns.
    pub(super) fn limits(&self, out: &mut Out<'_>) -> std::io::Result<()> {
        if let Some(absent) = &self.source.absent {
            out.line(format_args!("core cycles: {absent}; ratios are of TSC ticks"))?;
        }
        let disturbed = self.made - self.whole.len();
        if disturbed > 0 {
            let advice = match self.whole.len() {
                ..8 => "; too few are left: run it on a quieter CPU (-C)",
                _ => "",
            };
            out.line(format_args!(
                "{disturbed} of {} were disturbed (load, steal, frequency) and dropped{advice}",
                counted(self.made as u64, "turn", "turns"),
            ))?;
        }
        if self.args.mca.is_some() && !self.in_cycles {
            let cycle = median(self.whole.iter().filter_map(Turn::ticks_per_cycle));
            let cycle = cycle.map_or_else(dash, |ticks| format!("{ticks:.3}"));
            out.line(format_args!(
                "llvm-mca predicts core cycles; an ADD that waits for the one before it (one cycle) \
                 takes {cycle} TSC ticks"
            ))?;
        }
        Ok(())
    }

    pub(super) fn table<'a>(&self) -> Table<'a, (), &'a Side<'a>> {
        let two = |value: Option<f64>| Cell::decimal(value, 2);
        let end = |of: fn((f64, f64)) -> f64| {
            move |(): &mut (), side: &&Side<'_>| Cell::decimal(side.interval().map(of), 4)
        };
        let (in_cycles, modelled) = (self.in_cycles, self.source.modelled);
        let (whole, disturbed) = (self.whole.len() as u64, (self.made - self.whole.len()) as u64);
        let mut table = Table::<(), &Side<'_>>::new().constant("kind", "comparison").number(
            "",
            "#",
            |(), side| Cell::Count(side.number as u64),
        );
        if self.args.layouts.is_some() {
            table = table
                .word("page_offset", "page offset", |(), side| {
                    Cell::word(side.code.body.page_offset.map(|at| format!("{at:#x}")))
                })
                .only("at_all_offsets", |(), side| Cell::word(side.at_all_offsets));
        }
        table = table
            .number("ratio", "ratio", |(), side| {
                Cell::decimal(side.ratio.as_ref().and_then(Ratio::median), 3)
            })
            .only("ratio_low", end(|(low, _)| low))
            .only("ratio_high", end(|(_, high)| high))
            .word("", "99% interval", |(), side| {
                Cell::word(side.interval().map(|(low, high)| format!("{low:.3} .. {high:.3}")))
            });
        let cycles = if in_cycles { "core cycles" } else { "" };
        table = table
            .number("cycles_per_iteration", cycles, move |(), side| two(side.cycles))
            .number("tsc_ticks_per_iteration", "TSC ticks", move |(), side| two(side.ticks))
            .number("instructions_per_iteration", "instructions", move |(), side| {
                two(side.instructions)
            });
        if self.args.mca.is_some() {
            table = table.number("predicted_cycles_per_iteration", "llvm-mca", move |(), side| {
                two(side.code.prediction.as_ref().map(|predicted| predicted.cycles))
            });
        }
        let [copies, rounds] = if self.args.verbose { ["copies", "rounds"] } else { [""; 2] };
        table
            .number("unroll", copies, |(), side| Cell::Count(side.code.body.unroll.max(1).into()))
            .number("loop", rounds, |(), side| Cell::count(side.code.body.rounds.map(u64::from)))
            .only("ratio_of", move |(), _| {
                Cell::Word(if in_cycles { "cycles" } else { "tsc_ticks" }.into())
            })
            .only(
                "modelled",
                move |(), _| if in_cycles { Cell::Flag(modelled) } else { Cell::Absent },
            )
            .only("turns", move |(), _| Cell::Count(whole))
            .only("disturbed_turns", move |(), _| Cell::Count(disturbed))
            .only("verdict", |(), side| Cell::word(side.verdict()))
            .only("code", |(), side| Cell::Name(side.code.source.clone()))
            .name("", "code", |(), side| Cell::Name(side.label.clone()))
    }
}

/// Longer code starts where it differs from the others, if it is truncated.
const LONG: usize = 24;

/// A snippet without the prefix that it shares with others.
fn label(codes: &[TimedCode], which: usize) -> String {
    let Some(own) = codes.get(which).map(|code| code.source.as_str()) else { return String::new() };
    let shared = |other: &TimedCode| {
        let same = own.char_indices().zip(other.source.chars());
        let differs = same.clone().find(|((_, a), b)| a != b).map(|((at, _), _)| at);
        differs.unwrap_or(own.len().min(other.source.len()))
    };
    let start = codes.iter().filter(|other| other.source != own).map(shared).max().unwrap_or(0);
    // From the start of the instruction that differs.
    let start = own.get(..start).and_then(|same| same.rfind("; ")).map_or(0, |at| at + 2);
    match own.get(start..) {
        Some(rest) if start > 0 && own.chars().count() > LONG => format!("\u{2026}; {rest}"),
        _ => own.to_owned(),
    }
}

/// Equal within a tenth is an answer; a wider interval also allows for a difference.
pub(super) fn no_difference(interval: Option<(f64, f64)>) -> String {
    match interval {
        Some((low, high)) if low < 0.9 || high > 1.1 => {
            format!("takes {:.2} to {high:.2} times as long", low.max(0.0))
        }
        _ => "takes as long".to_owned(),
    }
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/commands/time/compare.rs"]
mod tests;
