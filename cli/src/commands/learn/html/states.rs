//! The states that a page can show: those that steps lead to, and those that
//! toggled bits lead to, each of them once.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::rc::Rc;

use lab::learn::{Bits, Session, View};
use lbr_msr::address::Msr;
use lbr_msr::record::RawEntry;
use serde::Serialize;

use crate::commands::learn::words;

/// The bits that can be toggled from a state. All bits at every step would lead to more states than
/// fit into a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Free {
    /// Any.
    Any,
    /// This one back; before the first step any other.
    Back(usize),
    /// Either of them back, before the first step.
    Pair(usize, usize),
    /// Any before the first step.
    First,
    /// This one back, before the first step.
    FirstBack(usize),
    /// None.
    Nothing,
}

impl Free {
    /// The toggles still allowed after one.
    fn toggled(self, bit: usize, done: usize) -> Option<Free> {
        match self {
            Free::Any => Some(Free::Back(bit)),
            Free::First => Some(Free::FirstBack(bit)),
            Free::Back(was) | Free::FirstBack(was) if was == bit => Some(Free::Nothing),
            Free::Back(was) if done == 0 => Some(Free::Pair(was.min(bit), was.max(bit))),
            Free::Pair(a, b) if a == bit || b == bit => Some(Free::Back(a + b - bit)),
            _ => None,
        }
    }

    fn stepped(self) -> Free {
        match self {
            Free::First | Free::FirstBack(_) | Free::Pair(..) => Free::Nothing,
            other => other,
        }
    }
}

/// The program's run on one CPU.
#[derive(Serialize)]
pub(super) struct Run {
    cpu: String,
    pub(super) lacks: String,
    controls: Vec<Control>,
    slots: usize,
    /// The state before the first step.
    first: usize,
}

#[derive(Serialize)]
struct Control {
    name: String,
    fields: Vec<(&'static str, u8, String, String)>,
}

/// A state, as the page takes it: `{ring}` and the like are indices.
#[derive(Serialize)]
struct Node(
    /// The ring.
    usize,
    /// The slot of the newest record.
    u32,
    /// The values of the control registers.
    usize,
    /// The next state, the kind of that step, and the slots that it changed.
    Option<(usize, usize, usize)>,
    /// A bit by its number, and the state that toggling it leads to; or below 0,
    /// the text (-1 the first) of why the CPU refuses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    Vec<(usize, isize)>,
);

/// Values that are spoken of by their number.
#[derive(Default, Serialize)]
#[serde(transparent)]
struct Numbered<T> {
    all: Vec<T>,
    #[serde(skip)]
    numbers: HashMap<T, usize>,
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    fn number(&mut self, value: T) -> usize {
        let next = self.all.len();
        *self.numbers.entry(value).or_insert_with_key(|value| {
            self.all.push(value.clone());
            next
        })
    }
}

/// All states of a lesson, for the script.
#[derive(Default, Serialize)]
pub(super) struct States {
    nodes: Vec<Node>,
    texts: Numbered<String>,
    /// FROM, TO, INFO, decoded.
    slots: Numbered<[usize; 4]>,
    /// The slots of a ring.
    rings: Numbered<Vec<usize>>,
    values: Numbered<Vec<String>>,
    marks: Numbered<Vec<u32>>,
    /// Identifies a state by its registers, steps and toggles.
    #[serde(skip)]
    known: HashMap<(u64, Free), usize>,
    #[serde(skip)]
    hasher: RandomState,
    /// The numbers of slots that were put in words already, by index and raw values.
    #[serde(skip)]
    worded: HashMap<(u32, RawEntry), usize>,
}

impl States {
    /// All states that a session's present one leads to.
    pub(super) fn run(&mut self, mut session: Session, free: Free) -> Run {
        session.begin_here();
        // Another CPU decodes them differently.
        self.worded.clear();
        let (cpu, lacks) = words::cpu(session.state());
        let view = View::of(&session);
        let control = |bits: &Bits| Control {
            name: format!("{} ({})", bits.register.name(), words::address(bits)),
            fields: bits
                .fields
                .iter()
                .map(|field| (field.name, field.low, field.meaning(field.mask()), field.meaning(0)))
                .collect(),
        };
        Run {
            cpu,
            lacks,
            controls: view.controls.iter().map(control).collect(),
            slots: view.slots.len(),
            first: self.path(session, free),
        }
    }

    /// Adds the states from the present one to the end, and those reached by toggling; returns the
    /// number of the first.
    fn path(&mut self, mut session: Session, mut free: Free) -> usize {
        let mut before: Option<(usize, Rc<View>)> = None;
        let mut first = None;
        let mut passed = Vec::new();
        loop {
            let state = self.identity(&session);
            let known = self.known(state, free);
            if let (Some(node), None) = (known, &before) {
                return node;
            }
            let view = View::after(&session, before.as_ref().map(|(_, view)| &**view));
            let text = words::last_step(&session, &view);
            session.begin_here();
            let node = known.unwrap_or_else(|| self.node(state, &session, &view, free));
            first.get_or_insert(node);
            if let Some((before, _)) = before {
                let changed = view.slots.iter().filter(|slot| slot.changed);
                let marks = self.marks.number(changed.map(|slot| slot.index).collect());
                self.nodes[before].3 = Some((node, self.texts.number(text), marks));
            }
            if known.is_some() {
                break;
            }
            let view = Rc::new(view);
            if free != Free::Nothing {
                passed.push((node, session.clone(), Rc::clone(&view), free));
            }
            before = Some((node, view));
            free = free.stepped();
            if !session.step() {
                break;
            }
        }
        // Last, so that what comes back to a state of this path finds it.
        for (node, session, view, free) in passed {
            self.nodes[node].4 = self.toggles(&session, &view, free);
        }
        first.unwrap_or(0)
    }

    fn toggles(&mut self, session: &Session, view: &View, free: Free) -> Vec<(usize, isize)> {
        let bits: Vec<(Msr, u64)> = view
            .controls
            .iter()
            .flat_map(|bits| bits.fields.iter().map(|field| (bits.msr, field.mask())))
            .collect();
        let mut toggles = Vec::new();
        for (bit, (msr, mask)) in bits.into_iter().enumerate() {
            let Some(left) = free.toggled(bit, session.state().done) else { continue };
            let mut session = session.clone();
            let to = match session.toggle(msr, mask) {
                Ok(()) => {
                    session.begin_here();
                    self.path(session, left) as isize
                }
                Err(refused) => -1 - self.texts.number(refused.to_string()) as isize,
            };
            toggles.push((bit, to));
        }
        toggles
    }

    fn identity(&self, session: &Session) -> u64 {
        let state = session.state();
        self.hasher.hash_one((state.done, &state.lbr))
    }

    /// The number of a state.
    fn known(&self, state: u64, free: Free) -> Option<usize> {
        // A bit that was toggled twice is unchanged, if nothing ran in between.
        let all = [Free::Any, Free::First, free];
        let mut known = all.iter().filter(|all| **all == free || free == Free::Nothing);
        known.find_map(|free| self.known.get(&(state, *free)).copied())
    }

    /// Adds a state; returns its number.
    fn node(&mut self, state: u64, session: &Session, view: &View, free: Free) -> usize {
        let ring = self.ring(session, view);
        let values = view.controls.iter().map(|bits| format!("{:#x}", bits.value)).collect();
        let newest = view.newest_first().next().map_or(0, |slot| slot.index);
        let node = self.nodes.len();
        self.nodes.push(Node(ring, newest, self.values.number(values), None, Vec::new()));
        self.known.insert((state, free), node);
        node
    }

    fn ring(&mut self, session: &Session, view: &View) -> usize {
        let program = &session.trace().program;
        let caps = &session.state().cpu.caps;
        let slots = view.slots.iter().map(|slot| {
            if let Some(number) = self.worded.get(&(slot.index, slot.raw)) {
                return *number;
            }
            let registers = words::registers(caps, slot);
            let mut raw = |name: &str| {
                let found = registers.iter().find(|register| register.0 == name);
                let value = found.map(|(_, _, value)| format!("{value:#x}"));
                self.texts.number(value.unwrap_or_else(|| "-".to_owned()))
            };
            let [from, to, info] = ["FROM", "TO", "INFO"].map(&mut raw);
            let decoded =
                slot.entry.map_or_else(String::new, |entry| words::record(program, &entry));
            let number = self.slots.number([from, to, info, self.texts.number(decoded)]);
            self.worded.insert((slot.index, slot.raw), number);
            number
        });
        let slots = slots.collect();
        self.rings.number(slots)
    }
}
