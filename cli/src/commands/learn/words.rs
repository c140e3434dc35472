//! A state in words, for the screen, the handout and the page.

use lab::learn::{Bits, Did, Line, Program, Session, Slot, State, View, lacks};
use lbr_msr::caps::{Facility, LbrCaps};
use lbr_msr::insn::{self, Isa};
use lbr_msr::record::{BranchEntry, BranchSpec, HwBranchType};
use lbr_msr::table::NAMES;

use super::Subject;
use crate::present::{counted, escaped};

/// An address by its name in the program.
pub(super) fn place(program: &Program, address: u64) -> String {
    match (program.name(address), address) {
        (_, u64::MAX) => "hidden".to_owned(),
        (Some(name), _) => escaped(&name).into_owned(),
        (None, address) => format!("{address:#x}"),
    }
}

/// The ends of a record, and its other fields.
pub(super) fn record(program: &Program, entry: &BranchEntry) -> String {
    let (from, to) = (place(program, entry.from), place(program, entry.to));
    format!("{from} -> {to}  {}", flags(entry)).trim_end().to_owned()
}

/// The fields of a record besides its two ends.
pub(super) fn flags(entry: &BranchEntry) -> String {
    let mut words: Vec<String> = Vec::new();
    words.extend(entry.hw_type.map(|of| of.name().to_owned()));
    let flags =
        [(entry.mispredicted, "MISPRED"), (entry.in_tx, "IN_TSX"), (entry.abort, "TSX_ABORT")];
    words.extend(flags.iter().filter(|flag| flag.0 == Some(true)).map(|flag| flag.1.to_owned()));
    words.extend(entry.cycles.map(|cycles| counted(cycles.into(), "cycle", "cycles")));
    let speculative = entry.spec.filter(|spec| *spec != BranchSpec::NonSpecCorrectPath);
    words.extend(speculative.map(|spec| spec.name().to_lowercase()));
    words.join(", ")
}

/// The registers of a slot: name, address in hexadecimal or Arm's name, value.
pub(super) fn registers(caps: &LbrCaps, slot: &Slot) -> Vec<(&'static str, String, u64)> {
    let map = &caps.registers;
    let (to, info) = (map.to_at(slot.index), map.info_at(slot.index));
    [
        (Some(map.from_at(slot.index)), "FROM", "SRC", Some(slot.raw.from)),
        (to, "TO", "TGT", Some(slot.raw.to)),
        (info, "INFO", "INF", slot.raw.info),
    ]
    .into_iter()
    .filter_map(|(msr, name, arm, value)| {
        let address = match caps.facility {
            Facility::Brbe => format!("BRB{arm}{}_EL1", slot.index),
            _ => msr?.to_string(),
        };
        Some((name, address, value?))
    })
    .collect()
}

/// The address of a control register, or its encoding on Arm.
pub(super) fn address(bits: &Bits) -> String {
    bits.register.encoding().unwrap_or_else(|| bits.msr.to_string())
}

/// The CPU, and what it lacks.
pub(super) fn cpu(state: &State) -> (String, String) {
    let caps = &state.cpu.caps;
    // The table of CPUs has no rows of AMD.
    let named = NAMES.iter().find(|(_, key)| *key == state.cpu.key).map(|(name, _)| *name);
    let uarch = caps.cpu.uarch.as_deref().or(named).unwrap_or(caps.cpu.vendor.as_str());
    let name = match caps.facility {
        Facility::Brbe => format!("an Arm CPU with BRBE ({uarch}), {} records", caps.depth),
        _ => format!("{uarch} {}H, {} records", state.cpu.key, caps.depth),
    };
    let lacks = match &lacks(caps)[..] {
        [] => "its records have all fields shown here".to_owned(),
        lacks => format!("no {}", lacks.join(", no ")),
    };
    (name, lacks)
}

/// An instruction as it is disassembled, its target by name.
pub(super) fn instruction(program: &Program, line: &Line) -> String {
    let branch = program.isa.decode(&line.bytes, line.address).branch();
    let is_x86 = program.isa == Isa::X86_64;
    let fallback = || insn::abort_target(&line.bytes, line.address).filter(|_| is_x86);
    match branch.and_then(|branch| branch.target).or_else(fallback) {
        Some(target) => line.text.replace(&format!("{target:#x}"), &place(program, target)),
        None => line.text.clone(),
    }
}

/// The last step, and its effect on the records.
pub(super) fn happened(session: &Session, view: &View) -> Option<(String, String)> {
    let step = session.last()?;
    let program = &session.trace().program;
    let instruction = match program.at(step.at) {
        Some(line) => instruction(program, line),
        None => format!("{:#x}", step.at),
    };
    Some(match step.did {
        Did::Straight => (instruction, "no branch".to_owned()),
        Did::FellThrough { mispredicted } => {
            let unseen = if mispredicted { "; mispredicted, which nothing shows" } else { "" };
            (instruction, format!("not taken, no record{unseen}"))
        }
        Did::Event(event) => {
            let was = session.before().is_some_and(|before| before.lbr.recorded() > 0);
            let off = was && !view.recording;
            let state = if off { "recording is off now" } else { "recording goes on" };
            (event.words().to_owned(), state.to_owned())
        }
        Did::Branch(branch) => (instruction, recorded(session, view, branch.class)),
        Did::Interrupt(branch) => {
            let words = format!("an interrupt, to {}", place(program, branch.to));
            (words, recorded(session, view, branch.class))
        }
    })
}

/// The last step in a line; empty if the last action was not a step.
pub(super) fn last_step(session: &Session, view: &View) -> String {
    happened(session, view).map_or_else(String::new, |(what, became)| format!("{what}: {became}"))
}

/// The outcome of a taken branch.
fn recorded(session: &Session, view: &View, class: HwBranchType) -> String {
    let count = |state: &State| state.lbr.recorded();
    let moved = session.before().is_some_and(|before| count(before) != count(session.state()));
    let newest = view.newest_first().next();
    match newest {
        _ if !view.recording => "taken; recording is off".to_owned(),
        _ if !moved => "taken; the filter leaves it out".to_owned(),
        Some(newest) if newest.changed => format!("taken, recorded in slot {}", newest.index),
        _ if class == HwBranchType::Ret => "taken; the newest record is taken away".to_owned(),
        Some(newest) => format!("taken, recorded in slot {} as it was before", newest.index),
        None => "taken".to_owned(),
    }
}

/// A title line.
pub(super) fn title(subject: &Subject) -> String {
    format!("{}: {}", subject.name, subject.title)
}

/// The label of an instruction; only one exactly at it.
pub(super) fn label(line: &Line) -> &str {
    if line.label.contains("+0x") { "" } else { &line.label }
}
