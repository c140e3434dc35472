//! The profiled program: which of its addresses are code, and the instructions there. Code is
//! decoded on first use, from one symbol to the next, as llvm-profgen and objdump do.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lbr_msr::insn::{Insn, Isa};
use lbr_msr::record::BranchType;
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionFlags, SegmentFlags, elf};

use super::ExportError;
use crate::code::debug_file::open_regular;
use crate::code::symbols::{SymbolError, isa};

/// llvm-profgen's page (`ProfiledBinary::setPreferredTextSegmentAddresses`).
const PAGE: u64 = 0x1000;
/// The branches that leave for certain.
const LEAVING: [BranchType; 4] =
    [BranchType::UNCOND, BranchType::CALL, BranchType::IND_CALL, BranchType::RET];
/// Maximum number of bytes decoded between two symbols.
const MAX_PIECE: u64 = 64 << 20;

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instruction {
    pub(super) addr: u64,
    pub(super) len: u8,
    /// A call, a return, or an unconditional direct jump: the instructions that end a fall-through
    /// range for LLVM. Indirect jumps do not (`MCInstrDesc::isUnconditionalBranch`).
    pub(super) leaves: bool,
    pub(super) returns: bool,
}

/// A section of code.
#[derive(Clone, Debug)]
struct Section {
    addrs: Range<u64>,
    offset: u64,
    /// Its name is exactly `.plt`.
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
    pub(super) path: PathBuf,
    file: File,
    isa: Isa,
    sections: Vec<Section>,
    /// In address order; none overlap.
    pieces: Vec<Piece>,
    /// The page of the first executable segment's start.
    pub(super) base: u64,
    /// It was compiled with pseudo probes.
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
        let first = first.ok_or_else(|| ExportError::NoCode(path.to_owned()))?;
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
            // llvm-profgen finds no code in a stripped program.
            starts.extend(sections.iter().enumerate().map(|(at, of)| (of.addrs.start, at)));
        }
        let base = first.address() & !(PAGE - 1);
        let pieces = pieces(starts, &sections);
        let has_probes = object.section_by_name(".pseudo_probe").is_some();
        let isa = isa(&object).unwrap_or_default();
        let (path, decoded) = (path.to_owned(), HashMap::new());
        Ok(Binary { path, file, isa, sections, pieces, base, has_probes, decoded })
    }

    /// Whether an address is in a section of code, including `.plt`: BOLT's definition of inside.
    pub(super) fn is_in_section(&self, addr: u64) -> bool {
        self.sections.iter().any(|section| section.addrs.contains(&addr))
    }

    /// Whether an address is in the stubs that jump into libraries.
    pub(super) fn is_stub(&self, addr: u64) -> bool {
        self.sections.iter().any(|section| section.has_stubs && section.addrs.contains(&addr))
    }

    /// The instruction at an address: llvm-profgen's definition of inside (`addressIsCode`), which
    /// excludes a section named exactly `.plt` (`ProfiledBinary::disassemble`).
    pub(super) fn at(&mut self, addr: u64) -> Option<Instruction> {
        let mut found = None;
        self.walk(addr, addr, |insn| {
            found = Some(insn);
            false
        });
        found
    }

    /// Whether execution from one address to another would have to pass an unconditional branch
    /// (`rangeCrossUncondBranch`).
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

    /// Visits the instructions from `start` to `last`, inclusive, until `visit` returns false.
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
        // The last instruction may extend past the next symbol.
        let longest = self.isa.longest();
        let after = end.saturating_add(longest.into()).min(section.addrs.end);
        let offset = section.offset.saturating_add(start - section.addrs.start);
        let bytes = self.read(offset, after - start);
        let mut addr = start;
        while addr < end {
            let at = usize::try_from(addr - start).unwrap_or(usize::MAX);
            let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) else { break };
            let rest = rest.get(..longest.into()).unwrap_or(rest);
            let (len, of) = match self.isa.decode(rest, addr) {
                Insn::Straight { len } => (len, None),
                Insn::Branch(branch) => (branch.len, Some(branch.branch_type)),
                Insn::Invalid => {
                    addr += u64::from(self.isa.alignment());
                    continue;
                }
            };
            let leaves = of.is_some_and(|of| LEAVING.contains(&of));
            let returns = of == Some(BranchType::RET);
            found.push(Instruction { addr, len, leaves, returns });
            addr += u64::from(len);
        }
        found
    }

    fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let there = self.file.metadata().map_or(0, |file| file.len()).saturating_sub(offset);
        let mut bytes = vec![0; len.min(there).min(MAX_PIECE) as usize];
        // Unreadable bytes are not code.
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => bytes,
            Err(_) => Vec::new(),
        }
    }

    /// Visits the address and name of every code symbol. An unreadable symbol table has none.
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

/// The code between symbols, without `.plt`.
fn pieces(mut starts: Vec<(u64, usize)>, sections: &[Section]) -> Vec<Piece> {
    starts.sort_unstable();
    starts.dedup_by_key(|(addr, _)| *addr);
    let mut pieces: Vec<Piece> = Vec::new();
    let mut starts = starts.into_iter().peekable();
    while let Some((start, number)) = starts.next() {
        let section = &sections[number];
        let next = starts.peek().map_or(u64::MAX, |(next, _)| *next);
        let end = section.addrs.end.min(next);
        let known = pieces.last().map_or(0, |last| last.end).max(section.addrs.start);
        if !section.is_plt && start >= known && start < end {
            pieces.push(Piece { start, end, section: number });
        }
    }
    pieces
}
