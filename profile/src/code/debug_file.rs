//! Locating programs and their separate debug files with symbols and lines.

use std::fs::File;
use std::io::{BufReader, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lbr_msr::environment;
use object::read::{ReadCache, ReadRef};
use object::{Object, ObjectSection};

use super::error::SymbolError;
use super::hex;
use crate::read;

/// The places to search for programs, libraries and debug files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugDirs {
    /// The root folder of recorded paths instead of `/` (perf's `--symfs`). Files may also be
    /// directly in it, without their folders.
    pub symfs: Option<PathBuf>,
    /// Folders with programs, under their full path or only their name.
    pub programs: Vec<PathBuf>,
    /// Folders such as `/usr/lib/debug`, with `.build-id/xx/yyy` and `.build-id/xx/yyy.debug`, and
    /// debug links under the program's folder.
    pub roots: Vec<PathBuf>,
    /// perf's caches, such as `~/.debug`: `.build-id/xx/yyy/debug` and `elf`.
    pub caches: Vec<PathBuf>,
    /// The debuginfod clients' cache: `BUILDID/debuginfo`. Nothing is downloaded.
    pub fetched: Vec<PathBuf>,
}

impl DebugDirs {
    /// The folders in environment variables (HOME, XDG_CACHE_HOME, DEBUGINFOD_CACHE_PATH), if they
    /// are [trusted](environment::trusted), and `/usr/lib/debug`.
    pub fn usual() -> DebugDirs {
        let var = |name| environment::trusted(name).filter(|value| !value.is_empty());
        let home = var("HOME").map(PathBuf::from);
        let fetched = var("DEBUGINFOD_CACHE_PATH").map(PathBuf::from).or_else(|| {
            let cache = var("XDG_CACHE_HOME").map(PathBuf::from);
            let cache = cache.or_else(|| Some(home.as_ref()?.join(".cache")));
            Some(cache?.join("debuginfod_client"))
        });
        DebugDirs {
            roots: vec![PathBuf::from("/usr/lib/debug")],
            caches: home.iter().map(|home| home.join(".debug")).collect(),
            fetched: fetched.into_iter().collect(),
            ..DebugDirs::default()
        }
    }

    /// The possible paths of a program recorded at a path, most likely first. The caller must check
    /// each.
    pub(crate) fn programs(&self, recorded: &Path, id: Option<&[u8]>) -> Vec<PathBuf> {
        use std::path::Component;
        // A recording must not lead out of the folder.
        let inside: PathBuf =
            recorded.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        let below = |folder: &PathBuf| {
            let name = recorded.file_name().map(|name| folder.join(name));
            std::iter::once(folder.join(&inside)).chain(name)
        };
        let mut paths: Vec<PathBuf> =
            self.symfs.iter().chain(&self.programs).flat_map(below).collect();
        if self.symfs.is_none() {
            paths.push(recorded.to_owned());
        }
        paths.extend(id.map(|id| self.by_build_id(id)).unwrap_or_default());
        paths
    }

    /// The folders to search for a program besides its own, also by build ID if known.
    pub(crate) fn folders(&self, by_id: bool) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = self.symfs.iter().chain(&self.programs).cloned().collect();
        if by_id {
            let more = [&self.roots, &self.caches, &self.fetched].into_iter().flatten();
            folders.extend(more.filter(|more| !self.programs.contains(more)).cloned());
        }
        folders
    }

    /// Files that may have a build ID, most likely first.
    pub(crate) fn by_build_id(&self, id: &[u8]) -> Vec<PathBuf> {
        // Recorders pad shorter IDs (16, 8) to 20 bytes.
        let end = id.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let id =
            if id.len() == 20 && end <= 16 { id.get(..end.next_multiple_of(8)) } else { Some(id) };
        let id = id.unwrap_or_default();
        let Some((first, rest)) = id.split_first().filter(|(_, rest)| !rest.is_empty()) else {
            return Vec::new();
        };
        let (first, rest) = (hex(&[*first]), hex(rest));
        let within = |root: &PathBuf| root.join(".build-id").join(&first);
        let mut paths = Vec::new();
        for root in &self.roots {
            paths.push(within(root).join(&rest));
            paths.push(within(root).join(format!("{rest}.debug")));
        }
        for cache in &self.caches {
            let entry = within(cache).join(&rest);
            // Old versions of perf have a file in place of the folder.
            paths.extend([entry.join("elf"), entry.join("debug"), entry]);
        }
        for fetched in &self.fetched {
            let entry = fetched.join(hex(id));
            paths.extend([entry.join("executable"), entry.join("debuginfo")]);
        }
        paths
    }

    /// The symbol list of a kernel that perf saved, by build ID.
    pub(crate) fn kallsyms(&self, id: &[u8]) -> Option<PathBuf> {
        self.saved(id, "kallsyms").find(|path| path.is_file())
    }

    /// The vDSO of a kernel that perf saved, by build ID.
    pub(crate) fn vdso(&self, id: &[u8]) -> Option<PathBuf> {
        self.saved(id, "vdso").find(|path| read::build_id(path).is_some_and(|found| found == id))
    }

    /// The possible paths of a file that perf saved, by build ID.
    fn saved(&self, id: &[u8], name: &str) -> impl Iterator<Item = PathBuf> {
        let only_caches = DebugDirs { caches: self.caches.clone(), ..DebugDirs::default() };
        only_caches.by_build_id(id).into_iter().map(move |path| path.join(name))
    }
}

/// Opens a regular file.
pub(crate) fn open_regular(path: &Path) -> Result<File, SymbolError> {
    let cause = |cause| SymbolError::Open { path: path.to_owned(), cause };
    let file = read::regular(path).map_err(cause)?;
    file.ok_or_else(|| SymbolError::NotAFile(path.to_owned()))
}

/// The contents wanted of a debug file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DebugContent {
    Symbols,
    Lines,
}

impl DebugContent {
    /// Whether a file has them.
    pub(crate) fn is_in<'data, R: ReadRef<'data>>(self, object: &object::File<'data, R>) -> bool {
        let filled = |name: &str| {
            object
                .section_by_name(name)
                .is_some_and(|section| section.file_range().is_some_and(|(_, size)| size > 0))
        };
        match self {
            DebugContent::Symbols => object.symbol_table().is_some() && filled(".symtab"),
            // Old compressed sections have other names, which `object` maps to the usual ones.
            DebugContent::Lines => filled(".debug_line") && filled(".debug_info"),
        }
    }
}

/// The debug file of a program: by build ID, or else by debug link.
pub(crate) fn debug_file<'data, R: ReadRef<'data>>(
    path: &Path,
    object: &object::File<'data, R>,
    dirs: &DebugDirs,
    wanted: DebugContent,
) -> Option<PathBuf> {
    let id = object.build_id().ok().flatten();
    if let Some(id) = id {
        let mut paths = dirs.by_build_id(id).into_iter();
        let found = paths.find(|path| belongs(path, Proof::BuildId(id), wanted));
        if found.is_some() {
            return found;
        }
    }
    let (name, crc) = object.gnu_debuglink().ok().flatten()?;
    let name = Path::new(std::ffi::OsStr::from_bytes(name));
    // It must be a plain file name, not a path.
    if name.components().count() != 1 || name.file_name().is_none() {
        return None;
    }
    let folder = path.parent()?;
    let mut paths = vec![folder.join(name), folder.join(".debug").join(name)];
    let recorded = dirs.symfs.as_ref().and_then(|symfs| folder.strip_prefix(symfs).ok());
    let inside = recorded.unwrap_or_else(|| folder.strip_prefix("/").unwrap_or(folder));
    paths.extend(dirs.roots.iter().map(|root| root.join(inside).join(name)));
    let proof = id.map_or(Proof::Crc(crc), Proof::BuildId);
    paths.into_iter().find(|found| found != path && belongs(found, proof, wanted))
}

/// The file with debug information shared by several programs (`.gnu_debugaltlink`, by dwz), and
/// the path in the link.
pub(crate) fn alternate<'data, R: ReadRef<'data>>(
    path: &Path,
    object: &object::File<'data, R>,
    dirs: &DebugDirs,
) -> Option<PathBuf> {
    let (name, id) = object.gnu_debugaltlink().ok().flatten()?;
    let name = Path::new(std::ffi::OsStr::from_bytes(name));
    // A relative link starts at the real folder of the file with the link.
    let real = std::fs::canonicalize(path).ok();
    let next_to_it = real.as_deref().and_then(Path::parent).map(|folder| folder.join(name));
    let mut paths: Vec<PathBuf> = next_to_it.into_iter().collect();
    paths.extend(dirs.by_build_id(id));
    paths.into_iter().find(|path| read::build_id(path).is_some_and(|found| found == id))
}

/// The proof that a debug file is the right one.
#[derive(Clone, Copy)]
enum Proof<'a> {
    BuildId(&'a [u8]),
    /// CRC-32 of the whole file.
    Crc(u32),
}

fn belongs(path: &Path, proof: Proof<'_>, wanted: DebugContent) -> bool {
    let Ok(file) = open_regular(path) else { return false };
    let Ok(again) = file.try_clone() else { return false };
    let cache = ReadCache::new(file);
    let Ok(object) = object::File::parse(&cache) else { return false };
    if !wanted.is_in(&object) {
        return false;
    }
    match proof {
        Proof::BuildId(id) => object.build_id().ok().flatten() == Some(id),
        Proof::Crc(crc) => crc_of(again).is_some_and(|found| found == crc),
    }
}

fn crc_of(mut file: File) -> Option<u32> {
    file.rewind().ok()?;
    let mut crc = flate2::CrcWriter::new(std::io::sink());
    std::io::copy(&mut BufReader::with_capacity(1 << 18, file), &mut crc).ok()?;
    Some(crc.crc().sum())
}

#[cfg(test)]
#[path = "../../../tests/profile/unit/code/debug_file.rs"]
mod tests;
