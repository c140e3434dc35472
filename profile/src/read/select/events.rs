//! Selects events by name.

use std::collections::HashMap;

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
    const MODIFIERS: &[u8] = b"ukhIGHpPSDWeb";
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

/// Distinct names of a text. Number 0 means no name.
#[derive(Debug, Default)]
pub(crate) struct Interned {
    names: Vec<String>,
    numbers: HashMap<String, usize>,
    last: usize,
    /// The counts of no name, and of each.
    of_none: u64,
    of_each: Vec<u64>,
}

impl Interned {
    /// The number of a name; 0 for an empty one.
    pub(crate) fn number(&mut self, name: &str) -> usize {
        if name.is_empty() {
            return 0;
        }
        if self.get(self.last) == Some(name) {
            return self.last;
        }
        self.last = match self.numbers.get(name) {
            Some(number) => *number,
            None if self.names.len() < MOST => {
                self.names.push(name.to_owned());
                self.numbers.insert(name.to_owned(), self.names.len());
                self.names.len()
            }
            None => 0,
        };
        self.last
    }

    /// The name with a number.
    pub(crate) fn get(&self, number: usize) -> Option<&str> {
        self.names.get(number.checked_sub(1)?).map(String::as_str)
    }

    /// Adds to the count of event `number`.
    #[inline]
    pub(crate) fn count(&mut self, number: usize, times: u64) {
        let Some(at) = number.checked_sub(1) else {
            self.of_none = self.of_none.saturating_add(times);
            return;
        };
        if self.of_each.len() <= at {
            self.of_each.resize(self.names.len(), 0);
        }
        let each = self.of_each.get_mut(at).into_iter();
        each.for_each(|count| *count = count.saturating_add(times));
    }

    /// The count of a number.
    pub(crate) fn counted(&self, number: usize) -> u64 {
        let of = |at: usize| self.of_each.get(at).copied().unwrap_or(0);
        number.checked_sub(1).map_or(self.of_none, of)
    }

    /// The names, starting with number 1.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
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
    }
}
