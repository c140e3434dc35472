//! The register file and what a retired branch does to it.

use crate::caps::{Facility, FilterRegister, Layout, LbrCaps, Order, Quirks, RegisterMap, Vendor};
use crate::register::{DbgExtnCfg, amd::MSROFF};

use super::encode::{Encoding, Slot};
use super::filter::{Filter, selector_of};
use super::{Fault, Faults, Retired};

/// The most records that any of the facilities can hold: depth mask bit 7 of
/// CPUID leaf 1CH. A larger `LbrCaps::depth` counts as this.
pub(super) const MAX_DEPTH: usize = 64;

/// FROM of a record whose branch started in a ring that is not recorded.
const HIDDEN: u64 = !0;

/// Which register enables recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    DebugCtl,
    LbrCtl,
    DbgExtnCfg,
}

/// What a branch that passes does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Overwrites the oldest record.
    Ring,
    /// Calls push, returns pop.
    CallStack,
    /// Fills the records once (AMD BRS).
    Saturating,
}

/// What does not change once the CPU is chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    pub(super) facility: Facility,
    pub(super) intel: bool,
    pub(super) layout: Layout,
    pub(super) map: RegisterMap,
    pub(super) order: Order,
    pub(super) filter: FilterRegister,
    pub(super) quirks: Quirks,
    pub(super) control: Control,
    pub(super) perfmon_version: u8,
    pub(super) perf_capabilities: Option<u64>,
    pub(super) max_depth: usize,
    pub(super) depth_mask: u8,
    /// log2 of the distance between two records' registers.
    pub(super) stride_shift: u32,
}

/// The branch-record registers of one logical CPU, with the rules of a chosen
/// CPU.
///
/// It is a register file: [`MsrRead`](crate::MsrRead) and
/// [`MsrWrite`](crate::MsrWrite) reach it by address, an address that the
/// chosen CPU lacks and a reserved bit raise
/// [`MsrError::Fault`](crate::MsrError::Fault). Between accesses it is fed
/// with [`retire`](Self::retire) and with the events that touch these
/// registers: [`pmi`](Self::pmi), [`debug_exception`](Self::debug_exception),
/// [`exception`](Self::exception), [`deep_c_state`](Self::deep_c_state),
/// [`reset`](Self::reset).
///
/// # Choices where the manuals are silent
///
/// - A return in call-stack mode clears FROM, TO and INFO of the newest
///   record, so that a reader that stops at FROM = 0 sees the frames that are
///   left; TOS goes down by one (Architectural LBR: the records shift up). On
///   an empty ring TOS goes down all the same.
/// - Where the manual calls the contents undefined (call-stack mode with other
///   branch bits than SDM 17.9 names; DEBUGCTL.TR together with LBR on cores
///   that forbid it) nothing is recorded.
/// - Cycles count from record to record, through branches that the filter
///   leaves out and while recording is off. A count of which any part is not
///   known is 0 and, in Architectural LBR, without CYC_CNT_VALID; so is that
///   of the first record after a reset, a wipe or a write of IA32_LBR_DEPTH.
/// - Reserved bits of INFO are dropped when written. TOS keeps only the bits
///   that mean something.
/// - Registers of records at and above IA32_LBR_DEPTH fault, as Table 2-2 of
///   the SDM's Vol. 4 says.
/// - A zero-length call is not recorded at all by Architectural LBR: SDM24
///   Table 20-2 takes it out of NEAR_REL_CALL and puts it nowhere else.
/// - The last-exception pair holds the newest record, so a branch that the
///   filter leaves out does not reach it. Pentium M and Yonah have none here:
///   the one table that names their pair has it swapped.
/// - Of Intel PT only TraceEn counts, and IA32_RTIT_CTL exists only where
///   tracing disables LBR (SDM 36.3.1.2).
/// - An SMI switches recording off and its RSM on again, so that nothing shows.
/// - AMD BRS records from the write of BRSMEN on, as if the counter it waits
///   for had fired at once.
#[derive(Clone, Debug)]
pub struct SoftLbr {
    /// Bit [`selector_of`] is set where such a branch has any effect.
    pub(super) watch: u32,
    /// Of these, the ones that are recorded in the ring.
    pub(super) pass: u32,
    pub(super) mode: Mode,
    pub(super) encoding: Encoding,
    /// What the filter register means, and the value it was worked out from.
    pub(super) filter: Filter,
    pub(super) filter_value: u64,
    /// The one-entry pair beside an AMD stack is recorded too.
    pub(super) pair_on: bool,
    /// The slot of the newest record.
    pub(super) top: usize,
    pub(super) depth: usize,
    pub(super) cycles: u32,
    pub(super) cycles_known: bool,
    pub(super) recorded: u64,
    pub(super) slots: [Slot; MAX_DEPTH],

    pub(super) cpu: u32,
    pub(super) model: Model,
    pub(super) faults: Faults,
    /// What the newest record overwrote, for a freeze that comes too early.
    pub(super) overwritten: Slot,
    /// Recording was on when the control registers changed last.
    pub(super) was_on: bool,
    pub(super) debugctl: u64,
    pub(super) select: u64,
    pub(super) lbr_ctl: u64,
    pub(super) dbg_extn_cfg: u64,
    pub(super) status: u64,
    pub(super) rtit_ctl: u64,
    pub(super) ler: Slot,
    pub(super) pair: Slot,
}

impl SoftLbr {
    /// The registers of the CPU that `caps` describes, as after a reset.
    ///
    /// `perf_capabilities` is what IA32_PERF_CAPABILITIES reads; `None` where
    /// the register does not exist (CPUID.01H:ECX\[15\] is 0), so that reading
    /// it faults. The bits of DEBUGCTL that it announces exist accordingly.
    #[must_use]
    pub fn new(caps: &LbrCaps, perf_capabilities: Option<u64>) -> SoftLbr {
        let max_depth = (caps.depth as usize).clamp(1, MAX_DEPTH);
        let control = match caps.facility {
            Facility::IntelArch => Control::LbrCtl,
            Facility::AmdLbrV2 | Facility::AmdBrs => Control::DbgExtnCfg,
            Facility::IntelLegacy | Facility::AmdSingle | Facility::P6 | Facility::NetBurst => {
                Control::DebugCtl
            }
        };
        let model = Model {
            facility: caps.facility,
            intel: caps.cpu.vendor != Vendor::Amd,
            layout: caps.layout,
            map: caps.registers,
            order: caps.order,
            filter: caps.filter,
            quirks: caps.quirks,
            control,
            perfmon_version: caps.perfmon_version,
            perf_capabilities,
            max_depth,
            depth_mask: caps.depth_mask,
            stride_shift: caps.registers.stride.max(1).trailing_zeros(),
        };
        let mut soft = SoftLbr {
            watch: 0,
            pass: 0,
            mode: Mode::Ring,
            encoding: Encoding::of(caps),
            filter: Filter::of(caps.filter, 0),
            filter_value: 0,
            pair_on: false,
            top: 0,
            depth: max_depth,
            cycles: 0,
            cycles_known: false,
            recorded: 0,
            slots: [Slot::default(); MAX_DEPTH],
            cpu: 0,
            model,
            faults: Faults::NONE,
            overwritten: Slot::default(),
            was_on: false,
            debugctl: 0,
            select: 0,
            lbr_ctl: 0,
            dbg_extn_cfg: 0,
            status: 0,
            rtit_ctl: 0,
            ler: Slot::default(),
            pair: Slot::default(),
        };
        soft.reset();
        soft
    }

    /// The same, as the registers of logical CPU `cpu` (0 unless told).
    #[must_use]
    pub fn on_cpu(mut self, cpu: u32) -> SoftLbr {
        self.cpu = cpu;
        self
    }

    /// The same, with departures from what is documented.
    #[must_use]
    pub fn with(mut self, faults: impl Into<Faults>) -> SoftLbr {
        self.faults = faults.into();
        self.filter = Filter::faulty(self.model.filter, self.filter_value, self.faults);
        self.reset();
        self
    }

    /// Whether hyperthreads of a core share the filter register: a write to
    /// one's is then to be repeated on the other's.
    #[must_use]
    pub const fn shares_select(&self) -> bool {
        self.model.quirks.contains(Quirks::SELECT_SHARED_BY_CORE)
            != self.faults.has(Fault::SelectSharing)
    }

    /// Retires one taken branch. Whether it changed the records.
    #[inline]
    pub fn retire(&mut self, branch: &Retired) -> bool {
        match branch.cycles {
            Some(cycles) => self.cycles = self.cycles.saturating_add(cycles),
            None => self.cycles_known = false,
        }
        if self.watch >> selector_of(branch) & 1 == 0 {
            return false;
        }
        self.take(branch)
    }

    /// Retires branches, the oldest first, until the records have changed `most` times.
    /// How many branches that were, and how often the records changed.
    pub fn retire_run(&mut self, run: &[Retired], most: u64) -> (usize, u64) {
        let depth = self.depth;
        // What the loop looks at stays in registers.
        let (watch, encoding, hide) = (self.watch, self.encoding, self.filter.hide);
        let (mut top, mut cycles, mut known) = (self.top, self.cycles, self.cycles_known);
        let (mut taken, mut changes) = (0, 0);
        let is_plain = self.newest_alone().is_some();
        let Some(slots) = self.slots.get_mut(..depth).filter(|_| is_plain) else {
            for branch in run {
                if changes >= most {
                    break;
                }
                taken += 1;
                changes += u64::from(self.retire(branch));
            }
            return (taken, changes);
        };
        for branch in run {
            if changes >= most {
                break;
            }
            taken += 1;
            match branch.cycles {
                Some(more) => cycles = cycles.saturating_add(more),
                None => known = false,
            }
            if watch >> selector_of(branch) & 1 == 0 {
                continue;
            }
            top = if top + 1 >= depth { 0 } else { top + 1 };
            let from = seen_from(branch, hide);
            if let Some(slot) = slots.get_mut(top) {
                *slot = encoding.record(branch, from, known.then_some(cycles));
            }
            changes += 1;
            (cycles, known) = (0, true);
        }
        (self.top, self.cycles, self.cycles_known) = (top, cycles, known);
        self.recorded = self.recorded.wrapping_add(changes);
        (taken, changes)
    }

    /// Whether a branch would change the records.
    #[must_use]
    pub const fn lets_in(&self, branch: &Retired) -> bool {
        self.pass >> selector_of(branch) & 1 != 0
    }

    /// How many of the newest branches that [pass](Self::lets_in) decide what all
    /// registers hold: the depth of a plain ring. `None` where older ones count
    /// too: in call-stack mode, with faults, or beside AMD's one-entry pair.
    #[must_use]
    pub fn newest_alone(&self) -> Option<usize> {
        let plain = self.mode == Mode::Ring && self.faults.is_empty() && !self.pair_on;
        plain.then_some(self.depth)
    }

    /// As if so many branches had passed of which nothing is known: their records
    /// are empty until [newer](Self::newest_alone) ones take their place. For a
    /// source that looks at a few of many. Does nothing where older ones count.
    pub fn skip(&mut self, branches: u64) {
        if self.newest_alone().is_none() {
            return;
        }
        for _ in 0..branches.min(self.depth as u64) {
            self.advance();
            if let Some(slot) = self.slots.get_mut(self.top) {
                *slot = Slot::default();
            }
        }
        let turned = branches.saturating_sub(self.depth as u64) % self.depth as u64;
        self.top = (self.top + turned as usize) % self.depth;
        self.recorded = self.recorded.wrapping_add(branches);
        self.cycles = 0;
        self.cycles_known = false;
    }

    /// How many branches passed the filter and moved the records since
    /// [`new`](Self::new), resets included: what a counter of these branches
    /// would hold. In call-stack mode pushes and pops count alike, also a
    /// return that found the ring empty.
    #[must_use]
    pub const fn recorded(&self) -> u64 {
        self.recorded
    }

    fn take(&mut self, branch: &Retired) -> bool {
        if self.pair_on {
            self.pair = Encoding::AmdSingle.record(branch, branch.from, None);
            if self.pass >> selector_of(branch) & 1 == 0 {
                return false;
            }
        }
        self.recorded = self.recorded.wrapping_add(1);
        match self.mode {
            Mode::Ring => self.push(branch),
            Mode::CallStack if branch.class == crate::record::HwBranchType::Ret => self.pop(),
            Mode::CallStack => self.push(branch),
            Mode::Saturating => self.fill(branch),
        }
        if !self.faults.is_empty() {
            self.after(branch);
        }
        true
    }

    /// Where the ring wraps.
    #[inline]
    pub(super) fn ring_depth(&self) -> usize {
        if self.faults.has(Fault::HalfDepth) { (self.depth / 2).max(1) } else { self.depth }
    }

    /// Writes a record at the next slot. The hardware increments TOS, modulo
    /// the depth, before it writes (SDM 17.4.8); where newer records have
    /// lower addresses, the addresses shift instead.
    #[inline]
    pub(super) fn push(&mut self, branch: &Retired) {
        self.advance();
        self.put(branch);
    }

    #[inline]
    pub(super) fn advance(&mut self) {
        let depth = self.ring_depth();
        let next = self.top + 1;
        self.top = if next >= depth { 0 } else { next };
        if self.faults.has(Fault::OrderReversed) && self.model.order == Order::Tos {
            // One up and two down.
            self.top = (self.top + 2 * depth - 2) % depth;
        }
    }

    #[inline]
    fn put(&mut self, branch: &Retired) {
        let from = seen_from(branch, self.filter.hide);
        let cycles = self.cycles_known.then_some(self.cycles);
        // An index beyond the array cannot be: `top` stays below `depth`.
        if let Some(slot) = self.slots.get_mut(self.top) {
            if !self.faults.is_empty() {
                self.overwritten = *slot;
            }
            *slot = if self.faults.is_empty() {
                self.encoding.record(branch, from, cycles)
            } else {
                self.encoding.faulty_record(self.faults, branch, from, cycles)
            };
        }
        self.cycles = 0;
        self.cycles_known = true;
    }

    /// A near return in call-stack mode takes the newest record away. SDM 17.9.
    fn pop(&mut self) {
        if let Some(slot) = self.slots.get_mut(self.top) {
            *slot = Slot::default();
        }
        let back = if self.top == 0 { self.ring_depth() - 1 } else { self.top - 1 };
        self.top = if self.faults.has(Fault::OrderReversed) && self.model.order == Order::Tos {
            (self.top + 1) % self.ring_depth()
        } else {
            back
        };
    }

    /// AMD BRS: writes at MSROFF, which wraps to 0 when the last is written.
    fn fill(&mut self, branch: &Retired) {
        let next = (MSROFF.of(self.dbg_extn_cfg)) as usize;
        self.top = next.min(self.depth - 1);
        self.put(branch);
        let offset = if self.top + 1 >= self.ring_depth() { 0 } else { self.top as u64 + 1 };
        self.dbg_extn_cfg =
            self.dbg_extn_cfg & !MSROFF.mask() | offset << MSROFF.low | DbgExtnCfg::VB.bits();
        if offset == 0 {
            self.refresh();
        }
    }

    /// The slot behind the registers with index `index`.
    #[inline]
    pub(super) fn slot(&self, index: usize) -> Slot {
        self.slots.get(self.physical(index)).copied().unwrap_or_default()
    }

    pub(super) fn slot_mut(&mut self, index: usize) -> Option<&mut Slot> {
        let physical = self.physical(index);
        self.slots.get_mut(physical)
    }

    #[inline]
    fn physical(&self, index: usize) -> usize {
        if self.model.order == Order::NewestFirst && !self.faults.is_empty() {
            return self.faulty_physical(index);
        }
        match self.model.order {
            // Index 0 is always the newest: the registers are renamed.
            Order::NewestFirst if index <= self.top => self.top - index,
            Order::NewestFirst => self.top + self.depth - index,
            Order::Tos | Order::Saturating | Order::Single => index,
        }
    }

    pub(super) const fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The index of the newest record.
    pub(super) const fn tos(&self) -> usize {
        if self.faults.has(Fault::TosOffByOne) { (self.top + 1) % self.depth } else { self.top }
    }

    /// Moves TOS; bits beyond the depth mean nothing. SDM 17.5.1.
    pub(super) fn set_tos(&mut self, value: u64) {
        self.top = (value % self.depth as u64) as usize;
        if self.faults.has(Fault::TosOffByOne) {
            self.top = (self.top + self.depth - 1) % self.depth;
        }
    }

    pub(super) fn newest(&self) -> Slot {
        self.slots.get(self.top).copied().unwrap_or_default()
    }

    /// Clears every record, and the count of cycles since the last.
    pub(super) fn clear_records(&mut self) {
        self.slots = [Slot::default(); MAX_DEPTH];
        self.top = 0;
        self.cycles = 0;
        self.cycles_known = false;
    }

    pub(super) fn clear_last_exception(&mut self) {
        self.ler = Slot::default();
    }
}

/// What a record shows as the start of a branch; `hide` as of [`Filter`].
#[inline]
const fn seen_from(branch: &Retired, hide: u8) -> u64 {
    let started_outside = branch.cpl_before != 0;
    if hide >> started_outside as u8 & 1 != 0 { HIDDEN } else { branch.from }
}
