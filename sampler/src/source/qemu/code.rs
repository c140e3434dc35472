//! Where the program's code is: in its file, and in the emulator's memory.
//!
//! The emulator maps a program's files where the program has them, but without
//! permission to execute: it is the program's code, not the CPU's. Which part
//! is code, the ELF file says.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;

use lbr_msr::record::Mmap;
use nix::libc;
use object::Endianness;
use object::elf::{FileHeader64, PF_X, PT_LOAD};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};

use crate::clock::monotonic_ns;
use crate::maps::{self, Mapping};
use crate::source::SourceError;

/// A PT_LOAD segment of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    /// `p_vaddr`.
    address: u64,
    /// `p_offset`.
    offset: u64,
    /// `p_filesz`.
    size: u64,
    /// It is code.
    executable: bool,
}

const PAGE: u64 = 4096;

impl Segment {
    /// The offset of its first page in the file, and the end of its last.
    fn pages(&self) -> Option<(u64, u64)> {
        let end = self.offset.checked_add(self.size)?.checked_next_multiple_of(PAGE)?;
        Some((self.offset - self.offset % PAGE, end))
    }

    /// How far it was moved, where its first page is at `start`.
    fn bias(&self, start: u64) -> u64 {
        start.wrapping_sub(self.address - self.address % PAGE)
    }
}

fn segments(path: &Path) -> io::Result<Vec<Segment>> {
    let damaged = |error: object::Error| io::Error::new(io::ErrorKind::InvalidData, error);
    let file = ReadCache::new(File::open(path)?);
    let header = FileHeader64::<Endianness>::parse(&file).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    let headers = header.program_headers(endian, &file).map_err(damaged)?;
    let loaded = headers.iter().filter(|header| header.p_type(endian) == PT_LOAD);
    let segment = |header: &<FileHeader64<Endianness> as FileHeader>::ProgramHeader| Segment {
        address: header.p_vaddr(endian),
        offset: header.p_offset(endian),
        size: header.p_filesz(endian),
        executable: header.p_flags(endian).0 & PF_X.0 != 0,
    };
    Ok(loaded.map(segment).collect())
}

/// Where recording starts, as the program's file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// The address asked for.
    pub(super) from: u64,
    /// The lowest address of code in the file: what the emulator's
    /// `start_code` is relocated from.
    pub(super) text: u64,
}

/// Where recording starts in the program at `path`.
pub(super) fn start(path: &Path, from: u64) -> Result<Start, SourceError> {
    let refuse = |what: String| SourceError::NotX86_64 { path: path.to_owned(), what };
    let segments = segments(path).map_err(|cause| refuse(format!("damaged: {cause}")))?;
    let code = segments.iter().filter(|segment| segment.executable);
    let text = code.map(|segment| segment.address).min();
    text.map(|text| Start { from, text })
        .ok_or_else(|| refuse("an ELF file without code".to_owned()))
}

/// The part of a mapping from `start` to `end`, as executable; `None` where
/// they do not meet.
fn part(mapping: &Mapping, start: u64, end: u64, pid: u32, tid: u32) -> Option<Mmap> {
    let (start, end) = (start.max(mapping.start), end.min(mapping.end));
    let len = end.checked_sub(start).filter(|&len| len > 0)?;
    Some(Mmap {
        time: monotonic_ns(),
        pid,
        tid,
        addr: start,
        len,
        pgoff: mapping.pgoff.wrapping_add(start - mapping.start),
        dev: mapping.dev,
        ino: mapping.ino,
        ino_generation: 0,
        build_id: None,
        prot: mapping.prot | libc::PROT_EXEC.cast_unsigned(),
        flags: mapping.flags(),
        // perf's name for executable memory without a file.
        path: if mapping.path.is_empty() { "//anon".to_owned() } else { mapping.path.clone() },
    })
}

/// The program's code that is mapped in the emulator now, by the segments of
/// each file. The emulator's own code is left out: it can be executed.
pub(super) fn mapped(pid: u32, tid: u32) -> io::Result<Vec<Mmap>> {
    let mappings = maps::read(pid.cast_signed())?;
    let mut files: HashMap<&str, MappedFile> = HashMap::new();
    let data = |mapping: &&Mapping| !mapping.is_executable() && mapping.path.starts_with('/');
    for mapping in mappings.iter().filter(data) {
        let file = files.entry(&mapping.path).or_insert_with(|| MappedFile {
            // What is no ELF file has no code.
            segments: segments(Path::new(&mapping.path)).unwrap_or_default(),
            biases: Vec::new(),
        });
        let first = file.segments.iter().find(|segment| segment.offset < PAGE);
        if let Some(first) = first.filter(|_| mapping.pgoff == 0) {
            file.biases.push(first.bias(mapping.start));
        }
    }
    let mut found = Vec::new();
    for mapping in mappings.iter().filter(data) {
        let Some(file) = files.get(mapping.path.as_str()) else { continue };
        let code = file.segments.iter().filter(|segment| segment.executable);
        found.extend(code.filter_map(|segment| {
            let (start, end) = segment.pages()?;
            let place = |offset: u64| mapping.start.checked_add(offset.checked_sub(mapping.pgoff)?);
            let address = place(start)?;
            // One page of a file may hold the end of its data and the start
            // of its code, and is then mapped twice, as one and as the other.
            let is_code = address < mapping.end && file.biases.contains(&segment.bias(address));
            part(mapping, address, place(end)?, pid, tid).filter(|_| is_code)
        }));
    }
    Ok(found)
}

/// A file that is mapped.
struct MappedFile {
    segments: Vec<Segment>,
    /// How far its segments were moved, each time it was mapped.
    biases: Vec<u64>,
}

/// What is mapped at `len` bytes from `addr`, which the program has asked to
/// be executable.
pub(super) fn mapped_at(pid: u32, tid: u32, addr: u64, len: u64) -> io::Result<Vec<Mmap>> {
    let end = addr.saturating_add(len);
    let parts = maps::read(pid.cast_signed())?;
    Ok(parts.iter().filter_map(|mapping| part(mapping, addr, end, pid, tid)).collect())
}
