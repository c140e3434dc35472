//! Copies part of a perf.data recording to perf.data: the selected samples, and all other records,
//! byte for byte. Samples without branch stacks are dropped.

use std::io::Write;

use crate::read::perf_data::ReadError;
use crate::read::recording::{Item, Recording};

/// Bytes per write.
const CHUNK: usize = 256 * 1024;

/// Copies the selected part of a recording in this format; writes nothing for text input. The outer
/// error is a read error. A seekable copy is written without its header, which is returned: the
/// caller must write it over the first bytes. Any other copy has the pipe format, and the returned
/// header is empty.
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
    let is_part = recording.selection().is_some();
    let Some(reader) = recording.reader() else { return Ok(Ok(Vec::new())) };
    reader.begin_copy(seekable, is_part);
    loop {
        let (head, is_left_out, is_end) = match recording.next_item()? {
            Some(Item::Stack(stack)) => (Some(stack.head.integrity.head), false, false),
            Some(Item::LeftOut) => (None, true, false),
            Some(_) => (None, false, false),
            None => (None, false, true),
        };
        let Some(reader) = recording.reader() else { return Ok(Ok(Vec::new())) };
        if written == 0 {
            let head = reader.copy_head();
            written = head.len() as u64;
            bytes.extend(head);
        }
        let records = bytes.len();
        reader.copy_others(!is_left_out, &mut bytes);
        head.into_iter().for_each(|head| reader.copy_sample(head, &mut bytes));
        written += (bytes.len() - records) as u64;
        let mut header = Vec::new();
        if is_end {
            let tail;
            (tail, header) = reader.copy_tail(written);
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
