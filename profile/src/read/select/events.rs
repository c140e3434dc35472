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
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_modifiers() {
        let events =
            ["cycles:u", "cycles:k", "branch-misses:ppu", "cpu_core/cycles/", "cpu_core/cycles/k"];
        let events = events.map(str::to_owned);
        let meant = |name: &str| meant(&[name.to_owned()], &events).remove(0);
        assert_eq!(meant("cycles:u"), [0]);
        assert_eq!(meant("cycles"), [0, 1]);
        assert_eq!(meant("branch-misses"), [2]);
        assert_eq!(meant("cpu_core/cycles/"), [3]);
        assert_eq!(meant("cpu_core/cycles/k"), [4]);
        assert!(meant("cycle").is_empty() && meant("cycles:p").is_empty());
        let tracepoint = ["sched:sched_switch".to_owned()];
        assert!(super::meant(&["sched".to_owned()], &tracepoint).remove(0).is_empty());
        // perf-list(1).
        for modifier in "ukhIGHpPSDWebRX".chars() {
            let name = format!("cycles:{modifier}");
            assert_eq!(super::meant(&["cycles".to_owned()], &[name]), [[0]], "{modifier}");
        }
        assert!(super::meant(&["cycles".to_owned()], &["cycles:x".to_owned()])[0].is_empty());
    }
}
