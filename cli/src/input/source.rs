//! Metadata and anomalies of a recording that was read.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use profile::Recording;
use profile::perf_data::Notes;
use profile::recording::Refused;
use profile::select::{EventSamples, Names, Selection};

use super::name;
use crate::present::{applicable, counted, counted_nonzero, escaped, grouped, joined, say};

/// Events that a head names.
const EVENTS: usize = 12;

/// Metadata and anomalies of a recording that was read.
pub(crate) struct Source {
    /// Its name, for messages.
    pub(crate) name: String,
    /// CPU, as the recording describes it.
    pub(crate) cpu: Option<String>,
    /// Who recorded it.
    pub(crate) by: Option<String>,
    /// The selection of its samples, unless all are selected.
    pub(crate) selection: Option<Arc<Selection>>,
    /// The names of events and threads in it, and which of the requested ones exist.
    pub(crate) names: Names,
    events: Vec<EventSamples>,
    /// Whether it has symbols in place of addresses.
    pub(crate) has_names: bool,
    pub(crate) notes: Notes,
    /// Modelled predictions and cycles were omitted.
    omits_modelled: bool,
    refused: Option<Refused>,
}

impl Source {
    /// Text from the recording is [escaped] here, before it gets into lines, titles and pages.
    pub(crate) fn of(path: &Path, recording: &Recording) -> Source {
        let shown = |text: &str| escaped(text).into_owned();
        let info = recording.info();
        Source {
            name: shown(&name(path)),
            cpu: info.and_then(|info| info.cpudesc.as_deref()).map(shown),
            by: info.and_then(|info| info.version.as_deref()).map(shown),
            selection: recording.selection().cloned(),
            names: recording.names(),
            events: by_name(recording.samples_by_event()),
            has_names: recording.has_names(),
            notes: recording.notes(),
            omits_modelled: recording.has_omitted_modelled(),
            refused: recording.refused().cloned(),
        }
    }

    /// Number of samples counted.
    pub(crate) fn samples(&self) -> u64 {
        self.events.iter().fold(0, |sum, event| sum.saturating_add(event.samples))
    }

    /// Its selected events with branch stacks. Unnamed events are skipped.
    pub(crate) fn events(&self) -> impl Iterator<Item = &EventSamples> {
        let several = self.events.len() > 1;
        let all = self.selection.is_none();
        self.events
            .iter()
            .filter(move |event| (event.named || several) && (all || event.samples > 0))
    }

    /// The recording in one line: file, CPU, events, limits; with `verbose` also its recorder.
    pub(crate) fn origin(&self, verbose: bool) -> String {
        let mut all = match verbose {
            true => self.recorder(),
            false => self.cpu.as_deref().map(short_cpu).into_iter().collect(),
        };
        all.extend(self.events_line());
        all.extend(self.limits().into_iter().chain(self.partial()).map(str::to_owned));
        match all.is_empty() {
            true => format!("{}: CPU not recorded", self.name),
            false => format!("{}: {}", self.name, all.join(", ")),
        }
    }

    /// The CPU, and who recorded it.
    pub(crate) fn recorder(&self) -> Vec<String> {
        let cpu = self.cpu.clone().unwrap_or_else(|| "CPU not recorded".to_owned());
        std::iter::once(cpu).chain(self.by.as_ref().map(|by| format!("recorded by {by}"))).collect()
    }

    /// Fields that this recording lacks.
    pub(crate) fn limits(&self) -> Vec<&'static str> {
        let Notes { offsets_in_files, processes_unsaid, straights, guessed, .. } = self.notes;
        let limits = [
            (self.has_names, "symbols in place of addresses"),
            (offsets_in_files, "offsets in files in place of addresses"),
            (processes_unsaid, "threads without their processes"),
            (guessed, "stacks put together from entries that join"),
            (straights > 0, "fall-through ranges without their branches"),
        ];
        applicable(limits).collect()
    }

    /// The events (`cycles:u`); if several are counted together, with the samples of each.
    /// `None` if they are unknown.
    pub(crate) fn events_line(&self) -> Option<String> {
        let name = |event: &EventSamples| match event.name.as_str() {
            "" => "event not recorded".to_owned(),
            name => name.to_owned(),
        };
        let events: Vec<&EventSamples> = self.events().collect();
        Some(match events.as_slice() {
            [] => return None,
            [one] => name(one),
            several => {
                let each = several.iter().take(EVENTS).map(|event| {
                    format!("{} ({})", name(event), counted(event.samples, "sample", "samples"))
                });
                let each = joined(each, ", ");
                match several.len().saturating_sub(EVENTS) {
                    0 => each,
                    more => format!("{each} and {} more", grouped(more as u64)),
                }
            }
        })
    }

    /// Whether the recorder reports that nothing was measured: the registers of an emulated CPU
    /// look like any others.
    pub(crate) fn says_modelled(&self) -> bool {
        self.cpu.as_ref().is_some_and(|cpu| cpu.contains("not measured"))
    }

    /// Whether predictions and cycles of any recording are modelled.
    pub(crate) fn any_models_fields(sources: &[Source]) -> bool {
        let models = |source: &Source| {
            source.cpu.as_ref().is_some_and(|cpu| cpu.contains("modelled"))
                && !source.omits_modelled
        };
        sources.iter().any(models)
    }

    /// Reports that branches are modelled, if the recorder did not.
    pub(crate) fn modelled(sources: &[Source], software: u64) -> Option<&'static str> {
        let is_unsaid = software > 0 && !sources.iter().any(Source::says_modelled);
        is_unsaid.then_some("software LBR, not measured")
    }

    /// Whether its end was not read: because of Ctrl-C, or in a truncated file.
    pub(crate) fn is_partial(&self) -> bool {
        self.partial().is_some()
    }

    /// Why it was not read to its end, for the head of the output.
    pub(crate) fn partial(&self) -> Option<&'static str> {
        if self.notes.stopped {
            return Some("partial: stopped by Ctrl-C");
        }
        self.notes.cut_at.map(|_| "partial: cut off or damaged")
    }
}

/// The brand string without trademarks, `CPU` and the base frequency.
fn short_cpu(brand: &str) -> String {
    let name = brand.split(" @ ").next().unwrap_or(brand);
    let words = name.replace("(R)", "").replace("(TM)", "");
    let words =
        words.split_whitespace().filter(|word| !matches!(*word, "CPU" | "Intel" | "Processor"));
    joined(words, " ")
}

/// Events of one name together: a recorder may have one for each kind of core,
/// or for each CPU.
fn by_name(events: Vec<EventSamples>) -> Vec<EventSamples> {
    let mut names: Vec<EventSamples> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for mut event in events {
        event.name = escaped(&event.name).into_owned();
        let at = *known.entry(event.name.clone()).or_insert(names.len());
        match names.get_mut(at) {
            Some(same) => same.samples = same.samples.saturating_add(event.samples),
            None => names.push(event),
        }
    }
    names
}

/// Prints the anomalies of a recording that was read on standard error.
pub(crate) fn warn(source: &Source) {
    let Source { name, notes, omits_modelled, refused, .. } = source;
    if *omits_modelled {
        say!("{name}: its predictions and cycles are modelled, and are omitted here");
    }
    if notes.stopped {
        say!("{name}: stopped by Ctrl-C: partial, the rest was not read");
    }
    if let Some(selection) = source.selection.as_ref().filter(|_| source.samples() == 0) {
        say!("{name}: no samples match the selection ({selection})");
    }
    if let Some(at) = notes.cut_at {
        say!("{name}: cut off or damaged at byte {at}: the rest is missing");
    }
    if notes.unfinished {
        say!("{name}: its recorder never finished it; read to the end");
    }
    if let Some(at) = notes.first_malformed {
        let many = counted(
            notes.malformed,
            "record announces more than it holds and was skipped, at byte",
            "records announce more than they hold and were skipped, the first at byte",
        );
        say!("{name}: {many} {at}");
    }
    let counts = counted_nonzero([
        (
            notes.unknown_event,
            "sample of an event that it does not describe was skipped",
            "samples of events that it does not describe were skipped",
            "",
        ),
        (
            notes.straights,
            "line is a fall-through range without its branches: it counts in blocks and outcomes, \
             without cycles and order",
            "lines are fall-through ranges without their branches: they count in blocks and \
             outcomes, without cycles and order",
            "",
        ),
    ]);
    for words in counts {
        say!("{name}: {words}");
    }
    if notes.processes_unsaid {
        say!(
            "{name}: says one number of each task, read as its thread, and not the process: branches are \
             counted by address (perf script -F +pid,+tid says both)"
        );
    }
    if let Some(line) = notes.first_short {
        let many = counted(notes.short, "stack has", "stacks have");
        say!("{name}: {many} another number of branches than announced, the first in line {line}");
    }
    if notes.unjoined >= UNJOINED {
        say!(
            "{name}: no branch of a stack starts where the previous one led: recorded with a filter, or \
             the entries are not in the order of perf script -F brstack; no blocks"
        );
    }
    if let Some(refused) = refused {
        let Refused { first, error, .. } = refused;
        say!("{name}: line {first}: {error} ({})", skipped(refused));
    }
}

/// Minimum number of unjoined neighbours that cannot be chance.
const UNJOINED: u64 = 8;

/// Which lines were skipped.
fn skipped(refused: &Refused) -> String {
    let lines = refused.lines;
    let run = |(first, last): &(u64, u64)| {
        if first == last { first.to_string() } else { format!("{first} to {last}") }
    };
    let which = joined(refused.runs.iter().map(run), ", ");
    let named: u64 = refused.runs.iter().map(|(first, last)| last - first + 1).sum();
    match lines.saturating_sub(named) {
        _ if lines == 1 => "skipped".to_owned(),
        0 => format!("skipped: {} lines, {which}", grouped(lines)),
        more => format!("skipped: {} lines, {which} and {} more", grouped(lines), grouped(more)),
    }
}
