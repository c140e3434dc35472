//! The CPUs of the software LBR: `--soft-cpu` and `--soft-cpu list`.

use std::ffi::OsStr;

use clap::builder::TypedValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use lbr_msr::caps::Facility;
use lbr_msr::insn::Isa;
use lbr_msr::soft::SoftCpu;
use lbr_msr::table::NAMES;

use crate::exit::{Result, done, usage};
use crate::present::{Cell, Out, Table, joined};

/// The value that asks for a list.
pub(super) const LIST: &str = "list";

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
        let records = matches!(command.get_name(), "record" | "dump" | "learn");
        let named = move |name: &str| match SoftCpu::preset(name) {
            Ok(cpu) if cpu.caps.facility == Facility::Brbe && !records => {
                Err("BRBE is emulated only by lbr record, dump and learn".to_owned())
            }
            found => found.map_err(|error| format!("{error}; --soft-cpu list lists them")),
        };
        named.parse_ref(command, arg, value)
    }
}

/// Whether a CPU runs programs of this instruction set.
pub(crate) fn runs(cpu: &SoftCpu, isa: Isa) -> Result<()> {
    match (cpu.caps.facility == Facility::Brbe, isa) {
        (true, Isa::X86_64) => Err(usage!(
            "{} is an Arm CPU, and the program is for x86-64; name another --soft-cpu",
            cpu.key
        )),
        (false, Isa::Aarch64) => Err(usage!(
            "{} is an x86 CPU, and the program is for AArch64; try --soft-cpu neoverse-v2",
            cpu.key
        )),
        _ => Ok(()),
    }
}

/// Whether an error of parsing asks for the list of CPUs.
pub(crate) fn is_list(error: &clap::Error) -> bool {
    error.get(ContextKind::Custom).is_some()
}

/// Lists the CPUs.
pub(crate) fn cpus() -> Result {
    let mut out = Out::stdout();
    Table::<(), SoftCpu>::new()
        .word("", "CPU", |(), cpu| Cell::Word(cpu.key.clone().into()))
        .word("", "facility", |(), cpu| Cell::Word(cpu.caps.facility.name().into()))
        .number("", "records", |(), cpu| Cell::Number(u64::from(cpu.caps.depth)))
        .word("", "microarchitecture", |(), cpu| Cell::word(cpu.caps.cpu.uarch.clone()))
        .prose("", "names", |(), cpu| {
            let named = NAMES.iter().filter(|(_, key)| *key == cpu.key).map(|(name, _)| *name);
            Cell::Word(joined(named, ", ").into())
        })
        .write_text(
            &mut out,
            &mut (),
            SoftCpu::all().chain(SoftCpu::all_brbe()).collect::<Vec<_>>().into_iter(),
        )?;
    done(&mut out)
}
