//! A user's program: its trace, symbols and source.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use lab::learn::{self, Own, Session, Setup};
use lbr_msr::record::Mmap;
use lbr_msr::soft::{Faults, SoftCpu};
use profile::place::find_code;
use profile::symbols::{Module, demangle};
use sampler::source::Command;
use sampler::target;

use super::{Learn, Subject};
use crate::commands::backend::not_started;
use crate::commands::record::in_user_mode;
use crate::exit::{OrExit, Result, USAGE};
use crate::input::source_text::Sources;
use crate::present::say;

/// Runs the program and turns its steps into a lesson.
pub(super) fn subject(args: &Learn) -> Result<Subject> {
    args.rights.check()?;
    let filter = in_user_mode(args.filter)?;
    let (command, from) = match (&args.command[..], &args.from) {
        // `--from` after the program, as people often type it.
        ([program, option, symbol], None) if option == "--from" => {
            (std::slice::from_ref(program), Some(symbol))
        }
        (command, from) => (command, from.as_ref()),
    };
    let asked = args.rights.command(command)?;
    let program = asked.program.clone();
    let path = target::find(&program).map_err(not_started)?;
    let address = from.map(|symbol| find_code(&path, symbol)).transpose().or_exit(USAGE)?;
    let asked = Command { from: address, ..asked };
    args.rights.announce();
    let mut own = learn::run(asked, args.steps as usize).map_err(not_started)?;
    if own.cut {
        say!("{program} was ended after {} instructions (--steps)", args.steps);
    }
    named(&mut own);
    let cpu = match &args.soft_cpu {
        Some(cpu) => cpu.clone(),
        None => SoftCpu::preset("skylake").or_exit(USAGE)?,
    };
    let setup = Setup { filter, set: Vec::new(), faults: Faults::NONE };
    let steps = own.trace.steps.len();
    let title = match from {
        Some(symbol) => format!("{steps} instructions from {symbol}"),
        None => format!("{steps} instructions"),
    };
    let session = Session::new(Arc::new(own.trace), cpu, setup).or_exit(USAGE)?;
    let text = vec![
        "What the first thread of this program did in user mode, instruction by instruction. The \
         kernel is not seen: a system call goes to 0, and comes back behind itself."
            .to_owned(),
    ];
    let name = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Subject { name, title, text, lesson: None, session })
}

/// Puts names and source to the code.
fn named(own: &mut Own) {
    let mut modules: HashMap<&str, Option<Module>> = HashMap::new();
    let mut sources = Sources::default();
    let mut before = None;
    for line in &mut own.trace.program.lines {
        let holds = |map: &&Mmap| line.address.wrapping_sub(map.addr) < map.len;
        let Some(map) = own.maps.iter().rfind(holds) else { continue };
        let module =
            modules.entry(&map.path).or_insert_with(|| Module::open(Path::new(&map.path)).ok());
        let Some(module) = module else { continue };
        let offset = line.address - map.addr + map.pgoff;
        let Some(address) = module.address_of_offset(offset) else { continue };
        if let Some((symbol, behind)) = module.symbol_at(address) {
            let symbol = demangle(symbol);
            line.label = match behind {
                0 => symbol.into_owned(),
                _ => format!("{symbol}+{behind:#x}"),
            };
        }
        let source = module.source(address);
        if source == before {
            continue;
        }
        if let Some(source) = &source {
            line.source = sources.line(source);
        }
        before = source;
    }
}
