//! Recordings that are read twice: once for what there is, once to follow it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use profile::Recording;
use profile::perf_data::ReadError;
use tempfile::NamedTempFile;

use crate::exit::Failure;
use crate::input::{self, Source};

/// Recordings that can be read again.
#[derive(Debug)]
pub(super) struct Reread {
    paths: Vec<PathBuf>,
    /// What came through a pipe, until the report is done.
    kept: Vec<Option<NamedTempFile>>,
}

impl Reread {
    /// Takes paths; a pipe is copied to a temporary file first.
    pub(super) fn new(paths: &[PathBuf]) -> Result<Reread, Failure> {
        input::once(paths)?;
        let kept: Result<_, Failure> = paths.iter().map(|path| kept(path)).collect();
        Ok(Reread { paths: paths.to_vec(), kept: kept? })
    }

    /// Reads them from the beginning, one after the other.
    pub(super) fn read(
        &self,
        read: impl FnMut(&mut Recording, &mut dyn FnMut(u64, Option<u64>)) -> Result<(), ReadError>,
    ) -> Result<Vec<Source>, Failure> {
        let path = |at: usize| {
            let kept = self.kept.get(at).and_then(Option::as_ref).map(NamedTempFile::path);
            kept.or(self.paths.get(at).map(PathBuf::as_path)).unwrap_or(Path::new("-"))
        };
        input::read_each(&self.paths, |at| input::open(path(at)), read)
    }
}

fn kept(path: &Path) -> Result<Option<NamedTempFile>, Failure> {
    let stdin = path == Path::new("-");
    if !stdin && std::fs::metadata(path).map_or(true, |kind| kind.is_file()) {
        return Ok(None);
    }
    let keep = || -> anyhow::Result<NamedTempFile> {
        let mut kept = NamedTempFile::new()?;
        if stdin {
            std::io::copy(&mut std::io::stdin().lock(), &mut kept)?;
        } else {
            std::io::copy(&mut std::fs::File::open(path)?, &mut kept)?;
        }
        Ok(kept)
    };
    let kept = keep().with_context(|| {
        format!("{}: this view reads twice and keeps a copy", input::name(path))
    })?;
    Ok(Some(kept))
}
