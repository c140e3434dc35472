//! Symbols that a stripped program carries packed (`.gnu_debugdata`, called
//! MiniDebugInfo): an ELF file with the functions that the dynamic symbols
//! lack, compressed by `xz`.

use std::io::{Cursor, Read};
use std::num::NonZeroUsize;

use object::read::ReadRef;
use object::{Object, ObjectSection};
use xz4rust::{XzDecoder, XzReader};

/// No packed list is longer: that of the largest programs has a few megabytes.
const MAX_PACKED: u64 = 16 << 20;
/// No list is longer, whatever it was packed to.
const MAX_UNPACKED: u64 = 64 << 20;
/// The largest dictionary that `xz` uses by itself (`-9`).
const MAX_DICTIONARY: usize = (64 << 20) + 1;
/// What most have.
const DICTIONARY: usize = 1 << 20;
const BUFFER: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// The ELF file that is packed in a program.
pub(super) fn unpacked<'data, R: ReadRef<'data>>(
    object: &object::File<'data, R>,
) -> Option<Vec<u8>> {
    let section = object.section_by_name(".gnu_debugdata")?;
    if section.size() > MAX_PACKED {
        return None;
    }
    let packed = section.data().ok()?.to_vec();
    let decoder = XzDecoder::in_heap_with_alloc_dict_size(DICTIONARY, MAX_DICTIONARY);
    let reader = XzReader::new_with_buffer_size_and_decoder(Cursor::new(packed), BUFFER, decoder);
    let mut bytes = Vec::new();
    // One byte more tells what is too long from what just fits.
    reader.take(MAX_UNPACKED + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_UNPACKED).then_some(bytes)
}
