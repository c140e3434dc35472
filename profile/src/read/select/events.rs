//! Selects events by name.

use crate::texts::Texts;

/// For each wanted name, the indices of the matching events.
pub(super) fn meant(wanted: &[String], events: &[String]) -> Vec<Vec<usize>> {
    let all = |is: &dyn Fn(&str) -> bool| {
        events.iter().enumerate().filter(|(_, name)| is(name)).map(|(at, _)| at).collect()
    };
    let of = |wanted: &String| {
        let exact: Vec<usize> = all(&|name| name == wanted);
        if exact.is_empty() { all(&|name| without_modifiers(name) == wanted) } else { exact }
    };
    wanted.iter().map(of).collect()
}

/// `cycles` of `cycles:u`, `cpu_core/cycles/` of `cpu_core/cycles/u`.
fn without_modifiers(name: &str) -> &str {
    /// Every modifier of perf (`perf list --help`).
    const MODIFIERS: &[u8] = b"ukhIGHpPSDWebRX";
    let is_modifiers = |text: &str| text.bytes().all(|byte| MODIFIERS.contains(&byte));
    if let Some(at) = name.rfind('/') {
        return name.get(..=at).unwrap_or(name);
    }
    match name.rsplit_once(':') {
        // A tracepoint's name contains a colon: sched:sched_switch.
        Some((base, modifiers)) if is_modifiers(modifiers) => base,
        _ => name,
    }
}

/// Maximum number of names in a text; further ones are ignored.
const MOST: usize = 1 << 12;

/// Distinct names of a text, numbered from 1. Number 0 means no name.
#[derive(Debug, Default)]
pub(crate) struct Interned {
    names: Texts,
    last: usize,
}

impl Interned {
    /// The number of a name; 0 for an empty one.
    pub(crate) fn number(&mut self, name: &str) -> usize {
        if name.is_empty() {
            return 0;
        }
        if self.get(self.last) != Some(name) {
            let known = match self.names.find(name) {
                None if self.names.len() < MOST => self.names.number(name),
                known => known,
            };
            self.last = known.map_or(0, |known| known as usize + 1);
        }
        self.last
    }

    /// The name with a number.
    pub(crate) fn get(&self, number: usize) -> Option<&str> {
        self.names.get(u32::try_from(number.checked_sub(1)?).ok()?)
    }

    /// The names by number; the first is empty.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once("").chain(self.names.iter())
    }

    /// The highest number.
    pub(crate) fn highest(&self) -> usize {
        self.names.len()
    }
}

#[cfg(test)]
#[path = "../../../../tests/profile/unit/read/select/events.rs"]
mod tests;
