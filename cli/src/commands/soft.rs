//! What the software LBR can stand in for, and how it can lie: `--soft-cpu list`
//! and `--soft-lie list`, wherever these options are.

use std::ffi::OsString;
use std::io::Write as _;

use clap::Command;
use lbr_msr::soft::fault::FaultKind;
use lbr_msr::soft::{Fault, SoftCpu};
use lbr_msr::table::NAMES;

use super::verify::subject::without_effect;
use crate::exit::{DONE, OrExit, Outcome, USAGE};
use crate::present::out::Out;
use crate::present::table::{Cell, Table};

/// A list in place of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// The CPUs.
    Cpus,
    /// Lies and errata; those with an effect on the CPU of this name, if one is given.
    Lies(Option<String>),
}

/// The list that these words ask for, of a command that has the option. Words of a program that
/// is recorded ask for none.
pub(crate) fn asked(words: &[OsString], grammar: &mut Command) -> Option<Listed> {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let words = words.get(..end)?;
    let command = words.iter().skip(1).find_map(|word| grammar.find_subcommand(word))?;
    let lists = [("soft-cpu", Listed::Cpus), ("soft-lie", Listed::Lies(None))];
    let (at, listed) = lists.into_iter().find_map(|(name, listed)| {
        let has = command.get_arguments().any(|option| option.get_long() == Some(name));
        let option = format!("--{name}");
        let joined = words.iter().position(|word| *word == *format!("{option}=list"));
        let apart = words.windows(2).position(|pair| pair[0] == *option && pair[1] == "list");
        joined.or(apart).filter(|_| has).map(|at| (at, listed))
    })?;
    let before = grammar.try_get_matches_from_mut(words.get(..at)?);
    let is_programs = before.is_ok_and(|matches| {
        matches.subcommand().is_some_and(|(_, found)| {
            found.try_get_raw("command").is_ok_and(|program| program.is_some())
        })
    });
    let cpu = || option(words, "--soft-cpu").filter(|cpu| cpu != "list");
    (!is_programs).then(|| if listed == Listed::Cpus { listed } else { Listed::Lies(cpu()) })
}

/// The value of an option, after it or joined to it.
fn option(words: &[OsString], name: &str) -> Option<String> {
    let words = || words.iter().filter_map(|word| word.to_str());
    let joined = words().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let apart =
        words().zip(words().skip(1)).find(|(word, _)| *word == name).map(|(_, value)| value);
    joined.or(apart).map(str::to_owned)
}

/// Prints it.
pub(crate) fn list(listed: Listed) -> Outcome {
    let mut out = Out::stdout();
    let mut faults: Vec<Fault> = Fault::all().collect();
    if let Listed::Lies(Some(cpu)) = &listed {
        let cpu = SoftCpu::preset(cpu).or_exit(USAGE)?;
        let none = without_effect(&cpu, Fault::all())?;
        faults.retain(|fault| !none.contains(fault));
    }
    match listed {
        Listed::Cpus => Table::<(), SoftCpu>::new()
            .word("", "CPU", |(), cpu| Cell::Word(cpu.key.clone().into()))
            .word("", "facility", |(), cpu| Cell::Word(cpu.caps.facility.name().into()))
            .number("", "records", |(), cpu| Cell::Number(u64::from(cpu.caps.depth)))
            .word("", "microarchitecture", |(), cpu| Cell::word(cpu.caps.cpu.uarch.clone()))
            .prose("", "names", |(), cpu| {
                let named = NAMES.iter().filter(|(_, key)| *key == cpu.key).map(|(name, _)| *name);
                Cell::Word(named.collect::<Vec<_>>().join(", ").into())
            })
            .write_text(&mut out, &mut (), SoftCpu::all().collect::<Vec<_>>().into_iter())?,
        Listed::Lies(_) => Table::<(), Fault>::new()
            .word("", "name", |(), fault| Cell::Word(fault.name().into()))
            .word("", "kind", |(), fault| {
                Cell::Word(match fault.kind() {
                    FaultKind::Erratum => "erratum".into(),
                    FaultKind::Lie => "lie".into(),
                })
            })
            .prose("", "source", |(), fault| Cell::Word(fault.source().into()))
            .write_text(&mut out, &mut (), faults.into_iter())?,
    }
    out.flush()?;
    Ok(DONE)
}
