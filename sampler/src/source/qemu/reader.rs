//! The consumer: copies branches from the plugin's rings to the recorder's LBRs.

use lbr_msr::text::AsText;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lbr_msr::record::{Comm, Event, Mmap, MoveKind, Task};
use lbr_msr::soft::Retired;

use super::channel::consumer::Consumer;
use super::channel::{Counts, RINGS, Region, Ring};
use super::gdb::{Gdb, News, unseen_branch};
use super::record::{self, Corrupt, Record, Words};
use super::{Emulated, code};
use crate::clock::monotonic_ns;
use crate::gate::{Closed, Recorder, Retire};
use crate::maps::comm;
use crate::source::sites::SiteCache;
use crate::source::{SourceError, SourceNotes, Stop};
use crate::target::{Doing, SignalStop, ThreadId};

/// Records read from one ring before the next ring's turn.
const BATCH: u64 = 2048;

/// Branches retired at once: few enough that their data stays in the nearest cache.
const RUN: u64 = 256;

/// More branches than a thread can take between two reads.
const MOST_LEFT_OUT: u64 = 1 << 40;

impl From<Corrupt> for Stop {
    fn from(_: Corrupt) -> Stop {
        Stop::Failed(failed(
            "the target has overwritten the memory that the plugin and lbr share".to_owned(),
        ))
    }
}

pub(super) fn failed(why: String) -> SourceError {
    SourceError::os("recording in QEMU", io::Error::other(why))
}

/// The branches that the plugin may omit because no drain would see them.
#[derive(Clone, Copy)]
pub(super) struct Thinning {
    /// The tags of branches that pass the filter.
    pub(super) wanted: u32,
    /// How many of the newest branches are enough each time, and after how many; `None` for all
    /// after that if the clock decides.
    pub(super) sampling: Option<(usize, Option<u64>)>,
}

impl Thinning {
    /// Nothing: the model has to see every branch.
    pub(super) const NONE: Thinning = Thinning { wanted: !0, sampling: None };

    pub(super) fn of(recorder: &impl Recorder) -> Thinning {
        let Some(model) = recorder.model() else {
            return Thinning::NONE;
        };
        let wanted = record::tags(|class, zero_length_call| {
            model.lets_in(&Retired { zero_length_call, ..Retired::user(0, 0, class) })
        });
        let period = recorder.period();
        let depth = model.newest_alone();
        let is_thin = |depth: usize| period.is_none_or(|period| period >= depth as u64);
        Thinning { wanted, sampling: depth.filter(|&depth| is_thin(depth)).map(|d| (d, period)) }
    }

    /// Whether the recorder's clock decides when branches are retired.
    fn is_by_clock(self) -> bool {
        matches!(self.sampling, Some((_, None)))
    }
}

/// A recorded thread.
struct Thread<G> {
    task: Task,
    ring: G,
    /// Number of its branches retired or omitted, if they are sampled.
    total: u64,
    /// Whether the newest were requested.
    asked: bool,
}

pub(super) struct Reader<'a, R: Recorder> {
    recorder: &'a R,
    pid: u32,
    comm: String,
    region: &'a Region,
    consumers: Vec<Consumer<'a>>,
    /// Number of rings known to be in use.
    claimed: usize,
    /// By ring.
    threads: [Option<Thread<R::Ring>>; RINGS],
    /// Recording has started: the process was reported.
    pub(super) introduced: bool,
    thinning: Thinning,
    /// Branches carry predictions and cycles of the model.
    modelled: bool,
    /// Buffer for the branches of a run.
    run: Vec<Retired>,
    sites: SiteCache<'a>,
    notes: SourceNotes,
    /// Shows signals, if the recorder wants them.
    pub(super) gdb: Option<Gdb>,
    /// The last signal: the ring of its thread, and the branch to its address that the plugin does
    /// not see.
    signal: Option<(usize, SignalStop, Option<Retired>)>,
}

impl<'a, R: Recorder> Reader<'a, R> {
    pub(super) fn new(
        source: &'a Emulated,
        recorder: &'a R,
        pid: u32,
        region: &'a Region,
        thinning: Thinning,
    ) -> Self {
        let name = source.path.file_name().unwrap_or_default().as_bytes();
        // The kernel's limit for a name.
        let comm = (name.get(..15).unwrap_or(name)).as_text().into_owned();
        Reader {
            recorder,
            pid,
            comm,
            region,
            consumers: region.rings.iter().map(Consumer::new).collect(),
            claimed: 0,
            threads: [const { None }; RINGS],
            introduced: false,
            thinning,
            modelled: source.command.model,
            run: Vec::with_capacity(RUN as usize),
            sites: SiteCache::new(&source.sites),
            notes: SourceNotes::default(),
            gdb: None,
            signal: None,
        }
    }

    /// Reads until the program has ended and every ring is empty.
    pub(super) fn read(&mut self, child: &mut Child) -> Result<ExitStatus, Stop> {
        // If branches are sampled, looking costs more than processing them.
        let (shortest, longest) = match self.thinning.sampling {
            None => (20, 1000),
            Some((_, Some(_))) => (200, 1000),
            Some((_, None)) => (20, 100),
        };
        let (shortest, longest) = (Duration::from_micros(shortest), Duration::from_micros(longest));
        let mut nap = shortest;
        loop {
            if self.recorder.is_closed() {
                return Err(Closed.into());
            }
            let count = self.round()?;
            self.signals()?;
            if count > 0 {
                nap = shortest;
                // Reading a ring takes its cache line from the writing thread: wait for more
                // records first.
                if count < BATCH / 4 {
                    std::thread::sleep(nap);
                }
                continue;
            }
            if let Some(status) = child.try_wait().doing("waiting for QEMU")? {
                while self.round()? > 0 {}
                self.signals()?;
                return Ok(status);
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(longest);
        }
    }

    /// Shows the recorder the signals that threads have stopped at.
    fn signals(&mut self) -> Result<(), Stop> {
        let failed = |cause| SourceError::os("talking to qemu's GDB stub", cause);
        let Some(mut gdb) = self.gdb.take() else { return Ok(()) };
        while let Some(news) = gdb.news(self.pid).map_err(failed)? {
            match news {
                News::Signal(tid, stop) => {
                    let is_it = |thread: &Option<Thread<_>>| {
                        thread.as_ref().is_some_and(|thread| thread.task.tid == tid)
                    };
                    let found = self.threads.iter().position(is_it);
                    let ring = found.and_then(|index| Some((index, self.region.rings.get(index)?)));
                    if let Some((index, ring)) = ring {
                        while self.take(index, ring)? > 0 {}
                        let at = ring.counts.at.load(Ordering::Relaxed);
                        let unseen = unseen_branch(self.pid, at, stop.ip);
                        if let Some(Some(thread)) = self.threads.get_mut(index) {
                            thread.ring.signalled(&stop);
                        }
                        self.signal = Some((index, (*stop).clone(), unseen));
                    }
                    gdb.deliver(&stop).map_err(failed)?;
                }
                News::Died => {
                    if let Some((index, stop, unseen)) = self.signal.take()
                        && let Some(Some(thread)) = self.threads.get_mut(index)
                    {
                        unseen.map_or(Ok(()), |branch| thread.ring.retire(&branch))?;
                        thread.ring.died(stop);
                    }
                }
            }
        }
        self.gdb = Some(gdb);
        Ok(())
    }

    /// Reads about a batch from each ring. Returns the number of records.
    fn round(&mut self) -> Result<u64, Stop> {
        let mut count = 0;
        let claimed = self.region.claimed();
        if !self.region.header.is_ours() || claimed.len() < self.claimed {
            return Err(Corrupt.into());
        }
        self.claimed = claimed.len();
        for (index, ring) in claimed.iter().enumerate() {
            let mut taken = 0;
            while taken < BATCH {
                match self.take(index, ring)? {
                    0 => break,
                    more => taken += more,
                }
            }
            count += taken;
        }
        Ok(count)
    }

    /// Reads from a ring up to and including the first record that is not a branch.
    fn take(&mut self, index: usize, ring: &Ring) -> Result<u64, Stop> {
        let (Some(consumer), Some(thread)) =
            (self.consumers.get_mut(index), self.threads.get_mut(index))
        else {
            return Ok(0);
        };
        let available = consumer.available()?;
        let count = available.min(RUN);
        self.run.clear();
        for n in 0..count {
            let branch = branch(consumer.words(n), self.modelled);
            let Some(branch) = branch else { break };
            self.sites.note(self.pid, branch.from, branch.class);
            self.run.push(branch);
        }
        let branches = self.run.len() as u64;
        if branches > 0 {
            let Some(thread) = thread else { return Err(Corrupt.into()) };
            thread.ring.retire_run(&self.run)?;
        }
        if branches == count {
            self.ask(index);
            if let Some(consumer) = self.consumers.get_mut(index) {
                consumer.release(count);
            }
            return Ok(count);
        }
        let record = Record::decode(consumer.words(branches))?;
        let mut done = branches + 1;
        match (record, thread) {
            (Record::Newest { count, total }, Some(thread)) => {
                if available - done < count {
                    // The rest is still being written.
                    consumer.release(branches);
                    return Ok(branches);
                }
                let words = (done..done + count).map(|n| consumer.words(n));
                newest(&mut self.run, &mut self.sites, self.pid, words)?;
                let left_out = total.wrapping_sub(thread.total).checked_sub(count);
                let left_out = left_out.filter(|count| *count < MOST_LEFT_OUT).ok_or(Corrupt)?;
                thread.total = total;
                thread.asked = false;
                thread.ring.retire_newest(left_out, &self.run)?;
                if self.thinning.is_by_clock() {
                    thread.ring.flush()?;
                }
                done += count;
            }
            // The thread may be waiting for this record.
            _ => self.beside(index, record)?,
        }
        if record == Record::End {
            self.collect(&ring.counts);
        }
        if let Some(consumer) = self.consumers.get_mut(index) {
            consumer.release(done);
            if record == Record::End {
                consumer.free();
            }
        }
        Ok(done)
    }

    /// Requests the newest branches when the clock is due.
    fn ask(&mut self, index: usize) {
        if let (Some(consumer), Some(Some(thread))) =
            (self.consumers.get(index), self.threads.get_mut(index))
            && self.thinning.is_by_clock()
            && !thread.asked
            && thread.ring.is_due()
        {
            thread.asked = true;
            consumer.ask();
        }
    }

    /// Handles any record except a branch.
    fn beside(&mut self, index: usize, record: Record) -> Result<(), Stop> {
        let Some(slot) = self.threads.get_mut(index) else { return Ok(()) };
        match (record, slot.as_mut()) {
            (Record::Start { tid, parent }, None) => {
                let thread = self.introduce(tid, parent)?;
                if let Some(slot) = self.threads.get_mut(index) {
                    *slot = Some(thread);
                }
            }
            (Record::End, Some(_)) => {
                if let (Some(thread), Some(ring)) = (slot.take(), self.region.rings.get(index)) {
                    end(self.recorder, thread, ring)?;
                }
            }
            (Record::Moved { kind, from, to }, Some(thread)) => {
                thread.ring.moved(kind, from, to)?
            }
            (Record::Mapped { addr, len }, Some(thread)) => {
                let mapped = code::mapped_at(self.pid, thread.task.tid, addr, len);
                self.tell_mappings(mapped)?;
            }
            (Record::Named, Some(thread)) => {
                // A thread that was killed has no name.
                let id = ThreadId { pid: self.pid, tid: thread.task.tid };
                let named = comm(id, monotonic_ns(), false);
                named.map_or(Ok(()), |named| self.recorder.emit(named))?;
            }
            (Record::Exec, Some(_)) => self.notes.replaced = true,
            (Record::ExecFailed, Some(_)) => self.notes.replaced = false,
            _ => return Err(Corrupt.into()),
        }
        Ok(())
    }

    /// Handles a thread's first record.
    fn introduce(&mut self, tid: u32, parent: u32) -> Result<Thread<R::Ring>, Stop> {
        let pid = self.pid;
        if !std::mem::replace(&mut self.introduced, true) {
            if self.region.header.relocated.load(Ordering::Acquire) != 0 {
                let why = "it has moved the program to other addresses (guest_base is not 0)";
                return Err(failed(why.to_owned()).into());
            }
            let comm = self.comm.clone();
            self.recorder.emit(Event::Comm(Comm {
                time: monotonic_ns(),
                pid,
                tid: pid,
                comm,
                exec: true,
            }))?;
            self.tell_mappings(code::mapped(pid, pid))?;
        }
        let task = Task { time: monotonic_ns(), pid, tid, ppid: pid, ptid: parent };
        if tid != pid {
            self.recorder.emit(Event::Fork(task))?;
        }
        let ring = self.recorder.start(ThreadId { pid, tid })?;
        Ok(Thread { task, ring, total: 0, asked: false })
    }

    fn tell_mappings(&self, mappings: io::Result<Vec<Mmap>>) -> Result<(), Stop> {
        let is_gone = |cause: &io::Error| {
            matches!(cause.raw_os_error(), Some(nix::libc::ENOENT | nix::libc::ESRCH))
        };
        if mappings.as_ref().is_err_and(is_gone) {
            // It was killed; its branches are still in the rings.
            return Ok(());
        }
        for mapping in mappings.doing("reading the program's mappings")? {
            self.recorder.emit(Event::Mmap(Box::new(mapping)))?;
        }
        Ok(())
    }

    /// Adds and resets a thread's counters.
    fn collect(&mut self, counts: &Counts) {
        // Saturates, because the program can overwrite the counters.
        let add = |sum: &mut u64, count: &AtomicU64| {
            *sum = sum.saturating_add(count.swap(0, Ordering::Relaxed));
        };
        let notes = &mut self.notes;
        add(&mut notes.instructions, &counts.instructions);
        add(&mut notes.kernel_returns_omitted, &counts.kernel_returns);
        add(&mut notes.unresolved, &counts.impossible);
        add(&mut notes.unresolved, &counts.interrupted);
        add(&mut notes.invisible, &counts.invisible);
    }

    /// The program has ended, and with it all remaining threads.
    pub(super) fn finish(mut self) -> SourceNotes {
        let threads = std::mem::replace(&mut self.threads, [const { None }; RINGS]);
        let rings = self.consumers.iter().zip(&self.region.rings);
        for (thread, (consumer, ring)) in threads.into_iter().zip(rings) {
            let Some(mut thread) = thread else { continue };
            if let Some((depth, _)) = self.thinning.sampling {
                // It was killed while it kept branches.
                let (left, words) = consumer.left(thread.total, depth as u64);
                let made = newest(&mut self.run, &mut self.sites, self.pid, words);
                let left_out = left.saturating_sub(self.run.len() as u64).min(MOST_LEFT_OUT);
                if made.is_err() || thread.ring.retire_newest(left_out, &self.run).is_err() {
                    break;
                }
            }
            if end(self.recorder, thread, ring).is_err() {
                break;
            }
        }
        for ring in self.region.claimed() {
            self.collect(&ring.counts);
        }
        let header = &self.region.header;
        let forks = header.forks.load(Ordering::Relaxed);
        self.notes.children_left = self.notes.children_left.saturating_add(forks);
        self.notes.threads_left = header.threads_left.load(Ordering::Relaxed);
        self.notes
    }
}

/// Makes a run of the newest branches of a thread.
fn newest(
    run: &mut Vec<Retired>,
    sites: &mut SiteCache<'_>,
    pid: u32,
    words: impl Iterator<Item = Words>,
) -> Result<(), Corrupt> {
    run.clear();
    for words in words {
        let branch = branch(words, false).ok_or(Corrupt)?;
        sites.note(pid, branch.from, branch.class);
        run.push(branch);
    }
    Ok(())
}

/// A branch's record; `None` if it is another one.
#[inline]
fn branch([low, to]: Words, is_modelled: bool) -> Option<Retired> {
    let (from, class, zero_length_call) = record::branch(low)?;
    let branch = Retired { zero_length_call, ..Retired::user(from, to, class) };
    if !is_modelled {
        return Some(branch);
    }
    let (to, modelled) = record::model_of([low, to]);
    Some(modelled.of(Retired { to, ..branch }))
}

fn end<R: Recorder>(recorder: &R, mut thread: Thread<R::Ring>, ring: &Ring) -> Result<(), Closed> {
    thread.ring.moved(MoveKind::End, ring.counts.at.load(Ordering::Relaxed), 0)?;
    thread.ring.finish()?;
    recorder.emit(Event::Exit(Task { time: monotonic_ns(), ..thread.task }))
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/qemu/reader.rs"]
mod tests;
