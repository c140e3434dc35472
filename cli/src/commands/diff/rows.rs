//! The rows of some files and functions.

use profile::compare::Row;
use profile::maps::{LocationFilter, Maps};

use super::{Names, is_loop};
use crate::exit::Failure;
use crate::select::RowArgs;

/// Drops rows of files and functions that were not requested. `files` are the pairs of files that
/// both sides have: the name of either selects both.
pub(super) fn keep(
    shown: &RowArgs,
    rows: &mut Vec<Row>,
    names: &mut Names,
    files: &[[String; 2]],
) -> Result<(), Failure> {
    if !shown.any() {
        return Ok(());
    }
    let sides = on_each_side(shown, &names.branches, files);
    let mut within = |side: usize, loops: bool| {
        let of = |row: &Row| if side == 0 { row.before.clone() } else { row.after.clone() };
        let places = rows.iter().filter(|row| is_loop(row) == loops).filter_map(of);
        let maps = if loops { &mut names.loops } else { &mut names.branches };
        let (Some(maps), Some(shown)) = (maps.get_mut(side), sides.get(side)) else {
            return Ok(None);
        };
        shown.places(maps, places.map(|place| (place.location, place.count)))
    };
    let branches = [within(0, false), within(1, false)];
    let heads = [within(0, true).ok().flatten(), within(1, true).ok().flatten()];
    // One side lacks places that are gone or new.
    let branches = match branches {
        [Err(error), Err(_)] => return Err(error),
        sides => sides.map(|side| side.ok().flatten()),
    };
    rows.retain(|row| {
        let within = if is_loop(row) { &heads } else { &branches };
        within.iter().zip([&row.before, &row.after]).any(|(within, side)| {
            matches!((within, side), (Some(within), Some(side)) if within.has(side.location))
        })
    });
    Ok(())
}

/// The requested rows, by the names of each side's files.
fn on_each_side(shown: &RowArgs, maps: &[Maps; 2], files: &[[String; 2]]) -> [RowArgs; 2] {
    let named = |side: usize, name: &String| {
        let maps = &maps[side];
        let within = LocationFilter::files(maps, std::slice::from_ref(name));
        let named = maps.files().filter(|file| within.has_file(*file));
        named.filter_map(|file| maps.path(file)).map(str::to_owned).collect::<Vec<_>>()
    };
    [0, 1].map(|side| {
        let other = 1 - side;
        let mut names: Vec<String> = Vec::new();
        for name in shown.files() {
            if LocationFilter::files(&maps[side], std::slice::from_ref(name)).missing().is_empty() {
                names.push(name.clone());
            }
            let there = named(other, name);
            let pairs = files.iter().filter(|pair| there.contains(&pair[other]));
            names.extend(pairs.map(|pair| pair[side].clone()));
        }
        // A name that neither side has is an error, which needs the name.
        shown.with_files(if names.is_empty() { shown.files().to_vec() } else { names })
    })
}
