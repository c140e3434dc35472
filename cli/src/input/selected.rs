//! Messages about selected and omitted samples.

use profile::quality::Quality;
use profile::select::{Field, LeftOut, Why};
use serde_json::{Map, Value, json};

use super::Source;
use crate::exit::{Result, usage};
use crate::present::{counted, grouped, offered, summed};

/// Refuses names that no recording has, and lists known ones.
pub(crate) fn check(sources: &[Source]) -> Result<()> {
    let Some(selection) = sources.first().and_then(|source| source.selection.as_ref()) else {
        return Ok(());
    };
    // The unread part may have it.
    if sources.iter().any(Source::is_partial) {
        return Ok(());
    }
    let unknown = |names: &[String], of: fn(&Source) -> &[bool]| {
        let is_known = |at| sources.iter().any(|source| of(source).get(at) == Some(&true));
        names.iter().enumerate().find(|(at, _)| !is_known(*at)).map(|(_, name)| name.clone())
    };
    let nobody = |what: &str, name: &str, are: Vec<String>| {
        let where_ = match sources {
            [one] => one.name.clone(),
            _ => "the recordings".to_owned(),
        };
        Err(match are.is_empty() {
            true => usage!("{where_}: no {what} {name:?}: it does not say what any is called"),
            false => usage!("{where_}: no {what} {name:?}; there is {}", offered(are)),
        })
    };
    if let Some(name) = unknown(&selection.events, |source| &source.names.known_events) {
        let are = sources.iter().flat_map(|source| source.names.events.clone());
        return nobody("event with branch stacks is called", &name, are.collect());
    }
    if let Some(name) = unknown(&selection.comms, |source| &source.names.known_comms) {
        let comms = sources.iter().flat_map(|source| &source.names.comms);
        return nobody("thread is called", &name, comms.map(|(name, _)| name.clone()).collect());
    }
    Ok(())
}

/// The selection and what it omitted, in one line; `None` without a selection.
pub(crate) fn line(sources: &[Source], kept: u64, left: &LeftOut) -> Option<String> {
    let selection = sources.first()?.selection.as_ref()?;
    let all = kept.saturating_add(left.samples);
    let mut line = format!(
        "selected: {selection}: {} of {}",
        grouped(kept),
        counted(all, "sample", "samples")
    );
    let out = left_words(left);
    if !out.is_empty() {
        line += &format!("; omitted: {out}");
    }
    Some(line)
}

/// The omitted samples, in words; empty if there are none.
pub(crate) fn left_words(left: &LeftOut) -> String {
    let mut words: Vec<String> = left
        .by
        .iter()
        .map(|((field, why), count)| {
            let what = match (why, field) {
                (Why::Unsaid, field) => format!("without a {}", field.name()),
                (Why::Other, Field::Event) => "of other events".to_owned(),
                (Why::Other, Field::Comm) => "of threads with other names".to_owned(),
                (Why::Other, Field::Pid) => "of other processes".to_owned(),
                (Why::Other, Field::Tid) => "of other threads".to_owned(),
                (Why::Other, Field::Cpu) => "on other CPUs".to_owned(),
                (Why::Other, Field::Time) => "at other times".to_owned(),
            };
            format!("{} {what}", grouped(*count))
        })
        .collect();
    if left.lost > 0 {
        words.push(format!("{} lost of other tasks", grouped(left.lost)));
    }
    if left.names_unkept > 0 {
        let changes = counted(left.names_unkept, "change", "changes");
        words.push(format!("{changes} of thread names not kept in memory"));
    }
    words.join(", ")
}

/// The events, the selection, and what it omitted, for JSON.
pub(crate) fn put_json(json: &mut Value, sources: &[Source], left: &LeftOut) {
    let events = sources.iter().flat_map(Source::events);
    let events = summed(events.map(|event| (&*event.name, event.samples)));
    let named = |name: &&str| !name.is_empty();
    let events = events.into_iter();
    json["events"] = events
        .map(|(name, samples)| json!({ "event": Some(name).filter(named), "samples": samples }))
        .collect();
    let selection = sources.first().and_then(|source| source.selection.as_ref());
    json["selected"] = json!(selection.map(|selection| {
        let signed = |list: &[u32]| json!(list.iter().map(|n| *n as i32).collect::<Vec<_>>());
        let times: Vec<String> = selection.times.iter().map(ToString::to_string).collect();
        let lists = [
            (Field::Event, json!(selection.events)),
            (Field::Comm, json!(selection.comms)),
            (Field::Pid, signed(&selection.pids)),
            (Field::Tid, signed(&selection.tids)),
            (Field::Cpu, json!(selection.cpus)),
            (Field::Time, json!(times)),
        ];
        let asked = lists.into_iter().filter(|(_, list)| *list != json!([]));
        asked.map(|(field, list)| (field.name().to_owned(), list)).collect::<Map<_, _>>()
    }));
    json["left_out"] = json!(left.samples);
    let by = left.by.iter().map(|((field, why), count)| {
        let why = match why {
            Why::Other => "other",
            Why::Unsaid => "not_said",
        };
        (format!("{}_{why}", field.name()), json!(count))
    });
    json["left_out_by"] = by.collect::<Map<_, _>>().into();
    json["left_out_lost"] = json!(left.lost);
    json["thread_names_not_kept"] = json!(left.names_unkept);
}

/// The selection, for recordings that were counted together.
pub(crate) fn of_quality(sources: &[Source], quality: &Quality) -> Option<String> {
    line(sources, quality.samples, &quality.left_out)
}
