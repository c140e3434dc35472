//! Stacks whose entries are in several lines: `perf script -F brstack | tr ' ' '\n'`, listings of
//! books, wrapped texts.

use super::entry::first_entry;
use super::line::Line;
use super::parse::{self, Context, Split, Starts};
use super::words;
use crate::read::LONGEST_BLOCK;
use crate::read::names;
use crate::read::stack::{RawBranch, SampleHead};

/// Entries of the deepest LBR or BRBE.
const DEEPEST: usize = 64;
/// Enough neighbours that join to exclude chance.
const FEW: usize = 8;

/// A line with entries and nothing else.
#[derive(Debug)]
struct Bare {
    number: u64,
    first: RawBranch,
    last: RawBranch,
    single: bool,
    indented: bool,
    /// Its length, and that of its first entry.
    len: usize,
    first_len: usize,
    /// Whether it ends with a space.
    trails: bool,
    /// Blank lines before it.
    gap: usize,
}

/// Bare lines without any other lines between them.
#[derive(Debug, Default)]
struct Group {
    /// The sample that starts them: its line has columns; and entries, the last of which is this.
    headed: bool,
    last: Option<RawBranch>,
    /// A word before them that may be the sampled address, or a number of stacks.
    word: Option<u64>,
    /// Words before them that are alone in a line, and those that end with a colon, as columns do.
    words: usize,
    colons: usize,
    bare: Vec<Bare>,
}

impl Group {
    fn pairs(&self) -> impl Iterator<Item = (&Bare, &Bare)> {
        self.bare.iter().zip(self.bare.iter().skip(1))
    }
}

/// Finds the layout of a text that starts like this; `None` if each stack is in one line.
///
/// # Errors
/// The number of a line, from 1, if entries are apart and the start of their stacks is unknown.
pub(super) fn find(head: &[u8], context: &mut Context) -> Result<Option<Split>, u64> {
    let groups = groups(head, context);
    let Some(starts) = starts(&groups)? else { return Ok(None) };
    let all_single = groups.iter().flat_map(|group| &group.bare).all(|bare| bare.single);
    let oldest_first = all_single && Joins::of(&groups, starts.within()).oldest_first();
    Ok(Some(Split { starts, oldest_first }))
}

fn starts(groups: &[Group]) -> Result<Option<Starts>, u64> {
    if has_heads(groups) {
        return Ok(Some(Starts::Head));
    }
    let words = words(groups)?;
    if words == Some(Starts::Ip) {
        return Ok(words);
    }
    let Some([first, ..]) = groups.iter().find_map(|group| group.bare.get(..2)) else {
        return Ok(None);
    };
    let refused = Err(first.number);
    let all = || groups.iter().flat_map(|group| &group.bare);
    if !all().all(|bare| bare.single) {
        return if is_wrapped(groups) { refused } else { Ok(None) };
    }
    let least = further(groups).map(|bare| bare.gap).min().unwrap_or_default();
    let starts = if further(groups).any(|bare| bare.gap > least) {
        Starts::Gap(least + 1)
    } else if all().any(|bare| bare.indented) && further(groups).any(|bare| !bare.indented) {
        Starts::Indent
    } else {
        Starts::Once
    };
    let joins = Joins::of(groups, starts.within());
    let every = runs(groups, joins.oldest_first());
    // perf prints stacks of one entry so. Those of a small loop join by chance.
    let is_perf = all().all(|bare| bare.indented && bare.trails);
    if is_perf && (!joins.all() || joins.pairs < FEW) || !joins.most() && every.is_none() {
        return Ok(None);
    }
    let trails = |(before, next): (&Bare, &Bare)| before.trails == next.indented;
    Ok(Some(match starts {
        // A number of stacks, or anything else.
        _ if words.is_some() => return refused,
        Starts::Indent if !groups.iter().flat_map(Group::pairs).all(trails) => return refused,
        // `tr` leaves one empty line after each entry, and one more after each stack.
        Starts::Once if least > 1 => return refused,
        Starts::Once if !joins.all() => Starts::Every(every.ok_or(first.number)?),
        Starts::Once if groups.iter().any(|group| group.bare.len() > DEEPEST) => return refused,
        starts => starts,
    }))
}

/// The bare lines that follow another.
fn further(groups: &[Group]) -> impl Iterator<Item = &Bare> {
    groups.iter().flat_map(|group| group.bare.get(1..).unwrap_or_default())
}

/// Whether the entries of samples are in the lines after their columns.
fn has_heads(groups: &[Group]) -> bool {
    let goes_on = |group: &Group| match (&group.last, &*group.bare) {
        (Some(last), [first, ..]) => Some(joins(last, &first.first)),
        (None, [first, second, ..]) => Some(second.single || joins(&first.last, &second.first)),
        _ => None,
    };
    let heads = groups.iter().filter(|group| group.headed).filter_map(goes_on);
    let (further, all) =
        heads.fold((0, 0), |(further, all), is| (further + usize::from(is), all + 1));
    2 * further > all
}

/// [`Starts::Ip`] if the words before entries are sampled addresses; `Starts::Once` if they are
/// something else.
fn words(groups: &[Group]) -> Result<Option<Starts>, u64> {
    let before = || groups.iter().filter_map(|group| Some((group, group.bare.first()?)));
    let several = |colons: usize| {
        let several = before().filter(|(group, _)| group.words > 1 && group.colons >= colons);
        2 * several.count() > before().count()
    };
    let line = before().next().map_or(0, |(_, first)| first.number);
    // Columns, each in its own line.
    if several(1) {
        return Err(line);
    }
    let words = || before().filter_map(|(group, first)| Some((group.word?, first)));
    let near = words().filter(|(ip, first)| ip.abs_diff(first.first.to) < LONGEST_BLOCK).count();
    match words().count() {
        0 => Ok(None),
        all if 2 * near <= all => Ok(Some(Starts::Once)),
        _ if several(0) => Err(line),
        _ => Ok(Some(Starts::Ip)),
    }
}

/// Whether lines of entries were wrapped where the next entry did not fit.
fn is_wrapped(groups: &[Group]) -> bool {
    let longest = groups.iter().flat_map(|group| &group.bare).map(|bare| bare.len).max();
    let is_wrap = |(before, next): (&Bare, &Bare)| {
        // With the spaces between two entries.
        Some(before.len + next.first_len + 2) > longest && joins(&before.last, &next.first)
    };
    let has_start = groups.iter().any(|group| group.bare.first().is_some_and(|bare| bare.indented));
    let mut pairs = groups.iter().flat_map(Group::pairs).filter(|(_, next)| !next.indented);
    has_start && further(groups).any(|bare| !bare.indented) && pairs.all(is_wrap)
}

impl Starts {
    /// Whether a bare line after another is of the same stack.
    fn within(self) -> impl Fn(&Bare) -> bool {
        move |next| match self {
            Starts::Gap(least) => next.gap < least,
            Starts::Indent => !next.indented,
            _ => true,
        }
    }
}

/// How many neighbours join, in either order.
#[derive(Clone, Copy, Debug, Default)]
struct Joins {
    pairs: usize,
    newest_first: usize,
    oldest_first: usize,
}

impl Joins {
    fn of(groups: &[Group], within: impl Fn(&Bare) -> bool) -> Joins {
        let mut found = Joins::default();
        let pairs = groups.iter().flat_map(Group::pairs);
        for (before, next) in pairs.filter(|(_, next)| within(next)) {
            found.pairs += 1;
            found.newest_first += usize::from(joins(&before.last, &next.first));
            found.oldest_first += usize::from(joins(&next.first, &before.last));
        }
        found
    }

    fn oldest_first(self) -> bool {
        self.oldest_first > self.newest_first
    }

    fn all(self) -> bool {
        self.newest_first.max(self.oldest_first) == self.pairs
    }

    fn most(self) -> bool {
        2 * self.newest_first.max(self.oldest_first) > self.pairs
    }
}

/// The number of entries in each stack, if entries join except after this number.
fn runs(groups: &[Group], oldest_first: bool) -> Option<usize> {
    let mut lengths = Vec::new();
    for group in groups {
        lengths.push(1);
        for (before, next) in group.pairs() {
            let (newer, older) = if oldest_first { (next, before) } else { (before, next) };
            match lengths.last_mut() {
                Some(len) if joins(&newer.first, &older.first) => *len += 1,
                _ => lengths.push(1),
            }
        }
        if group.bare.is_empty() {
            lengths.pop();
        }
    }
    // The text may end within a stack.
    lengths.pop();
    let common = |a: usize, b: usize| {
        let (mut a, mut b) = (a, b);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let every = lengths.iter().copied().reduce(common)?;
    (4..=DEEPEST).contains(&every).then_some(every).filter(|every| lengths.len() * every >= FEW)
}

/// The bare lines at the start of a text, by what separates them.
fn groups(head: &[u8], context: &mut Context) -> Vec<Group> {
    let mut groups = vec![Group::default()];
    let (mut gap, mut entries) = (0, Vec::new());
    for (text, number) in head.split_inclusive(|byte| *byte == b'\n').zip(1..) {
        let trimmed = text.trim_ascii();
        if trimmed.is_empty() {
            gap += 1;
            continue;
        }
        let line = parse::parse(text, text.len(), 0, &mut entries, context);
        let is_sample = matches!(line, Ok(Line::Sample(_)));
        let Some(group) = groups.last_mut() else { break };
        let before = if group.bare.is_empty() { (group.words, group.colons) } else { (0, 0) };
        let (words, colons) =
            match trimmed.iter().any(u8::is_ascii_whitespace) || text.starts_with(b"\t") {
                true => (before.0, before.1),
                false => (before.0 + 1, before.1 + usize::from(trimmed.ends_with(b":"))),
            };
        match (&*entries, line) {
            ([first, .., last] | [first @ last], Ok(Line::Sample(found)))
                if is_bare(&found, text, context) =>
            {
                let blank = |byte: Option<&u8>| byte.is_some_and(|byte| b" \t".contains(byte));
                let indented = blank(text.first());
                let end = text.strip_suffix(b"\n").unwrap_or(text);
                let end = end.strip_suffix(b"\r").unwrap_or(end);
                group.bare.push(Bare {
                    number,
                    first: *first,
                    last: *last,
                    single: entries.len() == 1,
                    indented,
                    len: end.len(),
                    first_len: trimmed.iter().take_while(|byte| **byte != b' ').count(),
                    trails: blank(end.last()),
                    gap: std::mem::take(&mut gap),
                });
            }
            (found, _) if is_sample => {
                let last = found.last().copied();
                groups.push(Group { headed: true, last, words, colons, ..Group::default() });
            }
            // Between a sample and its branches.
            (_, Ok(Line::Frame)) if text.starts_with(b"\t") && group.bare.is_empty() => {}
            _ => {
                // Small numbers are counts.
                let word = words::hex(trimmed).filter(|word| *word >= 2 * LONGEST_BLOCK);
                groups.push(Group { word, words, colons, ..Group::default() });
            }
        }
        gap = 0;
        entries.clear();
    }
    groups
}

/// Whether a sample's line has nothing else than its entries.
pub(crate) fn is_bare(head: &SampleHead, line: &[u8], context: &Context) -> bool {
    *head == SampleHead::default()
        && context.event.is_empty()
        && first_entry(line.trim_ascii_start())
            .is_none_or(|at| at == 0 || context.names.has_symbols)
}

/// Whether a fall-through range can lead from the older branch to the newer one; empty records end
/// a stack.
fn joins(newer: &RawBranch, older: &RawBranch) -> bool {
    let is_none = newer.is_empty() || older.is_empty();
    is_none || are_joined(&[*newer, *older]) == Some(true)
}

/// Whether two neighbours of a stack join, the newer one first; `None` if a place is unknown.
pub(crate) fn are_joined(pair: &[RawBranch]) -> Option<bool> {
    let [newer, older] = pair else { return None };
    let is_unknown = |place: u64| place == 0 || names::is_unknown(place);
    let known = !is_unknown(newer.from) && !is_unknown(older.to);
    known.then(|| newer.from.checked_sub(older.to).is_some_and(|len| len < LONGEST_BLOCK))
}

impl Split {
    /// Whether a bare line starts a stack, given the entries of the stack before and the number of
    /// empty lines between; `None` if this is unknown.
    pub(crate) fn starts(
        self,
        stack: &[RawBranch],
        line: &[u8],
        next: &RawBranch,
        gap: usize,
    ) -> Option<bool> {
        match self.starts {
            Starts::Head | Starts::Ip => Some(false),
            Starts::Gap(least) => Some(gap >= least),
            Starts::Indent => Some(line.first().is_some_and(u8::is_ascii_whitespace)),
            Starts::Every(most) if stack.len() == most => Some(true),
            Starts::Every(_) | Starts::Once => {
                let last = stack.last()?;
                let (newer, older) = if self.oldest_first { (next, last) } else { (last, next) };
                (joins(newer, older) && stack.len() < DEEPEST).then_some(false)
            }
        }
    }
}
