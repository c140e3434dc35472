//! A part of a perf.data recording as perf.data: the samples that a selection
//! takes, and every other record, as they stand there. Samples without branch
//! stacks are no part of it.

use std::io::Write;

use crate::read::perf_data::ReadError;
use crate::read::recording::{Item, Recording};

/// Bytes that are written at once.
const CHUNK: usize = 256 * 1024;

/// Copies what is selected of a recording of this form; text gives nothing. The
/// outer error is one of reading. A copy that can be sought lacks the header, which
/// is handed out: it is to be written over the first bytes. Any other has the form
/// of a pipe, and the header is empty.
///
/// # Errors
/// [`ReadError`].
pub fn perf_data(
    recording: &mut Recording,
    seekable: bool,
    to: &mut impl Write,
    mut progress: impl FnMut(u64, Option<u64>),
) -> Result<std::io::Result<Vec<u8>>, ReadError> {
    let (mut bytes, mut written) = (Vec::with_capacity(2 * CHUNK), 0);
    recording.begin_copy(seekable);
    loop {
        let (head, is_left_out, is_end) = match recording.next_item()? {
            Some(Item::Stack(stack)) => (Some(stack.head.integrity.head), false, false),
            Some(Item::LeftOut) => (None, true, false),
            Some(_) => (None, false, false),
            None => (None, false, true),
        };
        if written == 0 {
            let head = recording.copy_head();
            written = head.len() as u64;
            bytes.extend(head);
        }
        let records = bytes.len();
        recording.copy_record(head, !is_left_out, &mut bytes);
        written += (bytes.len() - records) as u64;
        let mut header = Vec::new();
        if is_end {
            let tail;
            (tail, header) = recording.copy_tail(written);
            bytes.extend(tail);
        }
        if bytes.len() >= CHUNK || is_end {
            progress(recording.position(), recording.size());
            if let Err(error) = to.write_all(&bytes) {
                return Ok(Err(error));
            }
            bytes.clear();
        }
        if is_end {
            return Ok(Ok(header));
        }
    }
}
