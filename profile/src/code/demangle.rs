//! Demangled names of symbols.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt::{self, Write};

use wildmatch::WildMatch;

/// Maximum ratio of demangled to mangled length, beyond [`ANY_LENGTH`]: compilers compress names to
/// a tenth, but a few crafted letters can expand to gigabytes.
const MAX_RATIO: usize = 32;
/// Length to which any name may be demangled.
const ANY_LENGTH: usize = 8 << 10;

/// A partially written name.
struct Written {
    text: String,
    longest: usize,
}

impl Write for Written {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if part.len() > self.longest - self.text.len() {
            return Err(fmt::Error);
        }
        self.text.push_str(part);
        Ok(())
    }
}

/// The demangled name; for Rust without its hash. A name whose demangled form is longer than any
/// compiler's stays mangled.
pub fn demangle(name: &str) -> Cow<'_, str> {
    // A stub of the procedure linkage table, of a function of this name.
    if let Some(function) = name.strip_suffix("@plt") {
        return match demangle(function) {
            Cow::Borrowed(_) => name.into(),
            Cow::Owned(function) => format!("{function}@plt").into(),
        };
    }
    let longest = ANY_LENGTH.max(name.len().saturating_mul(MAX_RATIO));
    let mut out = Written { text: String::new(), longest };
    let written = if let Ok(rust) = rustc_demangle::try_demangle(name) {
        write!(out, "{rust:#}").is_ok()
    } else {
        name.starts_with("_Z")
            && cpp_demangle::Symbol::new(name)
                .is_ok_and(|cpp| cpp.structured_demangle(&mut out, &Default::default()).is_ok())
    };
    if written { out.text.into() } else { name.into() }
}

/// How well a symbol matches a given name, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// The symbol as in the file.
    Symbol,
    /// The demangled name, with or without parameters and return type.
    Name,
    /// The name without a compiler's suffix, such as `.constprop.0` or `.cold`.
    Clone,
    /// The end of the path, without template arguments and parameters: `Vec::push` or `push` for
    /// `alloc::vec::Vec<T>::push`.
    Path,
}

/// A function's name as the user wrote it.
#[derive(Clone, Debug)]
pub struct Called<'a> {
    text: &'a str,
    path: String,
}

impl<'a> Called<'a> {
    /// Reads a name.
    pub fn new(text: &'a str) -> Called<'a> {
        let path = paths(text).into_iter().next().unwrap_or_default();
        Called { text, path }
    }

    /// How well a symbol, mangled or not, matches; `None` if it does not.
    pub fn fit(&self, symbol: &str) -> Option<Fit> {
        if symbol == self.text {
            return Some(Fit::Symbol);
        }
        let name = demangle(symbol);
        let original = without_clone(&name);
        let called = without_parameters(original);
        // The return type precedes the name.
        let is = |name: &str| {
            let before = name.strip_suffix(self.text);
            before.is_some_and(|before| before.is_empty() || before.ends_with(' '))
        };
        if *name == *self.text || is(called) && original.len() == name.len() {
            return Some(Fit::Name);
        }
        if is(called) || self.text == original || self.text == without_hash(original) {
            return Some(Fit::Clone);
        }
        let ends = |path: &String| {
            let before = path.strip_suffix(&self.path);
            before.is_some_and(|before| before.is_empty() || before.ends_with("::"))
        };
        // Arguments given by the user must match, except those of a trait's name.
        let arguments = self.text.contains('<') && !self.text.starts_with('<');
        let agrees = !arguments || self.text.contains('…') || called.ends_with(self.text);
        let fits = !self.path.is_empty() && agrees && paths(&name).iter().any(ends);
        fits.then_some(Fit::Path)
    }

    /// The most similar of these symbols, demangled, as suggestions for a mistyped name.
    pub fn nearest<'b>(&self, symbols: impl IntoIterator<Item = &'b str>) -> Vec<String> {
        /// Maximum number of suggestions.
        const OFFERED: usize = 5;
        let last = |path: &str| path.rsplit("::").next().unwrap_or(path).to_lowercase();
        let wanted = last(&self.path);
        let mut near: Vec<(Reverse<u32>, usize, String)> = Vec::new();
        for symbol in symbols {
            let name = demangle(symbol);
            let called = paths(&name).first().map(|path| last(path)).unwrap_or_default();
            let is_part = wanted.len() > 2 && called.contains(&wanted)
                || called.len() > 2 && wanted.contains(&called);
            let alike = strsim::normalized_damerau_levenshtein(&called, &wanted);
            // A third of the letters may differ.
            if !is_part && alike < 0.66 {
                continue;
            }
            let alike = (alike * 1000.0) as u32;
            let one = (Reverse(alike), name.len(), name.into_owned());
            if let Err(at) = near.binary_search(&one) {
                near.insert(at, one);
                near.truncate(OFFERED);
            }
        }
        near.into_iter().map(|(.., name)| name).collect()
    }

    /// The one function with this name. Each has its address, if that distinguishes it from others.
    ///
    /// # Errors
    /// [`NotOne`].
    pub fn one_of<'b>(
        &self,
        functions: impl Iterator<Item = (&'b str, Option<u64>)> + Clone,
    ) -> Result<(&'b str, Option<u64>), NotOne> {
        let mut nearest = Nearest::default();
        for function in functions.clone() {
            nearest.add(self.fit(function.0), || function);
        }
        let mut found = nearest.found;
        // Aliases are one function.
        found.dedup_by(|(_, a), (_, b)| a.is_some() && a == b);
        let name = self.text.to_owned();
        match found.as_slice() {
            [one] => Ok(*one),
            [] => {
                let instead = self.instead(functions.map(|(symbol, _)| symbol));
                Err(NotOne::None { name, instead })
            }
            several => {
                let one = |(symbol, address): &(&str, Option<u64>)| {
                    let at = address.map(|address| format!(" ({address:#x})"));
                    demangle(symbol).into_owned() + &at.unwrap_or_default()
                };
                Err(NotOne::Several { name, among: several.iter().map(one).collect() })
            }
        }
    }

    /// The most similar of these, for the end of an error message.
    pub(crate) fn instead<'b>(&self, symbols: impl IntoIterator<Item = &'b str>) -> String {
        match self.nearest(symbols).join(", ") {
            none if none.is_empty() => none,
            names => format!("; did you mean {names}?"),
        }
    }
}

/// Names of functions with the wildcards `*` and `?`.
#[derive(Clone, Debug)]
pub(crate) struct Pattern<'a> {
    called: Called<'a>,
    glob: Option<WildMatch>,
}

impl<'a> Pattern<'a> {
    /// Parses a pattern. Without wildcards it is a name.
    pub(crate) fn new(text: &'a str) -> Pattern<'a> {
        let glob = text.contains(['*', '?']).then(|| WildMatch::new(text));
        Pattern { called: Called::new(text), glob }
    }

    /// Whether a symbol matches: its name, or its path from any component on, without template
    /// arguments and parameters.
    pub(crate) fn is_match(&self, symbol: &str) -> bool {
        let Some(glob) = &self.glob else { return self.called.fit(symbol).is_some() };
        let name = demangle(symbol);
        let ends = |path: &String| {
            let starts = path.match_indices("::").map(|(at, _)| at + 2);
            let mut ends = starts.chain([0]).filter_map(|at| path.get(at..));
            ends.any(|end| glob.matches(end))
        };
        glob.matches(symbol) || glob.matches(&name) || paths(&name).iter().any(ends)
    }
}

/// Why a name matches no function, or several.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOne {
    /// No function has this name.
    #[error("no function {name}{instead}")]
    None {
        /// The name.
        name: String,
        /// Suggestions, as text.
        instead: String,
    },
    /// Several functions match.
    #[error("{} functions {name}: {}", among.len(), few(among))]
    Several {
        /// The name.
        name: String,
        /// Their names and addresses.
        among: Vec<String>,
    },
}

fn few(among: &[String]) -> String {
    /// Maximum number of functions in a message.
    const LISTED: usize = 8;
    let listed = among.get(..LISTED.min(among.len())).unwrap_or_default().join(", ");
    match among.len() - LISTED.min(among.len()) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

/// Collects the best matches.
#[derive(Debug, Default)]
pub(crate) struct Nearest<T> {
    fit: Option<Fit>,
    /// All items with the best fit.
    pub(crate) found: Vec<T>,
}

impl<T> Nearest<T> {
    /// Adds a candidate.
    pub(crate) fn add(&mut self, fit: Option<Fit>, what: impl FnOnce() -> T) {
        let Some(fit) = fit.filter(|fit| self.fit.is_none_or(|best| *fit <= best)) else { return };
        if self.fit != Some(fit) {
            self.found.clear();
        }
        self.fit = Some(fit);
        self.found.push(what());
    }
}

/// A name without compilers' suffixes: `.constprop.0`, `.isra.0`, `.part.0`, `.cold`, ` [clone
/// .cold]`.
pub(crate) fn without_clone(name: &str) -> &str {
    const MARKS: [&str; 11] = [
        "constprop",
        "isra",
        "part",
        "cold",
        "llvm",
        "lto_priv",
        "localalias",
        "resume",
        "destroy",
        "cleanup",
        "warm",
    ];
    let mut name = name;
    while let Some((rest, _)) = name.strip_suffix(']').and_then(|name| name.rsplit_once(" [clone "))
    {
        name = rest;
    }
    while let Some((rest, mark)) = name.rsplit_once('.')
        && !rest.is_empty()
        && (MARKS.contains(&mark)
            || !mark.is_empty() && mark.bytes().all(|digit| digit.is_ascii_digit()))
    {
        name = rest;
    }
    name
}

/// A name without its parameters and the text after them.
fn without_parameters(name: &str) -> &str {
    let mut end = name.len();
    groups(name, |start, _| {
        if name.get(..start).is_some_and(|head| head.ends_with('(')) {
            end = start - 1;
        }
    });
    name.get(..end).unwrap_or(name)
}

/// A Rust name without its hash, which some recorders print.
fn without_hash(name: &str) -> &str {
    match name.rsplit_once("::h") {
        Some((rest, hash)) if hash.len() == 16 && hash.bytes().all(|c| c.is_ascii_hexdigit()) => {
            rest
        }
        _ => name,
    }
}

/// The path of a function, without template arguments, parameters and return type. `<A as B>::f` is
/// both `A::f` and `B::f`.
fn paths(name: &str) -> Vec<String> {
    let name = without_hash(without_clone(name.trim()));
    let mut end_of_self = None;
    if name.starts_with('<') {
        groups(name, |start, end| {
            if start == 1 {
                end_of_self = Some(end);
            }
        });
    }
    if let Some(end) = end_of_self {
        let inside = name.get(1..end).unwrap_or_default();
        let rest = bare(name.get(end + 1..).unwrap_or_default());
        let types = inside.split(" as ");
        return types.flat_map(paths).map(|of| of + &rest).collect();
    }
    vec![bare(name)]
}

/// A path without bracketed parts, and without the text before and after it.
fn bare(name: &str) -> String {
    let name = name.replace("(anonymous namespace)::", "").replace("[abi:cxx11]", "");
    let (mut path, mut from) = (String::new(), 0);
    groups(&name, |start, end| {
        let before = name.get(from..start - 1).unwrap_or_default();
        path += before.strip_prefix(" const").unwrap_or(before);
        from = end + 1;
    });
    let tail = name.get(from..).unwrap_or_default();
    if from == 0 || tail.starts_with("::") || tail.starts_with('{') {
        path += tail;
    }
    let path = path.replace("::::", "::");
    let path = path.trim_end_matches(':').trim();
    // The return type precedes the path, unless spaces are part of the name.
    let name_at = path.find("operator").unwrap_or(path.len());
    let start = path.get(..name_at).and_then(|head| head.rfind(' ')).map_or(0, |at| at + 1);
    path.get(start..).unwrap_or(path).to_owned()
}

/// Calls `found` with the start and end of each outermost `<…>` and `(…)`. The brackets of
/// `operator<`, `operator()`, `->` and `(anonymous namespace)` do not count.
pub fn groups(name: &str, mut found: impl FnMut(usize, usize)) {
    let mut open: Vec<(char, usize)> = Vec::new();
    let mut skip = 0;
    for (at, c) in name.char_indices() {
        if at < skip {
            continue;
        }
        let before = name.get(..at).unwrap_or_default();
        let rest = name.get(at..).unwrap_or_default();
        if before.ends_with("operator") {
            let signs = rest.find(|c| !matches!(c, '<' | '>' | '=' | '-' | '(' | ')'));
            let signs = rest.get(..signs.unwrap_or(rest.len())).unwrap_or_default();
            // Template arguments directly follow `operator<`.
            let own = ["()", "<=>", "<<=", ">>=", "<<", ">>", "->", "<=", ">=", "<", ">"];
            skip = at + own.iter().find(|own| signs.starts_with(**own)).map_or(0, |own| own.len());
            continue;
        }
        match c {
            '<' | '(' => open.push((c, at + 1)),
            '>' if before.ends_with('-') => {}
            '>' | ')' => {
                let mate = if c == '>' { '<' } else { '(' };
                if let Some(at_mate) = open.iter().rposition(|(c, _)| *c == mate) {
                    let (_, start) = open.swap_remove(at_mate);
                    open.truncate(at_mate);
                    if open.is_empty() && name.get(start..at) != Some("anonymous namespace") {
                        found(start, at);
                    }
                }
            }
            _ => {}
        }
    }
}
