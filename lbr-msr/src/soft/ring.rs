//! The register file and the effect of a retired branch on it.

use crate::caps::{Facility, LbrCaps, Order, Quirks, Vendor};
use crate::register::{DbgExtnCfg, amd::MSROFF};

use super::encode::{Encoding, Slot};
use super::filter::{Filter, selector_of};
use super::{Fault, Faults, Retired};

/// The largest depth of any facility: depth mask bit 7 of CPUID leaf 1CH. A larger `LbrCaps::depth`
/// is limited to it.
pub(super) const MAX_DEPTH: usize = 64;

/// FROM of a record whose branch started in a ring that is not recorded.
const HIDDEN: u64 = !0;

/// The register that enables recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Control {
    DebugCtl,
    LbrCtl,
    DbgExtnCfg,
    Brbcr,
}

/// The effect of a branch that passes the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mode {
    /// Overwrites the oldest record.
    Ring,
    /// Calls push, returns pop.
    CallStack,
    /// Fills the records once (AMD BRS).
    Saturating,
}

/// The branch-record registers of one logical CPU, with the rules of a chosen CPU model.
///
/// It is a register file: [`MsrRead`](crate::MsrRead) and [`MsrWrite`](crate::MsrWrite) access it
/// by address. An address that the chosen CPU lacks, or a reserved bit, raises
/// [`MsrError::Fault`](crate::MsrError::Fault). Between accesses, [`retire`](Self::retire) records
/// branches, and the events that change these registers are [`pmi`](Self::pmi),
/// [`debug_exception`](Self::debug_exception), [`exception`](Self::exception),
/// [`deep_c_state`](Self::deep_c_state) and [`reset`](Self::reset).
///
/// # Behaviour that the manuals do not specify
///
/// - A return in call-stack mode clears FROM, TO and INFO of the newest record, so that a reader
///   that stops at FROM = 0 sees the remaining frames. TOS is decremented (Architectural LBR: the
///   records shift up), even if the LBR stack is empty.
/// - If the manual calls the contents undefined (call-stack mode with branch bits other than SDM
///   17.9 gives; DEBUGCTL.TR together with LBR on cores that forbid it), nothing is recorded.
/// - Cycles count from record to record, also through branches that the filter drops and while
///   recording is off. A count with an unknown part is 0 and, in Architectural LBR, without
///   CYC_CNT_VALID; so is the first count after a reset, a C-state wipe or a write of
///   IA32_LBR_DEPTH.
/// - Writes to INFO drop reserved bits. TOS keeps only its index bits.
/// - Record registers at and above IA32_LBR_DEPTH fault, as Table 2-2 of SDM Vol. 4 says.
/// - Architectural LBR does not record zero-length calls: SDM24 Table 20-2 excludes them from
///   NEAR_REL_CALL and lists them nowhere else.
/// - The last-exception pair takes the newest record, so branches that the filter drops do not
///   reach it. Pentium M and Yonah have no such pair here: the only table that names theirs has it
///   swapped.
/// - Of Intel PT only TraceEn has an effect, and IA32_RTIT_CTL exists only if tracing disables LBR
///   (SDM 36.3.1.2).
/// - An SMI disables recording and its RSM re-enables it, without a trace.
/// - AMD BRS records as soon as BRSMEN is written, as if the counter it waits for had already
///   fired.
#[derive(Clone, Debug, Hash)]
pub struct SoftLbr {
    /// Bit [`selector_of`] is set if such a branch has any effect.
    pub(super) watch: u32,
    /// The subset that is recorded in the LBR stack.
    pub(super) pass: u32,
    pub(super) mode: Mode,
    pub(super) encoding: Encoding,
    /// The effect of the filter register, and the value it was computed from.
    pub(super) filter: Filter,
    pub(super) filter_value: u64,
    /// AMD's one-entry pair is recorded too.
    pub(super) pair_on: bool,
    /// The slot of the newest record.
    pub(super) top: usize,
    pub(super) depth: usize,
    pub(super) cycles: u32,
    pub(super) cycles_known: bool,
    pub(super) recorded: u64,
    pub(super) slots: [Slot; MAX_DEPTH],

    pub(super) cpu: u32,
    pub(super) caps: LbrCaps,
    pub(super) control: Control,
    pub(super) perf_capabilities: Option<u64>,
    /// log2 of the distance between the registers of two records.
    pub(super) stride_shift: u32,
    pub(super) faults: Faults,
    /// The slot that the newest record overwrote, for
    /// [`Fault::FreezeEarly`](super::fault::Fault::FreezeEarly).
    pub(super) overwritten: Slot,
    /// Whether recording was on when the control registers last changed.
    pub(super) was_on: bool,
    pub(super) debugctl: u64,
    pub(super) select: u64,
    /// IA32_LBR_CTL, or BRBCR_EL1.
    pub(super) lbr_ctl: u64,
    pub(super) dbg_extn_cfg: u64,
    pub(super) status: u64,
    pub(super) rtit_ctl: u64,
    pub(super) ler: Slot,
    /// AMD's pair, or the record that BRBE injects.
    pub(super) pair: Slot,
    /// BRBTS_EL1.
    pub(super) timestamp: u64,
}

impl SoftLbr {
    /// The registers of the CPU that `caps` describes, in reset state.
    ///
    /// `perf_capabilities` is the value of IA32_PERF_CAPABILITIES; `None` if the register does not
    /// exist (CPUID.01H:ECX\[15\] is 0), so that reading it faults. It also decides which bits of
    /// DEBUGCTL exist.
    pub fn new(caps: &LbrCaps, perf_capabilities: Option<u64>) -> SoftLbr {
        let control = match caps.facility {
            Facility::IntelArch => Control::LbrCtl,
            Facility::Brbe => Control::Brbcr,
            Facility::AmdLbrV2 | Facility::AmdBrs => Control::DbgExtnCfg,
            Facility::IntelLegacy | Facility::AmdSingle | Facility::P6 | Facility::NetBurst => {
                Control::DebugCtl
            }
        };
        let mut soft = SoftLbr {
            watch: 0,
            pass: 0,
            mode: Mode::Ring,
            encoding: Encoding::of(caps),
            filter: Filter::of(caps.filter, 0, Faults::NONE),
            filter_value: 0,
            pair_on: false,
            top: 0,
            depth: 0,
            cycles: 0,
            cycles_known: false,
            recorded: 0,
            slots: [Slot::default(); MAX_DEPTH],
            cpu: 0,
            caps: caps.clone(),
            control,
            perf_capabilities,
            stride_shift: caps.registers.stride.max(1).trailing_zeros(),
            faults: Faults::NONE,
            overwritten: Slot::default(),
            was_on: false,
            debugctl: 0,
            select: 0,
            lbr_ctl: 0,
            dbg_extn_cfg: match control {
                Control::DbgExtnCfg => DbgExtnCfg::MUST_BE_SET,
                Control::DebugCtl | Control::LbrCtl | Control::Brbcr => 0,
            },
            status: 0,
            rtit_ctl: 0,
            ler: Slot::default(),
            pair: Slot::default(),
            timestamp: 0,
        };
        soft.depth = soft.max_depth();
        soft.refresh();
        soft
    }

    pub(super) fn max_depth(&self) -> usize {
        (self.caps.depth as usize).clamp(1, MAX_DEPTH)
    }

    pub(super) fn is_intel(&self) -> bool {
        self.caps.cpu.vendor != Vendor::Amd
    }

    /// Sets the number of the logical CPU (default 0).
    #[must_use]
    pub fn on_cpu(mut self, cpu: u32) -> SoftLbr {
        self.cpu = cpu;
        self
    }

    /// Injects faults, and resets.
    #[must_use]
    pub fn with(self, faults: impl Into<Faults>) -> SoftLbr {
        let SoftLbr { cpu, recorded, .. } = self;
        let faults = faults.into();
        let filter = Filter::of(self.caps.filter, 0, faults);
        let fresh = SoftLbr::new(&self.caps, self.perf_capabilities);
        SoftLbr { cpu, recorded, faults, filter, ..fresh }
    }

    /// Whether hyperthreads of a core share the filter register. If so, the caller must repeat a
    /// write on the sibling.
    pub const fn shares_select(&self) -> bool {
        self.caps.quirks.contains(Quirks::SELECT_SHARED_BY_CORE)
            != self.faults.has(Fault::SelectSharing)
    }

    /// Retires one taken branch. Returns whether it changed the records.
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

    /// Whether a branch would change the records.
    pub const fn lets_in(&self, branch: &Retired) -> bool {
        self.pass >> selector_of(branch) & 1 != 0
    }

    /// How many of the newest branches that [pass](Self::lets_in) determine all registers: the
    /// depth of a plain LBR. `None` if older ones matter too: in call-stack mode, with faults, or
    /// with AMD's one-entry pair.
    pub fn newest_alone(&self) -> Option<usize> {
        let plain = self.mode == Mode::Ring && self.faults.is_empty() && !self.pair_on;
        plain.then_some(self.depth)
    }

    /// Records `branches` unknown branches: empty records until [newer](Self::newest_alone) ones
    /// overwrite them. For a source that observes only a few of many branches. Does nothing if
    /// older branches matter.
    pub fn skip(&mut self, branches: u64) {
        if self.newest_alone().is_none() {
            return;
        }
        for _ in 0..branches.min(self.depth as u64) {
            self.advance();
            self.set_newest(Slot::default());
        }
        let turned = branches.saturating_sub(self.depth as u64) % self.depth as u64;
        self.top = (self.top + turned as usize) % self.depth;
        self.recorded = self.recorded.wrapping_add(branches);
        self.cycles_known = false;
    }

    /// Number of branches since [`new`](Self::new) that passed the filter and moved the records,
    /// including before resets: the value of a counter of these branches. In call-stack mode both
    /// pushes and pops count, even a return that found the stack empty.
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

    /// The length at which the LBR wraps.
    #[inline]
    pub(super) fn ring_depth(&self) -> usize {
        if self.faults.has(Fault::HalfDepth) { (self.depth / 2).max(1) } else { self.depth }
    }

    /// Writes a record at the next slot. The hardware increments TOS, modulo the depth, before it
    /// writes (SDM 17.4.8). If newer records have lower indices, the indices shift instead.
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
        if self.faults.has(Fault::OrderReversed) && self.caps.order == Order::Tos {
            // Undo the step forward, and take one back.
            self.top = (self.top + 2 * depth - 2) % depth;
        }
    }

    #[inline]
    fn put(&mut self, branch: &Retired) {
        let from = seen_from(branch, self.filter.hide);
        let cycles = self.cycles_known.then_some(self.cycles);
        // `top` stays below `depth`.
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

    /// A near return in call-stack mode removes the newest record. SDM 17.9.
    fn pop(&mut self) {
        self.set_newest(Slot::default());
        let back = if self.top == 0 { self.ring_depth() - 1 } else { self.top - 1 };
        self.top = if self.faults.has(Fault::OrderReversed) && self.caps.order == Order::Tos {
            (self.top + 1) % self.ring_depth()
        } else {
            back
        };
    }

    /// AMD BRS: writes at MSROFF, which wraps to 0 after the last slot.
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

    /// The slot that index `index` refers to.
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
        if self.caps.order == Order::NewestFirst && !self.faults.is_empty() {
            return self.faulty_physical(index);
        }
        match self.caps.order {
            // Index 0 is always the newest: the registers are renamed.
            Order::NewestFirst if index <= self.top => self.top - index,
            Order::NewestFirst => self.top + self.depth - index,
            Order::Tos | Order::Saturating | Order::Single => index,
        }
    }

    /// The index of the newest record.
    pub(super) const fn tos(&self) -> usize {
        if self.faults.has(Fault::TosOffByOne) { (self.top + 1) % self.depth } else { self.top }
    }

    /// Sets TOS; bits above the depth are ignored. SDM 17.5.1.
    pub(super) fn set_tos(&mut self, value: u64) {
        self.top = (value % self.depth as u64) as usize;
        if self.faults.has(Fault::TosOffByOne) {
            self.top = (self.top + self.depth - 1) % self.depth;
        }
    }

    pub(super) fn set_newest(&mut self, record: Slot) {
        if let Some(slot) = self.slots.get_mut(self.top) {
            *slot = record;
        }
    }

    pub(super) fn newest(&self) -> Slot {
        self.slots.get(self.top).copied().unwrap_or_default()
    }

    /// Clears every record and the cycle counter.
    pub(super) fn clear_records(&mut self) {
        self.slots = [Slot::default(); MAX_DEPTH];
        self.top = 0;
        self.cycles_known = false;
    }
}

/// The FROM that a record shows; `hide` as in [`Filter`].
#[inline]
const fn seen_from(branch: &Retired, hide: u8) -> u64 {
    let started_outside = branch.cpl_before != 0;
    if hide >> started_outside as u8 & 1 != 0 { HIDDEN } else { branch.from }
}
