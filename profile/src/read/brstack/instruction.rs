//! Instructions between the branches (`-F brstackinsn`), and counts logged with each branch
//! (`brcntr`, perf 6.12 and later).
//!
//! `<tab>0000000000401774<tab>insn: eb 04<tab>br_cntr: AAB<tab># PRED 5 cycles [5]`: event A
//! occurred twice and B once. `-` is an event that did not occur; `+` follows one that may have
//! occurred more often. `# branch-misses = B` before the samples names event B.

/// The counts logged with a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchCounters {
    /// Its address.
    pub at: u64,
    /// Two bits per counter, the first counter lowest.
    pub word: u64,
}

/// Number of counters in a record.
const COUNTERS: u8 = 4;

/// Parses an instruction's line, without its tab; `None` for any other line, `Some(None)` without
/// counts.
pub(super) fn parse(line: &[u8]) -> Option<Option<BranchCounters>> {
    let (digits, rest) = line.split_at_checked(16)?;
    let (at, count) = super::digits::hex(digits);
    if count != 16 || rest.first() != Some(&b'\t') {
        return None;
    }
    let word = memchr::memmem::find(rest, LABEL).and_then(|label| {
        let text = rest.get(label + LABEL.len()..)?.trim_ascii_start();
        counts(text.split(u8::is_ascii_whitespace).next()?)
    });
    Some(word.map(|word| BranchCounters { at, word }))
}

const LABEL: &[u8] = b"br_cntr:";

/// Whether a text has such counts.
pub(super) fn are_in(text: &[u8]) -> bool {
    memchr::memmem::find_iter(text, LABEL).any(|at| {
        text.get(..at).is_some_and(|before| before.ends_with(b"\t") || before.ends_with(b" "))
    })
}

fn counts(letters: &[u8]) -> Option<u64> {
    let mut word = 0u64;
    for letter in letters {
        let counter = match letter {
            b'-' | b'+' => continue,
            letter => letter.checked_sub(b'A').filter(|counter| *counter < COUNTERS)?,
        };
        let shift = 2 * counter;
        if word >> shift & 3 < 3 {
            word += 1 << shift;
        }
    }
    Some(word)
}

/// The counter that a legend line describes: `# branch-misses = B`.
pub(super) fn legend(line: &[u8]) -> Option<u8> {
    let (before, letter) = line.strip_prefix(b"# ")?.split_last_chunk::<4>()?;
    let counter = match letter {
        [b' ', b'=', b' ', letter] => letter.checked_sub(b'A')?,
        _ => return None,
    };
    (!before.is_empty() && counter < COUNTERS).then_some(counter)
}
