//! Questions, answered from the LBR stack.

use lbr_msr::record::BranchEntry;

use super::{Lesson, Session, Slot, View};

/// A question at the end of a lesson.
#[derive(Debug)]
pub struct Question {
    /// Its text.
    pub ask: &'static str,
    /// Control register fields that are toggled before the program runs.
    pub toggle: &'static [&'static str],
    /// The property of the LBR stack that answers it, once the program has run.
    pub of: StackProperty,
    /// Explains the answer.
    pub why: &'static str,
}

/// A property of the LBR stack.
#[derive(Clone, Copy, Debug)]
pub enum StackProperty {
    /// Number of records.
    Records,
    /// Number of records whose FROM is this label.
    From(&'static str),
    /// Number of records that start or end in the kernel.
    Kernel,
    /// Number of records with the mispredict flag.
    Mispredicted,
    /// Number of records in a transaction, its abort included.
    InTransaction,
    /// The newest record's slot.
    NewestSlot,
    /// The newest record's FROM.
    NewestFrom,
    /// The oldest record's FROM.
    OldestFrom,
    /// The newest record's cycles.
    NewestCycles,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A number.
    Number(u64),
    /// An address in the program.
    Address(u64),
    /// The LBR stack is empty.
    Nothing,
}

impl Question {
    /// Answers the question: runs the lesson's program on its CPU, and reads the LBR stack.
    pub fn answer(&self, lesson: &Lesson) -> Answer {
        let Some(mut session) = Session::of(lesson) else { return Answer::Nothing };
        for name in self.toggle {
            // A test checks that this CPU has every field.
            let _ = session.toggle_named(name);
        }
        while session.step() {}
        self.of.read(&session)
    }
}

impl StackProperty {
    /// Reads the answer from a session's LBR stack.
    #[must_use]
    pub fn read(self, session: &Session) -> Answer {
        let view = View::of(session);
        let records: Vec<(&Slot, BranchEntry)> =
            view.newest_first().filter_map(|slot| Some((slot, slot.entry?))).collect();
        let count = |holds: &dyn Fn(&BranchEntry) -> bool| {
            Answer::Number(records.iter().filter(|(_, entry)| holds(entry)).count() as u64)
        };
        let number = |number: Option<u64>| number.map_or(Answer::Nothing, Answer::Number);
        let address = |record: Option<&(&Slot, BranchEntry)>| {
            record.map_or(Answer::Nothing, |(_, entry)| Answer::Address(entry.from))
        };
        let is_kernel = |address: u64| address >> 63 != 0;
        match self {
            StackProperty::Records => count(&|_| true),
            StackProperty::From(name) => {
                let place = session.trace().program.address_of(name);
                count(&|entry| Some(entry.from) == place)
            }
            StackProperty::Kernel => count(&|entry| is_kernel(entry.from) || is_kernel(entry.to)),
            StackProperty::Mispredicted => count(&|entry| entry.mispredicted == Some(true)),
            StackProperty::InTransaction => count(&|entry| entry.in_tx == Some(true)),
            StackProperty::NewestSlot => {
                number(records.first().map(|(slot, _)| u64::from(slot.index)))
            }
            StackProperty::NewestFrom => address(records.first()),
            StackProperty::OldestFrom => address(records.last()),
            StackProperty::NewestCycles => {
                number(records.first().and_then(|(_, entry)| entry.cycles.map(u64::from)))
            }
        }
    }
}

impl Answer {
    /// Returns whether the user typed this answer: a number in decimal or, with `0x`, in
    /// hexadecimal; an address may also be given as a label.
    pub fn is(self, typed: &str, session: &Session) -> bool {
        let typed = typed.trim();
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        match self {
            Answer::Number(number) => {
                let value = match typed.strip_prefix("0x") {
                    Some(digits) => hex(digits),
                    None => typed.parse().ok(),
                };
                value == Some(number)
            }
            Answer::Address(address) => {
                let program = &session.trace().program;
                hex(typed.strip_prefix("0x").unwrap_or(typed)) == Some(address)
                    || program.name(address).as_deref() == Some(typed)
            }
            Answer::Nothing => ["none", "nothing", "-"].contains(&typed),
        }
    }

    /// Formats the answer.
    pub fn words(self, session: &Session) -> String {
        match self {
            Answer::Number(number) => number.to_string(),
            Answer::Address(address) => match session.trace().program.name(address) {
                Some(name) => format!("{name} ({address:#x})"),
                None => format!("{address:#x}"),
            },
            Answer::Nothing => "none".to_owned(),
        }
    }
}
