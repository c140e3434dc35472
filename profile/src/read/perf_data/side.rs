//! Records other than samples: mappings, names, tasks, losses.

use lbr_msr::record::{Comm, Event, Lost, Mmap, Task};

use super::attr::EventAttr;
use super::bytes::{Bytes, Order, until_nul};
use super::layout::{misc, record};
use super::sample::Trailer;
use crate::read::note::label_of;

/// Tags the word with the label after a LOST record's count: `lbr` and the version, little-endian;
/// bits 32 to 39 hold the label's code.
pub(crate) const LOST_NOTE: u32 = u32::from_le_bytes(*b"lbr\x01");
/// Code for no label: the queue was full.
pub(crate) const NO_LABEL: u8 = 0xFF;

/// Parses a record. `None` if it is too short, or of another kind.
pub(crate) fn read(
    kind: u32,
    misc_bits: u16,
    body: &[u8],
    attr: Option<&EventAttr>,
    order: Order,
) -> Option<Event> {
    let trailer = attr.map(|attr| Trailer::read(body, attr, order)).unwrap_or_default();
    let fields = body.get(..body.len().checked_sub(trailer.len)?)?;
    let mut bytes = Bytes::new(fields, order);
    let time = trailer.time.unwrap_or(0);
    Some(match kind {
        record::MMAP | record::MMAP2 => {
            Event::Mmap(Box::new(mapping(kind, misc_bits, bytes, time)?))
        }
        record::COMM => Event::Comm(Comm {
            time,
            pid: bytes.u32()?,
            tid: bytes.u32()?,
            comm: until_nul(bytes.rest()),
            exec: misc_bits & misc::COMM_EXEC != 0,
        }),
        record::FORK | record::EXIT => {
            let (pid, ppid, tid, ptid) = (bytes.u32()?, bytes.u32()?, bytes.u32()?, bytes.u32()?);
            let task = Task { time: bytes.u64().unwrap_or(time), pid, tid, ppid, ptid };
            if kind == record::FORK { Event::Fork(task) } else { Event::Exit(task) }
        }
        record::LOST | record::LOST_SAMPLES => {
            if kind == record::LOST {
                bytes.u64()?; // id of the event
            }
            let stacks = bytes.u64()?;
            let label = bytes.u64().and_then(|word| {
                let is_ours = word & 0xFFFF_FFFF == u64::from(LOST_NOTE);
                label_of((word >> 32) as u8).filter(|_| is_ours)
            });
            let (pid, tid) = trailer.pid_tid.unwrap_or((0, 0));
            Event::Lost(Lost { time, pid, tid, cpu: trailer.cpu.unwrap_or(0), stacks, label })
        }
        _ => return None,
    })
}

fn mapping(kind: u32, misc_bits: u16, mut bytes: Bytes<'_>, time: u64) -> Option<Mmap> {
    let mut map = Mmap {
        time,
        pid: bytes.u32()?,
        tid: bytes.u32()?,
        addr: bytes.u64()?,
        len: bytes.u64()?,
        pgoff: bytes.u64()?,
        ..Mmap::default()
    };
    if kind == record::MMAP {
        // The old form has no protection: it describes executable mappings only, unless a bit of
        // `misc` means data.
        map.prot = if misc_bits & misc::COMM_EXEC != 0 { 1 } else { 5 };
        map.path = until_nul(bytes.rest());
        return Some(map);
    }
    if misc_bits & misc::MMAP_BUILD_ID != 0 {
        let len = usize::from(*bytes.take(4)?.first()?).min(20);
        map.build_id = bytes.take(20)?.get(..len).filter(|id| !id.is_empty()).map(<[u8]>::to_vec);
    } else {
        map.dev = (bytes.u32()?, bytes.u32()?);
        map.ino = bytes.u64()?;
        map.ino_generation = bytes.u64()?;
    }
    (map.prot, map.flags) = (bytes.u32()?, bytes.u32()?);
    map.path = until_nul(bytes.rest());
    Some(map)
}
