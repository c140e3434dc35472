//! Suggestions for mistyped register names.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use super::{Entry, Variant};

/// The name without its prefix `MSR_` or `IA32_`.
pub(super) fn bare(name: &str) -> &str {
    name.strip_prefix("MSR_").or_else(|| name.strip_prefix("IA32_")).unwrap_or(name)
}

/// Whether `asked` (upper case, without prefix) matches `template`, and the index in place of
/// `{n}`, if any.
pub(super) fn index_in(template: &str, asked: &str) -> Option<Option<u32>> {
    let template = template.to_ascii_uppercase();
    let template = bare(&template);
    let Some((before, after)) = template.split_once("{N}") else {
        return (template == asked).then_some(None);
    };
    let index = asked.strip_prefix(before)?.strip_suffix(after)?;
    if index.is_empty() || !index.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    index.parse().ok().map(Some)
}

/// The names most similar to `asked`, best first, at most three.
pub(super) fn names(asked: &str, all: impl Iterator<Item = &'static str>) -> Vec<String> {
    // Limits the cost for very long input.
    let asked: String = bare(&asked.to_ascii_uppercase()).chars().take(64).collect();
    let digits: String = asked.chars().filter(char::is_ascii_digit).take(2).collect();
    let index = if digits.is_empty() { "0" } else { &digits };
    let length = asked.chars().count();
    let slips = |name: &str| (bare(name).len() / 3).max(1);
    let mut scored: Vec<(usize, String)> = all
        .map(|name| name.replace("{n}", index))
        // Each additional letter is one edit.
        .filter(|name| bare(name).len().abs_diff(length) <= slips(name))
        .filter_map(|name| {
            Some((distance(&asked, bare(&name.to_ascii_uppercase()), slips(&name))?, name))
        })
        .collect();
    scored.sort();
    let mut near: Vec<String> = Vec::new();
    for (_, name) in scored {
        if near.len() < 3 && !near.iter().any(|other| bare(other) == bare(&name)) {
            near.push(name);
        }
    }
    near
}

/// The single register with nearly all words of `asked` in its names, CPUs or summary; if there is
/// not exactly one, the names that contain all words.
pub(super) fn by_words(
    asked: &str,
    all: impl Iterator<Item = (&'static Entry, &'static Variant)>,
) -> Result<String, Vec<String>> {
    let asked: String = asked.chars().take(64).collect();
    let words = words(&asked);
    let letters: usize = words.iter().map(String::len).sum();
    let index: String = asked.chars().rev().take_while(char::is_ascii_digit).collect();
    let index: String = index.chars().rev().take(2).collect();
    let index = if index.is_empty() { "0" } else { &index };
    let (mut best, mut alone) = ((0, ""), false);
    let mut near: Vec<String> = Vec::new();
    for (entry, variant) in all {
        let names = entry.names().collect::<Vec<_>>().join(" ").to_lowercase();
        let purpose = format!("{names} {} {}", variant.cpus, entry.summary).to_lowercase();
        let held = |text: &str| words.iter().filter(|w| text.contains(*w)).map(String::len).sum();
        let score: usize = held(&purpose);
        if score > best.0 {
            (best, alone) = ((score, entry.name), true);
        } else if score == best.0 && entry.name != best.1 {
            alone = false;
        }
        let named: usize = held(&names);
        let name = entry.name.replace("{n}", index);
        if letters > 0 && named == letters && !near.contains(&name) {
            near.push(name);
        }
    }
    // At least four fifths of the letters match: manuals word the rest differently.
    if alone && near.is_empty() && best.0 * 5 >= letters * 4 && words.len() > 2 {
        return Ok(best.1.replace("{n}", index));
    }
    Err(near)
}

/// The words of a name in lower case: `LbrExtV2BranchFromIp0` gives lbr, ext, branch, from, ip.
/// Single letters and numbers do not count.
fn words(name: &str) -> Vec<String> {
    let mut words = alloc::vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        if !c.is_alphabetic() || before.is_lowercase() && c.is_uppercase() {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphabetic(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| word.chars().count() > 1);
    words
}

/// The suggestion at the end of an unknown-name message.
pub(super) fn suggestion(near: &[String]) -> String {
    match near {
        [] => "".to_string(),
        near => format!("; did you mean {}?", near.join(", ")),
    }
}

/// Levenshtein distance; `None` if it exceeds `most`.
fn distance(a: &str, b: &str, most: usize) -> Option<usize> {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, y) in row.iter_mut().skip(1).zip(b.chars()) {
            let replaced = diagonal + usize::from(x != y);
            diagonal = *cell;
            left = replaced.min(diagonal + 1).min(left + 1);
            *cell = left;
        }
        // The minimum of a row never falls in later rows.
        if row.iter().all(|cell| *cell > most) {
            return None;
        }
    }
    row.last().copied().filter(|distance| *distance <= most)
}

#[cfg(test)]
#[path = "../../../tests/lbr_msr/unit/explain/near.rs"]
mod tests;
