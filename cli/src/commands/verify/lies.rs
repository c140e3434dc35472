//! `--soft-lie`: faults that the software LBR injects.

use std::io::Write as _;
use std::str::FromStr;

use lbr_msr::soft::fault::FaultKind;
use lbr_msr::soft::{Fault, Faults, SoftCpu};

use super::subject::without_effect;
use crate::commands::soft::LIST;
use crate::exit::{DONE, Outcome};
use crate::present::out::Out;
use crate::present::table::{Cell, Table};

/// Names of faults; `None` for `list`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lies(pub(crate) Option<Faults>);

impl FromStr for Lies {
    type Err = String;

    fn from_str(text: &str) -> Result<Lies, String> {
        if text == LIST {
            return Ok(Lies(None));
        }
        let faults = text.parse::<Faults>().map(|faults| Lies(Some(faults)));
        faults.map_err(|error| format!("{error}; --soft-lie list lists them"))
    }
}

/// Lists the injected faults; only those with an effect on `cpu`, if given.
pub(super) fn list(cpu: Option<&SoftCpu>) -> Outcome {
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
