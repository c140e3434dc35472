//! Matches functions of two builds, and decides whether their lines are comparable.
//!
//! Functions match by name. Several with one name (static functions) are distinguished by source
//! file. Inlined code counts for the function it was inlined from if the other side has that
//! function, otherwise for the function around it. Lines match within functions that have the same
//! lines on both sides. Other functions match as a whole, so that an inserted line does not make
//! every later line new.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::pairs::{Files, Used, pair};
use super::{By, FunctionKey, Resolved};
use crate::code::lines::{Frame, SourceLine};
use crate::code::maps::{Function, Location, Maps};

/// For each source file of one side, by path, the number of its pair.
pub(super) type Sources = HashMap<Arc<str>, usize>;

/// Sets lines and functions of both sides' locations. Returns the pairs of source files.
pub(super) fn name_functions(
    maps: &mut [&mut Maps; 2],
    sides: &mut [Vec<Resolved>; 2],
    by: Option<By>,
) -> [Sources; 2] {
    for (maps, side) in maps.iter_mut().zip(sides.iter_mut()) {
        for place in side.iter_mut().filter(|place| place.by != By::Offset) {
            place.line = maps.source(place.location);
            place.first = maps.source(place.start);
        }
    }
    let with_lines = with_lines(sides);
    for place in sides.iter_mut().flatten().filter(|place| place.by == By::Line) {
        if !place.pair.is_some_and(|pair| with_lines.contains(&pair)) {
            place.by = By::Function;
        }
    }
    // Function names, each with the pair of its file.
    let name = |place: &Resolved| Some((place.pair, place.name.clone()?));
    let names = sides.iter().flatten().filter_map(name).collect();
    for (maps, side) in maps.iter_mut().zip(sides.iter_mut()) {
        side.iter_mut()
            .filter(|place| place.pair.is_some_and(|pair| with_lines.contains(&pair)))
            .for_each(|place| attribute_inlined(maps, place, &names));
    }
    let sources = source_files(sides);
    let ambiguous = ambiguous(sides);
    for (side, sources) in sides.iter_mut().zip(&sources) {
        for place in side {
            let Some(name) = place.name.clone() else { continue };
            let source = || sources.get(&source_of(place)?.file).copied();
            let is_ambiguous = ambiguous.contains(&(place.pair, Arc::clone(&name)));
            let source = if is_ambiguous { source() } else { None };
            place.function = Some(FunctionKey { name, source });
        }
    }
    if by.is_none() {
        let same = same_lines(maps, sides, &sources);
        for place in sides.iter_mut().flatten().filter(|place| place.by == By::Line) {
            if !place.function.as_ref().is_some_and(|of| same.contains(&(place.pair, of.clone()))) {
                place.by = By::Function;
            }
        }
    }
    sources
}

/// Pairs of files that have lines on both sides.
fn with_lines(sides: &[Vec<Resolved>; 2]) -> HashSet<usize> {
    let [before, after] = sides.each_ref().map(|side| {
        let with = side.iter().filter(|place| place.line.is_some());
        with.filter_map(|place| place.pair).collect::<HashSet<usize>>()
    });
    &before & &after
}

/// Attributes inlined code to the innermost function that one of the sides also has out of line.
fn attribute_inlined(
    maps: &mut Maps,
    place: &mut Resolved,
    names: &HashSet<(Option<usize>, Arc<str>)>,
) {
    let frames = maps.frames(place.location);
    let Some((_, inlined)) = frames.split_last() else { return };
    let name = |frame: &Frame| {
        let key = (place.pair, frame.function.clone()?);
        names.contains(&key).then_some(key.1)
    };
    if let Some(name) = inlined.iter().find_map(name).filter(|of| Some(of) != place.name.as_ref()) {
        (place.name, place.inlined) = (Some(name), true);
    }
}

/// The line that identifies the source file of a location's function.
fn source_of(place: &Resolved) -> Option<&SourceLine> {
    if place.inlined { place.line.as_ref() } else { place.first.as_ref() }
}

/// Pairs source files of both sides.
fn source_files(sides: &[Vec<Resolved>; 2]) -> [Sources; 2] {
    let mut numbers: [HashMap<Arc<str>, usize>; 2] = Default::default();
    let mut files: [Files; 2] = Default::default();
    for ((side, numbers), files) in sides.iter().zip(&mut numbers).zip(&mut files) {
        for place in side {
            for line in [source_of(place), place.line.as_ref()].into_iter().flatten() {
                let next = numbers.len();
                let number = *numbers.entry(Arc::clone(&line.file)).or_insert(next);
                let path = || line.file.to_string();
                let used =
                    files.entry(number).or_insert_with(|| Used { path: path(), ..Used::default() });
                used.places += 1;
            }
            let number = source_of(place).and_then(|line| numbers.get(&line.file));
            if let Some(used) = number.and_then(|number| files.get_mut(number)) {
                used.functions.extend(place.name.clone());
            }
        }
    }
    let [before, after] = &files;
    let pairs = pair(before, after);
    let mut sources: [Sources; 2] = Default::default();
    for ((numbers, pairs), sources) in numbers.into_iter().zip(&pairs).zip(&mut sources) {
        let pair = |(path, number)| Some((path, *pairs.get(&number)?));
        *sources = numbers.into_iter().filter_map(pair).collect();
    }
    sources
}

/// Function names that occur in several source files of one side.
fn ambiguous(sides: &[Vec<Resolved>; 2]) -> HashSet<(Option<usize>, Arc<str>)> {
    let mut several = HashSet::new();
    for side in sides {
        let mut one: HashMap<(Option<usize>, &str), &str> = HashMap::new();
        for place in side {
            let (Some(name), Some(source)) = (&place.name, source_of(place)) else { continue };
            let file = *one.entry((place.pair, name)).or_insert(&source.file);
            if file != &*source.file {
                several.insert((place.pair, Arc::clone(name)));
            }
        }
    }
    several
}

/// The line number relative to the function's first line, if both are in one source file:
/// unaffected by changes above the function.
pub(super) fn relative(
    line: &SourceLine,
    first: Option<&SourceLine>,
    source: impl Fn(&Arc<str>) -> Option<usize>,
) -> (Option<usize>, i64) {
    let number = i64::from(line.line);
    match first.filter(|first| first.file == line.file) {
        Some(first) => (None, number - i64::from(first.line)),
        None => (source(&line.file), number),
    }
}

type Of = (Option<usize>, FunctionKey);

/// Functions with the same lines on both sides.
fn same_lines(
    maps: &mut [&mut Maps; 2],
    sides: &[Vec<Resolved>; 2],
    sources: &[Sources; 2],
) -> HashSet<Of> {
    let [before, after] = sides.each_ref().map(|side| whole_functions(side));
    let mut same = HashSet::new();
    for (of, a) in before {
        let (Some(a), Some(Some(b))) = (a, after.get(&of)) else { continue };
        let [lines_a, lines_b] = [(0, a), (1, *b)]
            .map(|(side, function)| lines_of(maps[side], function, &sources[side]));
        if lines_a == lines_b {
            same.insert(of);
        }
    }
    same
}

/// The functions of one side; `None` for functions in several parts.
fn whole_functions(side: &[Resolved]) -> HashMap<Of, Option<&Function>> {
    let mut found: HashMap<Of, Option<&Function>> = HashMap::new();
    for place in side.iter().filter(|place| place.by == By::Line) {
        let (Some(function), Some(symbol)) = (&place.function, &place.symbol) else { continue };
        let symbol = Some(symbol).filter(|_| !place.inlined);
        let known = found.entry((place.pair, function.clone())).or_insert(symbol);
        let one = |a: &Function, b: &Function| a.file == b.file && a.offsets == b.offsets;
        if !matches!((&known, symbol), (Some(a), Some(b)) if one(a, b)) {
            *known = None;
        }
    }
    found
}

fn lines_of(
    maps: &mut Maps,
    function: &Function,
    sources: &Sources,
) -> BTreeSet<(Option<usize>, i64)> {
    let start = Location::File { file: function.file, offset: function.offsets.start };
    let first = maps.source(start);
    let lines = maps.lines_within(function);
    let source = |path: &Arc<str>| sources.get(path).copied();
    lines.iter().map(|line| relative(line, first.as_ref(), source)).collect()
}
