//! Where two complete recordings of one program part: their branches compared in order, thread by
//! thread, by file and offset.
//!
//! Recordings are read as streams, once for each thread: memory does not depend on their length.
//! Code without a file (generated code, the stack) has no offsets, and counts as equal.

use std::collections::{BTreeMap, HashMap, VecDeque};

use lbr_msr::record::BranchType;

use crate::code::hex;
use crate::code::maps::{Location, LocationFilter, Maps};
use crate::read::perf_data::ReadError;
use crate::read::perf_data::layout::branch;
use crate::read::recording::Recording;
use crate::read::stack::{Item, Stack, Thread};

/// The number of branches after which two ways must have met again.
pub const LONGEST_WAY: usize = 1 << 18;

/// Why a recording cannot be compared branch by branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// It has no branches.
    #[error("it has no branches")]
    Empty,
    /// Its filter omits branches.
    #[error("its filter omits branches: record with -j any")]
    Filtered,
    /// Branches may be missing.
    #[error("it is not complete: record every branch with lbr record --backend soft, without -F")]
    Incomplete,
}

/// The threads and mappings of a recording, from one pass over it.
#[derive(Debug)]
pub struct Survey {
    /// Its threads with branches, in the order of their first ones.
    pub threads: Vec<Thread>,
    /// Its mappings, to name locations.
    pub maps: Maps,
}

impl Survey {
    /// Reads a recording to its end. Calls `visit` with the position and size.
    ///
    /// # Errors
    /// [`ReadError`]; in the result [`Unfit`].
    pub fn read(recording: &mut Recording) -> Result<Result<Survey, Unfit>, ReadError> {
        let mut survey = Survey { threads: Vec::new(), maps: Maps::default() };
        let mut is_exact = true;
        while let Some(item) = recording.next_item()? {
            match item {
                Item::Event(event) => survey.maps.event(&event),
                Item::Stack(stack) => {
                    is_exact &= stack.head.integrity.is_exact();
                    let thread = thread_of(&stack);
                    survey.maps.space(thread.0);
                    if !stack.entries.is_empty() && !survey.threads.contains(&thread) {
                        survey.threads.push(thread);
                    }
                }
                _ => is_exact = false,
            }
        }
        if let Some(info) = recording.info() {
            survey.maps.recorded(info);
        }
        let any = |filter: u64| filter & branch::ANY != 0 && filter & branch::CALL_STACK == 0;
        Ok(if survey.threads.is_empty() {
            Err(Unfit::Empty)
        } else if !recording.events().iter().all(|event| any(event.branch_sample_type)) {
            Err(Unfit::Filtered)
        } else if !is_exact {
            Err(Unfit::Incomplete)
        } else {
            Ok(survey)
        })
    }

    /// A file's identity in every recording: its build ID if recorded, else its path.
    pub fn identity(&self, file: usize) -> String {
        match self.maps.build_id(file) {
            Some(id) => hex(id),
            None => self.maps.path(file).unwrap_or_default().to_owned(),
        }
    }
}

fn thread_of(stack: &Stack<'_>) -> Thread {
    (stack.head.pid, stack.head.tid)
}

/// A number for each file of both recordings: the same for the same file.
#[derive(Clone, Debug, Default)]
pub struct Files([Vec<u32>; 2]);

impl Files {
    /// Numbers the files of two recordings.
    pub fn of(surveys: [&Survey; 2]) -> Files {
        let mut numbers: HashMap<String, u32> = HashMap::new();
        Files(surveys.map(|survey| {
            let number = |file| {
                let next = numbers.len() as u32;
                *numbers.entry(survey.identity(file)).or_insert(next)
            };
            survey.maps.files().map(number).collect()
        }))
    }
}

/// A byte of a file, comparable between recordings.
type Byte = (u32, u64);

/// A taken branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedBranch {
    /// The location and address of the branch.
    pub from: (Location, u64),
    /// The location and address of its target.
    pub to: (Location, u64),
    bytes: [Byte; 2],
    /// The change of the call depth, as far as the returns are among the branches too.
    deepens: i64,
    /// Whether the target is in the functions that count.
    stays: bool,
}

/// The branches of one thread of a recording, in order.
#[derive(Debug)]
pub struct Follower {
    recording: Recording,
    maps: Maps,
    thread: Thread,
    files: Vec<u32>,
    within: Option<LocationFilter>,
    waiting: VecDeque<TracedBranch>,
    taken: u64,
}

impl Follower {
    /// Follows a thread of a newly opened recording, the first (0) or the second of a comparison;
    /// `within` are the functions that count.
    pub fn new(
        recording: Recording,
        thread: Thread,
        (files, side): (&Files, usize),
        within: Option<LocationFilter>,
    ) -> Follower {
        let files = files.0.get(side).cloned().unwrap_or_default();
        let (maps, waiting) = (Maps::default(), VecDeque::new());
        Follower { recording, maps, thread, files, within, waiting, taken: 0 }
    }

    fn next(&mut self) -> Result<Option<TracedBranch>, ReadError> {
        while self.waiting.is_empty() {
            let Some(item) = self.recording.next_item()? else { return Ok(None) };
            match item {
                Item::Event(event) => self.maps.event(&event),
                Item::Stack(stack) => {
                    // Also of other threads, so that files get the same numbers as in the survey.
                    let space = self.maps.space(stack.head.pid);
                    if thread_of(&stack) != self.thread {
                        continue;
                    }
                    let (maps, files, waiting) = (&self.maps, &self.files, &mut self.waiting);
                    let located = |address| (maps.locate(space, address), address);
                    let within = |at| self.within.as_ref().is_none_or(|within| within.has(at));
                    for raw in stack.entries.iter().rev() {
                        let (from, to) = (located(raw.from), located(raw.to));
                        if !within(from.0) {
                            continue;
                        }
                        let bytes = [byte(files, from.0), byte(files, to.0)];
                        let stays = within(to.0);
                        let deepens = match raw.flags.branch_type() {
                            Some(BranchType::CALL | BranchType::IND_CALL) => i64::from(stays),
                            Some(BranchType::RET) => -1,
                            _ => 0,
                        };
                        waiting.push_back(TracedBranch { from, to, bytes, deepens, stays });
                    }
                }
                _ => {}
            }
        }
        self.taken += 1;
        Ok(self.waiting.pop_front())
    }

    /// Takes back branches that were read ahead.
    fn put_back(&mut self, ahead: impl DoubleEndedIterator<Item = TracedBranch>) {
        for branch in ahead.rev() {
            self.taken -= 1;
            self.waiting.push_front(branch);
        }
    }
}

fn byte(files: &[u32], location: Location) -> Byte {
    match location {
        Location::File { file, offset } => (files.get(file).copied().unwrap_or(u32::MAX), offset),
        Location::Address(_) => (u32::MAX, 0),
    }
}

/// Two ways from one point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parting {
    /// Number of the thread's branches that agreed before; those since earlier partings count.
    pub after: u64,
    /// The next branch of each recording; `None` if the thread ends.
    pub ways: [Option<TracedBranch>; 2],
    /// Where they meet again; `None` if they do not within [`LONGEST_WAY`].
    pub meet: Option<Meeting>,
}

/// Where two ways meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// The number of branches of each way before it.
    pub branches: [u64; 2],
    /// Its location and address in each recording.
    pub at: [(Location, u64); 2],
}

impl Parting {
    /// The recording, 0 or 1, and its branch where the ways part: the earlier one, which the other
    /// recording does not take. Both start in the same straight-line code.
    pub fn site(&self) -> Option<(usize, TracedBranch)> {
        let [a, b] = self.ways;
        match (a, b) {
            (Some(a), Some(b)) if b.bytes[0] < a.bytes[0] => Some((1, b)),
            (Some(a), _) => Some((0, a)),
            (None, b) => b.map(|b| (1, b)),
        }
    }

    /// Whether the recording takes the branch of the site.
    pub fn takes(&self, side: usize) -> bool {
        let site = self.site().map(|(_, branch)| branch.bytes[0]);
        let way = self.ways.get(side).copied().flatten();
        way.is_some_and(|way| Some(way.bytes[0]) == site)
    }
}

/// The comparison of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// The branches of each recording, as far as they were compared.
    pub branches: [u64; 2],
    /// The branches that agreed.
    pub agreed: u64,
    /// For each place where the ways part, the first time and the number of times; in the order
    /// of the first times.
    pub partings: Vec<(Parting, u64)>,
}

impl Traced {
    /// Compares a thread of two recordings.
    ///
    /// # Errors
    /// [`ReadError`], with the recording that cannot be read.
    pub fn compare(a: &mut Follower, b: &mut Follower) -> Result<Traced, (usize, ReadError)> {
        let mut traced = Traced::default();
        let mut known: BTreeMap<Byte, usize> = BTreeMap::new();
        loop {
            let ways = [a.next().map_err(|e| (0, e))?, b.next().map_err(|e| (1, e))?];
            match ways {
                [None, None] => break,
                [Some(one), Some(other)] if one.bytes == other.bytes => traced.agreed += 1,
                ways => {
                    let meet = meet(a, b, ways)?;
                    let parting = Parting { after: traced.agreed, ways, meet };
                    let goes_on = parting.meet.is_some();
                    let site = parting.site().map_or((0, 0), |(_, branch)| branch.bytes[0]);
                    let at = *known.entry(site).or_insert(traced.partings.len());
                    match traced.partings.get_mut(at) {
                        Some((_, times)) => *times += 1,
                        None => traced.partings.push((parting, 1)),
                    }
                    if !goes_on {
                        break;
                    }
                }
            }
        }
        traced.branches = [a.taken, b.taken];
        Ok(traced)
    }
}

/// Reads ahead on both sides until one reaches a point that the other has reached in the same frame,
/// and takes back what comes after it.
fn meet(
    a: &mut Follower,
    b: &mut Follower,
    firsts: [Option<TracedBranch>; 2],
) -> Result<Option<Meeting>, (usize, ReadError)> {
    /// One way: its branches, their depths, and where each target was first reached.
    #[derive(Default)]
    struct Way {
        branches: Vec<TracedBranch>,
        depth: i64,
        reached: HashMap<(Byte, i64), usize>,
    }
    impl Way {
        fn push(&mut self, branch: TracedBranch) -> Option<(Byte, i64)> {
            self.depth += branch.deepens;
            let point = (branch.bytes[1], self.depth);
            // In the same frame or an outer one: a function that both call has other callers.
            let counts = branch.stays && self.depth <= 0;
            if counts {
                self.reached.entry(point).or_insert(self.branches.len());
            }
            self.branches.push(branch);
            counts.then_some(point)
        }
    }
    let mut ways = [Way::default(), Way::default()];
    let mut next = firsts;
    for _ in 0..LONGEST_WAY {
        if next == [None, None] {
            break;
        }
        for side in [0, 1] {
            let Some(branch) = next[side] else { continue };
            let Some(point) = ways[side].push(branch) else { continue };
            let Some(&there) = ways[1 - side].reached.get(&point) else { continue };
            let here = ways[side].branches.len() - 1;
            let ends = if side == 0 { [here, there] } else { [there, here] };
            let [way_a, way_b] = ways;
            let last = |way: &Way, end: usize| way.branches.get(end).copied();
            let (Some(last_a), Some(last_b)) = (last(&way_a, ends[0]), last(&way_b, ends[1]))
            else {
                return Ok(None);
            };
            // The second side's branch of this round is still unread.
            let unread = if side == 0 { next[1] } else { None };
            b.put_back(way_b.branches.into_iter().skip(ends[1] + 1).chain(unread));
            a.put_back(way_a.branches.into_iter().skip(ends[0] + 1));
            // By the same branch, they met before it.
            let is_same = last_a.bytes[0] == last_b.bytes[0] && last_a.bytes[0].0 != u32::MAX;
            let branches = ends.map(|end| end as u64 + u64::from(!is_same));
            let at = [last_a, last_b].map(|last| if is_same { last.from } else { last.to });
            return Ok(Some(Meeting { branches, at }));
        }
        next = [a.next().map_err(|e| (0, e))?, b.next().map_err(|e| (1, e))?];
    }
    Ok(None)
}
