//! The environment of checks: the CPU, its documented properties, and ways to fill and read its
//! records.

use std::sync::atomic::{AtomicBool, Ordering};

use lbr_msr::address::IA32_DEBUGCTL;
use lbr_msr::caps::{Facility, FilterRegister, Layout, Order, Vendor};
use lbr_msr::decode::{decode, ring_order};
use lbr_msr::filter::{BranchFilter, Captured, from_register, recorded_by, to_register_disarmed};
use lbr_msr::probe::Assumption;
use lbr_msr::record::{BranchEntry, RawEntry};
use lbr_msr::register::DbgExtnCfg;
use lbr_msr::snapshot::read_position;
use lbr_msr::table::{self, Model};
use lbr_msr::{LbrCaps, Msr, MsrError};

use super::{Kernel, Known, Ran, RunError, Subject, SubjectKind, Switch};

/// A check that cannot be judged here, for this reason.
pub(super) fn cannot_tell<T>(why: &str) -> Result<T, RunError> {
    Err(RunError::Unavailable(why.into()))
}

/// A check cannot tell without this.
pub(super) fn require<T>(found: Option<T>, why: &str) -> Result<T, RunError> {
    found.ok_or_else(|| RunError::Unavailable(why.into()))
}

/// Why recording is not enabled on NetBurst.
pub(super) const READ_ONLY: &str =
    "the records cannot be written, so their contents could not be restored";
/// DBG_EXTN_CFG of BRS: VB and MSROFF. Linux amd/brs.c.
const BRS_STATE: u64 = DbgExtnCfg::VB.bits() | 0xF << 16;

/// Properties of a CPU that are known before its branch records are examined.
#[derive(Debug)]
pub(super) struct Facts {
    /// Its documented capabilities.
    pub(super) caps: LbrCaps,
    /// Its row in the CPU table.
    pub(super) row: Option<&'static Model>,
    pub(super) kind: SubjectKind,
    /// CPUID.01H:ECX\[15\].
    pub(super) pdcm: bool,
    /// CPUID.80000008H:EAX\[15:8\].
    pub(super) linear_bits: u32,
}

impl Facts {
    pub(super) fn new(cpu: &dyn Subject, caps: LbrCaps, assume: Option<&Assumption>) -> Facts {
        let leaf = |leaf| cpu.cpuid().get(leaf, 0);
        let width = leaf(0x8000_0008).map_or(0, |answer| answer.eax >> 8 & 0xFF);
        Facts {
            row: match assume {
                Some(Assumption::Model { family, model }) => table::lookup(*family, *model),
                Some(Assumption::Geometry(_)) => None,
                None => table::lookup(caps.cpu.family, caps.cpu.model)
                    .filter(|_| caps.cpu.vendor == Vendor::Intel),
            },
            kind: cpu.kind(),
            pdcm: leaf(1).is_some_and(|answer| answer.ecx >> 15 & 1 != 0),
            linear_bits: if width == 57 { 57 } else { 48 },
            caps,
        }
    }

    /// The source of the geometry.
    pub(super) fn row_source(&self) -> String {
        match self.row {
            None if self.caps.assumed => "as given by --assume".into(),
            Some(row) => format!("CPU table, {}H: {}", row.key(), row.generation.sources),
            None => match self.caps.facility {
                Facility::AmdLbrV2 => "CPUID 80000022H; Linux amd/lbr.c".into(),
                Facility::AmdBrs => "CPUID 80000008H; Linux amd/brs.c".into(),
                Facility::IntelArch => "CPUID 1CH; Linux lbr.c (arch)".into(),
                _ => "Linux msr-index.h".into(),
            },
        }
    }

    /// Checks that the CPU's own code can be recorded alone: because of a filter, or because
    /// nothing else runs.
    pub(super) fn can_run(&self) -> Result<(), &'static str> {
        if self.caps.facility == Facility::NetBurst {
            return Err(READ_ONLY);
        }
        if self.kind == SubjectKind::Software {
            return Ok(());
        }
        match (self.caps.facility, self.caps.filter) {
            (Facility::AmdBrs, _) => Err("it records only for a counter's interrupt, which the \
                 kernel owns"),
            (_, FilterRegister::None) | (_, FilterRegister::LbrCtl { cpl: false, .. }) => {
                Err("nothing filters by ring, so that the kernel's own branches overwrite the \
                     records before they can be read")
            }
            _ => Ok(()),
        }
    }

    /// The filter value that records everything that a kernel knows about.
    pub(super) fn open(&self) -> u64 {
        let (user, both) = (BranchFilter::USER, BranchFilter::USER | BranchFilter::KERNEL);
        let rings = match self.kind {
            SubjectKind::Software => [both, user],
            _ => [user, both],
        };
        // Some CPUs have no filter for rings, and BRBE records one.
        rings.into_iter().find_map(|rings| self.all_into(rings)).unwrap_or(0)
    }

    /// The same filter limited to one privilege level: suppresses user mode or ring 0; `None` if
    /// unsupported.
    pub(super) fn ring(&self, user: bool) -> Option<u64> {
        let ring = if user { BranchFilter::USER } else { BranchFilter::KERNEL };
        self.all_into(ring).filter(|_| self.caps.filter != FilterRegister::Brbfcr)
    }

    /// The filter value for every branch into these rings; `None` if unsupported.
    fn all_into(&self, rings: BranchFilter) -> Option<u64> {
        to_register_disarmed(BranchFilter::ANY | rings, self.caps.filter).ok()
    }

    /// The address bits that a record holds independently of the sign's representation.
    pub(super) fn key(&self, address: u64) -> u64 {
        let narrow = self.caps.layout == Layout::Packed32 || self.caps.facility == Facility::P6;
        address & if narrow { 0xFFFF_FFFF } else { (1 << 47) - 1 }
    }

    /// The branches that a filter value records; `None` for an invalid value.
    pub(super) fn captured(&self, value: u64) -> Option<Captured> {
        from_register(value, self.caps.filter).ok()?;
        // User filters are more conservative than the manuals.
        Some(recorded_by(value, self.caps.filter))
    }

    /// The branches among these that a filter value records; `None` for an invalid value.
    pub(super) fn passing(&self, value: u64, branches: &[Known]) -> Option<Vec<Known>> {
        let captured = self.captured(value)?;
        let arch = self.caps.facility == Facility::IntelArch;
        let passes = |known: &&Known| {
            let branch = &known.like;
            let ring = if branch.cpl_after == 0 { captured.kernel } else { captured.user };
            ring && captured.classes.keeps(branch.class) && !(arch && branch.zero_length_call)
        };
        Some(branches.iter().filter(passes).copied().collect())
    }
}

/// A record that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadRecord {
    pub(super) raw: RawEntry,
    /// `None` if it is empty.
    pub(super) entry: Option<BranchEntry>,
}

/// A kernel's run and the resulting records.
pub(super) struct Filled {
    pub(super) ran: Ran,
    /// In the documented order, newest first, including empty records.
    pub(super) seen: Vec<ReadRecord>,
}

impl Filled {
    pub(super) fn entries(&self) -> impl Iterator<Item = (&ReadRecord, &BranchEntry)> {
        self.seen.iter().filter_map(|seen| Some((seen, seen.entry.as_ref()?)))
    }
}

/// Differences between recorded and expected branches.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// Expected branches without a record.
    pub(super) missing: Vec<Known>,
    /// The kernel's branches that the filter should have suppressed.
    pub(super) extra: Vec<Known>,
    /// Number of duplicate records.
    pub(super) repeated: usize,
    /// Number of records that match none of the kernel's branches.
    pub(super) unknown: usize,
}

impl Difference {
    pub(super) fn is_none(&self) -> bool {
        self.missing.is_empty() && self.extra.is_empty() && self.repeated == 0 && self.unknown == 0
    }
}

/// The CPU under test.
pub(super) struct Bench<'a> {
    pub(super) cpu: &'a mut dyn Subject,
    pub(super) facts: Facts,
    pub(super) stop: Option<&'a AtomicBool>,
    /// The registers that will be restored: no other is written.
    pub(super) allowed: Vec<Msr>,
}

impl Bench<'_> {
    fn look_up(&self) -> Result<(), RunError> {
        match self.stop {
            Some(stop) if stop.load(Ordering::Relaxed) => Err(RunError::Interrupted),
            _ => Ok(()),
        }
    }

    pub(super) fn read(&mut self, msr: Msr) -> Result<u64, RunError> {
        self.look_up()?;
        Ok(self.cpu.read(msr)?)
    }

    pub(super) fn write(&mut self, msr: Msr, value: u64) -> Result<(), RunError> {
        self.look_up()?;
        self.may_write(msr)?;
        Ok(self.cpu.write(msr, value)?)
    }

    fn may_write(&self, msr: Msr) -> Result<(), MsrError> {
        if self.allowed.contains(&msr) { Ok(()) } else { Err(MsrError::NotAllowed { msr }) }
    }

    /// Returns whether the register accepts the value. Errors other than #GP are returned.
    pub(super) fn takes(&mut self, msr: Msr, value: u64) -> Result<bool, RunError> {
        match self.write(msr, value) {
            Ok(()) => Ok(true),
            Err(RunError::Register(MsrError::Fault { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the register can be read.
    pub(super) fn exists(&mut self, msr: Msr) -> Result<bool, RunError> {
        match self.read(msr) {
            Ok(_) => Ok(true),
            Err(RunError::Register(MsrError::Fault { .. } | MsrError::Unpopulated { .. })) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the register; 0 if it does not exist.
    fn read_or_0(&mut self, msr: Option<Msr>) -> Result<Option<u64>, RunError> {
        let Some(msr) = msr else { return Ok(None) };
        match self.read(msr) {
            Ok(value) => Ok(Some(value)),
            Err(RunError::Register(MsrError::Fault { .. })) => Ok(Some(0)),
            Err(error) => Err(error),
        }
    }

    /// The records in the documented order, newest first.
    pub(super) fn ring(&mut self) -> Result<Vec<ReadRecord>, RunError> {
        let map = self.facts.caps.registers;
        self.look_up()?;
        let position = read_position(&mut *self.cpu, &self.facts.caps)?.unwrap_or(0);
        let mut seen = Vec::new();
        for index in ring_order(self.facts.caps.order, self.facts.caps.depth, position) {
            let raw = RawEntry {
                from: self.read(map.from_at(index))?,
                to: self.read_or_0(map.to_at(index))?.unwrap_or(0),
                info: self.read_or_0(map.info_at(index))?,
            };
            let entry = decode(self.facts.caps.layout, &raw);
            seen.push(ReadRecord { raw, entry });
        }
        Ok(seen)
    }

    /// Empties the records by writing 0 to each.
    pub(super) fn clear(&mut self) -> Result<(), RunError> {
        let map = self.facts.caps.registers;
        if let Some(depth) = map.depth {
            self.write(depth, u64::from(self.facts.caps.depth))?;
        }
        for index in 0..self.facts.caps.depth {
            for msr in map.record(index) {
                match self.takes(msr, 0) {
                    // Registers that do not exist need no clearing; their absence is for another
                    // check.
                    Ok(_) | Err(RunError::Register(MsrError::NotAllowed { .. })) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        match map.tos {
            Some(tos) => self.write(tos, 0),
            None => Ok(()),
        }
    }

    /// How to switch recording with this filter value on and off. Writes the filter if it has a
    /// separate register.
    pub(super) fn switch(&mut self, value: u64) -> Result<Switch, RunError> {
        let map = self.facts.caps.registers;
        let mut off = self.read(map.control)? & !map.enable;
        match map.select {
            Some(select) if select == map.control => off = value,
            Some(select) => self.write(select, value)?,
            None => {}
        }
        if self.facts.caps.order == Order::Saturating {
            off &= !BRS_STATE;
        }
        self.write(map.control, off)?;
        Ok(Switch { msr: map.control, on: off | map.enable, off })
    }

    /// Empties the records, runs a kernel with a filter value, and reads them.
    pub(super) fn fill(&mut self, kernel: Kernel, value: u64) -> Result<Filled, RunError> {
        let switch = self.switch(value)?;
        self.clear()?;
        let ran = self.run(kernel, switch)?;
        Ok(Filled { ran, seen: self.ring()? })
    }

    /// Runs a kernel.
    pub(super) fn run(&mut self, kernel: Kernel, switch: Switch) -> Result<Ran, RunError> {
        self.look_up()?;
        self.may_write(switch.msr)?;
        self.cpu.execute(kernel, switch)
    }

    /// Repeats the run until `good` accepts what `look` finds, up to the CPU's number of attempts.
    /// Returns the last run and what `look` found in it.
    pub(super) fn until<T>(
        &mut self,
        kernel: Kernel,
        value: u64,
        look: impl Fn(&Facts, &Filled) -> T,
        good: impl Fn(&T) -> bool,
    ) -> Result<(Filled, T), RunError> {
        let run = |bench: &mut Self| {
            let filled = bench.fill(kernel, value)?;
            let found = look(&bench.facts, &filled);
            Ok((filled, found))
        };
        let mut last = run(self);
        for _ in 1..self.cpu.attempts() {
            match &last {
                Ok((_, found)) if good(found) => break,
                // A transaction may abort spontaneously.
                Ok(_) | Err(RunError::Unavailable(_)) => last = run(self),
                Err(_) => break,
            }
        }
        last
    }

    /// Repeats the run until its records are as expected; returns how they differ.
    pub(super) fn compared(
        &mut self,
        kernel: Kernel,
        value: u64,
    ) -> Result<(Filled, Difference), RunError> {
        self.until(kernel, value, |facts, filled| facts.compare(filled, value), Difference::is_none)
    }

    /// Sets and clears bits of DEBUGCTL; keeps the bits of other users.
    pub(super) fn debugctl(&mut self, set: u64, clear: u64) -> Result<(), RunError> {
        let now = self.read(IA32_DEBUGCTL)?;
        self.write(IA32_DEBUGCTL, now & !clear | set)
    }
}

impl Facts {
    /// The records expected of a run with this filter value: its last branches that pass the filter
    /// (for AMD BRS: its first), limited by the depth.
    pub(super) fn wanted(&self, filled: &Filled, value: u64) -> Vec<Known> {
        let mut wanted = self.passing(value, &filled.ran.branches).unwrap_or_default();
        let depth = self.caps.depth as usize;
        if self.caps.order == Order::Saturating {
            wanted.truncate(depth);
        } else {
            wanted.drain(..wanted.len().saturating_sub(depth));
        }
        wanted
    }

    /// The run's branch that made this record, identified by its target.
    pub(super) fn branch_of<'a>(
        &self,
        filled: &'a Filled,
        entry: &BranchEntry,
    ) -> Option<&'a Known> {
        let key = self.key(entry.to);
        filled.ran.branches.iter().find(|known| known.to.is_some_and(|to| self.key(to) == key))
    }

    /// Compares actual with expected records, in any order.
    pub(super) fn compare(&self, filled: &Filled, value: u64) -> Difference {
        let captured = self.captured(value);
        let ring_0 = captured.is_some_and(|captured| captured.kernel) && filled.ran.unlisted;
        let wanted = self.wanted(filled, value);
        let mut left = wanted.clone();
        let mut difference = Difference::default();
        for (_, entry) in filled.entries() {
            match self.branch_of(filled, entry) {
                Some(known) => match left.iter().position(|wanted| wanted == known) {
                    Some(at) => {
                        left.swap_remove(at);
                    }
                    None if wanted.contains(known) => difference.repeated += 1,
                    None => difference.extra.push(*known),
                },
                // The kernel's entry and exit.
                None if filled.ran.unlisted => {}
                None => difference.unknown += 1,
            }
        }
        if !ring_0 {
            difference.missing = left.into_iter().filter(|known| known.to.is_some()).collect();
        }
        difference
    }
}
