//! A part of a perf.data recording as perf.data: the samples that a selection
//! takes, and every other record, as they stand there. Samples without branch
//! stacks are no part of it.

use std::io::Write;

use crate::read::perf_data::ReadError;
use crate::read::recording::{Item, Recording};

/// Bytes that are written at once.
const CHUNK: usize = 256 * 1024;

/// Copies what is selected of a recording of this form; text gives nothing. The
/// outer error is one of reading.
///
/// # Errors
/// [`ReadError`].
pub fn perf_data(
    recording: &mut Recording,
    to: &mut impl Write,
    mut progress: impl FnMut(u64, Option<u64>),
) -> Result<std::io::Result<()>, ReadError> {
    let mut bytes = Vec::with_capacity(2 * CHUNK);
    recording.begin_copy(&mut bytes);
    loop {
        let (head, is_left_out, is_end) = match recording.next_item()? {
            Some(Item::Stack(stack)) => (Some(stack.head.integrity.head), false, false),
            Some(Item::LeftOut) => (None, true, false),
            Some(_) => (None, false, false),
            None => (None, false, true),
        };
        recording.copy_record(head, !is_left_out, &mut bytes);
        if bytes.len() >= CHUNK || is_end {
            progress(recording.position(), recording.size());
            if let Err(error) = to.write_all(&bytes) {
                return Ok(Err(error));
            }
            bytes.clear();
        }
        if is_end {
            return Ok(Ok(()));
        }
    }
}
