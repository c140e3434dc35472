//! The part of the traces in one program, summed over all processes that ran it.

use std::collections::HashMap;
use std::path::Path;

use lbr_msr::record::BranchType;
use lbr_msr::text::AsText;

use super::binary::Binary;
use super::traces::{NOT_KNOWN, Trace, Traced};
use super::{ExportError, Losses};
use crate::code::maps::{Location, Maps};
use crate::code::symbols::Module;
use crate::read::add;

/// A trace in addresses of the program's symbol table; `None` is outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) from: Option<u64>,
    pub(super) to: Option<u64>,
    /// The next taken branch, if known.
    pub(super) next: Option<Option<u64>>,
    /// The recording has it as a return.
    pub(super) returns: bool,
    pub(super) taken: u64,
    pub(super) mispredicted: u64,
    pub(super) ran: u64,
}

/// A program and its traces.
#[derive(Debug)]
pub(super) struct Program {
    /// Its name in the recording.
    pub(super) name: String,
    pub(super) binary: Binary,
    pub(super) steps: Vec<Step>,
    pub(super) losses: Losses,
}

/// Number of branches by target file.
pub(super) fn by_file(traced: &Traced) -> HashMap<usize, u64> {
    let mut counts = HashMap::new();
    for trace in &traced.traces {
        if let Location::File { file, .. } = traced.maps.locate(trace.space as usize, trace.to) {
            add(counts.entry(file).or_default(), trace.taken);
        }
    }
    counts
}

impl Program {
    /// Collects the traces in the file with this index. It is opened at its recorded path unless
    /// the user gave another one. Without an index, addresses are taken as the program's own:
    /// llvm-profgen assumes that a file without a mapping record was loaded at its link address
    /// (`warnIfMissingMMap`).
    pub(super) fn of(
        traced: &mut Traced,
        file: Option<usize>,
        instead: Option<&Path>,
    ) -> Result<Program, ExportError> {
        let Traced { traces, maps, .. } = traced;
        let name = match (file, instead) {
            (None, Some(path)) => path.as_text().into_owned(),
            _ => file.and_then(|file| maps.path(file)).unwrap_or("[unknown]").to_owned(),
        };
        let mut losses = Losses::default();
        let mut offsets = Vec::new();
        for trace in traces.iter().filter(|trace| trace.taken | trace.ran > 0) {
            add(&mut losses.recorded, trace.taken);
            let places =
                [trace.from, trace.to, trace.next].map(|addr| inside(maps, trace, addr, file));
            match places {
                [None, None, _] => add(&mut losses.outside, trace.taken),
                places => offsets.push((trace, places)),
            }
        }
        let mut opened = instead.map(Module::open).transpose()?;
        if let (Some(file), Some(module)) = (file, &opened) {
            maps.check_build(file, module)?;
        }
        let Some(module) = opened.as_mut().or_else(|| maps.elf(file?)) else {
            let why = file.and_then(|file| maps.failure(file)).map(ToString::to_string);
            let why = why.unwrap_or_else(|| "not a regular file".to_owned());
            return Err(ExportError::NotFound { name, why });
        };
        let binary = Binary::open(module.path())?;
        let address = |at: Option<u64>| match file {
            Some(_) => at.and_then(|at| module.address_of_offset(at)),
            None => at,
        };
        let step = |(trace, [from, to, next]): (&Trace, [Option<u64>; 3])| Step {
            from: address(from),
            to: address(to),
            next: (trace.next != NOT_KNOWN).then(|| address(next)),
            returns: trace.branch_type == BranchType::RET.0,
            taken: trace.taken,
            mispredicted: trace.mispredicted,
            ran: trace.ran,
        };
        let steps = offsets.into_iter().map(step).collect();
        Ok(Program { name, binary, steps, losses })
    }
}

/// The file offset of a trace's address; without a file, the address.
fn inside(maps: &Maps, trace: &Trace, addr: u64, file: Option<usize>) -> Option<u64> {
    match file {
        _ if addr == NOT_KNOWN => None,
        None => Some(addr),
        Some(file) => maps.locate(trace.space as usize, addr).in_file(file),
    }
}
