//! Lines other than those of samples: records (`perf script --show-mmap-events`,
//! `--show-task-events`), dumped samples (`perf script -D`), and instructions between branches (`-F
//! brstackinsn`) with the counts logged at each (`brcntr`, perf 6.12 and later).

use lbr_msr::record::{Comm, Event, Mmap, Task};
use lbr_msr::text::AsText;

use super::entry::{spec_of, type_of};
use super::line::{BranchCounters, Line, LineError};
use super::words::{decimal, hex, id, not_empty};
use crate::read::stack::{EntryFlags, RawBranch, SampleHead};

/// Parses a text that starts with `PERF_RECORD_`; `None` for records about other things than
/// processes.
pub(super) fn record(record: &[u8]) -> Option<Result<Line, LineError>> {
    let text = record.as_text();
    if text.starts_with("PERF_RECORD_MMAP") {
        let map = parse_mmap(&text);
        return Some(map.map(|map| Line::Event(Event::Mmap(Box::new(map)))).ok_or(LineError::Mmap));
    }
    parse_task(&text).or_else(|| parse_comm(&text)).map(Ok)
}

/// `PERF_RECORD_COMM exec: name:pid/tid`.
fn parse_comm(text: &str) -> Option<Line> {
    let (name, task) = text.strip_prefix("PERF_RECORD_COMM")?.trim_end().rsplit_once(':')?;
    let (pid, tid) = task.split_once('/')?;
    let (kind, comm) = name.split_once(": ")?;
    let exec = kind.trim_start() == "exec";
    let (pid, tid) = (id(pid.as_bytes())?, id(tid.as_bytes())?);
    Some(Line::Event(Event::Comm(Comm { time: 0, pid, tid, comm: comm.to_owned(), exec })))
}

/// `PERF_RECORD_FORK(pid:tid):(ppid:ptid)`, and EXIT in the same form.
fn parse_task(text: &str) -> Option<Line> {
    let (kind, text) = text.strip_prefix("PERF_RECORD_")?.split_once('(')?;
    let (own, parent) = text.strip_suffix(')')?.split_once("):(")?;
    let pair = |text: &str| -> Option<(u32, u32)> {
        let (pid, tid) = text.split_once(':')?;
        Some((id(pid.as_bytes())?, id(tid.as_bytes())?))
    };
    let ((pid, tid), (ppid, ptid)) = (pair(own)?, pair(parent)?);
    let task = Task { time: 0, pid, tid, ppid, ptid };
    match kind {
        "FORK" => Some(Line::Event(Event::Fork(task))),
        "EXIT" => Some(Line::Event(Event::Exit(task))),
        _ => None,
    }
}

/// Each bit of a mapping's protection, and its letter.
const ACCESS: [(u32, char); 3] = [(1, 'r'), (2, 'w'), (4, 'x')];

/// `PERF_RECORD_MMAP2 pid/tid: [0xADDR(0xLEN) @ OFF maj:min ino gen]: r-xp PATH`,
/// and the old form without device and inode.
fn parse_mmap(text: &str) -> Option<Mmap> {
    let (_, text) = text.split_once(' ')?;
    let (task, text) = text.trim_start().split_once(": [")?;
    let (pid, tid) = task.split_once('/')?;
    let (range, text) = text.split_once(']')?;
    let (addr, range) = range.split_once('(')?;
    let (len, range) = range.split_once(')')?;
    let mut words = range.split_ascii_whitespace().filter(|word| *word != "@");
    let pgoff = map_number(words.next()?)?;
    let dev = words.next().and_then(|dev| dev.split_once(':')).and_then(|(major, minor)| {
        Some((u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?))
    });
    let (access, path) = text.strip_prefix(':')?.trim_start().split_once(' ')?;
    let prot = ACCESS.into_iter().filter(|(_, c)| access.contains(*c)).map(|(bit, _)| bit).sum();
    Some(Mmap {
        pid: id(pid.trim().as_bytes())?,
        tid: id(tid.trim().as_bytes())?,
        addr: map_number(addr)?,
        len: map_number(len)?,
        pgoff,
        dev: dev.unwrap_or((0, 0)),
        ino: words.next().and_then(|ino| ino.parse().ok()).unwrap_or(0),
        ino_generation: words.next().and_then(|word| word.parse().ok()).unwrap_or(0),
        prot,
        flags: if access.contains('p') { 2 } else { 1 },
        path: path.trim_end().to_owned(),
        ..Mmap::default()
    })
}

/// Prints a mapping, or the start or end of a task, as perf does; `None` for events without
/// addresses.
pub fn event_text(event: &Event) -> Option<String> {
    let task = |kind: &str, task: &Task| {
        let [pid, tid, ppid, ptid] = [task.pid, task.tid, task.ppid, task.ptid].map(|id| id as i32);
        Some(format!("PERF_RECORD_{kind}({pid}:{tid}):({ppid}:{ptid})"))
    };
    match event {
        Event::Mmap(map) => {
            let access = ACCESS.map(|(bit, letter)| if map.prot & bit != 0 { letter } else { '-' });
            // MAP_PRIVATE, or MAP_SHARED.
            let shared = if map.flags & 2 != 0 { 'p' } else { 's' };
            let access: String = access.iter().collect();
            let Mmap { addr, len, pgoff, dev: (major, minor), ino, ino_generation, path, .. } =
                &**map;
            let (pid, tid) = (map.pid as i32, map.tid as i32);
            Some(format!(
                "PERF_RECORD_MMAP2 {pid}/{tid}: [{addr:#x}({len:#x}) @ {pgoff:#x} \
                 {major:02x}:{minor:02x} {ino} {ino_generation}]: {access}{shared} {path}"
            ))
        }
        Event::Comm(Comm { pid, tid, comm, exec, .. }) => {
            let exec = if *exec { " exec" } else { "" };
            Some(format!("PERF_RECORD_COMM{exec}: {comm}:{}/{}", *pid as i32, *tid as i32))
        }
        Event::Fork(of) => task("FORK", of),
        Event::Exit(of) => task("EXIT", of),
        _ => None,
    }
}

/// A number of a mapping, hexadecimal with `0x`.
fn map_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Reads a line of a dumped sample; `None` for any other line.
///
/// `CPU TIME 0xOFFSET [0xSIZE]: PERF_RECORD_SAMPLE(IP, 0xMISC): PID/TID: 0xIP
/// period: N addr: 0xA`, then `... branch stack: nr:N`, then
/// `.....  I: FROM -> TO N cycles FLAGS RESERVED TYPE SPEC`, addresses without
/// `0x`, flags M, P, A and T (in a transaction). Type and spec are optional.
pub(super) fn dumped(text: &[u8]) -> Option<Line> {
    if text.starts_with(b".....") {
        return dumped_entry(text).map(|(index, branch)| Line::DumpedEntry(index, branch));
    }
    if let Some(count) = text.strip_prefix(b"... branch stack: nr:") {
        return Some(Line::DumpedStack(decimal(count)?));
    }
    dumped_head(text).map(|head| Line::Dumped(Box::new(head)))
}

fn number(word: &[u8]) -> Option<u64> {
    hex(word.strip_prefix(b"0x").unwrap_or(word))
}

fn dumped_head(text: &[u8]) -> Option<SampleHead> {
    let at = memchr::memmem::find(text, b": PERF_RECORD_SAMPLE(")?;
    let (before, after) = text.split_at_checked(at)?;
    let before: Vec<u64> = not_empty(before).map_while(decimal).collect();
    let (cpu, time) = match *before.as_slice() {
        [.., cpu, time] => (u32::try_from(cpu).ok(), Some(time)),
        [time] => (None, Some(time)),
        [] => (None, None),
    };
    let mut words = not_empty(after.get(memchr::memmem::find(after, b"): ")? + 3..)?);
    let task = words.next()?.strip_suffix(b":")?;
    let (pid, tid) = task.split_at_checked(memchr::memchr(b'/', task)?)?;
    let mut head = SampleHead {
        cpu,
        time,
        pid: id(pid),
        tid: id(tid.get(1..)?),
        ip: words.next().and_then(number),
        ..SampleHead::default()
    };
    if words.next() == Some(b"period:") {
        head.period = words.next().and_then(decimal);
    }
    Some(head)
}

/// A branch, and its index in the stack.
fn dumped_entry(text: &[u8]) -> Option<(u64, RawBranch)> {
    let mut words = not_empty(text.get(5..)?);
    let index = decimal(words.next()?.strip_suffix(b":")?)?;
    let from = number(words.next()?)?;
    if words.next()? != b"->" {
        return None;
    }
    let to = number(words.next()?)?;
    let cycles = decimal(words.next()?)?;
    if words.next()? != b"cycles" {
        return None;
    }
    let mut word = 0;
    let mut words = words.skip_while(|letters| {
        let all = letters.iter().all(|letter| b"MPAT".contains(letter));
        for letter in letters.iter().filter(|_| all) {
            word |= match letter {
                b'M' => EntryFlags::MISPREDICTED,
                b'P' => EntryFlags::PREDICTED,
                b'A' => EntryFlags::ABORT,
                _ => EntryFlags::IN_TX,
            };
        }
        all
    });
    // The reserved bits; names follow them.
    words.next().and_then(number)?;
    let (mut branch_type, mut spec) = (None, None);
    for name in words {
        match spec_of(name) {
            None => branch_type = branch_type.or(type_of(name)),
            found => spec = found,
        }
    }
    let flags = EntryFlags(word)
        .with_cycles(u32::try_from(cycles).unwrap_or(u32::MAX))
        .with_type(branch_type)
        .with_spec(spec);
    Some((index, RawBranch { from, to, flags }))
}

/// Number of counters in a record.
const COUNTERS: u8 = 4;

/// Parses an instruction's line, without its tab; `None` for any other line, `Some(None)` without
/// counts.
///
/// `<tab>0000000000401774<tab>insn: eb 04<tab>br_cntr: AAB<tab># PRED 5 cycles [5]`: event A
/// occurred twice and B once. `-` is an event that did not occur; `+` follows one that may have
/// occurred more often. `# branch-misses = B` before the samples names event B.
pub(super) fn instruction(line: &[u8]) -> Option<Option<BranchCounters>> {
    let (digits, rest) = line.split_at_checked(16)?;
    let at = hex(digits).filter(|_| rest.first() == Some(&b'\t'))?;
    let word = memchr::memmem::find(rest, LABEL).and_then(|label| {
        let text = rest.get(label + LABEL.len()..)?.trim_ascii_start();
        counts(text.split(u8::is_ascii_whitespace).next()?)
    });
    Some(word.map(|word| BranchCounters { at, word }))
}

const LABEL: &[u8] = b"br_cntr:";

/// Whether the instructions of a text have counts.
pub(super) fn have_counts(text: &[u8]) -> bool {
    memchr::memmem::find_iter(text, LABEL).any(|at| {
        text.get(..at).is_some_and(|before| before.ends_with(b"\t") || before.ends_with(b" "))
    })
}

fn counts(letters: &[u8]) -> Option<u64> {
    let mut word = 0u64;
    for letter in letters {
        let counter = match letter {
            b'-' | b'+' => continue,
            letter => letter.checked_sub(b'A').filter(|counter| *counter < COUNTERS)?,
        };
        let shift = 2 * counter;
        if word >> shift & 3 < 3 {
            word += 1 << shift;
        }
    }
    Some(word)
}

/// The counter that a legend line describes: `# branch-misses = B`.
pub(super) fn legend(line: &[u8]) -> Option<u8> {
    let (before, letter) = line.strip_prefix(b"# ")?.split_last_chunk::<4>()?;
    let counter = match letter {
        [b' ', b'=', b' ', letter] => letter.checked_sub(b'A')?,
        _ => return None,
    };
    (!before.is_empty() && counter < COUNTERS).then_some(counter)
}
