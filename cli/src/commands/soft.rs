//! What the software LBR can stand in for, and how it can lie: `--soft-cpu list`
//! and `--soft-lie list`, wherever these options are.

use std::ffi::OsString;
use std::io::Write as _;

use clap::Command;
use lbr_msr::soft::fault::FaultKind;
use lbr_msr::soft::{Fault, SoftCpu};
use lbr_msr::table::NAMES;

use crate::exit::{DONE, Outcome};
use crate::present::out::Out;
use crate::present::table::{Cell, Table};

/// A list in place of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// The CPUs.
    Cpus,
    /// Lies and errata.
    Lies,
}

/// The list that these words ask for, of a command that has the option.
pub(crate) fn asked(words: &[OsString], grammar: &Command) -> Option<Listed> {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let words = words.get(..end)?;
    let command = words.iter().skip(1).find_map(|word| grammar.find_subcommand(word))?;
    let lists = [("soft-cpu", Listed::Cpus), ("soft-lie", Listed::Lies)];
    lists.into_iter().find_map(|(name, listed)| {
        let has = command.get_arguments().any(|option| option.get_long() == Some(name));
        let option = format!("--{name}");
        let joined = words.iter().any(|word| *word == *format!("{option}=list"));
        let apart = words.windows(2).any(|pair| pair[0] == *option && pair[1] == "list");
        (has && (joined || apart)).then_some(listed)
    })
}

/// Prints it.
pub(crate) fn list(listed: Listed) -> Outcome {
    let mut out = Out::stdout();
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
        Listed::Lies => Table::<(), Fault>::new()
            .word("", "name", |(), fault| Cell::Word(fault.name().into()))
            .word("", "kind", |(), fault| {
                Cell::Word(match fault.kind() {
                    FaultKind::Erratum => "erratum".into(),
                    FaultKind::Lie => "lie".into(),
                })
            })
            .prose("", "source", |(), fault| Cell::Word(fault.source().into()))
            .write_text(&mut out, &mut (), Fault::all().collect::<Vec<_>>().into_iter())?,
    }
    out.flush()?;
    Ok(DONE)
}
