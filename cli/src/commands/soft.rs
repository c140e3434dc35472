//! The software LBR's CPUs and injected faults: `--soft-cpu list` and `--soft-lie list`.

use std::ffi::OsStr;
use std::io::Write as _;

use clap::builder::TypedValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use lbr_msr::soft::fault::{FaultKind, UnknownFault};
use lbr_msr::soft::{Fault, Faults, SoftCpu};
use lbr_msr::table::NAMES;

use super::verify::subject::without_effect;
use crate::exit::{DONE, Outcome};
use crate::present::out::Out;
use crate::present::table::{Cell, Table};

/// The value that asks for a list.
const LIST: &str = "list";

/// Parses the name of a CPU. For [`LIST`], ends parsing with an error that [`is_list`], so that no
/// other argument is required.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuParser;

impl TypedValueParser for CpuParser {
    type Value = SoftCpu;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<SoftCpu, clap::Error> {
        if value == LIST {
            let mut list = clap::Error::new(ErrorKind::DisplayHelp);
            list.insert(ContextKind::Custom, ContextValue::String(LIST.to_owned()));
            return Err(list);
        }
        SoftCpu::preset.parse_ref(command, arg, value)
    }
}

/// Whether an error of parsing asks for the list of CPUs.
pub(crate) fn is_list(error: &clap::Error) -> bool {
    error.get(ContextKind::Custom).is_some()
}

/// Names of faults; `None` for [`LIST`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lies(pub(crate) Option<Faults>);

impl std::str::FromStr for Lies {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Lies, UnknownFault> {
        if text == LIST { Ok(Lies(None)) } else { text.parse().map(|faults| Lies(Some(faults))) }
    }
}

/// Lists the CPUs.
pub(crate) fn cpus() -> Outcome {
    let mut out = Out::stdout();
    Table::<(), SoftCpu>::new()
        .word("", "CPU", |(), cpu| Cell::Word(cpu.key.clone().into()))
        .word("", "facility", |(), cpu| Cell::Word(cpu.caps.facility.name().into()))
        .number("", "records", |(), cpu| Cell::Number(u64::from(cpu.caps.depth)))
        .word("", "microarchitecture", |(), cpu| Cell::word(cpu.caps.cpu.uarch.clone()))
        .prose("", "names", |(), cpu| {
            let named = NAMES.iter().filter(|(_, key)| *key == cpu.key).map(|(name, _)| *name);
            Cell::Word(named.collect::<Vec<_>>().join(", ").into())
        })
        .write_text(&mut out, &mut (), SoftCpu::all().collect::<Vec<_>>().into_iter())?;
    out.flush()?;
    Ok(DONE)
}

/// Lists the injected faults; only those with an effect on `cpu`, if given.
pub(crate) fn lies(cpu: Option<&SoftCpu>) -> Outcome {
    let mut faults: Vec<Fault> = Fault::all().collect();
    if let Some(cpu) = cpu {
        let none = without_effect(cpu, Fault::all())?;
        faults.retain(|fault| !none.contains(fault));
    }
    let mut out = Out::stdout();
    Table::<(), Fault>::new()
        .word("", "name", |(), fault| Cell::Word(fault.name().into()))
        .word("", "kind", |(), fault| {
            Cell::Word(match fault.kind() {
                FaultKind::Erratum => "erratum".into(),
                FaultKind::Lie => "lie".into(),
            })
        })
        .prose("", "source", |(), fault| Cell::Word(fault.source().into()))
        .write_text(&mut out, &mut (), faults.into_iter())?;
    out.flush()?;
    Ok(DONE)
}
