//! Questions, and their answers as the ring has them.

use lbr_msr::record::BranchEntry;

use super::{Lesson, Session, Slot, View};

/// What is asked at the end of a lesson.
#[derive(Debug)]
pub struct Question {
    /// The question.
    pub ask: &'static str,
    /// Fields of control registers that are toggled before the program runs.
    pub toggle: &'static [&'static str],
    /// What the answer is read from, once the program has run.
    pub of: Asked,
    /// Why it is so.
    pub why: &'static str,
}

/// What a ring can be asked for.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    /// How many records it holds.
    Records,
    /// How many whose branch stands at this name.
    From(&'static str),
    /// How many that start or end in the kernel.
    Kernel,
    /// How many with the mispredict flag.
    Mispredicted,
    /// How many of a transaction, its abort included.
    InTransaction,
    /// The slot of the newest.
    NewestSlot,
    /// Where the newest came from.
    NewestFrom,
    /// Where the oldest came from.
    OldestFrom,
    /// The cycles of the newest.
    NewestCycles,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A number.
    Number(u64),
    /// An address in the program.
    Address(u64),
    /// The ring has none.
    Nothing,
}

impl Question {
    /// The answer: the lesson's program runs on its CPU, and the ring is read.
    #[must_use]
    pub fn answer(&self, lesson: &Lesson) -> Answer {
        let Some(mut session) = Session::of(lesson) else { return Answer::Nothing };
        for name in self.toggle {
            // A test holds that every name is one of that CPU.
            let _ = session.toggle_named(name);
        }
        while session.step() {}
        self.of.read(&session)
    }
}

impl Asked {
    /// The answer as a session's ring has it.
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
            Asked::Records => count(&|_| true),
            Asked::From(name) => {
                let place = session.trace().program.address_of(name);
                count(&|entry| Some(entry.from) == place)
            }
            Asked::Kernel => count(&|entry| is_kernel(entry.from) || is_kernel(entry.to)),
            Asked::Mispredicted => count(&|entry| entry.mispredicted == Some(true)),
            Asked::InTransaction => count(&|entry| entry.in_tx == Some(true)),
            Asked::NewestSlot => number(records.first().map(|(slot, _)| u64::from(slot.index))),
            Asked::NewestFrom => address(records.first()),
            Asked::OldestFrom => address(records.last()),
            Asked::NewestCycles => {
                number(records.first().and_then(|(_, entry)| entry.cycles.map(u64::from)))
            }
        }
    }
}

impl Answer {
    /// Whether somebody typed this answer: a number in decimal or, with `0x`, in
    /// hexadecimal; an address also by its name.
    #[must_use]
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

    /// The answer in words.
    #[must_use]
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
