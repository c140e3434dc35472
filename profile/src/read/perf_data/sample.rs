//! The layout of samples: computed once per event, then read at fixed offsets, so that finding a
//! branch stack takes a few loads.

use std::ops::Range;

use super::attr::EventAttr;
use super::bytes::{Bytes, Order, u32_at, u64_at};
use super::layout::{ENTRY_SIZE, branch, read_format, sample_type};
use crate::read::note::{Moves, StackNote};
use crate::read::registers::Registers;
use crate::read::stack::{Counters, Entries, SampleHead, Stack};

/// Offsets in an event's samples. All are inside the sample's body.
#[derive(Clone, Debug)]
pub(crate) struct SampleLayout {
    ip: Option<usize>,
    tid: Option<usize>,
    time: Option<usize>,
    cpu: Option<usize>,
    period: Option<usize>,
    /// The period of every sample, unless the event has a frequency.
    fixed_period: Option<u64>,
    /// The start of the variable-length fields.
    fixed: usize,
    sample_type: u64,
    read_format: u64,
    hw_index: bool,
    counters: bool,
    /// User-mode registers, and registers at the sample.
    registers: (u64, u64),
    /// Bitmap of the counters with an event.
    logged: u8,
    order: Order,
}

/// The position of the branch stack in a sample's body, and related fields.
#[derive(Debug)]
pub(crate) struct StackPosition {
    pub(crate) note: Option<StackNote>,
    pub(crate) note_at: usize,
    note_end: usize,
    hw_idx: Option<u64>,
    entries: Range<usize>,
    /// The end of the counters, which follow the entries.
    counters_end: Option<usize>,
}

/// Fields of a sample after its branch stack: `PERF_SAMPLE_REGS_USER` (bit 12) and later ones.
/// `IDENTIFIER` (bit 16) comes first.
const BEHIND: u64 = !(sample_type::IDENTIFIER | ((sample_type::BRANCH_STACK << 1) - 1));

impl SampleLayout {
    pub(crate) fn new(attr: &EventAttr, order: Order) -> SampleLayout {
        let mut at = 0;
        let mut field = |bit: u64| {
            (attr.sample_type & bit != 0).then(|| {
                at += 8;
                at - 8
            })
        };
        field(sample_type::IDENTIFIER);
        let ip = field(sample_type::IP);
        let tid = field(sample_type::TID);
        let time = field(sample_type::TIME);
        field(sample_type::ADDR);
        field(sample_type::ID);
        field(sample_type::STREAM_ID);
        let cpu = field(sample_type::CPU);
        let period = field(sample_type::PERIOD);
        SampleLayout {
            ip,
            tid,
            time,
            cpu,
            period,
            fixed_period: Some(attr.sample_period).filter(|n| *n > 0 && !attr.is_frequency()),
            fixed: at,
            sample_type: attr.sample_type,
            read_format: attr.read_format,
            hw_index: attr.branch_sample_type & branch::HW_INDEX != 0,
            counters: attr.branch_sample_type & branch::COUNTERS != 0,
            registers: (attr.sample_regs_user, attr.sample_regs_intr),
            logged: u8::MAX,
            order,
        }
    }

    /// Sets how many events of the recording log counts with branches; with 0, every counter counts
    /// as one.
    pub(crate) fn log(&mut self, events: usize) {
        self.logged =
            if events == 0 { u8::MAX } else { !u8::MAX.checked_shl(events as u32).unwrap_or(0) };
    }

    /// Whether the `left` bytes after the entries start with a counters word for each. In a group,
    /// Linux also writes them for the leader, whose attribute does not announce them, and not
    /// always if an attribute does. If nothing else can follow, the data decides.
    fn has_counters(&self, left: usize, nr: usize) -> bool {
        if self.sample_type & BEHIND != 0 {
            return self.counters;
        }
        nr > 0 && nr.checked_mul(8) == Some(left) || self.counters && left > 0
    }

    fn has(&self, bit: u64) -> bool {
        self.sample_type & bit != 0
    }

    /// Finds the branch stack in a sample's body. `None` if the body is shorter than announced.
    #[inline(always)]
    pub(crate) fn find(&self, body: &[u8]) -> Option<StackPosition> {
        let mut rest = Bytes::new(body.get(self.fixed..)?, self.order);
        if self.has(sample_type::READ) {
            self.skip_counters(&mut rest)?;
        }
        if self.has(sample_type::CALLCHAIN) {
            let frames = rest.u64()?;
            rest.skip(frames, 8)?;
        }
        let (mut note, mut note_at, mut note_end) = (None, 0, 0);
        if self.has(sample_type::RAW) {
            let len = usize::try_from(rest.u32()?).ok()?;
            note_at = body.len() - rest.rest().len();
            note = StackNote::decode(rest.take(len)?);
            note_end = note_at + len;
        }
        let nr = usize::try_from(rest.u64()?).ok()?;
        // All ones: unknown to the kernel.
        let hw_idx =
            if self.hw_index { Some(rest.u64()?).filter(|&idx| idx != u64::MAX) } else { None };
        let start = body.len() - rest.rest().len();
        let end = start + rest.take(nr.checked_mul(ENTRY_SIZE)?)?.len();
        let counters = self.has_counters(rest.rest().len(), nr);
        let counters_end =
            if counters { Some(end + rest.take(nr.checked_mul(8)?)?.len()) } else { None };
        Some(StackPosition { note, note_at, note_end, hw_idx, entries: start..end, counters_end })
    }

    /// The sample with this body and position.
    #[inline]
    pub(crate) fn stack<'a>(
        &self,
        body: &'a [u8],
        event: usize,
        found: StackPosition,
    ) -> Stack<'a> {
        let order = self.order;
        let word = |at: Option<usize>| at.and_then(|at| u64_at(body, at, order));
        let half = |at: Option<usize>| at.and_then(|at| u32_at(body, at, order));
        let mut head = SampleHead {
            time: word(self.time),
            pid: half(self.tid),
            tid: half(self.tid.map(|at| at + 4)),
            cpu: half(self.cpu),
            ip: word(self.ip),
            period: word(self.period).filter(|period| *period > 0).or(self.fixed_period),
            event,
            hw_idx: found.hw_idx,
            ..SampleHead::default()
        };
        let mut moves = Moves::default();
        if let Some(note) = found.note {
            head.integrity = note.integrity;
            head.source = note.source;
            head.tsx_known = note.tsx_known;
            moves = Moves::of(body.get(found.note_at..found.note_end).unwrap_or_default());
        }
        let entries_end = found.entries.end;
        let (entries, _) = body.get(found.entries).unwrap_or_default().as_chunks::<ENTRY_SIZE>();
        let entries = match order {
            Order::Little => Entries::Little(entries),
            Order::Big => Entries::Big(entries),
        };
        let counters = found.counters_end.map(|end| {
            let (words, _) = body.get(entries_end..end).unwrap_or_default().as_chunks::<8>();
            Counters { words, big: order == Order::Big, logged: self.logged }
        });
        let after = found.counters_end.unwrap_or(entries_end);
        let registers = if self.has(sample_type::REGS_USER | sample_type::REGS_INTR) {
            self.registers(body, after)
        } else {
            None
        };
        Stack { head, entries, counters, registers, moves }
    }

    /// The registers at the sample, or else the user-mode registers, in the data after the branch
    /// stack. In the order of `perf_output_sample` of Linux `kernel/events/core.c`.
    #[cold]
    fn registers<'a>(&self, body: &'a [u8], after: usize) -> Option<Registers<'a>> {
        /// `PERF_SAMPLE_REGS_ABI_64`.
        const ABI_64: u64 = 2;
        let mut rest = Bytes::new(body.get(after..)?, self.order);
        let read = |rest: &mut Bytes<'a>, mask: u64| {
            let abi = rest.u64()?;
            let count = if abi == 0 { 0 } else { mask.count_ones() as usize };
            let (words, _) = rest.take(8 * count)?.as_chunks::<8>();
            let registers = Registers { words, mask, big: self.order == Order::Big };
            Some((abi == ABI_64).then_some(registers))
        };
        let (of_user, at_sample) = self.registers;
        let mut registers = None;
        if self.has(sample_type::REGS_USER) {
            registers = read(&mut rest, of_user)?;
        }
        if !self.has(sample_type::REGS_INTR) {
            return registers;
        }
        if self.has(sample_type::STACK_USER) {
            let size = rest.u64()?;
            rest.skip(size, 1)?;
            rest.skip(u64::from(size > 0), 8)?;
        }
        let weight = sample_type::WEIGHT | sample_type::WEIGHT_STRUCT;
        for field in [weight, sample_type::DATA_SRC, sample_type::TRANSACTION] {
            rest.skip(u64::from(self.has(field)), 8)?;
        }
        read(&mut rest, at_sample)?.or(registers)
    }

    fn skip_counters(&self, rest: &mut Bytes<'_>) -> Option<()> {
        let has = |bit: u64| u64::from(self.read_format & bit != 0);
        let times = has(read_format::TOTAL_TIME_ENABLED) + has(read_format::TOTAL_TIME_RUNNING);
        let each = 1 + has(read_format::ID) + has(read_format::LOST);
        if self.read_format & read_format::GROUP != 0 {
            let counters = rest.u64()?;
            rest.skip(times, 8)?;
            rest.skip(counters, 8 * each)
        } else {
            rest.skip(times + each, 8)
        }
    }
}

/// The offset of the event's id in a sample's body; `None` if there is one event, or the events have
/// no ids.
pub(crate) fn id_in_sample(events: &[EventAttr]) -> Option<usize> {
    let first = events.first().filter(|_| events.len() > 1)?;
    if first.sample_type & sample_type::IDENTIFIER != 0 {
        return Some(0);
    }
    let before = sample_type::IP | sample_type::TID | sample_type::TIME | sample_type::ADDR;
    let offset = || 8 * (first.sample_type & before).count_ones() as usize;
    (first.sample_type & sample_type::ID != 0).then(offset)
}

/// Time and CPU at the end of a record other than a sample (`sample_id_all`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trailer {
    pub(crate) time: Option<u64>,
    pub(crate) cpu: Option<u32>,
    pub(crate) pid_tid: Option<(u32, u32)>,
    /// Its length in bytes.
    pub(crate) len: usize,
}

impl Trailer {
    /// The offset of the event's id from a record's end; `None` without ids.
    pub(crate) fn id_from_end(events: &[EventAttr]) -> Option<usize> {
        let first = events.first().filter(|first| first.sample_id_all())?;
        let has = |bit: u64| first.sample_type & bit != 0;
        if has(sample_type::IDENTIFIER) {
            return Some(8);
        }
        let after = sample_type::STREAM_ID | sample_type::CPU;
        has(sample_type::ID).then(|| 8 + 8 * (first.sample_type & after).count_ones() as usize)
    }

    pub(crate) fn read(body: &[u8], attr: &EventAttr, order: Order) -> Trailer {
        if !attr.sample_id_all() {
            return Trailer::default();
        }
        const FIELDS: [u64; 6] = [
            sample_type::TID,
            sample_type::TIME,
            sample_type::ID,
            sample_type::STREAM_ID,
            sample_type::CPU,
            sample_type::IDENTIFIER,
        ];
        let len = 8 * FIELDS.iter().filter(|&&bit| attr.sample_type & bit != 0).count();
        let Some(start) = body.len().checked_sub(len) else { return Trailer::default() };
        let mut trailer = Trailer { len, ..Trailer::default() };
        let mut at = start;
        for bit in FIELDS.into_iter().filter(|bit| attr.sample_type & bit != 0) {
            match bit {
                sample_type::TID => {
                    trailer.pid_tid = u32_at(body, at, order).zip(u32_at(body, at + 4, order));
                }
                sample_type::TIME => trailer.time = u64_at(body, at, order),
                sample_type::CPU => trailer.cpu = u32_at(body, at, order),
                _ => {}
            }
            at += 8;
        }
        trailer
    }
}
