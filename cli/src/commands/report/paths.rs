//! The view `paths`: chains of blocks that usually run in sequence, their share of execution, and
//! where they break.

use std::io;

use profile::maps::{LocationFilter, Maps};
use profile::paths::{Break, FOLLOWERS, Follower, LEAST, Link, Path, Paths};

use serde_json::{Value, json};

use super::{Report, Sort, View, print_hidden};
use crate::exit::Result;
use crate::head::{self, Notes, Totals, quality_json, without};
use crate::input::{Count, Recordings, Source};
use crate::present::{
    Cell, Out, Part, Place, Printer, Ranked, Table, counted, grouped, joined, json, part, percent,
    share,
};

pub(super) const VIEW: View = View {
    name: "paths",
    about: "Chains of blocks that run one after the other most of the time, how much of the program \
            runs in them, and where they break",
    sorts: &[Sort::Count],
    run,
    section: None,
};

/// Default number of chains.
const CHAINS: usize = 10;
/// Followers that a line names.
const NAMED: usize = 3;

/// The branches of chains.
pub(crate) fn table<'a>() -> Table<'a, Maps, Ranked<'a, Link>> {
    Table::<Maps, Ranked<'_, Link>>::new()
        .number("count", " ", |_, (_, link)| Cell::Count(link.count))
        .only("entered", |_, (_, link)| Cell::Count(link.entered))
        .only("left", |_, (_, link)| Cell::Count(link.left))
        .only("lost", |_, (_, link)| Cell::Count(link.lost))
        .location("from", " ", Part::NAMES, |(_, link)| (link.from_location, link.from))
        .place("to", " ", Part::NAMES, |maps, (_, link)| {
            let to = Place::of(maps, link.to_location, link.to);
            Some(to.reached_from(maps, link.from_location))
        })
        .behind(" -> ")
        .word("", "notes", |_, (_, link)| {
            let notes = [("entered", link.entered), ("left", link.left), ("lost", link.lost)];
            let notes = notes.into_iter().filter(|(_, count)| *count > 0);
            let notes = notes.map(|(what, count)| format!("{what} {}", grouped(count)));
            Cell::Word(joined(notes, ", ").into())
        })
}

/// The same for rows of several chains.
pub(crate) fn ranked<'a>() -> Table<'a, Maps, Ranked<'a, Link>> {
    table().number("rank", "chain", |_, (at, _)| Cell::Number(*at as u64 + 1))
}

fn run(args: &Report, out: &mut Out<'_>) -> Result {
    let recordings = Recordings::once(args.inputs.paths(), args.reading())?;
    let (mut paths, sources) = recordings.paths()?;
    let totals = Totals::of(paths.taken, paths.distinct);
    let printer = args.printer();
    let text = printer == Printer::Text;
    let rows = if args.limit.is_none() && text { CHAINS } else { args.rows() };
    let list = std::mem::take(&mut paths.paths);
    let links = list.iter().flat_map(|path| &path.links);
    let places = links.map(|link| (link.from_location, link.count));
    let within = args.shown().places(&mut paths.maps, places)?;
    // A chain belongs to every file that it passes through.
    let is_listed = |path: &Path| {
        let has =
            |within: &LocationFilter| path.links.iter().any(|link| within.has(link.from_location));
        within.as_ref().is_none_or(has)
    };
    // Chains refer to others by rank among all.
    let mut covered = 0u64;
    let numbered = list.iter().enumerate().map(|(at, path)| {
        covered = covered.saturating_add(path.branches);
        (at, path, covered)
    });
    let listed: Vec<(usize, &Path, u64)> =
        numbered.filter(|(_, path, _)| is_listed(path)).collect();
    let selected = within.is_some().then(|| {
        let count =
            listed.iter().fold(0, |sum: u64, (_, path, _)| sum.saturating_add(path.branches));
        args.shown().rows("branches", (count, paths.taken), (listed.len(), list.len()))
    });
    let shown = listed.get(..rows.min(listed.len())).unwrap_or_default();
    if text {
        out.lines(&head::lines(&sources, &paths.quality, &totals, notes(&paths), args.verbose))?;
        if args.verbose {
            print_bounds(out, &paths)?;
        }
        if let Some(rows) = &selected {
            out.line(rows.line())?;
        }
    }
    if printer == Printer::Csv {
        let rows = shown.iter().flat_map(|(at, path, _)| path.links.iter().map(|link| (*at, link)));
        out.modelled = Source::any_models_fields(&sources);
        ranked().write_csv(out, &mut paths.maps, rows)?;
        return args.end(out, Value::Null, None, (&sources, &paths.maps));
    }
    for (at, path, covered) in shown {
        if text {
            print_path(out, &mut paths, path, at + 1, *covered)?;
        } else {
            json::value(out, &row_json(&mut paths, path, at + 1, *covered))?;
        }
    }
    if text {
        out.gap()?;
        print_hidden(out, listed.len(), shown.len(), ("chain", "chains"))?;
    }
    let mut totals = quality_json(&sources, &paths.quality, &totals);
    totals["complete"] = json!(paths.complete);
    totals["stacks_filtered"] = json!(paths.filtered);
    totals["chains"] = json!(list.len());
    totals["followers_kept"] = json!(FOLLOWERS);
    totals["branches_with_more_followers"] = json!(paths.crowded);
    totals["min_probability"] = json!(LEAST);
    args.end(out, totals, selected.as_ref(), (&sources, &paths.maps))
}

fn notes(paths: &Paths) -> Notes {
    Notes {
        trust: paths.complete.then(|| "complete: every taken branch".to_owned()),
        unusual: without(paths.filtered, "paths"),
    }
}

fn print_bounds(out: &mut Out<'_>, paths: &Paths) -> io::Result<()> {
    out.line(format_args!(
        "a chain goes on while the next branch follows with at least {}; {FOLLOWERS} followers \
         of each branch are kept, {} more",
        percent(LEAST),
        counted(paths.crowded, "branch has", "branches have"),
    ))
}

fn print_path(
    out: &mut Out<'_>,
    paths: &mut Paths,
    path: &Path,
    rank: usize,
    covered: u64,
) -> io::Result<()> {
    let entered = path.links.iter().fold(0, |sum: u64, link| sum.saturating_add(link.entered));
    out.gap()?;
    out.line(format_args!(
        "chain {rank}: {} long, {} of all branches ({} up to here), {} of the code bytes; \
         entered {}, {} from end to end",
        counted(path.links.len() as u64, "branch", "branches"),
        part(path.branches, paths.taken),
        part(covered, paths.taken),
        part(path.bytes, paths.bytes),
        counted(entered, "time", "times"),
        counted(path.whole, "run", "runs"),
    ))?;
    let (table, rows) = (table(), path.links.iter().map(|link| (rank, link)));
    let layout = table.layout(out, &mut paths.maps, rows.clone(), 2);
    for row in rows {
        table.write_row(&layout, out, &mut paths.maps, &row)?;
    }
    let end = end(paths, path);
    out.line(format_args!("  ends: {end}"))
}

/// Why a chain ends, in words.
fn end(paths: &mut Paths, path: &Path) -> String {
    match &path.ends {
        Break::Call => "in a call".to_owned(),
        Break::Return => "in a return".to_owned(),
        Break::Round => "goes round: its first branch follows".to_owned(),
        Break::Joins { chain, at } => {
            format!("goes on in chain {} at its branch {}", chain + 1, at + 1)
        }
        Break::Long => "as long as chains get".to_owned(),
        Break::Unknown => "its successors were not recorded".to_owned(),
        Break::Splits { followers, exact } => {
            let mut words = Vec::new();
            for follower in followers.iter().take(NAMED) {
                let Some((from, to)) = ends(paths, follower) else { continue };
                let least = if *exact { "" } else { "at least " };
                words.push(format!("{least}{} {from} -> {to}", percent(follower.share)));
            }
            let more = followers.len().saturating_sub(NAMED);
            if more > 0 {
                words.push(format!("{more} more"));
            }
            format!("no branch follows often enough: {}", words.join(", "))
        }
    }
}

/// The ends of a possible next branch.
fn ends(paths: &mut Paths, follower: &Follower) -> Option<(Place, Place)> {
    let (from, from_location, to, to_location) = paths.follower(follower)?;
    let from = Place::of(&mut paths.maps, from_location, from);
    Some((from, Place::of(&mut paths.maps, to_location, to)))
}

fn row_json(paths: &mut Paths, path: &Path, rank: usize, covered: u64) -> Value {
    let table = table();
    let links = path.links.iter().map(|link| table.object(&mut paths.maps, &(rank, link)));
    let links: Vec<Value> = links.collect();
    let mut followers = None;
    let mut exact_shares = None;
    if let Break::Splits { followers: after, exact } = &path.ends {
        exact_shares = Some(*exact);
        let after = after.iter().filter_map(|follower| {
            let (from, to) = ends(paths, follower)?;
            let mut row = json!({ "share": follower.share });
            for (key, place) in [("from", from), ("to", to)] {
                place.put_json(&mut row, key, Part::NAMES);
            }
            Some(row)
        });
        followers = Some(after.collect::<Vec<Value>>());
    }
    let joins = match path.ends {
        Break::Joins { chain, at } => Some(json!({ "rank": chain + 1, "branch": at + 1 })),
        _ => None,
    };
    json!({
        "view": "paths",
        "rank": rank,
        "length": path.links.len(),
        "branches": path.branches,
        "share": share(path.branches, paths.taken),
        "cumulative_share": share(covered, paths.taken),
        "bytes_share": share(path.bytes, paths.bytes),
        "whole": path.whole,
        "links": links,
        "ends": path.ends.name(),
        "joins": joins,
        "followers": followers,
        "follower_shares_exact": exact_shares,
    })
}
