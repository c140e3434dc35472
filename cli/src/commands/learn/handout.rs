//! A lesson as text.

use std::io;

use lab::learn::{Did, Line, Slot, View};

use super::{Subject, words};
use crate::present::{Cell, Out, Table, escaped};

/// Writes a lesson, or a trace of a user's program, from start to end.
pub(super) fn write(out: &mut Out<'_>, mut subject: Subject) -> io::Result<()> {
    let lesson = if subject.lesson.is_some() { "Lesson " } else { "" };
    out.line(format_args!("{lesson}{}", words::title(&subject)))?;
    let (cpu, lacks) = words::cpu(subject.session.state());
    out.line(format_args!("On: {cpu}; {lacks}"))?;
    out.line("Modelled, not measured: a software LBR; so are its predictions and cycles")?;
    for paragraph in &subject.text {
        out.gap()?;
        out.line(paragraph)?;
    }
    code(out, &subject)?;
    controls(out, "Control registers at the start", &View::of(&subject.session))?;
    steps(out, &mut subject)?;
    let view = View::of(&subject.session);
    controls(out, "Control registers at the end", &view)?;
    ring(out, &subject, &view)?;
    questions(out, &subject)
}

fn heading(out: &mut Out<'_>, text: &str) -> io::Result<()> {
    out.gap()?;
    out.styled(anstyle::Style::new().bold(), text)
}

fn code(out: &mut Out<'_>, subject: &Subject) -> io::Result<()> {
    heading(out, "Program")?;
    let program = &subject.session.trace().program;
    Table::<(), &Line>::new()
        .word("", "address", |(), line| Cell::Word(format!("{:x}", line.address).into()))
        .word("", "name", |(), line| Cell::Word(words::label(line).to_owned().into()))
        .word("", "instruction", |(), line| Cell::Word(words::instruction(program, line).into()))
        .name("", "source", |(), line| Cell::Name(line.source.clone()))
        .write_text(out, &mut (), program.lines.iter())
}

/// The control registers, each bit as it is.
fn controls(out: &mut Out<'_>, title: &str, view: &View) -> io::Result<()> {
    heading(out, title)?;
    for bits in &view.controls {
        let (name, address) = (bits.register.name(), words::address(bits));
        let mut line = format!("{name} ({address}) = {:#x}", bits.value);
        for field in &bits.fields {
            line += &format!("  [{}]{}", field.of(bits.value), field.name);
        }
        out.line(line)?;
    }
    Ok(())
}

/// A step that could have left a record: its number, its instruction's address, what ran, and what
/// became of it.
type Row = (usize, [String; 3]);

fn steps(out: &mut Out<'_>, subject: &mut Subject) -> io::Result<()> {
    heading(out, "Step by step, branches only")?;
    let mut rows = Vec::new();
    let session = &mut subject.session;
    while session.step() {
        let Some(step) = session.last().copied().filter(|step| step.did != Did::Straight) else {
            continue;
        };
        let view = View::of(session);
        let program = &session.trace().program;
        let Some((what, mut became)) = words::happened(session, &view) else { continue };
        let newest = view.newest_first().next().filter(|slot| slot.changed);
        if let Some(entry) = newest.and_then(|slot| slot.entry) {
            became += &format!(": {}", words::record(program, &entry));
        }
        let at = words::place(program, step.at);
        rows.push((session.state().done, [at, what, became]));
    }
    Table::<(), Row>::new()
        .number("", "step", |(), (step, _)| Cell::Number(*step as u64))
        .word("", "at", |(), (_, [at, ..])| Cell::Word(at.clone().into()))
        .word("", "what runs", |(), (_, [_, what, _])| Cell::Word(what.clone().into()))
        .prose("", "outcome", |(), (_, [.., became])| Cell::Word(became.clone().into()))
        .write_text(out, &mut (), rows.into_iter())
}

/// The records, the newest first.
fn ring(out: &mut Out<'_>, subject: &Subject, view: &View) -> io::Result<()> {
    heading(out, "Ring at the end, the newest first")?;
    let state = subject.session.state();
    let program = &subject.session.trace().program;
    let full: Vec<&Slot> = view.newest_first().filter(|slot| slot.entry.is_some()).collect();
    let empty = view.slots.len() - full.len();
    let raw = |slot: &&Slot, name: &str| {
        let registers = words::registers(&state.cpu.caps, slot);
        let found = registers.into_iter().find(|register| register.0 == name);
        Cell::word(found.map(|(_, _, value)| format!("{value:#x}")))
    };
    let info = if state.cpu.caps.registers.info.is_some() { "INFO" } else { "" };
    Table::<(), &Slot>::new()
        .number("", "slot", |(), slot| Cell::Number(u64::from(slot.index)))
        .word("", "FROM", move |(), slot| raw(slot, "FROM"))
        .word("", "TO", move |(), slot| raw(slot, "TO"))
        .word("", info, move |(), slot| raw(slot, "INFO"))
        .prose("", "decoded", |(), slot| {
            Cell::word(slot.entry.map(|entry| words::record(program, &entry)))
        })
        .write_text(out, &mut (), full.into_iter())?;
    if empty > 0 {
        out.line(format_args!("{empty} of {} slots are empty", view.slots.len()))?;
    }
    Ok(())
}

fn questions(out: &mut Out<'_>, subject: &Subject) -> io::Result<()> {
    let Some(lesson) = subject.lesson else { return Ok(()) };
    heading(out, "Questions")?;
    for (number, question) in (1..).zip(lesson.questions) {
        out.line(format_args!("{number}. {}", question.ask))?;
    }
    heading(out, "Answers, read from the ring of the lesson's own CPU")?;
    for (number, question) in (1..).zip(lesson.questions) {
        let answer = question.answer(lesson).words(&subject.session);
        out.line(format_args!("{number}. {}. {}", escaped(&answer), question.why))?;
    }
    Ok(())
}
