//! The text of source lines.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use lbr_msr::text::AsText;
use profile::lines::SourceLine;

/// No source is longer, bytes.
const LONGEST_SOURCE: u64 = 64 << 20;

/// A source file: debug information may name anything, such as a pipe that
/// nobody writes or a device without end.
fn source(path: &Path) -> io::Result<Vec<u8>> {
    let found = std::fs::metadata(path)?;
    if !found.is_file() || found.len() > LONGEST_SOURCE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    std::fs::read(path)
}

/// The files of source lines, as far as they are there.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    files: HashMap<Arc<str>, Option<Vec<String>>>,
}

impl Sources {
    /// A line with its text, where its file can be read.
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
