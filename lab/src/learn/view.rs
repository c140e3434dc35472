//! A state as it is shown: the ring slot by slot, the control registers bit by
//! bit, and what the last step changed of them.

use lbr_msr::address::{IA32_DEBUGCTL, Msr};
use lbr_msr::caps::{LbrCaps, Order};
use lbr_msr::decode::decode;
use lbr_msr::explain::{CpuKey, Register, all_of};
use lbr_msr::record::{BranchEntry, RawEntry};
use lbr_msr::register::{DebugCtl, Field, PerfGlobalStatus};
use lbr_msr::snapshot::Snapshot;
use lbr_msr::soft::SoftLbr;
use lbr_msr::{MsrRead, MsrWrite};

use super::{Session, State};

/// A state of the registers.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The records, by slot.
    pub slots: Vec<Slot>,
    /// The control registers.
    pub controls: Vec<Bits>,
    /// Branches are recorded now.
    pub recording: bool,
}

/// A record's registers.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Its number.
    pub index: u32,
    /// How many records are newer.
    pub age: usize,
    /// What its registers hold.
    pub raw: RawEntry,
    /// What that means; `None` where it holds no record.
    pub entry: Option<BranchEntry>,
    /// The last step changed it.
    pub changed: bool,
}

/// A control register.
#[derive(Clone, Debug)]
pub struct Bits {
    /// What manuals say of it.
    pub register: Register,
    /// Its address.
    pub msr: Msr,
    /// Its value.
    pub value: u64,
    /// The bits that the last step changed.
    pub changed: u64,
    /// The fields of one bit that the course is about.
    pub fields: Vec<Field>,
}

impl PartialEq for Bits {
    fn eq(&self, other: &Bits) -> bool {
        (self.msr, self.value, self.changed) == (other.msr, other.value, other.changed)
    }
}

impl View {
    /// The present state of a session.
    #[must_use]
    pub fn of(session: &Session) -> View {
        let mut view = View::at(&mut session.state().clone());
        let before = session.before().filter(|before| {
            let now = session.state();
            before.cpu == now.cpu && before.faulty == now.faulty
        });
        if let Some(before) = before {
            view.mark(&View::at(&mut before.clone()), session.state().cpu.caps.order);
        }
        view
    }

    fn at(state: &mut State) -> View {
        let caps = &state.cpu.caps;
        let controls = controls(&mut state.lbr, caps);
        // The registers that a snapshot reads are those of the CPU that it is of.
        let Ok(snapshot) = Snapshot::read(&mut state.lbr, caps) else {
            return View { slots: Vec::new(), controls, recording: false };
        };
        let slot = |(age, (index, raw)): (usize, &(u32, RawEntry))| Slot {
            index: *index,
            age,
            raw: *raw,
            entry: decode(caps.layout, raw),
            changed: false,
        };
        let mut slots: Vec<Slot> = snapshot.records.iter().enumerate().map(slot).collect();
        slots.sort_by_key(|slot| slot.index);
        View { slots, controls, recording: snapshot.recording }
    }

    /// Marks what is not as it was. Where records move on to make room for a new
    /// one, that one alone is.
    fn mark(&mut self, before: &View, order: Order) {
        let raw = |view: &View| view.slots.iter().map(|slot| slot.raw).collect::<Vec<_>>();
        let (old, new) = (raw(before), raw(self));
        let moved = order == Order::NewestFirst
            && old.len() == new.len()
            && old != new
            && new.iter().skip(1).eq(old.iter().take(old.len().saturating_sub(1)));
        for (at, slot) in self.slots.iter_mut().enumerate() {
            slot.changed = if moved { at == 0 } else { old.get(at) != Some(&slot.raw) };
        }
        for bits in &mut self.controls {
            let was = before.controls.iter().find(|was| was.msr == bits.msr);
            bits.changed = was.map_or(0, |was| was.value ^ bits.value);
        }
    }

    /// The records, the newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Slot> {
        let mut slots: Vec<&Slot> = self.slots.iter().collect();
        slots.sort_by_key(|slot| slot.age);
        slots.into_iter()
    }

    /// The register and the bit of a field that can be toggled.
    pub(super) fn field(lbr: &SoftLbr, caps: &LbrCaps, name: &str) -> Option<(Msr, u64)> {
        let controls = controls(&mut lbr.clone(), caps);
        controls.iter().find_map(|bits| {
            let field = bits.fields.iter().find(|field| field.name == name)?;
            Some((bits.msr, field.mask()))
        })
    }
}

/// The control registers that a CPU has, with the bits that the course is about.
fn controls(lbr: &mut SoftLbr, caps: &LbrCaps) -> Vec<Bits> {
    let map = &caps.registers;
    let freeze = DebugCtl::FREEZE_LBRS_ON_PMI.bits();
    // What a register takes is what it does not refuse.
    let freezes = {
        let mut tried = lbr.clone();
        let value = tried.read(IA32_DEBUGCTL).unwrap_or(0);
        tried.write(IA32_DEBUGCTL, value | freeze).is_ok()
    };
    let freeze = if freezes { freeze } else { 0 };
    let of_control = |msr: Msr| {
        let enable = if msr == map.control { map.enable } else { 0 };
        let filter = if Some(msr) == map.select { caps.filter.writable() } else { 0 };
        enable | filter | if msr == IA32_DEBUGCTL { freeze } else { 0 }
    };
    let status = PerfGlobalStatus::LBR_FRZ.bits();
    let mut wanted: Vec<(Msr, u64)> = vec![(map.control, of_control(map.control))];
    for msr in [Some(IA32_DEBUGCTL), map.select].into_iter().flatten() {
        if msr != map.control && of_control(msr) != 0 {
            wanted.push((msr, of_control(msr)));
        }
    }
    wanted.extend(caps.freeze_status().map(|msr| (msr, status)));
    wanted.extend(map.depth.into_iter().chain(map.tos).map(|msr| (msr, 0)));
    let key = CpuKey { family: caps.cpu.family, model: caps.cpu.model };
    let described: Vec<Register> = all_of(key).into_iter().flatten().collect();
    let bits = |(msr, mask): (Msr, u64)| {
        let register = *described.iter().find(|register| register.msr() == Some(msr))?;
        let mut fields = register.fields();
        fields.retain(|field| field.mask() & mask != 0 && field.width() == 1);
        Some(Bits { register, msr, value: lbr.read(msr).ok()?, changed: 0, fields })
    };
    wanted.into_iter().filter_map(bits).collect()
}

/// What the records of a CPU lack, of all that the course shows.
#[must_use]
pub fn lacks(caps: &LbrCaps) -> Vec<&'static str> {
    let has = [
        (caps.mispredict(), "mispredict flags"),
        (caps.cycles(), "cycle counts"),
        (caps.tsx(), "transaction flags"),
        (caps.types(), "branch types"),
        (caps.call_stack(), "call-stack mode"),
        (caps.registers.select.is_some(), "filter"),
        (caps.order == Order::Tos, "TOS (record 0 is the newest)"),
    ];
    has.into_iter().filter(|(has, _)| !has).map(|(_, what)| what).collect()
}
