//! Compressed symbols in a stripped program (`.gnu_debugdata`, MiniDebugInfo): an ELF file with the
//! functions that the dynamic symbols lack, compressed with `xz`.

use std::io::{Cursor, Read};
use std::num::NonZeroUsize;

use object::read::ReadRef;
use object::{Object, ObjectSection};
use xz4rust::{XzDecoder, XzReader};

/// Maximum compressed size; the largest programs have a few megabytes.
const MAX_PACKED: u64 = 16 << 20;
/// Maximum decompressed size.
const MAX_UNPACKED: u64 = 64 << 20;
/// The largest dictionary of `xz`'s presets (`-9`).
const MAX_DICTIONARY: usize = (64 << 20) + 1;
/// The usual dictionary size.
const DICTIONARY: usize = 1 << 20;
const BUFFER: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// The decompressed ELF file in a program.
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
    // One byte more shows whether it exceeds the limit.
    reader.take(MAX_UNPACKED + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_UNPACKED).then_some(bytes)
}
