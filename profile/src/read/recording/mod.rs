//! Any recording: perf.data or brstack text, detected by its first bytes.

mod wrapped;

use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::read::add;
use crate::read::note::Source;
use crate::read::perf_data::{EventAttr, FileInfo, Input, Notes, ReadError, Reader};
use crate::read::select::{
    Choice, CommOf, Comms, EventSamples, FirstPass, LeftOut, Names, SelectError, Selection,
};
use crate::read::stack::{Entries, EntryFlags, RawBranch, SampleHead, Stack};
use crate::read::text::TextReader;
use wrapped::{MAX_LAYERS, first_bytes, is_wrapped, unwrapped};

pub use crate::read::stack::{Item, Straight};
pub use crate::read::text::Refused;
pub use wrapped::is_perf_data;

/// An open recording.
pub struct Recording {
    form: Form,
    /// Path for opening it again.
    path: Option<PathBuf>,
    /// Samples returned, by event.
    taken: Vec<u64>,
    choice: Option<Box<Choice>>,
    unmodelled: Option<Box<Unmodelled>>,
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording").field("position", &self.position()).finish_non_exhaustive()
    }
}

enum Form {
    /// perf.data.
    PerfData(Box<Reader>),
    /// Output of `perf script -F brstack`.
    Text(Box<TextReader>),
}

impl Recording {
    fn new(form: Form) -> Recording {
        Recording { form, path: None, taken: Vec::new(), choice: None, unmodelled: None }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn open(path: &Path) -> Result<Recording, ReadError> {
        let open = |cause| ReadError::Open { path: path.to_owned(), cause };
        Recording::of_file(path, File::open(path).map_err(open)?)
    }

    /// As [`open`](Self::open), for a file that is already open, at its start; the path is used if
    /// it must be read twice.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn of_file(path: &Path, mut file: File) -> Result<Recording, ReadError> {
        let open = |cause| ReadError::Open { path: path.to_owned(), cause };
        let kind = file.metadata().map_err(open)?;
        if kind.is_dir() {
            return Err(ReadError::Directory);
        }
        if !kind.is_file() {
            return Recording::from_stream(Box::new(file));
        }
        let magic = first_bytes(&mut file)?;
        let recording = if is_wrapped(&magic)? {
            Recording::from_stream(Box::new(Cursor::new(magic).chain(file)))?
        } else if is_perf_data(&magic) {
            file.rewind().map_err(open)?;
            let reader = Reader::new(Input::File(file), Some(kind.len()))?;
            Recording::new(Form::PerfData(Box::new(reader)))
        } else {
            let stream = Box::new(Cursor::new(magic).chain(file));
            Recording::new(Form::Text(Box::new(TextReader::new(stream, Some(kind.len())))))
        };
        Ok(Recording { path: Some(path.to_owned()), ..recording })
    }

    /// Reads a stream, such as standard input.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn from_stream(mut stream: Box<dyn Read + Send>) -> Result<Recording, ReadError> {
        let mut magic = first_bytes(&mut stream)?;
        let mut layers = 0;
        while is_wrapped(&magic)? {
            layers += 1;
            if layers > MAX_LAYERS {
                return Err(ReadError::NoBranches);
            }
            stream = unwrapped(&magic, Cursor::new(magic.clone()).chain(stream))?;
            magic = first_bytes(&mut stream)?;
        }
        let perf_data = is_perf_data(&magic);
        let stream: Box<dyn Read + Send> = Box::new(Cursor::new(magic).chain(stream));
        Ok(Recording::new(if perf_data {
            Form::PerfData(Box::new(Reader::new(Input::Stream(stream), None)?))
        } else {
            Form::Text(Box::new(TextReader::new(stream, None)))
        }))
    }

    /// Parses text in `threads` threads, including the caller's; perf.data needs no such parsing.
    /// Call before the first item.
    pub fn read_ahead(&mut self, threads: usize) {
        if let Form::Text(text) = &mut self.form
            && threads > 1
        {
            text.lines.read_ahead(threads);
        }
    }

    /// Drops every sample outside of the selection. Data that it needs may follow the samples
    /// concerned, such as names of threads, whose records arrive through per-CPU buffers: a file is
    /// then read twice. A stream must have it in time.
    ///
    /// Call before the first item, and after [`stop_when`](Self::stop_when) and
    /// [`stop_at`](Self::stop_at), which apply to both readings.
    ///
    /// # Errors
    /// [`SelectError`].
    pub fn select(&mut self, selection: &Arc<Selection>) -> Result<(), SelectError> {
        if selection.is_empty() {
            self.choice = None;
            return Ok(());
        }
        let mut found = FirstPass::default();
        match &mut self.form {
            Form::Text(text) => text.context.wants_comm = true,
            Form::PerfData(reader) => {
                found.whole = reader.info.sample_time;
                let late = reader.late_features.is_some() && selection.needs_names();
                if late || !selection.comms.is_empty() {
                    let first = self.path.as_deref().map(|path| first_pass(reader, path));
                    found = first.transpose()?.unwrap_or(found);
                }
            }
        }
        self.choice = Some(Box::new(Choice::new(Arc::clone(selection), found)?));
        Ok(())
    }

    /// Omits predictions and cycles that were modelled: those of stacks of a software LBR.
    /// To be called before the first item.
    pub fn omit_modelled(&mut self) {
        self.unmodelled = Some(Box::default());
    }

    /// Whether any were omitted so far.
    pub fn has_omitted_modelled(&self) -> bool {
        self.unmodelled.as_ref().is_some_and(|unmodelled| unmodelled.omitted)
    }

    /// The next stack or event; `None` at the end.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn next_item(&mut self) -> Result<Option<Item<'_>>, ReadError> {
        self.next_with(|_| ())
    }

    /// As [`next_item`](Self::next_item); first passes the events so far of a perf.data to `look`.
    #[inline]
    pub(crate) fn next_with(
        &mut self,
        look: impl FnOnce(&[EventAttr]),
    ) -> Result<Option<Item<'_>>, ReadError> {
        let Recording { form, taken, choice, unmodelled, .. } = self;
        let item = match (choice, form) {
            (Some(choice), form) => Self::next_chosen(form, choice, look)?,
            (None, Form::PerfData(reader)) => {
                let next = reader.advance()?;
                look(&reader.events);
                next.and_then(|next| reader.item(next))
            }
            (None, Form::Text(text)) => text.next_item()?,
        };
        if let Some(Item::Stack(stack)) = &item {
            take(taken, &stack.head);
        }
        Ok(match unmodelled {
            Some(unmodelled) => item.map(|item| unmodelled.of(item)),
            None => item,
        })
    }

    #[cold]
    fn next_chosen<'a>(
        form: &'a mut Form,
        choice: &mut Choice,
        look: impl FnOnce(&[EventAttr]),
    ) -> Result<Option<Item<'a>>, ReadError> {
        let (mut item, comm) = match form {
            Form::PerfData(reader) => {
                let next = reader.advance()?;
                look(&reader.events);
                // A pipe announces its events along the way.
                if choice.looked.len() != reader.events.len() {
                    choice.look(reader.events.iter().map(EventAttr::perf_name).collect());
                }
                (next.and_then(|next| reader.item(next)), CommOf::Thread)
            }
            Form::Text(text) => {
                text.advance_named()?;
                if choice.looked.len() != text.events.highest() + 1 {
                    choice.look(text.events.names().map(str::to_owned).collect());
                }
                let (item, comm) = text.at_hand();
                (item, CommOf::Sample(comm))
            }
        };
        let is_taken = match &mut item {
            Some(Item::Stack(stack)) => choice.takes(&mut stack.head, comm),
            Some(Item::Straight(straight)) => choice.takes(&mut straight.head, comm),
            Some(Item::Event(event)) => choice.event(event),
            _ => true,
        };
        Ok(if is_taken { item } else { Some(Item::LeftOut) })
    }

    /// The selection, if any.
    pub fn selection(&self) -> Option<&Arc<Selection>> {
        self.choice.as_ref().map(|choice| &choice.selection)
    }

    /// The samples that the selection has dropped.
    pub fn left_out(&self) -> LeftOut {
        self.choice.as_ref().map(|choice| choice.left_out()).unwrap_or_default()
    }

    /// The names in the recording, and which of the requested ones exist. Complete at its end.
    pub fn names(&self) -> Names {
        let events = self.samples_by_event().into_iter().map(|event| event.name);
        let events = events.filter(|name| !name.is_empty()).collect();
        self.choice.as_ref().map(|choice| choice.names(events)).unwrap_or_default()
    }

    /// Samples returned so far, by event with branch stacks. For text, the first is for samples
    /// without an event name, if any.
    pub fn samples_by_event(&self) -> Vec<EventSamples> {
        let samples = |at: usize| self.taken.get(at).copied().unwrap_or(0);
        match &self.form {
            Form::PerfData(reader) => {
                let events = reader.events.iter().enumerate();
                let with_branches = events.filter(|(_, event)| event.has_branches());
                let of = with_branches.map(|(at, event)| EventSamples {
                    name: event.perf_name(),
                    named: event.name.is_some(),
                    samples: samples(at),
                    rate: event.rate(),
                });
                of.collect()
            }
            Form::Text(text) => {
                let names = text.events.names().enumerate();
                let of = names.map(|(at, name)| EventSamples {
                    name: name.to_owned(),
                    named: at > 0,
                    samples: samples(at),
                    rate: None,
                });
                of.filter(|event| event.named || event.samples > 0).collect()
            }
        }
    }

    /// The reader of a perf.data, for [`export::perf_data`](crate::export::perf_data).
    pub(crate) fn reader(&mut self) -> Option<&mut Reader> {
        if let Form::PerfData(reader) = &mut self.form { Some(reader) } else { None }
    }

    /// The names of its events, by the number in a sample; empty if unknown.
    pub fn event_names(&self) -> Vec<String> {
        match &self.form {
            Form::PerfData(reader) => reader.events.iter().map(EventAttr::perf_name).collect(),
            Form::Text(text) => text.events.names().map(str::to_owned).collect(),
        }
    }

    /// Whether it is perf.data rather than text.
    pub fn is_perf_data(&self) -> bool {
        matches!(self.form, Form::PerfData(_))
    }

    /// Stops reading as soon as `flag` is set, for example by a signal: the results so far are
    /// valid, and [`notes`](Self::notes) reports that they are partial.
    pub fn stop_when(&mut self, flag: Arc<AtomicBool>) {
        match &mut self.form {
            Form::PerfData(reader) => reader.stop = Some(flag),
            Form::Text(text) => text.lines.stop = Some(flag),
        }
    }

    /// Stops reading at the [`position`](Self::position) where an earlier reading stopped, to read
    /// the same part again.
    pub fn stop_at(&mut self, position: u64) {
        match &mut self.form {
            Form::PerfData(reader) => reader.stop_at = Some(position),
            Form::Text(text) => text.lines.stop_at = Some(position),
        }
    }

    /// Metadata of the recording; text has none.
    pub fn info(&self) -> Option<&FileInfo> {
        if let Form::PerfData(reader) = &self.form { Some(&reader.info) } else { None }
    }

    /// Its events; text has none.
    pub fn events(&self) -> &[EventAttr] {
        if let Form::PerfData(reader) = &self.form { &reader.events } else { &[] }
    }

    /// The anomalies so far.
    pub fn notes(&self) -> Notes {
        match &self.form {
            Form::PerfData(reader) => reader.notes.clone(),
            Form::Text(text) => text.notes(),
        }
    }

    /// Whether the part read so far has symbols instead of addresses: `perf script -F brstacksym`.
    pub fn has_names(&self) -> bool {
        matches!(&self.form, Form::Text(text) if text.context.names.has_symbols)
    }

    /// Lines of text that were refused so far.
    pub fn refused(&self) -> Option<&Refused> {
        if let Form::Text(text) = &self.form { text.refused.as_ref() } else { None }
    }

    /// Bytes read so far.
    pub fn position(&self) -> u64 {
        match &self.form {
            Form::PerfData(reader) => reader.offset,
            Form::Text(text) => text.lines.position,
        }
    }

    /// Total size in bytes, if known.
    pub fn size(&self) -> Option<u64> {
        match &self.form {
            Form::PerfData(reader) => reader.size,
            Form::Text(text) => text.lines.size,
        }
    }
}

/// Reads everything but the samples, as far as `second` will read.
fn first_pass(second: &Reader, path: &Path) -> Result<FirstPass, ReadError> {
    let first = Recording::open(path)?;
    let Form::PerfData(mut reader) = first.form else { return Ok(FirstPass::default()) };
    reader.stop.clone_from(&second.stop);
    reader.stop_at = second.stop_at;
    let (mut events, mut unkept) = (Vec::new(), 0);
    while let Some(event) = reader.next_event()? {
        match Comms::is_one(&event) {
            true if events.len() < Comms::MOST => events.push(event),
            is_one => unkept += u64::from(is_one),
        }
    }
    Ok(FirstPass {
        whole: reader.info.sample_time,
        comms: Some(Comms::of(events, unkept)),
        events: reader.events.iter().map(|event| event.name.clone()).collect(),
    })
}

/// Counts a sample for its event.
#[inline]
fn take(taken: &mut Vec<u64>, head: &SampleHead) {
    if taken.len() <= head.event {
        taken.resize(head.event + 1, 0);
    }
    taken.get_mut(head.event).into_iter().for_each(|taken| add(taken, head.weight));
}

/// Omits predictions and cycles of software LBRs, whose branches alone are real, for outputs that
/// cannot label them as modelled.
#[derive(Debug, Default)]
struct Unmodelled {
    /// The entries of the current stack.
    entries: Vec<RawBranch>,
    omitted: bool,
}

impl Unmodelled {
    /// The item without predictions and cycles.
    fn of<'a>(&'a mut self, item: Item<'a>) -> Item<'a> {
        let stack = match item {
            Item::Stack(stack) if stack.head.source == Source::Software => stack,
            other => return other,
        };
        const PREDICTION: u64 = EntryFlags::MISPREDICTED | EntryFlags::PREDICTED;
        self.entries.clear();
        stack.entries.for_each(|branch| {
            let flags = EntryFlags(branch.flags.0 & !PREDICTION).with_cycles(0);
            self.omitted |= flags != branch.flags;
            self.entries.push(RawBranch { flags, ..branch });
        });
        Item::Stack(Stack { entries: Entries::Parsed(&self.entries), ..stack })
    }
}
