//! Recordings that are read twice: once for what there is, once to follow it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use profile::Recording;
use tempfile::NamedTempFile;

use crate::exit::Failure;
use crate::input;

/// A recording that can be opened again.
#[derive(Debug)]
pub(super) struct Reread {
    path: PathBuf,
    /// What came through a pipe, until the report is done.
    kept: Option<NamedTempFile>,
}

impl Reread {
    /// Takes a path; a pipe is copied to a temporary file first.
    pub(super) fn new(path: &Path) -> Result<Reread, Failure> {
        let stdin = path == Path::new("-");
        let is_file = std::fs::metadata(path).map_or(true, |kind| kind.is_file());
        if !stdin && is_file {
            return Ok(Reread { path: path.to_owned(), kept: None });
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
        Ok(Reread { path: path.to_owned(), kept: Some(kept) })
    }

    /// Opens it from the beginning.
    pub(super) fn open(&self) -> Result<Recording, Failure> {
        input::open(self.kept.as_ref().map_or(&self.path, |kept| kept.path()))
    }
}
