//! A long list in chunks.
//!
//! `crate::index` has the figures of plain containers.

/// Items per chunk: large enough that freed memory returns to the system.
const PIECE: usize = if cfg!(fuzzing) { 1 << 6 } else { 1 << 12 };

/// A list that grows without moving its items, and frees chunk by chunk as it is consumed: it never
/// needs more than one and a half times its size.
#[derive(Debug, Default)]
pub(crate) struct Pieces<T> {
    /// All chunks but the last are full.
    pieces: Vec<Vec<T>>,
}

impl<T> Pieces<T> {
    pub(crate) fn len(&self) -> usize {
        let last = self.pieces.last().map_or(0, Vec::len);
        self.pieces.len().saturating_sub(1) * PIECE + last
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.pieces.get(number as usize / PIECE)?.get(number as usize % PIECE)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.pieces.get_mut(number as usize / PIECE)?.get_mut(number as usize % PIECE)
    }

    pub(crate) fn push(&mut self, thing: T) {
        match self.pieces.last_mut().filter(|last| last.len() < PIECE) {
            Some(last) => last.push(thing),
            None => {
                let mut piece = Vec::with_capacity(PIECE);
                piece.push(thing);
                self.pieces.push(piece);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pieces.iter_mut().flatten()
    }

    /// Consumes the list.
    pub(crate) fn take(self) -> impl Iterator<Item = T> {
        self.pieces.into_iter().flatten()
    }
}

#[cfg(test)]
#[path = "../../../tests/profile/unit/clean/pieces.rs"]
mod tests;
