//! Records other than samples, as `perf script --show-mmap-events` and `--show-task-events` print
//! them.

use lbr_msr::record::{Comm, Event, Mmap, Task};
use lbr_msr::text::AsText;

use super::error::LineError;
use super::line::Line;

/// Parses a text that starts with `PERF_RECORD_`; `None` for records about other things than
/// processes.
pub(super) fn parse(record: &[u8]) -> Option<Result<Line, LineError>> {
    let text = record.as_text();
    if text.starts_with("PERF_RECORD_MMAP") {
        let map = parse_mmap(&text);
        return Some(map.map(|map| Line::Mmap(Box::new(map))).ok_or(LineError::Mmap));
    }
    parse_task(&text).or_else(|| parse_comm(&text)).map(Ok)
}

/// `PERF_RECORD_COMM exec: name:pid/tid`.
fn parse_comm(text: &str) -> Option<Line> {
    let (name, task) = text.strip_prefix("PERF_RECORD_COMM")?.trim_end().rsplit_once(':')?;
    let (pid, tid) = task.split_once('/')?;
    let (kind, comm) = name.split_once(": ")?;
    let exec = kind.trim_start() == "exec";
    Some(Line::Comm(Comm { time: 0, pid: id(pid)?, tid: id(tid)?, comm: comm.to_owned(), exec }))
}

/// `PERF_RECORD_FORK(pid:tid):(ppid:ptid)`, and EXIT in the same form.
fn parse_task(text: &str) -> Option<Line> {
    let (kind, text) = text.strip_prefix("PERF_RECORD_")?.split_once('(')?;
    let (own, parent) = text.strip_suffix(')')?.split_once("):(")?;
    let pair = |text: &str| -> Option<(u32, u32)> {
        let (pid, tid) = text.split_once(':')?;
        Some((id(pid)?, id(tid)?))
    };
    let ((pid, tid), (ppid, ptid)) = (pair(own)?, pair(parent)?);
    let task = Task { time: 0, pid, tid, ppid, ptid };
    match kind {
        "FORK" => Some(Line::Fork(task)),
        "EXIT" => Some(Line::Exit(task)),
        _ => None,
    }
}

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
    let pgoff = number(words.next()?)?;
    let dev = words.next().and_then(|dev| dev.split_once(':')).and_then(|(major, minor)| {
        Some((u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?))
    });
    let (access, path) = text.strip_prefix(':')?.trim_start().split_once(' ')?;
    let bits = [('r', 1), ('w', 2), ('x', 4)];
    let prot = bits.into_iter().filter(|(c, _)| access.contains(*c)).map(|(_, bit)| bit).sum();
    Some(Mmap {
        time: 0,
        pid: id(pid.trim())?,
        tid: id(tid.trim())?,
        addr: number(addr)?,
        len: number(len)?,
        pgoff,
        dev: dev.unwrap_or((0, 0)),
        ino: words.next().and_then(|ino| ino.parse().ok()).unwrap_or(0),
        ino_generation: words.next().and_then(|word| word.parse().ok()).unwrap_or(0),
        build_id: None,
        prot,
        flags: if access.contains('p') { 2 } else { 1 },
        path: path.trim_end().to_owned(),
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
            let access = [(1, 'r'), (2, 'w'), (4, 'x')]
                .map(|(bit, letter)| if map.prot & bit != 0 { letter } else { '-' });
            // MAP_PRIVATE, or MAP_SHARED.
            let shared = if map.flags & 2 != 0 { 'p' } else { 's' };
            Some(format!(
                "PERF_RECORD_MMAP2 {}/{}: [{:#x}({:#x}) @ {:#x} {:02x}:{:02x} {} {}]: {}{shared} {}",
                map.pid as i32,
                map.tid as i32,
                map.addr,
                map.len,
                map.pgoff,
                map.dev.0,
                map.dev.1,
                map.ino,
                map.ino_generation,
                access.iter().collect::<String>(),
                map.path
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

/// A process or thread number; −1 is the kernel's.
fn id(text: &str) -> Option<u32> {
    text.parse::<i64>().ok().map(|id| id as u32)
}

/// A number, hexadecimal with `0x`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
