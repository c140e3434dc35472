//! `lbr report --view paths`.

use std::io::Write;

use clap::Args;
use profile::paths::{Break, FOLLOWERS, Growth, Link, Path, PathFinder, Paths};
use profile::select::Dsos;
use serde_json::{Value, json};

use super::{Report, Totals, percent, share};
use crate::exit::{DONE, Outcome};
use crate::input::Reread;
use crate::present::number::{counted, grouped};

/// Chains where nobody says how many.
const CHAINS: usize = 10;
/// Followers that a line names.
const NAMED: usize = 3;

/// How chains grow.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "View paths")]
pub(super) struct PathOptions {
    /// Probability in percent that a branch must follow with to go on in the
    /// same chain [default: 60].
    #[arg(long, value_name = "PERCENT")]
    min_probability: Option<f64>,
    /// Let chains go on through calls and returns.
    #[arg(long)]
    cross_calls: bool,
}

impl PathOptions {
    /// Whether any of them was asked for.
    pub(super) fn any(&self) -> bool {
        self.min_probability.is_some() || self.cross_calls
    }
}

/// Runs the view.
pub(super) fn run(args: &Report) -> Outcome {
    let mut growth = Growth { cross_calls: args.paths.cross_calls, ..Growth::default() };
    if let Some(percent) = args.paths.min_probability {
        if !(percent > 0.0 && percent <= 100.0) {
            return super::usage("--min-probability is a percentage: more than 0, at most 100");
        }
        growth.least = percent / 100.0;
    }
    let recordings = Reread::new(&args.input, &args.select.selection())?;
    let (finder, _) = PathFinder::find_all(|read| recordings.read(read))?;
    let (mut paths, sources) = finder.count_all(growth, |read| recordings.read(read))?;
    args.symbols.apply(&mut paths.maps);
    let totals =
        Totals { branches: paths.taken, distinct: paths.distinct, known: 0, mispredicted: None };
    let rows = if args.limit.is_none() && !args.json { CHAINS } else { args.rows() };
    let list = std::mem::take(&mut paths.paths);
    let links = list.iter().flat_map(|path| &path.links);
    let places = links.map(|link| (link.from_location, link.count));
    let dsos = args.dso.files(&paths.maps, places)?;
    // A chain is of every file that it leads through. Chains name others by
    // rank: it stays that among all.
    let is_listed = |path: &Path| {
        let has = |dsos: &Dsos| path.links.iter().any(|link| dsos.has(link.from_location));
        dsos.as_ref().is_none_or(has)
    };
    let listed: Vec<usize> =
        list.iter().enumerate().filter(|(_, path)| is_listed(path)).map(|(at, _)| at).collect();
    let of_dso = dsos.is_some().then(|| {
        let all = listed.iter().filter_map(|at| list.get(*at));
        let count = all.fold(0, |sum: u64, path| sum.saturating_add(path.branches));
        args.dso.rows("branches", (count, paths.taken), (listed.len(), list.len()))
    });
    let shown = rows.min(listed.len());
    let mut out = super::stdout(args.json);
    if !args.json {
        super::print_recordings(&mut out, &sources, &paths.quality)?;
        super::print_counts(&mut out, &paths.quality, &totals)?;
        print_bounds(&mut out, &paths)?;
        if let Some(rows) = &of_dso {
            writeln!(out, "{}", rows.line())?;
        }
    }
    let last = listed.iter().take(shown).next_back().map_or(0, |at| at + 1);
    let mut covered = 0u64;
    for (rank, path) in list.iter().take(last).enumerate() {
        covered = covered.saturating_add(path.branches);
        if !is_listed(path) {
            continue;
        }
        if args.json {
            let row = row_json(&mut paths, path, rank + 1, covered);
            super::print_json(&mut out, &row)?;
        } else {
            print_path(&mut out, &mut paths, path, rank + 1, covered)?;
        }
    }
    if args.json {
        let mut quality = super::quality_json(&sources, &paths.quality, &totals);
        for key in ["mispredicted", "predictions_known"] {
            quality.as_object_mut().map(|quality| quality.remove(key));
        }
        quality["complete"] = json!(paths.complete);
        quality["stacks_filtered"] = json!(paths.filtered);
        quality["chains"] = json!(list.len());
        quality["dso"] = json!(of_dso.map(|rows| rows.json()));
        quality["followers_kept"] = json!(FOLLOWERS);
        quality["branches_with_more_followers"] = json!(paths.crowded);
        quality["min_probability"] = json!(paths.growth.least);
        super::print_json(&mut out, &quality)?;
    } else {
        writeln!(out)?;
        super::print_hidden(&mut out, listed.len(), shown, ("chain", "chains"))?;
    }
    out.flush()?;
    super::finish(&sources, &paths.maps);
    Ok(DONE)
}

fn print_bounds(out: &mut impl Write, paths: &Paths) -> std::io::Result<()> {
    if paths.complete {
        writeln!(out, "every taken branch is here: counts are the truth")?;
    }
    if paths.filtered > 0 {
        let stacks = grouped(paths.filtered);
        writeln!(out, "{stacks} stacks show no paths, because not every branch was recorded")?;
    }
    writeln!(
        out,
        "chains go on where a branch follows with at least {}{}; {FOLLOWERS} followers of each \
         branch are kept, {} more",
        percent(paths.growth.least),
        if paths.growth.cross_calls { ", through calls and returns" } else { "" },
        counted(paths.crowded, "branch has", "branches have"),
    )
}

fn print_path(
    out: &mut impl Write,
    paths: &mut Paths,
    path: &Path,
    rank: usize,
    covered: u64,
) -> std::io::Result<()> {
    let part = |part, whole| share(part, whole).map_or_else(super::dash, percent);
    let entered = path.links.iter().fold(0, |sum: u64, link| sum.saturating_add(link.entered));
    writeln!(
        out,
        "\nchain {rank}: {} long, {} of all branches ({} up to here), {} of the code bytes; \
         entered {}, {} from end to end",
        counted(path.links.len() as u64, "branch", "branches"),
        part(path.branches, paths.taken),
        part(covered, paths.taken),
        part(path.bytes, paths.bytes),
        counted(entered, "time", "times"),
        counted(path.whole, "run", "runs"),
    )?;
    let widest = path.links.iter().map(|link| grouped(link.count).len()).max().unwrap_or(0);
    for link in &path.links {
        let from = super::place(&mut paths.maps, link.from_location, link.from);
        let to = super::place(&mut paths.maps, link.to_location, link.to);
        let mut notes = Vec::new();
        for (what, count) in [("entered", link.entered), ("left", link.left), ("lost", link.lost)] {
            if count > 0 {
                notes.push(format!("{what} {}", grouped(count)));
            }
        }
        let notes =
            if notes.is_empty() { String::new() } else { format!("  ({})", notes.join(", ")) };
        writeln!(out, "  {:>widest$}  {from} -> {to}{notes}", grouped(link.count))?;
    }
    let end = end(paths, path);
    writeln!(out, "  ends: {end}")
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
        Break::Unknown => "nobody saw what follows".to_owned(),
        Break::Splits { followers, exact } => {
            let mut words = Vec::new();
            for follower in followers.iter().take(NAMED) {
                let Some((from, from_location, to, to_location)) = paths.follower(follower) else {
                    continue;
                };
                let from = super::place(&mut paths.maps, from_location, from);
                let to = super::place(&mut paths.maps, to_location, to);
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

fn link_json(paths: &mut Paths, link: &Link) -> Value {
    let from = super::end_json(&mut paths.maps, link.from_location);
    let to = super::end_json(&mut paths.maps, link.to_location);
    json!({
        "from": super::address(&paths.maps, link.from_location, link.from),
        "from_symbol": from.0,
        "from_offset": from.1,
        "to": super::address(&paths.maps, link.to_location, link.to),
        "to_symbol": to.0,
        "to_offset": to.1,
        "count": link.count,
        "entered": link.entered,
        "left": link.left,
        "lost": link.lost,
    })
}

fn row_json(paths: &mut Paths, path: &Path, rank: usize, covered: u64) -> Value {
    let links: Vec<Value> = path.links.iter().map(|link| link_json(paths, link)).collect();
    let mut followers = None;
    let mut exact_shares = None;
    if let Break::Splits { followers: after, exact } = &path.ends {
        exact_shares = Some(*exact);
        let after = after.iter().filter_map(|follower| {
            let (from, from_location, to, to_location) = paths.follower(follower)?;
            let maps = &mut paths.maps;
            let mut row = json!({
                "from": super::address(maps, from_location, from),
                "to": super::address(maps, to_location, to),
                "share": follower.share,
            });
            for (end, location) in [("from", from_location), ("to", to_location)] {
                // Without an address there is nothing else to know it by.
                if maps.is_named(location) {
                    let (symbol, offset, _) = super::end_json(maps, location);
                    row[format!("{end}_symbol")] = json!(symbol);
                    row[format!("{end}_offset")] = json!(offset);
                }
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
