//! Matches the locations of two recordings.

mod functions;
mod pairs;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::{Row, Side};
use crate::code::demangle::without_clone;
use crate::code::lines::SourceLine;
use crate::code::maps::{Function, Location, Maps};
use functions::name_functions;
use pairs::{Files, Pairs, Used, pair};

/// How locations are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// By function; without a symbol, by file.
    Function,
    /// By function and line in it, if both sides have lines; else by function.
    Line,
    /// By file offset. Locations recorded by symbol: by offset in the function; outside of files:
    /// by address.
    Offset,
}

/// The locations of both sides, matched to rows.
#[derive(Clone, Debug)]
pub(super) struct Matched {
    /// Rows without any measures.
    pub(super) rows: Vec<Row>,
    /// For each side, the row of each location.
    pub(super) of_place: [Vec<u32>; 2],
    /// Paths of the matched files.
    pub(super) files: Vec<[String; 2]>,
}

/// Identifies a row: all locations with an equal key belong to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RowKey {
    by: By,
    /// The number of its file pair; `None` outside of files.
    file: Option<usize>,
    function: Option<FunctionKey>,
    /// The line number relative to the function's first line or, in another source file, the number
    /// of that file's pair and the line number.
    line: Option<(Option<usize>, i64)>,
    offset: Option<u64>,
}

/// A function that exists on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FunctionKey {
    name: Arc<str>,
    /// The pair of its source files, if the name is ambiguous.
    source: Option<usize>,
}

/// A location with its symbol and line.
struct Resolved {
    location: Location,
    addr: u64,
    /// Its file's index, and the number of that file's pair.
    file: Option<usize>,
    pair: Option<usize>,
    symbol: Option<Function>,
    /// The symbol's name without compiler suffixes, for matching.
    name: Option<Arc<str>>,
    /// The code was inlined from the function of this name.
    inlined: bool,
    /// The function's start.
    start: Location,
    by: By,
    line: Option<SourceLine>,
    /// The function's first line.
    first: Option<SourceLine>,
    function: Option<FunctionKey>,
}

/// The kind of locations to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Places {
    /// Branches: several of one function may share a row.
    Branches,
    /// Loop heads: each has its own row.
    Loops,
}

/// Matches the locations of two sides, each given with its recorded address.
pub(super) fn match_places(
    mut maps: [&mut Maps; 2],
    places: &[Vec<(Location, u64)>; 2],
    by: Option<By>,
    what: Places,
) -> Matched {
    let mut sides: [Vec<Resolved>; 2] = Default::default();
    for ((maps, places), side) in maps.iter_mut().zip(places).zip(&mut sides) {
        side.extend(places.iter().map(|place| resolve(maps, *place)));
    }
    let used = [0, 1].map(|side| files(maps[side], &sides[side]));
    let [before, after] = &used;
    let pairs = pair(before, after);
    choose(&mut sides, &used, &pairs, by);
    let sources = name_functions(&mut maps, &mut sides, by);
    let ordinals = (what == Places::Loops).then(|| ordinals(&sides));
    let files = on_both(&used, &pairs).into_values().map(|both| both.map(|of| of.path.clone()));
    let (rows, files) = (Vec::new(), files.collect());
    let mut matched = Matched { rows, of_place: Default::default(), files };
    let mut index: HashMap<RowKey, u32> = HashMap::new();
    for (side, (maps, resolved)) in maps.iter_mut().zip(&sides).enumerate() {
        for (at, place) in resolved.iter().enumerate() {
            let mut key = key(maps, place, &sources[side]);
            if let (Some(ordinals), By::Function) = (&ordinals, place.by) {
                key.offset = Some(ordinals[side][at]);
            }
            let next = matched.rows.len() as u32;
            let at = *index.entry(key).or_insert(next);
            if at == next {
                let changes = Vec::new();
                matched.rows.push(Row { by: place.by, before: None, after: None, changes });
            }
            matched.of_place[side].push(at);
            let row = &mut matched.rows[at as usize];
            let of = if side == 0 { &mut row.before } else { &mut row.after };
            of.get_or_insert_with(|| place.side(maps));
        }
    }
    matched
}

impl Resolved {
    fn side(&self, maps: &Maps) -> Side {
        let symbol = self.symbol.as_ref().map(|symbol| symbol.name.as_str());
        let name = self.name.as_deref();
        let function = if self.inlined { name } else { symbol.or(name) };
        Side {
            location: self.location,
            addr: self.addr,
            file: self.file.and_then(|file| maps.path(file)).map(str::to_owned),
            function: function.map(str::to_owned),
            line: self.line.clone().filter(|_| self.by == By::Line),
            count: 0,
        }
    }
}

fn resolve(maps: &mut Maps, (location, addr): (Location, u64)) -> Resolved {
    let symbol = maps.function(location);
    let start = symbol.as_ref().map_or(location, |function| Location::File {
        file: function.file,
        offset: function.offsets.start,
    });
    let name = match &symbol {
        Some(function) => Some(without_clone(&function.name).into()),
        None => maps.name(location).map(|named| without_clone(&named.name).into()),
    };
    Resolved {
        location,
        addr,
        file: location.file(),
        pair: None,
        symbol,
        name,
        inlined: false,
        start,
        by: By::Offset,
        line: None,
        first: None,
        function: None,
    }
}

/// Decides how each location is matched.
fn choose(sides: &mut [Vec<Resolved>; 2], used: &[Files; 2], pairs: &Pairs, by: Option<By>) {
    let builds = builds(used, pairs);
    let nameless = nameless(used, pairs);
    for (side, pairs) in sides.iter_mut().zip(pairs) {
        for place in side {
            place.pair = place.file.and_then(|file| pairs.get(&file)).copied();
            place.by = match (by, place.pair) {
                (Some(by), _) => by,
                // Without names only the offset remains, which is meaningless across builds.
                (None, Some(pair)) => match builds.get(&pair) {
                    Some(true) => By::Offset,
                    None if place.name.is_none() => By::Offset,
                    _ => By::Line,
                },
                (None, None) if place.name.is_some() => By::Function,
                (None, None) => By::Offset,
            };
            if place.by != By::Offset && place.pair.is_some_and(|pair| nameless.contains(&pair)) {
                (place.by, place.name) = (By::Function, None);
            }
        }
    }
}

/// Pairs of files where only one side has names: its functions would seem to be new.
fn nameless(used: &[Files; 2], pairs: &Pairs) -> HashSet<usize> {
    let both = on_both(used, pairs).into_iter();
    let one = both.filter(|(_, [a, b])| a.functions.is_empty() != b.functions.is_empty());
    one.map(|(pair, _)| pair).collect()
}

/// The index of each location among those of its function, in address order. If the two sides have
/// different numbers of them, the indices differ on purpose.
fn ordinals(sides: &[Vec<Resolved>; 2]) -> [Vec<u64>; 2] {
    let of = |place: &Resolved| (place.pair, place.function.clone());
    let mut counts: [HashMap<_, u64>; 2] = Default::default();
    let mut ordinals = [0, 1].map(|side: usize| vec![0; sides[side].len()]);
    for ((side, counts), ordinals) in sides.iter().zip(&mut counts).zip(&mut ordinals) {
        let mut order: Vec<usize> = (0..side.len()).collect();
        order.sort_by_key(|at| side[*at].addr);
        for at in order {
            let count = counts.entry(of(&side[at])).or_default();
            ordinals[at] = *count;
            *count += 1;
        }
    }
    let [before, after] = &counts;
    for (number, (side, ordinals)) in sides.iter().zip(&mut ordinals).enumerate() {
        for (place, ordinal) in side.iter().zip(ordinals) {
            let key = of(place);
            if before.get(&key) != after.get(&key) {
                *ordinal = *ordinal * 2 + number as u64 + (1 << 32);
            }
        }
    }
    ordinals
}

fn key(maps: &Maps, place: &Resolved, sources: &functions::Sources) -> RowKey {
    let mut key = RowKey {
        by: place.by,
        file: place.pair,
        function: place.function.clone(),
        line: None,
        offset: None,
    };
    match place.by {
        By::Offset => {
            let named = maps.key(place.location).map(|(_, _, within)| within);
            key.offset = Some(named.unwrap_or(place.location.position()));
            // File offsets match whatever the symbol tables contain.
            key.function = key.function.filter(|_| maps.is_named(place.location));
        }
        By::Function => {}
        By::Line => {
            let source = |path: &Arc<str>| sources.get(path).copied();
            let relative = |line| functions::relative(line, place.first.as_ref(), source);
            key.line = place.line.as_ref().map(relative);
        }
    }
    key
}

fn files(maps: &Maps, resolved: &[Resolved]) -> Files {
    let mut files = Files::new();
    for place in resolved {
        let Some(file) = place.file else { continue };
        let used = files.entry(file).or_insert_with(|| Used {
            path: maps.path(file).unwrap_or_default().to_owned(),
            build_id: maps.build_id(file).map(<[u8]>::to_vec),
            ..Used::default()
        });
        used.places += 1;
        used.functions.extend(place.name.clone());
    }
    files
}

/// The files of each pair, on both sides.
fn on_both<'a>(used: &'a [Files; 2], pairs: &Pairs) -> BTreeMap<usize, [&'a Used; 2]> {
    let [before, after] = used;
    let [of_before, of_after] = pairs;
    let files: HashMap<usize, &Used> =
        of_after.iter().filter_map(|(file, pair)| Some((*pair, after.get(file)?))).collect();
    let both =
        |(file, pair): (&usize, &usize)| Some((*pair, [before.get(file)?, *files.get(pair)?]));
    of_before.iter().filter_map(both).collect()
}

/// Whether each pair is a single build. Without build ids, different names are different builds;
/// for equal names it is unknown (absent).
fn builds(used: &[Files; 2], pairs: &Pairs) -> HashMap<usize, bool> {
    let of = |(pair, [a, b]): (usize, [&Used; 2])| match (&a.build_id, &b.build_id) {
        (Some(a), Some(b)) => Some((pair, a == b)),
        _ if a.path.rsplit('/').next() != b.path.rsplit('/').next() => Some((pair, false)),
        _ => None,
    };
    on_both(used, pairs).into_iter().filter_map(of).collect()
}
