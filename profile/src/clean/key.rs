//! Identity of branches.
//!
//! The same bytes of the same file are one location, in every process and at every address: there
//! the key of a branch is file and offset of both ends. An address outside of files has a meaning
//! only in its process, so the process belongs to the key.

use crate::code::maps::{Location, Maps, Owner};
use crate::index::{Index, hash};

/// A pair of locations: source and target of a branch, or entry and exit of a block; and their
/// owner if one is outside of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) place: (Location, Location),
    pub(crate) owner: Option<Owner>,
}

impl Key {
    /// The key of two addresses in one address space.
    pub(crate) fn of(maps: &Maps, space: u32, from: u64, to: u64) -> Key {
        let locate = |addr| maps.locate(space as usize, addr);
        let place = (locate(from), locate(to));
        let private = place.0.is_private() || place.1.is_private();
        let owner = if private { maps.owner(space as usize) } else { None };
        Key { place, owner }
    }

    pub(crate) fn hash(&self) -> u32 {
        place_hash(self.place.0, parts(self.place.1).0, self.owner)
    }
}

/// Offset or address, and the file's number from 1.
fn parts(location: Location) -> (u64, u64) {
    match location {
        Location::File { file, offset } => (offset, file as u64 + 1),
        Location::Address(addr) => (addr, 0),
    }
}

/// The hash of a location with another value, and of their owner.
pub(crate) fn place_hash(location: Location, other: u64, owner: Option<Owner>) -> u32 {
    let (at, file) = parts(location);
    let owner = owner.map_or(0, |owner| {
        let pid = owner.pid.map_or(0, |pid| u64::from(pid) + 1);
        u64::from(owner.recording) << 33 ^ pid
    });
    hash(at, other ^ owner.rotate_left(7), file)
}

/// For each branch (space, from, to), the number of the first identical one.
pub(crate) fn firsts(maps: &Maps, branches: impl Fn(usize) -> Option<(u32, u64, u64)>) -> Vec<u32> {
    let spaces = || (0..).map_while(&branches).map(|(space, ..)| space);
    let first = spaces().next();
    let one_space = spaces().all(|space| Some(space) == first);
    if first.is_none_or(|space| one_space && maps.has_each_byte_once(space as usize)) {
        return (0..).zip(spaces()).map(|(at, _)| at).collect();
    }
    let of =
        |at: u32| branches(at as usize).map(|(space, from, to)| Key::of(maps, space, from, to));
    let mut index = Index::default();
    let find = |at| {
        let key = of(at)?;
        let known = index.find(key.hash(), |known| of(known) == Some(key));
        if known.is_none() {
            index.insert(key.hash(), at);
        }
        Some(known.unwrap_or(at))
    };
    (0..).map_while(find).collect()
}

/// The number of distinct branches.
pub(crate) fn distinct(maps: &Maps, branches: impl Fn(usize) -> Option<(u32, u64, u64)>) -> u64 {
    let firsts = firsts(maps, branches).into_iter();
    (0..).zip(firsts).filter(|(at, first)| at == first).count() as u64
}
