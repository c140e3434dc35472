//! The location of the program's code, in its file and in the emulator's memory.
//!
//! The emulator maps a program's files at the program's addresses, but without execute permission,
//! because the CPU does not execute them directly. The ELF file tells which parts are code.

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
use crate::target::ThreadId;

/// A PT_LOAD segment of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    /// `p_vaddr`.
    address: u64,
    /// `p_offset`.
    offset: u64,
    /// `p_filesz`.
    size: u64,
    /// Whether it is code.
    executable: bool,
}

const PAGE: u64 = 4096;

impl Segment {
    /// The file offsets of its first page and of the end of its last.
    fn pages(&self) -> Option<(u64, u64)> {
        let end = self.offset.checked_add(self.size)?.checked_next_multiple_of(PAGE)?;
        Some((self.offset - self.offset % PAGE, end))
    }

    /// The address of its first page.
    fn page(&self) -> u64 {
        self.address - self.address % PAGE
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

/// The address where recording starts, as in the program's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// The requested address.
    pub(super) from: u64,
    /// The lowest address of code in the file: the emulator's `start_code` before relocation.
    pub(super) text: u64,
}

/// The start for the program at `path`.
pub(super) fn start(path: &Path, from: u64) -> Result<Start, SourceError> {
    let refuse = |what: String| SourceError::NotX86_64 { path: path.to_owned(), what };
    let segments = segments(path).map_err(|cause| refuse(format!("damaged: {cause}")))?;
    let code = segments.iter().filter(|segment| segment.executable);
    let text = code.map(|segment| segment.address).min();
    text.map(|text| Start { from, text })
        .ok_or_else(|| refuse("an ELF file without code".to_owned()))
}

/// The part of a mapping from `start` to `end`, as executable; `None` if they do not overlap.
fn part(mapping: &Mapping, start: u64, end: u64, pid: u32, tid: u32) -> Option<Mmap> {
    let (start, end) = (start.max(mapping.start), end.min(mapping.end));
    let len = end.checked_sub(start).filter(|&len| len > 0)?;
    Some(Mmap {
        addr: start,
        len,
        pgoff: mapping.pgoff.wrapping_add(start - mapping.start),
        prot: mapping.prot | libc::PROT_EXEC.cast_unsigned(),
        ..mapping.event(monotonic_ns(), ThreadId { pid, tid })
    })
}

/// The program's code that is now mapped in the emulator, according to each file's segments. The
/// emulator's own code is excluded: it has execute permission.
pub(super) fn mapped(pid: u32, tid: u32) -> io::Result<Vec<Mmap>> {
    let mut files: HashMap<String, Vec<Mapping>> = HashMap::new();
    for mapping in maps::read(pid.cast_signed())? {
        if !mapping.is_executable() && mapping.path.starts_with('/') {
            files.entry(mapping.path.clone()).or_default().push(mapping);
        }
    }
    let mut found = Vec::new();
    for (path, mappings) in &files {
        // Files other than ELF have no code.
        let segments = segments(Path::new(path)).unwrap_or_default();
        let biases = biases(&segments, mappings);
        for (segment, bias) in segments
            .iter()
            .filter(|segment| segment.executable)
            .flat_map(|segment| biases.iter().map(move |bias| (segment, *bias)))
        {
            let Some((start, end)) = segment.pages() else { continue };
            let address = segment.page().wrapping_add(bias);
            let end = address.saturating_add(end - start);
            let meant = mappings.iter().filter(|mapping| mapping.has(address, start));
            found.extend(meant.filter_map(|mapping| part(mapping, address, end, pid, tid)));
        }
    }
    found.sort_by_key(|map| map.addr);
    found.iter_mut().for_each(|map| map.time = monotonic_ns());
    Ok(found)
}

/// The load bias of a file for each time it was mapped. One page of a small file may hold parts of
/// several segments, and is mapped for each of them: only all segments together identify the
/// mappings.
fn biases(segments: &[Segment], mappings: &[Mapping]) -> Vec<u64> {
    let fitting = |bias: u64| {
        let lies = |segment: &&Segment| {
            let offset = segment.offset - segment.offset % PAGE;
            let at = segment.page().wrapping_add(bias);
            mappings.iter().any(|mapping| mapping.has(at, offset))
        };
        segments.iter().filter(lies).count()
    };
    let first = segments.iter().filter(|segment| segment.size > 0 && segment.offset < PAGE);
    let starts = mappings.iter().filter(|mapping| mapping.pgoff == 0);
    let first = first.map(Segment::page).min();
    let mut biases: Vec<(usize, u64)> = starts
        .filter_map(|mapping| Some(mapping.start.wrapping_sub(first?)))
        .map(|bias| (fitting(bias), bias))
        .collect();
    // A program may have unmapped parts of its file.
    let most = biases.iter().map(|(fit, _)| *fit).max();
    biases.retain(|(fit, _)| Some(*fit) == most);
    biases.into_iter().map(|(_, bias)| bias).collect()
}

/// The mappings of `len` bytes at `addr`, which the program requested to be executable.
pub(super) fn mapped_at(pid: u32, tid: u32, addr: u64, len: u64) -> io::Result<Vec<Mmap>> {
    let end = addr.saturating_add(len);
    let parts = maps::read(pid.cast_signed())?;
    Ok(parts.iter().filter_map(|mapping| part(mapping, addr, end, pid, tid)).collect())
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/qemu/code.rs"]
mod tests;
