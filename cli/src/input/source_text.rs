//! The text of source lines.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use lbr_msr::text::AsText;
use profile::lines::SourceLine;

use super::file::open;

/// Maximum size of a source file, in bytes.
const LONGEST_SOURCE: u64 = 64 << 20;

/// Reads a source file. Debug information may name anything, such as a pipe without a writer, an
/// endless device, or a kernel log that reading would empty; these report a length of 0.
fn source(path: &Path) -> io::Result<Vec<u8>> {
    let found = std::fs::metadata(path)?;
    if !found.is_file() || !(1..=LONGEST_SOURCE).contains(&found.len()) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    open(path)?.take(LONGEST_SOURCE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The files of source lines, as far as they are there.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    files: HashMap<Arc<str>, Option<Vec<String>>>,
}

impl Sources {
    /// A source line with its text, if its file can be read.
    pub(crate) fn line(&mut self, line: &SourceLine) -> String {
        let read = || {
            let bytes = source(Path::new(&*line.file)).ok()?;
            Some(bytes.as_text().lines().map(str::to_owned).collect())
        };
        let lines = self.files.entry(Arc::clone(&line.file)).or_insert_with(read);
        let index = (line.line as usize).checked_sub(1);
        let text = lines.as_ref().zip(index).and_then(|(lines, index)| lines.get(index));
        let name = line.file.rsplit('/').next().unwrap_or(&line.file);
        match text {
            Some(text) => format!("{name}:{}  {}", line.line, text.trim()),
            None => format!("{name}:{}", line.line),
        }
    }
}
