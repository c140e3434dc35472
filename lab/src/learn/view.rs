//! A state prepared for display: the LBR stack slot by slot, the control registers bit by bit, and
//! the changes by the last step.

use lbr_msr::address::{IA32_DEBUGCTL, Msr};
use lbr_msr::caps::{Facility, LbrCaps, Order};
use lbr_msr::decode::decode;
use lbr_msr::explain::{CpuKey, Register, all, all_of};
use lbr_msr::record::{BranchEntry, RawEntry};
use lbr_msr::register::{DebugCtl, Field, PerfGlobalStatus};
use lbr_msr::snapshot::Snapshot;
use lbr_msr::soft::SoftLbr;
use lbr_msr::{MsrRead, MsrWrite};

use super::{Session, State};

/// The registers' state.
#[derive(Clone, Debug)]
pub struct View {
    /// The records, by slot number.
    pub slots: Vec<Slot>,
    /// The control registers.
    pub controls: Vec<Bits>,
    /// Recording is on.
    pub recording: bool,
}

/// A record's registers.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Slot number.
    pub index: u32,
    /// Number of newer records.
    pub age: usize,
    /// The raw register values.
    pub raw: RawEntry,
    /// The decoded record; `None` if the slot is empty.
    pub entry: Option<BranchEntry>,
    /// The last step changed it.
    pub changed: bool,
}

/// A control register.
#[derive(Clone, Debug)]
pub struct Bits {
    /// The register's description.
    pub register: Register,
    /// Its address.
    pub msr: Msr,
    /// Its value.
    pub value: u64,
    /// Bits changed by the last step.
    pub changed: u64,
    /// The single-bit fields that the course covers.
    pub fields: Vec<Field>,
}

impl View {
    /// Builds the view of a session's current state.
    pub fn of(session: &Session) -> View {
        View::after(session, session.before().map(View::alone).as_ref())
    }

    /// Builds the view of a session's current state; `before` is the view of the state before it.
    pub fn after(session: &Session, before: Option<&View>) -> View {
        let now = session.state();
        let is_same = |state: &State| state.cpu == now.cpu && state.faulty == now.faulty;
        match before.filter(|_| session.before().is_some_and(is_same)) {
            Some(before) => {
                let lbr = &mut now.lbr.clone();
                let again = |was: &Bits| {
                    let value = lbr.read(was.msr).ok()?;
                    Some(Bits { value, changed: was.value ^ value, ..was.clone() })
                };
                let controls = before.controls.iter().filter_map(again).collect();
                let mut view = View::at(now, controls, lbr);
                view.mark(before, now.cpu.caps.order);
                view
            }
            None => View::alone(now),
        }
    }

    /// Without the changes since another state.
    fn alone(state: &State) -> View {
        let lbr = &mut state.lbr.clone();
        View::at(state, controls(lbr, &state.cpu.caps), lbr)
    }

    /// `lbr` is a copy of the state's, which reading may change.
    fn at(state: &State, controls: Vec<Bits>, lbr: &mut SoftLbr) -> View {
        let caps = &state.cpu.caps;
        // A snapshot of these capabilities reads only registers that this CPU has.
        let Ok(snapshot) = Snapshot::read(lbr, caps) else {
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

    /// Marks changed slots. If a new record moves all others on, only the new one is marked.
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
    }

    /// The records, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Slot> {
        let mut slots: Vec<&Slot> = self.slots.iter().collect();
        slots.sort_by_key(|slot| slot.age);
        slots.into_iter()
    }

    /// The register and bit of a field that can be toggled.
    pub(super) fn field(lbr: &SoftLbr, caps: &LbrCaps, name: &str) -> Option<(Msr, u64)> {
        let controls = controls(&mut lbr.clone(), caps);
        controls.iter().find_map(|bits| {
            let field = bits.fields.iter().find(|field| field.name == name)?;
            Some((bits.msr, field.mask()))
        })
    }
}

/// The CPU's control registers, with the bits that the course covers.
fn controls(lbr: &mut SoftLbr, caps: &LbrCaps) -> Vec<Bits> {
    let map = &caps.registers;
    let freeze = DebugCtl::FREEZE_LBRS_ON_PMI.bits();
    // Probes which bits the register accepts.
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
    wanted.extend(caps.freeze_status().map(|(msr, _)| (msr, status)));
    wanted.extend(map.depth.into_iter().chain(map.tos).map(|msr| (msr, 0)));
    let key = CpuKey { family: caps.cpu.family, model: caps.cpu.model };
    let described = |msr: Msr| match caps.facility {
        Facility::Brbe => all().find(|register| register.address() == msr),
        _ => all_of(key).ok()?.find(|register| register.address() == msr),
    };
    let bits = |(msr, mask): (Msr, u64)| {
        let register = described(msr)?;
        let mut fields = register.fields();
        fields.retain(|field| field.mask() & mask != 0 && field.width() == 1);
        Some(Bits { register, msr, value: lbr.read(msr).ok()?, changed: 0, fields })
    };
    wanted.into_iter().filter_map(bits).collect()
}

/// Features of the course that a CPU's records lack.
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
