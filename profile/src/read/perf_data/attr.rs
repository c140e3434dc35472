//! `struct perf_event_attr`, its first 64 to 144 bytes.

use super::bytes::{Order, u32_at, u64_at};
use super::layout::{attr_flags, sample_type};

/// How often stacks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// This number per second.
    Frequency(u64),
    /// One per this number of branches.
    Period(u64),
}

/// An event of a recording: the fields of `struct perf_event_attr` that determine the sample
/// format, its ids and its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventAttr {
    /// Kind of event. `PERF_TYPE_*`.
    pub kind: u32,
    /// Size of the attribute, bytes.
    pub size: u32,
    /// The event of that kind.
    pub config: u64,
    /// Period, or frequency in Hz if [`is_frequency`](Self::is_frequency).
    pub sample_period: u64,
    /// Fields of a sample, see [`sample_type`].
    pub sample_type: u64,
    /// Fields of counter values, see [`read_format`](super::layout::read_format).
    pub read_format: u64,
    /// Flags, bits counted from the bottom, see [`attr_flags`].
    pub flags: u64,
    /// Filter and fields of the branch stack, see [`branch`](super::layout::branch).
    pub branch_sample_type: u64,
    /// Registers of user mode in a sample, by perf's numbers.
    pub sample_regs_user: u64,
    /// Registers at the sample, by perf's numbers.
    pub sample_regs_intr: u64,
    /// Ids that samples refer to it by.
    pub ids: Vec<u64>,
    /// Its name, if the file has one.
    pub name: Option<String>,
}

/// perf's names of `PERF_COUNT_HW_*`.
const HARDWARE: [&str; 10] = [
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-misses",
    "bus-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "ref-cycles",
];

/// perf's names of `PERF_COUNT_SW_*`: it derives none for later ones.
const SOFTWARE: [&str; 10] = [
    "cpu-clock",
    "task-clock",
    "page-faults",
    "context-switches",
    "cpu-migrations",
    "minor-faults",
    "major-faults",
    "alignment-faults",
    "emulation-faults",
    "dummy",
];

impl EventAttr {
    /// Parses an attribute. `None` if it is shorter than the first published form (64 bytes).
    pub(crate) fn parse(bytes: &[u8], order: Order) -> Option<EventAttr> {
        bytes.get(..64)?;
        // A size of 0 means the first form.
        let size = match u32_at(bytes, 4, order)? {
            0 => 64,
            size => size,
        };
        let known = bytes.get(..usize::try_from(size).ok()?).unwrap_or(bytes);
        let flags = u64_at(known, 40, order)?;
        Some(EventAttr {
            kind: u32_at(known, 0, order)?,
            size,
            config: u64_at(known, 8, order)?,
            sample_period: u64_at(known, 16, order)?,
            sample_type: u64_at(known, 24, order)?,
            read_format: u64_at(known, 32, order)?,
            // Big-endian compilers allocate bit fields from the top.
            flags: if order == Order::Big { flags.reverse_bits() } else { flags },
            branch_sample_type: u64_at(known, 72, order).unwrap_or(0),
            sample_regs_user: u64_at(known, 80, order).unwrap_or(0),
            sample_regs_intr: u64_at(known, 96, order).unwrap_or(0),
            ..EventAttr::default()
        })
    }

    /// The fields that a [`Meta`](super::Meta) sets, in the 128 bytes that every perf since 6.1
    /// accepts (it refuses 136).
    pub(crate) fn encode(&self) -> [u8; 128] {
        let mut bytes = [0; 128];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &self.kind.to_le_bytes());
        put(4, &128u32.to_le_bytes());
        put(8, &self.config.to_le_bytes());
        put(16, &self.sample_period.to_le_bytes());
        put(24, &self.sample_type.to_le_bytes());
        put(40, &self.flags.to_le_bytes());
        put(72, &self.branch_sample_type.to_le_bytes());
        put(80, &self.sample_regs_user.to_le_bytes());
        bytes
    }

    /// Its name; without one in the file, the name that perf derives from the attribute.
    pub fn perf_name(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let generic = |names: &[&'static str]| {
            usize::try_from(self.config).ok().and_then(|at| names.get(at).copied())
        };
        let name = match self.kind {
            0 => generic(&HARDWARE).unwrap_or("unknown-hardware").to_owned(),
            1 => generic(&SOFTWARE).unwrap_or("unknown-software").to_owned(),
            2 => return "unknown tracepoint".to_owned(),
            4 => format!("raw {:#x}", self.config),
            kind => return format!("unknown attr type: {kind}"),
        };
        name + &self.modifiers()
    }

    /// The modifiers of a name, which perf's `evsel__add_modifiers` derives from the excluded
    /// modes.
    fn modifiers(&self) -> String {
        let left_out = |bit: u32| self.flags >> bit & 1 == 1;
        let (user, kernel, hv, host, guest) =
            (left_out(4), left_out(5), left_out(6), left_out(19), left_out(20));
        let mut letters = String::new();
        let mut put = |letter: char, out: bool| {
            if !out {
                letters.push(letter);
            }
        };
        let modes = user || kernel || hv;
        if modes {
            put('k', kernel);
            put('u', user);
            put('h', hv);
        }
        let precise = self.flags >> 15 & 3;
        (0..precise).for_each(|_| put('p', false));
        if host || guest == (modes || precise > 0) {
            put('H', host);
            put('G', guest);
        }
        if letters.is_empty() { letters } else { format!(":{letters}") }
    }

    /// Whether its samples hold branch stacks.
    pub const fn has_branches(&self) -> bool {
        self.sample_type & sample_type::BRANCH_STACK != 0
    }

    /// Whether `sample_period` is a frequency.
    pub const fn is_frequency(&self) -> bool {
        self.flags & attr_flags::FREQ != 0
    }

    /// The sampling rate; `None` if the file does not state it.
    pub fn rate(&self) -> Option<Rate> {
        let rate = if self.is_frequency() { Rate::Frequency } else { Rate::Period };
        Some(self.sample_period).filter(|period| *period > 0).map(rate)
    }

    /// Whether records other than samples end with time, CPU etc.
    pub(crate) const fn sample_id_all(&self) -> bool {
        self.flags & attr_flags::SAMPLE_ID_ALL != 0
    }
}
