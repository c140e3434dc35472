//! Matches files of two recordings: programs, libraries, sources.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A file that contains recorded locations.
#[derive(Debug, Default)]
pub(super) struct Used {
    pub(super) path: String,
    pub(super) build_id: Option<Vec<u8>>,
    pub(super) places: usize,
    pub(super) functions: BTreeSet<Arc<str>>,
}

impl Used {
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Its name without digits and dots, equal for versions of one file (`prog-1.0`, `prog-1.1`).
    fn without_version(&self) -> Option<Cow<'_, [u8]>> {
        let is_version = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
        let name: Vec<u8> = self.name().bytes().filter(|byte| !is_version(byte)).collect();
        (!name.is_empty()).then_some(name.into())
    }
}

/// The files of one side, by index.
pub(super) type Files = BTreeMap<usize, Used>;

/// For each side, the pair number of each file.
pub(super) type Pairs = [BTreeMap<usize, usize>; 2];

/// Pairs files: by build id, then by path, then by name, then by shared functions, then by name
/// without version, and finally the last remaining file of both sides.
pub(super) fn pair(before: &Files, after: &Files) -> Pairs {
    type Key = fn(&Used) -> Option<Cow<'_, [u8]>>;
    let exact: [Key; 3] = [
        |of| of.build_id.as_deref().map(Cow::Borrowed),
        |of| Some(of.path.as_bytes().into()),
        |of| Some(of.name().as_bytes().into()),
    ];
    let mut pairing = Pairing { files: [before, after], pairs: Pairs::default(), next: 0 };
    exact.into_iter().for_each(|key| pairing.by_key(key));
    pairing.by_functions();
    pairing.by_key(Used::without_version);
    if let [[file], [other]] = [0, 1].map(|side| pairing.free(side)).each_ref().map(Vec::as_slice) {
        pairing.add(*file, *other);
    }
    pairing.finish()
}

struct Pairing<'a> {
    files: [&'a Files; 2],
    pairs: Pairs,
    next: usize,
}

impl<'a> Pairing<'a> {
    /// Files without a pair, by descending number of locations.
    fn free(&self, side: usize) -> Vec<usize> {
        let (files, pairs) = (self.files[side], &self.pairs[side]);
        let free = files.iter().filter(|(file, _)| !pairs.contains_key(file));
        let mut free: Vec<(usize, usize)> = free.map(|(file, of)| (of.places, *file)).collect();
        free.sort_by_key(|(places, _)| std::cmp::Reverse(*places));
        free.into_iter().map(|(_, file)| file).collect()
    }

    fn add(&mut self, file: usize, other: usize) {
        let [before, after] = &mut self.pairs;
        before.insert(file, self.next);
        after.insert(other, self.next);
        self.next += 1;
    }

    fn by_key(&mut self, key: impl Fn(&'a Used) -> Option<Cow<'a, [u8]>>) {
        let [before, after] = self.files;
        let mut others: HashMap<Cow<'_, [u8]>, usize> = HashMap::new();
        for other in self.free(1) {
            if let Some(key) = after.get(&other).and_then(&key) {
                others.entry(key).or_insert(other);
            }
        }
        for file in self.free(0) {
            let key = before.get(&file).and_then(&key);
            if let Some(other) = key.and_then(|key| others.remove(&key)) {
                self.add(file, other);
            }
        }
    }

    fn by_functions(&mut self) {
        let [before, after] = self.files;
        let mut having: HashMap<&str, Vec<usize>> = HashMap::new();
        for other in self.free(1) {
            let names = after.get(&other).into_iter().flat_map(|of| &of.functions);
            names.for_each(|name| having.entry(name).or_default().push(other));
        }
        for file in self.free(0) {
            let mut shared: BTreeMap<usize, usize> = BTreeMap::new();
            let names = before.get(&file).into_iter().flat_map(|of| &of.functions);
            for other in names.filter_map(|name| having.get(&**name)).flatten() {
                *shared.entry(*other).or_default() += 1;
            }
            let free = shared.into_iter().filter(|(other, _)| !self.pairs[1].contains_key(other));
            if let Some((other, _)) = free.max_by_key(|(_, functions)| *functions) {
                self.add(file, other);
            }
        }
    }

    /// Gives each unpaired file its own number.
    fn finish(mut self) -> Pairs {
        for (pairs, files) in self.pairs.iter_mut().zip(self.files) {
            for file in files.keys() {
                pairs.entry(*file).or_insert_with(|| {
                    self.next += 1;
                    self.next - 1
                });
            }
        }
        self.pairs
    }
}

#[cfg(test)]
#[path = "../../../../../tests/profile/unit/views/compare/matching/pairs.rs"]
mod tests;
