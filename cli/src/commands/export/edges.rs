//! Branches for a database of many hosts.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use profile::Counter;
use profile::export::{EdgeCounts, EdgeRow};

use super::Export;
use crate::exit::{DONE, Result};
use crate::head::finish;
use crate::input::Recordings;
use crate::output::Output;
use crate::present::json;

/// Writes them as JSON Lines.
pub(super) fn lines(args: &Export, output: &Output) -> Result {
    output.stream(|out| {
        let mut written = Ok(());
        let done = each(args, |edge| {
            if written.is_ok() {
                written = json::value(out, &edge);
            }
            Ok(())
        });
        written.map(|()| done)
    })
}

/// Writes them as Parquet.
#[cfg(feature = "parquet")]
pub(super) fn parquet(args: &Export, output: &Output) -> Result {
    let mut file = profile::export::Parquet::new()?;
    let done = each(args, |edge| Ok(file.row(edge)?))?;
    output.write(file.finish()?)?;
    Ok(done)
}

/// Without the feature.
#[cfg(not(feature = "parquet"))]
pub(super) fn parquet(_: &Export, _: &Output) -> Result {
    Err(crate::exit::usage!(
        "this lbr was built without Parquet: cargo build --release --features parquet, or --to \
         jsonl:edges, which has the same columns"
    ))
}

/// One row set for each recording, because each has its own host and day.
fn each(args: &Export, mut row: impl FnMut(EdgeRow) -> Result<()>) -> Result {
    for path in args.inputs.paths() {
        let mut counter = Counter::of(EdgeCounts::default());
        args.symbols.apply(counter.maps());
        let mut host = args.host.clone();
        let mut events = Vec::new();
        let one = Recordings::once(std::slice::from_ref(path), args.reading())?;
        let read = one.read(&mut |recording, at| {
            counter.recording(recording, at)?;
            let recorded = recording.info().and_then(|info| info.hostname.clone());
            host = host.take().or(recorded);
            events = recording.event_names();
            Ok(())
        })?;
        let date = args.date.clone().or_else(|| written(path));
        let common = |event: usize| EdgeRow {
            host: host.clone(),
            date: date.clone(),
            event: events.get(event).filter(|name| !name.is_empty()).cloned(),
            ..EdgeRow::default()
        };
        let maps = counter.finish().each(common, &mut row)?;
        finish(&read, &maps);
    }
    Ok(DONE)
}

/// The day on which a file was written, in the format of perf's capture date.
fn written(path: &Path) -> Option<String> {
    let file = std::fs::metadata(path).ok().filter(|file| file.is_file())?;
    day(file.modified().ok()?)
}

/// A day of the Gregorian calendar, UTC. Years start in March here, so that a leap day is their
/// last, and 400 of them have 146,097 days.
pub(crate) fn day(time: SystemTime) -> Option<String> {
    let days = time.duration_since(UNIX_EPOCH).ok()?.as_secs() / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    Some(format!("{:04}-{month:02}-{date:02}", era * 400 + year + next))
}

/// A day as an argument.
pub(super) fn date(text: &str) -> Result<String, &'static str> {
    let digits = |range: std::ops::Range<usize>| {
        let part = text.get(range).filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()))?;
        part.parse::<u32>().ok()
    };
    let dashes = text.len() == 10 && text.get(4..5) == Some("-") && text.get(7..8) == Some("-");
    match (digits(0..4), digits(5..7), digits(8..10)) {
        (Some(_), Some(1..=12), Some(1..=31)) if dashes => Ok(text.to_owned()),
        _ => Err("a day is YEAR-MONTH-DAY, such as 2026-01-31"),
    }
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/commands/export/edges.rs"]
mod tests;
