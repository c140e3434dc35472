//! Mapping events.

use lbr_msr::record::{Event, Mmap};

/// A mapping of process `pid`.
pub(crate) fn mapping(pid: u32, addr: u64, len: u64, pgoff: u64, path: &str) -> Event {
    Event::Mmap(Box::new(Mmap {
        time: 1,
        pid,
        tid: pid,
        addr,
        len,
        pgoff,
        dev: (0, 0),
        ino: 0,
        ino_generation: 0,
        build_id: None,
        prot: 5,
        flags: 2,
        path: path.to_owned(),
    }))
}
