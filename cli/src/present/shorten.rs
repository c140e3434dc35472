//! Shortens long names: first the least informative parts of C++ and Rust names, then the middle.

use std::collections::HashSet;

use profile::symbols::groups;

use super::number::grouped;
use super::out::{cells, cells_of};

/// Maximum number of suggestions.
const OFFERED: usize = 8;

/// The first few names, each once.
pub(crate) fn offered(names: Vec<String>) -> String {
    let mut known = HashSet::new();
    let mut once: Vec<String> =
        names.into_iter().filter(|name| known.insert(name.clone())).collect();
    let more = once.len().saturating_sub(OFFERED);
    once.truncate(OFFERED);
    let more = if more > 0 { format!(" and {} more", grouped(more as u64)) } else { String::new() };
    once.join(", ") + &more
}

/// A name in `room` cells. Text in angle brackets and parentheses is shortened first, the longest
/// first, then leading folders, namespaces and modules, then the middle of the rest.
pub(crate) fn shortened(name: &str, room: usize) -> String {
    if cells(name) <= room {
        return name.to_owned();
    }
    let mut name = name.to_owned();
    while let Some((start, end)) = longest_group(&name) {
        // In `<A as B>::f` the last names of both say most.
        let inside = name.get(start..end).unwrap_or_default();
        let brief = match inside.split_once(" as ").filter(|_| start == 1) {
            Some((one, other)) => format!("{} as {}", last(one), last(other)),
            None => String::new(),
        };
        let brief = if brief.is_empty() || cells(&brief) >= cells(inside) { "…" } else { &brief };
        name.replace_range(start..end, brief);
        if cells(&name) <= room {
            return name;
        }
    }
    while let Some(at) = first_separator(&name) {
        let rest = name.get(at..).unwrap_or_default().trim_start_matches("::").to_owned();
        let shown = format!("…::{rest}");
        if cells(&shown) <= room {
            return shown;
        }
        name = rest;
    }
    without_middle(&name, room)
}

/// A text without its middle.
pub(crate) fn without_middle(text: &str, room: usize) -> String {
    if cells(text) <= room {
        return text.to_owned();
    }
    let room = room.saturating_sub(1);
    let mut used = 0;
    let mut fits = |c: &char, room: usize| {
        let fits = used + cells_of(*c) <= room;
        used += if fits { cells_of(*c) } else { 0 };
        fits
    };
    let head: String = text.chars().take_while(|c| fits(c, room - room / 2)).collect();
    let tail: Vec<char> = text.chars().rev().take_while(|c| fits(c, room)).collect();
    head + "…" + &String::from_iter(tail.iter().rev())
}

/// The last part of a path, without a suffix in brackets.
fn last(path: &str) -> &str {
    let bare = path.split(['<', '(']).next().filter(|bare| !bare.is_empty()).unwrap_or(path);
    bare.rsplit("::").next().unwrap_or(bare)
}

/// The longest text between brackets, if it is longer than an ellipsis.
fn longest_group(name: &str) -> Option<(usize, usize)> {
    let mut longest: Option<(usize, usize)> = None;
    groups(name, |start, end| {
        let inside = name.get(start..end).unwrap_or_default();
        let known = longest.map_or(1, |(start, end)| end - start);
        if inside.len() > known && inside != "…" && !is_brief(inside) {
            longest = Some((start, end));
        }
    });
    longest
}

/// `<A as B>` was made brief already.
fn is_brief(inside: &str) -> bool {
    inside.split_once(" as ").is_some_and(|(one, other)| last(one) == one && last(other) == other)
}

/// The end of the first part of a path, outside of brackets.
fn first_separator(name: &str) -> Option<usize> {
    let mut inside = Vec::new();
    groups(name, |start, end| inside.push(start..end));
    name.match_indices("::")
        .map(|(at, _)| at)
        .find(|at| *at > 0 && at + 2 < name.len() && !inside.iter().any(|group| group.contains(at)))
}

#[cfg(test)]
#[path = "../../../tests/cli/unit/present/shorten.rs"]
mod tests;
