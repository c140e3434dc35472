//! Which places of two recordings are the same.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::{Row, Side};
use crate::code::lines::SourceLine;
use crate::code::maps::{Location, Maps};

/// By what places are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// The function; where no symbol covers a place, its file.
    Function,
    /// The function and the line in it, where both sides have lines; else the
    /// function.
    Line,
    /// The byte of the file; what was recorded by name, the byte of the
    /// function; what lies in no file, the address.
    Offset,
}

/// Places of both sides as rows.
#[derive(Clone, Debug)]
pub(super) struct Matched {
    /// Without what was measured.
    pub(super) rows: Vec<Row>,
    /// By side, the row of each place.
    of_place: [Vec<u32>; 2],
}

impl Matched {
    pub(super) fn of_place(&self, side: usize) -> &[u32] {
        self.of_place.get(side).map_or(&[], |rows| rows)
    }
}

/// What is the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    by: By,
    /// Of files that are one; `None` in no file.
    file: Option<usize>,
    function: Option<Arc<str>>,
    /// The file that the line stands in, without its folders, and how many lines
    /// behind the function's first; of another file, as that counts.
    line: Option<(String, i64)>,
    offset: Option<u64>,
}

/// A place, as its own recording tells it.
struct Resolved {
    location: Location,
    addr: u64,
    file: Option<usize>,
    function: Option<Arc<str>>,
    /// Where the function begins.
    start: Location,
}

/// A file that places lie in.
#[derive(Debug, Default)]
struct Used {
    path: String,
    build_id: Option<Vec<u8>>,
    places: usize,
    functions: BTreeSet<Arc<str>>,
}

/// Makes rows of the places of two sides, each with the address that it was
/// recorded with.
pub(super) fn match_places(
    mut maps: [&mut Maps; 2],
    places: &[Vec<(Location, u64)>; 2],
    by: Option<By>,
) -> Matched {
    let mut resolved: Vec<Vec<Resolved>> = Vec::new();
    for (maps, places) in maps.iter_mut().zip(places) {
        resolved.push(places.iter().map(|place| resolve(maps, *place)).collect());
    }
    let used: Vec<BTreeMap<usize, Used>> =
        maps.iter().zip(&resolved).map(|(maps, resolved)| files(maps, resolved)).collect();
    let pairs = pair_files(&used);
    let builds = builds(&used, &pairs);
    let mut rows = Matched { rows: Vec::new(), of_place: Default::default() };
    let mut index: HashMap<Key, u32> = HashMap::new();
    // By pair of files, the sides that have lines.
    let mut lines: HashMap<usize, [bool; 2]> = HashMap::new();
    let mut by_place: Vec<Vec<(By, Option<usize>)>> = Vec::new();
    for (side, resolved) in resolved.iter().enumerate() {
        let pair = |place: &Resolved| pairs.get(side)?.get(&place.file?).copied();
        let by_of = |place: &Resolved| match (by, pair(place)) {
            (Some(by), _) => by,
            // Without names an offset is all there is, unless it means nothing.
            (None, Some(pair)) => match builds.get(&pair) {
                Some(true) => By::Offset,
                None if place.function.is_none() => By::Offset,
                _ => By::Line,
            },
            (None, None) if place.function.is_some() => By::Function,
            (None, _) => By::Offset,
        };
        by_place.push(resolved.iter().map(|place| (by_of(place), pair(place))).collect());
    }
    for (side, maps) in maps.iter_mut().enumerate() {
        let (Some(resolved), Some(by_place)) = (resolved.get(side), by_place.get(side)) else {
            continue;
        };
        let by_line = || resolved.iter().zip(by_place).filter(|(_, (by, _))| *by == By::Line);
        maps.look_up_lines(by_line().flat_map(|(place, _)| [place.location, place.start]));
        for (place, (_, pair)) in by_line() {
            let Some(has) = pair.and_then(|pair| lines.entry(pair).or_default().get_mut(side))
            else {
                continue;
            };
            *has = *has || maps.source(place.location).is_some();
        }
    }
    for (side, maps) in maps.iter_mut().enumerate() {
        let (Some(resolved), Some(by_place)) = (resolved.get(side), by_place.get(side)) else {
            continue;
        };
        for (place, (by, pair)) in resolved.iter().zip(by_place) {
            let with_lines = pair.is_some_and(|pair| lines.get(&pair) == Some(&[true; 2]));
            let by = if *by == By::Line && !with_lines { By::Function } else { *by };
            let (key, line) = key(maps, place, by, *pair);
            let next = rows.rows.len() as u32;
            let at = *index.entry(key).or_insert(next);
            if at == next {
                rows.rows.push(Row { by, before: None, after: None, changes: Vec::new() });
            }
            if let Some(of) = rows.of_place.get_mut(side) {
                of.push(at);
            }
            let Some(row) = rows.rows.get_mut(at as usize) else { continue };
            let of = if side == 0 { &mut row.before } else { &mut row.after };
            of.get_or_insert_with(|| Side {
                location: place.location,
                addr: place.addr,
                file: place.file.and_then(|file| maps.path(file)).map(str::to_owned),
                function: place.function.as_deref().map(str::to_owned),
                line,
                count: 0,
            });
        }
    }
    rows
}

fn resolve(maps: &mut Maps, (location, addr): (Location, u64)) -> Resolved {
    let file = location.file();
    let (function, start) = match maps.function(location) {
        Some(function) => {
            let offset = function.offsets.start;
            (Some(function.name.into()), Location::File { file: function.file, offset })
        }
        None => (maps.name(location).map(|named| named.name.into()), location),
    };
    Resolved { location, addr, file, function, start }
}

fn key(
    maps: &mut Maps,
    place: &Resolved,
    by: By,
    file: Option<usize>,
) -> (Key, Option<SourceLine>) {
    let function = place.function.clone();
    let key = Key { by, file, function, line: None, offset: None };
    match by {
        By::Offset => {
            let offset = match place.location {
                Location::Address(addr) => addr,
                location @ Location::File { offset, .. } => {
                    maps.key(location).map_or(offset, |(_, _, within)| within)
                }
            };
            // Bytes of a file are what they are, whatever a symbol table calls them.
            let function = key.function.filter(|_| maps.is_named(place.location));
            (Key { offset: Some(offset), function, ..key }, None)
        }
        By::Function => (key, None),
        By::Line => {
            let line = maps.source(place.location);
            let first = maps.source(place.start);
            let counted = line.as_ref().map(|line| {
                let number = i64::from(line.line);
                let first = first.filter(|first| first.file == line.file);
                let name = line.file_name().to_owned();
                (name, first.map_or(number, |first| number - i64::from(first.line)))
            });
            (Key { line: counted, ..key }, line)
        }
    }
}

fn files(maps: &Maps, resolved: &[Resolved]) -> BTreeMap<usize, Used> {
    let mut files: BTreeMap<usize, Used> = BTreeMap::new();
    for place in resolved {
        let Some(file) = place.file else { continue };
        let used = files.entry(file).or_insert_with(|| Used {
            path: maps.path(file).unwrap_or_default().to_owned(),
            build_id: maps.build_id(file).map(<[u8]>::to_vec),
            ..Used::default()
        });
        used.places += 1;
        used.functions.extend(place.function.clone());
    }
    files
}

/// By side and file the number of what both sides have it as: first those of one
/// build id, then of one path, then of one name; at last, of files whose names
/// differ, those that share most functions.
fn pair_files(used: &[BTreeMap<usize, Used>]) -> [BTreeMap<usize, usize>; 2] {
    let mut pairs: [BTreeMap<usize, usize>; 2] = Default::default();
    let [before, after] = used else { return pairs };
    type Key = fn(&Used) -> Option<&[u8]>;
    let keys: [Key; 3] = [
        |of| of.build_id.as_deref(),
        |of| Some(of.path.as_bytes()),
        |of| of.path.as_bytes().rsplit(|byte| *byte == b'/').next(),
    ];
    let mut order: Vec<(usize, &Used)> = before.iter().map(|(file, of)| (*file, of)).collect();
    order.sort_by_key(|(_, of)| std::cmp::Reverse(of.places));
    let mut next = 0;
    let mut pair = |file, other, pairs: &mut [BTreeMap<usize, usize>; 2]| {
        pairs[0].insert(file, next);
        pairs[1].insert(other, next);
        next += 1;
    };
    for key in keys {
        let free = after.iter().filter(|(other, _)| !pairs[1].contains_key(*other));
        let mut free: HashMap<&[u8], usize> =
            free.filter_map(|(other, of)| Some((key(of)?, *other))).collect();
        for (file, of) in &order {
            if !pairs[0].contains_key(file)
                && let Some(other) = key(of).and_then(|key| free.remove(key))
            {
                pair(*file, other, &mut pairs);
            }
        }
    }
    let mut having: HashMap<&str, Vec<usize>> = HashMap::new();
    for (other, of) in after.iter().filter(|(other, _)| !pairs[1].contains_key(*other)) {
        of.functions.iter().for_each(|name| having.entry(name).or_default().push(*other));
    }
    for (file, of) in order {
        if pairs[0].contains_key(&file) {
            continue;
        }
        let mut shared: BTreeMap<usize, usize> = BTreeMap::new();
        for other in of.functions.iter().filter_map(|name| having.get(&**name)).flatten() {
            *shared.entry(*other).or_default() += 1;
        }
        let free = shared.into_iter().filter(|(other, _)| !pairs[1].contains_key(other));
        if let Some((other, _)) = free.max_by_key(|(_, functions)| *functions) {
            pair(file, other, &mut pairs);
        }
    }
    for (pairs, used) in pairs.iter_mut().zip(used) {
        for file in used.keys() {
            pairs.entry(*file).or_insert_with(|| {
                next += 1;
                next - 1
            });
        }
    }
    pairs
}

/// Whether pairs of files are one build, where both sides say it.
fn builds(
    used: &[BTreeMap<usize, Used>],
    pairs: &[BTreeMap<usize, usize>; 2],
) -> HashMap<usize, bool> {
    let mut ids: HashMap<usize, Vec<&[u8]>> = HashMap::new();
    for (used, pairs) in used.iter().zip(pairs) {
        for (file, of) in used {
            if let (Some(pair), Some(id)) = (pairs.get(file), &of.build_id) {
                ids.entry(*pair).or_default().push(id);
            }
        }
    }
    let both = ids.into_iter().filter(|(_, ids)| ids.len() == 2);
    both.map(|(pair, ids)| (pair, ids.first() == ids.last())).collect()
}
