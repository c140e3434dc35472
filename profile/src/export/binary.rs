//! The program that a profile is about: which of its addresses are code, and
//! what stands there. Code is decoded when the first address of it is asked
//! for, from one symbol to the next, as llvm-profgen and objdump do.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lbr_msr::insn::{self, Insn};
use lbr_msr::record::BranchType;
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionFlags, SegmentFlags, elf};

use super::ExportError;
use crate::code::debug_file::open_regular;
use crate::code::symbols::SymbolError;

/// llvm-profgen's page (`ProfiledBinary::setPreferredTextSegmentAddresses`).
const PAGE: u64 = 0x1000;
/// Bytes between two symbols that are decoded, at most.
const MAX_PIECE: u64 = 64 << 20;
/// The longest instruction, bytes.
const LONGEST: u64 = 15;

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instruction {
    pub(super) addr: u64,
    pub(super) len: u8,
    /// A call, a return, or a jump without a condition to an address that it
    /// names: what LLVM takes for the end of straight code. Jumps through a
    /// register or memory it does not (`MCInstrDesc::isUnconditionalBranch`).
    pub(super) leaves: bool,
    pub(super) returns: bool,
}

/// A section of code.
#[derive(Clone, Debug)]
struct Section {
    addrs: Range<u64>,
    offset: u64,
    /// `.plt` by exactly this name.
    is_plt: bool,
    /// Stubs that jump into libraries: `.plt`, `.plt.sec`, `.plt.got`.
    has_stubs: bool,
}

/// Code from one symbol to the next.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    end: u64,
    section: usize,
}

/// An ELF program or library.
#[derive(Debug)]
pub(super) struct Binary {
    path: PathBuf,
    file: File,
    sections: Vec<Section>,
    /// In order; none overlap.
    pieces: Vec<Piece>,
    /// The page that the first executable segment begins in.
    pub(super) base: u64,
    /// Its compiler put pseudo probes into it.
    pub(super) has_probes: bool,
    decoded: HashMap<usize, Arc<[Instruction]>>,
}

impl Binary {
    pub(super) fn open(path: &Path) -> Result<Binary, ExportError> {
        let cannot = |cause| SymbolError::Open { path: path.to_owned(), cause };
        let file = open_regular(path)?;
        let cache = ReadCache::new(file.try_clone().map_err(cannot)?);
        let object = object::File::parse(&cache).map_err(|error| SymbolError::NotElf {
            path: path.to_owned(),
            what: error.to_string(),
        })?;
        let runs = |segment: &object::Segment<'_, '_, _>| matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.contains(elf::PF_X));
        let first = object.segments().find(runs);
        let first = first.ok_or_else(|| ExportError::NoCode { path: path.to_owned() })?;
        let (mut sections, mut numbers) = (Vec::new(), HashMap::new());
        for section in object.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
            let (addr, Some((offset, size))) = (section.address(), section.file_range()) else {
                continue;
            };
            if !sh_flags.contains(elf::SHF_EXECINSTR) || size == 0 {
                continue;
            }
            numbers.insert(section.index(), sections.len());
            sections.push(Section {
                addrs: addr..addr.saturating_add(size),
                offset,
                is_plt: section.name() == Ok(".plt"),
                has_stubs: section.name().is_ok_and(|name| name.starts_with(".plt")),
            });
        }
        let symbols = object.symbols().filter_map(|symbol| {
            let section = *numbers.get(&symbol.section_index()?)?;
            Some((symbol.address(), section))
        });
        let mut starts: Vec<(u64, usize)> = symbols.collect();
        if object.symbol_table().is_none() {
            // llvm-profgen takes nothing of a stripped program for code.
            starts.extend(sections.iter().enumerate().map(|(at, of)| (of.addrs.start, at)));
        }
        let base = first.address() & !(PAGE - 1);
        let pieces = pieces(starts, &sections);
        let has_probes = object.section_by_name(".pseudo_probe").is_some();
        let (path, decoded) = (path.to_owned(), HashMap::new());
        Ok(Binary { path, file, sections, pieces, base, has_probes, decoded })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether an address lies in a section of code, `.plt` among them: what
    /// BOLT counts as inside.
    pub(super) fn is_in_section(&self, addr: u64) -> bool {
        self.sections.iter().any(|section| section.addrs.contains(&addr))
    }

    /// Whether an address lies in the stubs that jump into libraries.
    pub(super) fn is_stub(&self, addr: u64) -> bool {
        self.sections.iter().any(|section| section.has_stubs && section.addrs.contains(&addr))
    }

    /// The instruction that begins at an address: what llvm-profgen counts as
    /// inside (`addressIsCode`), where `.plt` by exactly that name is not
    /// (`ProfiledBinary::disassemble`).
    pub(super) fn at(&mut self, addr: u64) -> Option<Instruction> {
        let mut found = None;
        self.walk(addr, addr, |insn| {
            found = Some(insn);
            false
        });
        found
    }

    /// Whether code that runs from one address to another would pass a branch
    /// that always leaves (`rangeCrossUncondBranch`).
    pub(super) fn leaves_between(&mut self, start: u64, end: u64) -> bool {
        let mut leaves = false;
        if let Some(last) = end.checked_sub(1).filter(|_| start < end) {
            self.walk(start, last, |insn| {
                leaves = insn.leaves;
                !leaves
            });
        }
        leaves
    }

    /// Visits the instructions that begin from `start` to `last`, both
    /// included, as long as `visit` says to go on.
    pub(super) fn walk(
        &mut self,
        start: u64,
        last: u64,
        mut visit: impl FnMut(Instruction) -> bool,
    ) {
        let mut number = self.pieces.partition_point(|piece| piece.end <= start);
        while let Some(piece) = self.pieces.get(number).filter(|piece| piece.start <= last) {
            let code = self.decode(number, *piece);
            let first = code.partition_point(|insn| insn.addr < start);
            for insn in code.get(first..).unwrap_or_default() {
                if insn.addr > last || !visit(*insn) {
                    return;
                }
            }
            number += 1;
        }
    }

    fn decode(&mut self, number: usize, piece: Piece) -> Arc<[Instruction]> {
        if let Some(known) = self.decoded.get(&number) {
            return Arc::clone(known);
        }
        let code: Arc<[Instruction]> = self.instructions(piece).into();
        self.decoded.insert(number, Arc::clone(&code));
        code
    }

    fn instructions(&self, piece: Piece) -> Vec<Instruction> {
        let mut found = Vec::new();
        let Some(section) = self.sections.get(piece.section) else { return found };
        let Piece { start, end, .. } = piece;
        // The last instruction may reach behind the next symbol.
        let behind = end.saturating_add(LONGEST).min(section.addrs.end);
        let offset = section.offset.saturating_add(start - section.addrs.start);
        let bytes = self.read(offset, behind - start);
        let mut addr = start;
        while addr < end {
            let at = usize::try_from(addr - start).unwrap_or(usize::MAX);
            let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) else { break };
            let rest = rest.get(..LONGEST as usize).unwrap_or(rest);
            let (len, of) = match insn::decode(rest, addr) {
                Insn::Straight { len } => (len, None),
                Insn::Branch(branch) => (branch.len, Some(branch.branch_type)),
                Insn::Invalid => {
                    addr += 1;
                    continue;
                }
            };
            let leaves = matches!(
                of,
                Some(
                    BranchType::UNCOND | BranchType::CALL | BranchType::IND_CALL | BranchType::RET
                )
            );
            let returns = of == Some(BranchType::RET);
            found.push(Instruction { addr, len, leaves, returns });
            addr += u64::from(len);
        }
        found
    }

    fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let there = self.file.metadata().map_or(0, |file| file.len()).saturating_sub(offset);
        let mut bytes = vec![0; len.min(there).min(MAX_PIECE) as usize];
        // What cannot be read is no code.
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => bytes,
            Err(_) => Vec::new(),
        }
    }

    /// Visits every symbol of code: address, name. What cannot be read has
    /// none.
    pub(super) fn for_each_symbol(&self, mut visit: impl FnMut(u64, &str)) {
        let Ok(file) = self.file.try_clone() else { return };
        let cache = ReadCache::new(file);
        let Ok(object) = object::File::parse(&cache) else { return };
        for symbol in object.symbols() {
            let outside = self.pieces.partition_point(|piece| piece.start <= symbol.address()) == 0;
            if let (Ok(name), false) = (symbol.name(), outside) {
                visit(symbol.address(), name);
            }
        }
    }
}

/// The code between symbols; `.plt` is left out.
fn pieces(mut starts: Vec<(u64, usize)>, sections: &[Section]) -> Vec<Piece> {
    starts.sort_unstable();
    starts.dedup_by_key(|(addr, _)| *addr);
    let mut pieces: Vec<Piece> = Vec::new();
    let mut starts = starts.into_iter().peekable();
    while let Some((start, number)) = starts.next() {
        let Some(section) = sections.get(number).filter(|section| section.addrs.contains(&start))
        else {
            continue;
        };
        let end = match starts.peek() {
            Some((next, _)) => section.addrs.end.min(*next),
            None => section.addrs.end,
        };
        let known = pieces.last().map_or(0, |last| last.end);
        if !section.is_plt && start >= known && start < end {
            pieces.push(Piece { start, end, section: number });
        }
    }
    pieces
}
