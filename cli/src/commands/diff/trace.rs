//! `lbr diff --trace`: where the control flow of two runs parts.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use profile::maps::{Location, LocationFilter};
use profile::trace::{Files, Follower, Meeting, Parting, Survey, Traced};
use serde_json::json;

use super::Diff;
use crate::exit::{DONE, FAILED, Failure, OrExit, Result, USAGE, usage};
use crate::input::{self, Recordings};
use crate::present::{Cell, Out, Part, Place, Printer, Table, counted, grouped, json};
use crate::select::RowArgs;

/// A parting of a thread.
#[derive(Clone, Copy)]
struct PartingRow<'a> {
    /// The thread's number, from 1.
    thread: usize,
    parting: &'a Parting,
    times: u64,
}

pub(super) fn run(args: &Diff) -> Result {
    let folder = tempfile::tempdir().context("a folder for the recordings")?;
    let (files, names) = if args.commands.is_empty() {
        let [a, b] = args.sides();
        args.baseline_is_here().or_exit(USAGE)?;
        let [[a], [b]] = [a.as_slice(), b.as_slice()] else {
            return Err(usage!("--trace compares two recordings, each in one file"));
        };
        ([a.clone(), b.clone()], [a, b].map(|path| input::name(path)))
    } else {
        let mut commands = args.commands.split(|word| word == "--");
        let (Some(one), Some(other), None) = (commands.next(), commands.next(), commands.next())
        else {
            return Err(usage!("two commands are compared: --trace -- PROG a -- PROG b"));
        };
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        let files = [recorded(one, &first)?, recorded(other, &second)?];
        (files, ["the first run", "the second run"].map(str::to_owned))
    };
    let recordings = Recordings::reread(&files, args.select.reading(&args.symbols))?;
    let mut first = survey(args, &recordings, 0, &names)?;
    let mut second = survey(args, &recordings, 1, &names)?;
    let program = |survey: &Survey| survey.maps.path(0).unwrap_or("?").to_owned();
    if first.identity(0) != second.identity(0) {
        let (one, other) = (program(&first), program(&second));
        let builds = if one == other { " (another build)" } else { "" };
        return Err(usage!(
            "{} ran {one}, and {} ran {other}{builds}: only runs of one program can be compared \
             branch by branch",
            names[0],
            names[1]
        ));
    }
    let within = [within(args, &mut first, &names[0])?, within(args, &mut second, &names[1])?];
    let files = Files::of([&first, &second]);
    let mut all = Vec::new();
    for (&one, &other) in first.threads.iter().zip(&second.threads) {
        let follower = |side: usize, thread| {
            let recording = recordings.open(side)?;
            Ok::<_, Failure>(Follower::new(recording, thread, (&files, side), within[side].clone()))
        };
        let traced = Traced::compare(&mut follower(0, one)?, &mut follower(1, other)?);
        let failed = |(side, error): (usize, _)| input::failure(Path::new(&names[side]), error);
        all.push(traced.map_err(failed)?);
    }
    print(args, &all, [&mut first, &mut second], &names)
}

/// Records a command with every branch.
fn recorded(command: &[String], to: &Path) -> Result<PathBuf> {
    let mut lbr = Command::new(std::env::current_exe().context("this program's own path")?);
    lbr.args(["record", "--backend", "soft", "-o"]).arg(to).arg("--").args(command);
    // Standard output is the comparison's.
    let done = lbr.stdout(io::stderr()).stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let done = done.context("lbr record")?;
    if !to.exists() {
        let why = String::from_utf8_lossy(&done.stderr).replace("lbr: ", "");
        return Err(usage!("{}", why.trim_end()));
    }
    Ok(to.to_owned())
}

fn survey(
    args: &Diff,
    recordings: &Recordings,
    side: usize,
    names: &[String; 2],
) -> Result<Survey> {
    let name = &names[side];
    let mut recording = recordings.open(side)?;
    let read = Survey::read(&mut recording).map_err(|e| input::failure(Path::new(name), e))?;
    let mut survey = read.with_context(|| name.clone()).or_exit(USAGE)?;
    args.symbols.apply(&mut survey.maps);
    Ok(survey)
}

/// The functions of `--symbol` and files of `--dso`.
fn within(args: &Diff, survey: &mut Survey, name: &str) -> Result<Option<LocationFilter>> {
    let RowArgs { dso, symbols, .. } = &args.shown;
    if dso.is_empty() && symbols.is_empty() {
        return Ok(None);
    }
    let within = LocationFilter::new(&mut survey.maps, dso, symbols);
    match &*within.missing {
        [] => Ok(Some(within)),
        missing => {
            let missing = missing.join(", ");
            Err(usage!("{name}: nothing that was recorded has the name {missing}"))
        }
    }
}

type Names<'a> = [&'a mut Survey; 2];

fn place(names: &mut Names<'_>, side: usize, (location, address): (Location, u64)) -> Place {
    Place::of(&mut names[side].maps, location, address)
}

fn way(names: &mut Names<'_>, parting: &Parting, side: usize) -> Option<Place> {
    let next = parting.ways[side]?;
    Some(place(names, side, if parting.takes(side) { next.to } else { next.from }))
}

fn table<'a, 'r>() -> Table<'a, Names<'a>, PartingRow<'r>> {
    Table::<Names<'_>, PartingRow<'_>>::new()
        .constant("view", "trace")
        .constant("kind", "parting")
        .number("thread", "thread", |_, row| Cell::Number(row.thread as u64))
        .number("times", "times", |_, row| Cell::Count(row.times))
        .number("after", "first after", |_, row| Cell::Count(row.parting.after))
        .only("first_takes", |_, row| Cell::Flag(row.parting.takes(0)))
        .only("second_takes", |_, row| Cell::Flag(row.parting.takes(1)))
        .only("first_branches", |_, row| Cell::count(row.parting.meet.map(|meet| meet.branches[0])))
        .only("second_branches", |_, row| {
            Cell::count(row.parting.meet.map(|meet| meet.branches[1]))
        })
        .place("at", "parted at", Part::ALL, |names, row| {
            let (side, branch) = row.parting.site()?;
            Some(place(names, side, branch.from))
        })
        .place("first", "the first goes to", Part::ALL, |names, row| way(names, row.parting, 0))
        .behind("  ")
        .place("second", "the second goes to", Part::ALL, |names, row| way(names, row.parting, 1))
        .behind("  ")
        .place("meet", "they meet at", Part::ALL, |names, row| {
            row.parting.meet.map(|meet| place(names, 0, meet.at[0]))
        })
        .behind("  ")
}

fn print(args: &Diff, all: &[Traced], mut surveys: Names<'_>, names: &[String; 2]) -> Result {
    let threads = [0, 1].map(|side| surveys[side].threads.len());
    let rows = all.iter().enumerate().flat_map(|(thread, traced)| {
        let (thread, partings) = (thread + 1, traced.partings.iter());
        partings.map(move |(parting, times)| PartingRow { thread, parting, times: *times })
    });
    let rows: Vec<PartingRow<'_>> = rows.collect();
    let agreed = all.iter().fold(0, |sum, traced| sum + traced.agreed);
    let parted = !rows.is_empty() || threads[0] != threads[1];
    let mut out = Out::stdout();
    if args.json {
        table().write(Printer::Json, &mut out, &mut surveys, rows.iter().copied())?;
        let branches = [0, 1].map(|side| all.iter().map(|t| t.branches[side]).sum::<u64>());
        let end = json!({ "view": "trace", "kind": "end", "parted": parted, "agreed": agreed,
            "branches": branches, "threads": threads });
        json::value(&mut out, &end)?;
    } else if let Some(row) = rows.first() {
        first(&mut out, &mut surveys, row, names)?;
        out.gap()?;
        table().write(Printer::Text, &mut out, &mut surveys, rows.iter().copied())?;
    } else {
        out.line(format_args!(
            "the same control flow: {} agree (accesses to memory are not compared)",
            counted(agreed, "branch", "branches")
        ))?;
    }
    if threads[0] != threads[1] && !args.json {
        out.line(format_args!(
            "{} has {} and {} has {}: the others were not compared",
            names[0],
            counted(threads[0] as u64, "thread", "threads"),
            names[1],
            counted(threads[1] as u64, "thread", "threads")
        ))?;
    }
    out.flush()?;
    Ok(if parted { FAILED } else { DONE })
}

/// The first parting in sentences.
fn first(
    out: &mut Out<'_>,
    surveys: &mut Names<'_>,
    row: &PartingRow<'_>,
    names: &[String; 2],
) -> io::Result<()> {
    let PartingRow { thread, parting, .. } = row;
    let at = parting.site().map(|(side, branch)| place(surveys, side, branch.from).to_string());
    out.line(format_args!(
        "parted at {}, after {} of thread {thread}",
        at.unwrap_or_default(),
        counted(parting.after, "equal branch", "equal branches")
    ))?;
    let ways = [0, 1].map(|side| {
        let name = &names[side];
        match way(surveys, parting, side) {
            Some(to) if parting.takes(side) => format!("{name} jumps to {to}"),
            Some(to) => format!("{name} goes straight on to {to}"),
            None => format!("{name} ends"),
        }
    });
    out.line(ways.join("; "))?;
    match parting.meet {
        Some(Meeting { branches: [a, b], at: [at, _] }) => out.line(format_args!(
            "they meet again at {}, {} and {} branches later",
            place(surveys, 0, at),
            grouped(a),
            grouped(b)
        )),
        None => out.line("they do not meet again"),
    }
}
