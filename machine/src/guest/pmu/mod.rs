//! The performance monitor of one virtual CPU: counters of what the vCPU executes.
//!
//! Intel's architectural monitor, versions 1 to 5 (SDM 18.2), with the number of counters in CPUID
//! leaf 0AH of the chosen CPU, and AMD's core counters, from PerfMonV2 on with global registers.
//! Instructions, cycles and branches are counted; caches etc. are not modelled, and leaf 0AH
//! reports that.
//!
//! Inexact: a faulting instruction counts with the rest of its block of code, and again when it is
//! repeated.

mod event;
mod registers;

use event::Event;
pub(super) use event::Happened;

/// The four result registers of CPUID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) eax: u32,
    pub(super) ebx: u32,
    pub(super) ecx: u32,
    pub(super) edx: u32,
}

/// CPUID.80000022H:EAX\[0\], PerfMonV2.
const PERF_MON_V2: u32 = 1 << 0;
/// Core counters of AMD: CPUID.80000001H:ECX\[23\], PerfCtrExtCore.
const AMD_COUNTERS: usize = 6;
/// Newer versions are announced as this one.
const NEWEST: u32 = 5;
/// CPUID.0AH:EBX, unavailable events: reference cycles, because there is no separate clock; LLC
/// references and misses; slots and top-down events. SDM Table 18-1.
const NOT_THERE: u32 = 0b1_1111_1001_1100;

/// PERFEVTSELx: user mode, ring 0, interrupt, enabled.
const USR: u64 = 1 << 16;
const OS: u64 = 1 << 17;
const INT: u64 = 1 << 20;
const EN: u64 = 1 << 22;
/// With a counter mask a counter would count cycles, which are not modelled separately.
const COUNTER_MASK: u64 = 0xFF << 24;
/// Counts only in transactions, and without aborted ones. SDM 18.3.6.5.
const IN_TX: u64 = 1 << 32;
const IN_TXCP: u64 = 1 << 33;
/// The only counter with `IN_TXCP`.
const UNDOES: usize = 2;

/// A counter with its event select register.
#[derive(Clone, Copy, Debug, Default)]
struct General {
    select: u64,
    count: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Pmu {
    amd: bool,
    /// AMD: 1 without global registers, 2 with them.
    version: u32,
    /// Whether IA32_A_PMCx exist.
    full_width: bool,
    /// CPUID.0AH:EDX\[15\] or an early version: bit AnyThread is reserved.
    no_any_thread: bool,
    /// Whether the CPU has transactions.
    tsx: bool,
    /// Value of counter [`UNDOES`] at the start of the transaction.
    at_begin: u64,
    width: u32,
    general: Vec<General>,
    fixed: Vec<u64>,
    fixed_ctrl: u64,
    global_ctrl: u64,
    status: u64,
    /// A PMI has frozen the counters: GLOBAL_STATUS.CTR_FRZ.
    pub(super) frozen: bool,
}

impl Pmu {
    /// Intel's monitor according to leaf 0AH; `None` if there is none. `tsx`: whether the CPU has
    /// transactions.
    pub(super) fn intel(leaf_a: Leaf, full_width: bool, tsx: bool) -> Option<Pmu> {
        let version = (leaf_a.eax & 0xFF).min(NEWEST);
        let byte = |shift: u32| leaf_a.eax >> shift & 0xFF;
        let fixed = if version >= 2 { leaf_a.edx & 0x1F } else { 0 };
        let no_any_thread = version < 3 || leaf_a.edx >> 15 & 1 != 0;
        let monitor = Pmu { no_any_thread, ..Pmu::new(version, byte(8), fixed, byte(16)) };
        (version > 0).then_some(Pmu { full_width, tsx, ..monitor })
    }

    /// AMD's monitor according to leaf 80000022H.
    pub(super) fn amd(leaf_8000_0022: Leaf) -> Pmu {
        let version = if leaf_8000_0022.eax & PERF_MON_V2 != 0 { 2 } else { 1 };
        Pmu { amd: true, ..Pmu::new(version, AMD_COUNTERS as u32, 0, 48) }
    }

    fn new(version: u32, general: u32, fixed: u32, width: u32) -> Pmu {
        // In reset state, in which all general counters are enabled. SDM 18.2.2.
        let global_ctrl = if version >= 2 { ones(general) } else { 0 };
        Pmu {
            version,
            width: width.clamp(32, 63),
            general: vec![General::default(); general as usize],
            fixed: vec![0; fixed as usize],
            global_ctrl,
            ..Pmu::default()
        }
    }

    /// The chosen CPU's leaf 0AH without unmodelled features.
    pub(super) const fn leaf_a(&self, of_cpu: Leaf) -> Leaf {
        let not_there = NOT_THERE & ones(of_cpu.eax >> 24 & 0x1F) as u32;
        Leaf { eax: of_cpu.eax & !0xFF | self.version, ebx: of_cpu.ebx | not_there, ..of_cpu }
    }

    pub(super) const fn is_amd(&self) -> bool {
        self.amd
    }

    /// A counter's maximum, after which it wraps to 0.
    const fn mask(&self) -> u64 {
        (1 << self.width) - 1
    }

    /// The counters' bits in the global registers.
    fn counters(&self) -> u64 {
        ones(self.general.len() as u32) | ones(self.fixed.len() as u32) << 32
    }

    const fn is_enabled(&self, bit: usize) -> bool {
        !self.frozen && (self.version < 2 || self.global_ctrl >> bit & 1 != 0)
    }

    /// The event of general counter `index`, if enabled.
    fn event(&self, index: usize) -> Option<Event> {
        let select = self.general.get(index)?.select;
        let is_on = select & EN != 0 && select & (USR | OS) != 0 && self.is_enabled(index);
        if !is_on || select & COUNTER_MASK != 0 {
            return None;
        }
        if self.amd { Event::of_amd(select) } else { Event::of_intel(select) }
    }

    /// The event of fixed counter `index`, if enabled, and its four control bits.
    fn fixed_event(&self, index: usize) -> Option<(Event, u64)> {
        let control = self.fixed_ctrl >> (4 * index) & 0xF;
        if control & 3 == 0 || !self.is_enabled(32 + index) {
            return None;
        }
        Some((Event::of_fixed(index)?, control))
    }

    /// Whether any counter is enabled, at any privilege level.
    pub(super) fn is_on(&self) -> bool {
        (0..self.general.len()).any(|index| self.event(index).is_some())
            || (0..self.fixed.len()).any(|index| self.fixed_event(index).is_some())
    }

    /// Whether an enabled counter needs branches to be followed one by one.
    pub(super) fn needs_branches(&self) -> bool {
        (0..self.general.len()).any(|i| self.event(i).is_some_and(Event::needs_branches))
    }

    /// The minimum number of cycles at this privilege level before a counter interrupts; `None` if
    /// none can.
    pub(super) fn cycles_to_interrupt(&self, cpl: u8) -> Option<u64> {
        let left = |count: u64| (1 << self.width) - count;
        let general = self.general.iter().enumerate().filter_map(|(index, counter)| {
            let event = self.event(index)?;
            let counts = counter.select & INT != 0 && counter.select & ring(cpl) != 0;
            counts.then(|| event.cycles_at_least(left(counter.count)))
        });
        let fixed = self.fixed.iter().enumerate().filter_map(|(index, count)| {
            let (event, control) = self.fixed_event(index)?;
            let counts = control & 8 != 0 && control & fixed_ring(cpl) != 0;
            counts.then(|| event.cycles_at_least(left(*count)))
        });
        general.chain(fixed).min()
    }

    /// A transaction starts.
    pub(super) fn begin(&mut self) {
        self.at_begin = self.general.get(UNDOES).map_or(0, |counter| counter.count);
    }

    /// The transaction aborts.
    pub(super) fn abort(&mut self) {
        if let Some(counter) = self.general.get_mut(UNDOES)
            && counter.select & IN_TXCP != 0
        {
            counter.count = self.at_begin;
        }
    }

    /// Counts events at a privilege level, inside or outside of a transaction. `true`: a counter
    /// with interrupt has overflowed.
    pub(super) fn count(&mut self, happened: &Happened, cpl: u8, in_tx: bool) -> bool {
        let mask = self.mask();
        let add = |count: &mut u64, times: u64| {
            let sum = *count + times;
            *count = sum & mask;
            sum > mask
        };
        let mut interrupts = false;
        for index in 0..self.general.len() {
            let Some(event) = self.event(index) else { continue };
            let Some(counter) = self.general.get_mut(index) else { continue };
            if counter.select & IN_TX != 0 && !in_tx {
                continue;
            }
            if counter.select & ring(cpl) != 0 && add(&mut counter.count, event.times(happened)) {
                self.status |= 1 << index;
                interrupts |= counter.select & INT != 0;
            }
        }
        for index in 0..self.fixed.len() {
            let Some((event, control)) = self.fixed_event(index) else { continue };
            let Some(count) = self.fixed.get_mut(index) else { continue };
            if control & fixed_ring(cpl) != 0 && add(count, event.times(happened)) {
                self.status |= 1 << (32 + index);
                interrupts |= control & 8 != 0;
            }
        }
        interrupts
    }

    /// A PMI was raised, and DEBUGCTL.FREEZE_PERFMON_ON_PMI is set. Before version 4 the CPU clears
    /// the enable bits; from version 4 on it sets GLOBAL_STATUS.CTR_FRZ. SDM 17.4.7.
    pub(super) const fn freeze(&mut self) {
        if !self.amd && self.version < 4 {
            self.global_ctrl = 0;
        }
    }

    /// RDPMC; `None` for a missing counter. SDM Vol. 2B; AMD APM Vol. 3.
    pub(super) fn rdpmc(&self, ecx: u32) -> Option<u64> {
        let index = (ecx & 0xFFFF) as usize;
        match ecx >> 16 {
            0 => self.general.get(index).map(|counter| counter.count),
            0x4000 => self.fixed.get(index).copied(),
            _ => None,
        }
    }
}

const fn ring(cpl: u8) -> u64 {
    if cpl == 0 { OS } else { USR }
}

const fn fixed_ring(cpl: u8) -> u64 {
    if cpl == 0 { 1 } else { 2 }
}

/// The lowest `n` bits, at most 32.
const fn ones(n: u32) -> u64 {
    (1 << n) - 1
}

#[cfg(test)]
#[path = "../../../../tests/machine/unit/guest/pmu.rs"]
mod tests;
