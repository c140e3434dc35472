//! What the code bytes say about blocks.

/// A conditional branch inside a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inside {
    pub(super) site: u32,
    /// Its length, bytes.
    pub(super) len: u32,
}

/// What the code bytes said about a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Decoding {
    Runs,
    #[default]
    NoCode,
    Contradicts,
}

/// The conditional branches inside each block that has any.
#[derive(Debug, Default)]
pub(super) struct Insides {
    all: Vec<Inside>,
    /// Where those of each block end.
    ends: Vec<u32>,
}

impl Insides {
    /// Those of a number.
    #[inline]
    pub(super) fn of(&self, number: u32) -> &[Inside] {
        let Some(at) = (number as usize).checked_sub(1) else { return &[] };
        let end = |at: usize| self.ends.get(at).map_or(0, |end| *end as usize);
        let start = at.checked_sub(1).map_or(0, end);
        self.all.get(start..end(at)).unwrap_or_default()
    }

    /// Adds those of a block: their number, which is 0 where there are none. `None`
    /// where there are more than numbers.
    pub(super) fn push(&mut self, inside: &[Inside]) -> Option<u32> {
        if inside.is_empty() {
            return Some(0);
        }
        let end = u32::try_from(self.all.len() + inside.len()).ok()?;
        self.all.extend_from_slice(inside);
        self.ends.push(end);
        u32::try_from(self.ends.len()).ok()
    }
}
