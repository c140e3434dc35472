//! Writes the recording for the measurements of `scripts/bench`.
//!
//! `many_branches FILE [STACKS] [ELF]`: STACKS samples (default 200,000) of 32 branches over 82,100
//! distinct edges, always the same. With an ELF file the addresses are in its code, so that they
//! have symbols; otherwise they are in a file that does not exist. The branches are made up.

mod made_up;

use std::fs::File;
use std::path::{Path, PathBuf};

use lbr_msr::record::{BranchStack, Comm, Event, Integrity, Mmap, Sample, Sink};
use lbr_profile::note::Source;
use lbr_profile::perf_data::{Meta, Writer};
use object::{Object, ObjectSegment};

const PID: u32 = 4242;
const BASE: u64 = 0x5555_5555_4000;

/// A range of code: (address in the process, length, offset in the file).
type Code = (u64, u64, u64);

fn code_of(elf: &Path) -> Result<Code, Box<dyn std::error::Error>> {
    let bytes = std::fs::read(elf)?;
    let file = object::File::parse(&*bytes)?;
    let text = file.section_by_name(".text").ok_or("it has no .text")?;
    let range = object::ObjectSection::address(&text);
    let segment = file
        .segments()
        .find(|s| range >= s.address() && range - s.address() < s.size())
        .ok_or("its code is in no segment")?;
    let (offset, size) = segment.file_range();
    let start = BASE + segment.address();
    Ok((start & !0xFFF, (size + (start & 0xFFF)).next_multiple_of(4096), offset & !0xFFF))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let path = PathBuf::from(args.next().ok_or("usage: many_branches FILE [STACKS] [ELF]")?);
    let stacks: u64 = match args.next() {
        Some(count) => count.to_str().ok_or("STACKS is not a number")?.parse()?,
        None => 200_000,
    };
    let elf = args.next().map(PathBuf::from);
    // perf 6.1 crashes when resolving symbols (a use after free) if the newest entry of a stack has
    // cycles.
    let newest_without_cycles = elf.is_some();
    let (start, len, pgoff) = match &elf {
        Some(elf) => code_of(elf)?,
        None => (BASE, 8 << 20, 0),
    };
    let name = elf.unwrap_or_else(|| PathBuf::from("/nonexistent/many_branches"));

    let mut program = made_up::Program::new(start, len);
    let mut meta = Meta::of_this_machine();
    meta.cpudesc = Some("made-up branches, nothing ran".to_owned());
    meta.knowledge = lbr_msr::record::SourceKnowledge::HARDWARE;
    meta.source = Source::Unsaid;
    let mut out = Writer::new(File::create(&path)?, meta)?;
    out.event(&Event::Comm(Comm {
        time: 1,
        pid: PID,
        tid: PID,
        comm: "many_branches".to_owned(),
        exec: true,
    }))?;
    out.event(&Event::Mmap(Box::new(Mmap {
        time: 2,
        pid: PID,
        tid: PID,
        addr: start,
        len,
        pgoff,
        dev: (8, 1),
        ino: 1,
        ino_generation: 0,
        build_id: None,
        prot: 5,
        flags: 2,
        path: name.display().to_string(),
    })))?;
    for index in 0..stacks {
        let mut entries = program.stack();
        if newest_without_cycles && let Some(newest) = entries.first_mut() {
            newest.cycles = None;
        }
        out.event(&Event::Sample(Sample {
            arguments: None,
            time: 1_000 + index * 1_000,
            pid: PID,
            tid: PID,
            cpu: 0,
            ip: entries.first().map_or(0, |newest| newest.to),
            period: 1,
            stack: BranchStack { entries, integrity: Integrity::UNKNOWN, moves: Vec::new() },
        }))?;
    }
    out.finish_file()?;
    Ok(())
}
