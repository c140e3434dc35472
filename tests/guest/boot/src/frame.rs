//! Frames: a kind, a length, and the contents.

use std::io::{self, Read};

/// Precedes the first frame, to skip anything that firmware or kernel wrote to the port before.
pub const PREAMBLE: [u8; 8] = *b"\0LBRTM1\n";

/// The maximum length; a longer one means that the stream is damaged.
pub const LONGEST: u32 = 1 << 20;

/// The contents of a frame, by its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Bytes of the command's standard output.
    Stdout = b'1',
    /// Bytes of the command's standard error.
    Stderr = b'2',
    /// The name of a returned file, relative to the folder of results; its contents follow in
    /// [`FrameKind::FileData`].
    FileName = b'F',
    /// The next bytes of the last named file.
    FileData = b'D',
    /// A message of `init` to the user.
    Notice = b'N',
    /// The command has ended: its exit status, or 128 + the signal, as four bytes, little-endian.
    /// The last frame.
    Status = b'S',
}

impl FrameKind {
    /// The kind of a code; `None` for any other byte.
    pub fn from_code(code: u8) -> Option<FrameKind> {
        use FrameKind::{FileData, FileName, Notice, Status, Stderr, Stdout};
        let all = [Stdout, Stderr, FileName, FileData, Notice, Status];
        all.into_iter().find(|kind| *kind as u8 == code)
    }
}

/// The five-byte header of a frame.
pub const fn header(kind: FrameKind, len: u32) -> [u8; 5] {
    let [a, b, c, d] = len.to_le_bytes();
    [kind as u8, a, b, c, d]
}

/// Reads until the end of the [`PREAMBLE`]. `false`: the stream ended first.
///
/// # Errors
/// The read error.
pub fn skip_to_preamble(stream: &mut impl Read) -> io::Result<bool> {
    let mut last = [0; PREAMBLE.len()];
    while last != PREAMBLE {
        let mut byte = [0];
        if stream.read(&mut byte)? == 0 {
            return Ok(false);
        }
        last.rotate_left(1);
        last[PREAMBLE.len() - 1] = byte[0];
    }
    Ok(true)
}

/// Reads the next frame. `None`: the stream ended.
///
/// # Errors
/// The read error; `InvalidData` for an unknown kind or a length above [`LONGEST`]; `UnexpectedEof`
/// if the stream ends inside a frame.
pub fn read(stream: &mut impl Read) -> io::Result<Option<(FrameKind, Vec<u8>)>> {
    let mut code = [0];
    if stream.read(&mut code)? == 0 {
        return Ok(None);
    }
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len);
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the guest's frames are damaged");
    let kind = FrameKind::from_code(code[0]).filter(|_| len <= LONGEST).ok_or_else(damaged)?;
    let mut contents = vec![0; len as usize];
    stream.read_exact(&mut contents)?;
    Ok(Some((kind, contents)))
}

#[cfg(test)]
#[path = "../../../machine/unit/boot/frame.rs"]
mod tests;
