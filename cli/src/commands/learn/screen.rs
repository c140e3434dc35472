//! The course on a screen of any size: the program and the ring side by side,
//! the registers below, then what happened and the keys.

use anstyle::{AnsiColor, Style};
use lab::learn::{Program, Slot, View};
use lbr_msr::caps::Order;

use super::keys::{Page, Play};
use super::words;
use crate::present::{FAINT, GOOD, Row, cells, cells_of, escaped, folded};

/// Changes of the last step.
const NEW: Style = AnsiColor::Yellow.on_default().bold();
/// The next instruction, and the focus.
const HERE: Style = Style::new().invert();
const BOLD: Style = Style::new().bold();
const PLAIN: Style = Style::new();
/// Columns from which addresses fit in front of the program.
const WIDE: usize = 150;
/// Columns of the LBR stack from which the raw registers of each slot fit.
const RAW: usize = 95;
/// Cells of the marks in front of an instruction.
const MARKS: usize = 3;
/// Columns that the LBR stack needs.
const RING: usize = 31;
/// Lines from which the stack is drawn as a ring, too.
const DIAL: usize = 10;
/// Hands of a clock, from the east on.
const HANDS: [&str; 8] = ["→", "↘", "↓", "↙", "←", "↖", "↑", "↗"];
/// Lines from which the text of a lesson fits below the rest.
const TALL: usize = 40;

const TEXT_KEYS: &str = "any key: step through it   n N: next, previous lesson   q: quit";
const STEP_KEYS: &str = "s step  b back  r run  0 start  p breakpoint  Tab t toggle  c CPU  e erratum  a answer  h text  n lesson  q quit";
const ANSWER_KEYS: &str = "type the answer, Enter; Enter alone skips; Esc goes back to the steps";

/// The lines of the screen, none wider than it and not more than it has.
pub(super) fn draw(play: &Play, (width, height): (usize, usize)) -> Vec<Row> {
    let subject = play.subject();
    let title =
        format!("lbr learn {}/{}  {}", play.at + 1, play.subjects.len(), words::title(subject));
    let mut rows = vec![row(BOLD, &title)];
    let keys = match play.page {
        Page::Text => TEXT_KEYS,
        Page::Steps => STEP_KEYS,
        Page::Question(..) => ANSWER_KEYS,
    };
    let mut below = Vec::new();
    if play.page == Page::Text {
        rows.extend(text(play, width));
    } else {
        let view = View::of(&subject.session);
        below.extend(registers(play, &view, width));
        if height >= TALL {
            below.push(Row::new());
            below.extend(text(play, width));
        }
        below.push(Row::new());
        below.extend(message(play, &view, width));
        let keys = folded(keys, Some(width), 0).len();
        let room = height.saturating_sub(rows.len() + below.len() + keys);
        rows.extend(panes(play, &view, width, room));
    }
    let keys: Vec<Row> = folded(keys, Some(width), 0).iter().map(|line| row(FAINT, line)).collect();
    // If rows do not fit, the middle is omitted: the keys stay.
    rows.extend(below);
    rows.truncate(height.saturating_sub(keys.len()));
    rows.resize(height.saturating_sub(keys.len()), Row::new());
    rows.extend(keys);
    rows.truncate(height);
    rows.into_iter().map(|row| fitted(row, width)).collect()
}

fn row(style: Style, text: &str) -> Row {
    vec![(style, escaped(text).into_owned())]
}

/// A line truncated to `width` cells.
fn fitted(row: Row, width: usize) -> Row {
    let mut left = width;
    let mut fitted = Row::new();
    for (style, text) in row {
        let mut kept = String::new();
        for c in text.chars() {
            let cells = cells_of(c);
            if cells > left {
                left = 0;
                break;
            }
            left -= cells;
            kept.push(c);
        }
        fitted.push((style, kept));
    }
    fitted
}

/// A line truncated or padded to `width` cells.
fn padded(line: Row, width: usize) -> Row {
    let mut line = fitted(line, width);
    let used: usize = line.iter().map(|(_, text)| cells(text)).sum();
    line.push((PLAIN, " ".repeat(width.saturating_sub(used))));
    line
}

fn text(play: &Play, width: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for paragraph in &play.subject().text {
        rows.extend(folded(paragraph, Some(width.min(100)), 0).iter().map(|line| row(PLAIN, line)));
        if play.page == Page::Text {
            rows.push(Row::new());
        }
    }
    rows
}

/// The lines around one that must be visible.
fn window(count: usize, shown: usize, room: usize) -> std::ops::Range<usize> {
    let first = (shown + 1).saturating_sub(room.max(1) * 2 / 3).min(count.saturating_sub(room));
    first..(first + room).min(count)
}

/// The program and the LBR stack, side by side.
fn panes(play: &Play, view: &View, width: usize, room: usize) -> Vec<Row> {
    let program = &play.subject().session.trace().program;
    let lines = instructions(program, width >= WIDE);
    let longest = lines.iter().map(|line| cells(line)).max().unwrap_or(0);
    let left = (longest + MARKS).min(width.saturating_sub(RING));
    let right = width.saturating_sub(left + 1);
    let mut code = code(play, &lines, left, room).into_iter();
    let mut ring = ring(play, view, right, room).into_iter();
    (0..room)
        .map(|_| {
            let mut line = padded(code.next().unwrap_or_default(), left);
            line.push((PLAIN, " ".to_owned()));
            line.extend(ring.next().unwrap_or_default());
            line
        })
        .collect()
}

fn code(play: &Play, lines: &[String], width: usize, room: usize) -> Vec<Row> {
    let session = &play.subject().session;
    let program = &session.trace().program;
    let next = program.index(session.next());
    let (done, all) = (session.state().done, session.trace().steps.len());
    let mut rows = vec![row(FAINT, &format!("program, step {done} of {all}"))];
    for at in window(program.lines.len(), play.line, room.saturating_sub(1)) {
        let (Some(line), Some(text)) = (program.lines.get(at), lines.get(at)) else { break };
        let mark = |is: bool, c: char| if is { c } else { ' ' };
        let stops = session.breakpoints.contains(&line.address);
        let marks = [mark(at == play.line, '>'), mark(stops, 'o'), mark(Some(at) == next, '=')];
        let marks = String::from_iter(marks);
        let style = if Some(at) == next { HERE } else { PLAIN };
        let width = width.saturating_sub(MARKS);
        let marks = (if stops { NEW } else { PLAIN }, marks);
        rows.push(vec![marks, (style, format!("{text:<width$}"))]);
    }
    rows
}

/// Names, instructions and sources; also the addresses if they fit.
fn instructions(program: &Program, wide: bool) -> Vec<String> {
    let label = |line| match words::label(line) {
        "" => String::new(),
        label => format!("{label}: "),
    };
    let texts: Vec<(String, String)> =
        program.lines.iter().map(|line| (label(line), words::instruction(program, line))).collect();
    let widest = |of: &dyn Fn(&(String, String)) -> usize| texts.iter().map(of).max().unwrap_or(0);
    let (name, code) = (widest(&|text| cells(&text.0)), widest(&|text| cells(&text.1)));
    let lines = program.lines.iter().zip(&texts).map(|(line, (label, text))| {
        let address = if wide { format!("{:x} ", line.address) } else { String::new() };
        let line = format!("{address}{label:<name$}{text:<code$}  {}", line.source);
        escaped(&line).trim_end().to_owned()
    });
    lines.collect()
}

fn ring(play: &Play, view: &View, width: usize, room: usize) -> Vec<Row> {
    let subject = play.subject();
    let state = subject.session.state();
    let newest = view.newest_first().next().map_or(0, |slot| slot.index as usize);
    let head = format!("LBR stack of {}, > newest, * changed", state.cpu.caps.depth);
    let mut rows = vec![row(FAINT, &head)];
    if room >= DIAL {
        rows.extend(dial(view, state.cpu.caps.order));
    }
    let room = room.saturating_sub(rows.len());
    let count = view.slots.len();
    let first = match play.scrolled {
        None => window(count, newest, room).start,
        Some(first) => first.min(count.saturating_sub(room)),
    };
    let slots = view.slots.iter().skip(first).take(room);
    rows.extend(slots.map(|slot| ring_slot(play, slot, width)));
    rows
}

/// The slots as a ring, clockwise from the top left, and TOS as the hand that points at one.
fn dial(view: &View, order: Order) -> Vec<Row> {
    let count = view.slots.len();
    let side = (count / 8).min(3);
    let top = count / 2 - side;
    let place = |at: usize| match at {
        at if at < top => (at + 1, 0),
        at if at < top + side => (top + 1, at - top + 1),
        at if at < 2 * top + side => (2 * top + side - at, side + 1),
        at => (0, count - at),
    };
    let mut grid = vec![vec![(PLAIN, "  ".to_owned()); top + 2]; side + 2];
    let mut hand = None;
    for (at, slot) in view.slots.iter().enumerate() {
        let (x, y) = place(at);
        let style = match (slot.changed, slot.entry.is_some()) {
            (true, _) => NEW,
            (false, true) => PLAIN,
            (false, false) => FAINT,
        };
        let is_newest = slot.age == 0;
        if is_newest {
            let (east, south) =
                (x as f64 - (top + 1) as f64 / 2.0, y as f64 - (side + 1) as f64 / 2.0);
            let eighth = (south.atan2(east) / std::f64::consts::FRAC_PI_4).round();
            hand = Some(HANDS[eighth.rem_euclid(8.0) as usize]).zip(Some(slot.index));
        }
        let style = if is_newest { style.invert() } else { style };
        let dot = if slot.entry.is_some() { "●" } else { "○" };
        grid[y][x] = (style, dot.to_owned());
    }
    for row in &mut grid {
        // A dot is one cell of two; the space after it has no style.
        let cells = std::mem::take(row).into_iter();
        row.extend(cells.flat_map(|(style, text)| {
            let gap = if text.trim().is_empty() { "" } else { " " };
            [(style, text), (PLAIN, gap.to_owned())]
        }));
    }
    if let (Some((hand, newest)), Some(row)) =
        (hand, grid.get_mut(side.div_ceil(2)).filter(|_| side > 0))
    {
        let name = if order == Order::Tos { "TOS" } else { "newest" };
        let inside: usize = 2 * top;
        let text = format!("{:^inside$}", format!("{hand} {name} {newest}"));
        row.splice(2..row.len() - 2, [(BOLD, text)]);
    }
    grid
}

fn ring_slot(play: &Play, slot: &Slot, width: usize) -> Row {
    let session = &play.subject().session;
    let newest = if slot.age == 0 { '>' } else { ' ' };
    let changed = if slot.changed { '*' } else { ' ' };
    let style = match slot.entry {
        _ if slot.changed => NEW,
        None => FAINT,
        Some(_) => PLAIN,
    };
    let mut text = format!("{newest}{changed}{:>2} ", slot.index);
    if width >= RAW {
        for (name, _, value) in words::registers(&session.state().cpu.caps, slot) {
            text += &format!("{name} {value:<18x} ");
        }
    }
    text += &match slot.entry {
        Some(entry) => words::record(&session.trace().program, &entry),
        None if slot.raw.from | slot.raw.to | slot.raw.info.unwrap_or(0) == 0 => "-".to_owned(),
        None => "no record".to_owned(),
    };
    row(style, &text)
}

/// The newest record's registers, then the control registers, bit by bit.
fn registers(play: &Play, view: &View, width: usize) -> Vec<Row> {
    let state = play.subject().session.state();
    let mut rows = Vec::new();
    if let Some(newest) = view.newest_first().next() {
        let mut pieces = vec![(FAINT, format!("newest, slot {}:", newest.index))];
        for (name, msr, value) in words::registers(&state.cpu.caps, newest) {
            let style = if newest.changed { NEW } else { PLAIN };
            pieces.push((style, format!("{name} {msr}={value:#x}")));
        }
        let flags =
            newest.entry.map(|entry| words::flags(&entry)).filter(|flags| !flags.is_empty());
        pieces.extend(flags.map(|flags| (PLAIN, flags)));
        rows.extend(wrapped(pieces, width));
    }
    let bits = Play::bits(view);
    let focus = play.focus % bits.len().max(1);
    let mut number = 0;
    for bits in &view.controls {
        let changed = if bits.changed != 0 { NEW } else { BOLD };
        let (name, address) = (bits.register.name(), words::address(bits));
        let mut pieces = vec![(changed, format!("{name} {address}={:#x}", bits.value))];
        for field in &bits.fields {
            let bit = u8::from(field.of(bits.value) != 0);
            let star = if field.of(bits.changed) != 0 { "*" } else { "" };
            pieces.push(if number == focus {
                (HERE, format!("<{bit}>{star}{}", field.name))
            } else if star.is_empty() {
                (if bit == 1 { GOOD } else { PLAIN }, format!("[{bit}]{}", field.name))
            } else {
                (NEW, format!("[{bit}]{star}{}", field.name))
            });
            number += 1;
        }
        rows.extend(wrapped(pieces, width));
    }
    let (cpu, lacks) = words::cpu(state);
    let erratum = match (play.subject().lesson, state.faulty) {
        (Some(lesson), true) => format!("; erratum {}", lesson.erratum),
        _ => String::new(),
    };
    let lines = folded(&format!("{cpu}: {lacks}{erratum}"), Some(width), 2);
    rows.extend(lines.iter().map(|line| row(FAINT, line)));
    rows
}

/// Wraps pieces into lines; those after the first are indented.
fn wrapped(pieces: Vec<(Style, String)>, width: usize) -> Vec<Row> {
    let (mut rows, mut line, mut used) = (Vec::new(), Row::new(), 0);
    for (style, text) in pieces {
        let cells = cells(&text);
        if used > 2 && used + 1 + cells > width {
            rows.push(std::mem::replace(&mut line, vec![(PLAIN, " ".to_owned())]));
            used = 1;
        }
        if used > 0 {
            line.push((PLAIN, " ".to_owned()));
            used += 1;
        }
        line.push((style, text));
        used += cells;
    }
    rows.push(line);
    rows
}

/// The last event, or the prompt.
fn message(play: &Play, view: &View, width: usize) -> Vec<Row> {
    let session = &play.subject().session;
    let text = match (&play.page, play.message.is_empty()) {
        (_, false) => play.message.clone(),
        _ if session.next() == session.trace().end
            && session.state().done == session.trace().steps.len() =>
        {
            format!("{}; the end. a asks, b goes back", words::last_step(session, view))
        }
        _ => words::last_step(session, view),
    };
    let mut rows: Vec<Row> =
        folded(&escaped(&text), Some(width), 2).iter().map(|line| row(BOLD, line)).collect();
    if let Page::Question(_, typed) = &play.page {
        rows.push(row(BOLD, &format!("> {typed}_")));
    }
    rows
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/commands/learn/screen.rs"]
mod tests;
