//! A lesson's program: assembles lines of text to machine code, and disassembles it for display.

use std::collections::HashMap;

use lbr_msr::disasm::{Disassembler, Syntax};
use lbr_msr::insn::Isa;

use crate::code::assembler::{Assembler, Label};

/// Start address of user code.
const USER: u64 = 0x40_1000;
/// Start address of kernel code, which follows the line `kernel`.
const KERNEL: u64 = 0xFFFF_FFFF_8100_0000;

/// A program's code with its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Its instructions, by address.
    pub lines: Vec<Line>,
    /// Their instruction set.
    pub isa: Isa,
}

/// An instruction with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where it is.
    pub address: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its disassembly.
    pub text: String,
    /// The label of its address; empty without one.
    pub label: String,
    /// Its source line; empty without one.
    pub source: String,
    /// The lesson's marks on it.
    pub(super) marks: Vec<Mark>,
}

/// A lesson's mark on an instruction: how data or events decide its executions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// `@taken TNN`: outcome of each execution (taken or not), repeated from the start; `@taken 2`
    /// is short for TTN.
    Taken(Vec<bool>),
    /// `@to A B`: an indirect branch goes to these targets in turn.
    To(Vec<u64>),
    /// `@irq HANDLER N..`: an interrupt comes before these executions, counted from 1.
    Interrupt(u64, Vec<u32>),
    /// `@pmi N..` and the like: this event comes before these executions.
    Event(super::Event, Vec<u32>),
    /// `@stop`: the program ends before it.
    Stop,
}

/// An opcode's operand.
#[derive(Clone, Copy)]
enum Operand {
    None,
    Byte,
    Word,
    Distance,
    /// The distance in instructions, in a field of this width from this bit of the opcode.
    Field(u32, u32),
}

use Operand::{Byte, Distance, Field, None as Nothing, Word};

/// The supported instructions of AArch64 (Arm ARM C6.2), little-endian.
const AARCH64: &[(&str, &[u8], Operand)] = &[
    ("nop", &0xD503_201F_u32.to_le_bytes(), Nothing),
    ("mov x1, #3", &0xD280_0061_u32.to_le_bytes(), Nothing),
    ("subs x1, x1, #1", &0xF100_0421_u32.to_le_bytes(), Nothing),
    ("adr x8", &0x1000_0008_u32.to_le_bytes(), Field(5, 19)),
    ("b.ne", &0x5400_0001_u32.to_le_bytes(), Field(5, 19)),
    ("blr x8", &0xD63F_0100_u32.to_le_bytes(), Nothing),
    ("br x8", &0xD61F_0100_u32.to_le_bytes(), Nothing),
    ("bl", &0x9400_0000_u32.to_le_bytes(), Field(0, 26)),
    ("b", &0x1400_0000_u32.to_le_bytes(), Field(0, 26)),
    ("ret", &0xD65F_03C0_u32.to_le_bytes(), Nothing),
    ("svc #0", &0xD400_0001_u32.to_le_bytes(), Nothing),
    ("eret", &0xD69F_03E0_u32.to_le_bytes(), Nothing),
];

/// The supported instructions of x86-64 (SDM Vol. 2).
const OPCODES: &[(&str, &[u8], Operand)] = &[
    ("nop", &[0x90], Nothing),
    ("push rbp", &[0x55], Nothing),
    ("pop rbp", &[0x5D], Nothing),
    ("pop rbx", &[0x5B], Nothing),
    ("inc eax", &[0xFF, 0xC0], Nothing),
    ("dec ecx", &[0xFF, 0xC9], Nothing),
    ("dec edx", &[0xFF, 0xCA], Nothing),
    ("cmp eax,0x4", &[0x83, 0xF8, 0x04], Nothing),
    ("test cl,0x1", &[0xF6, 0xC1, 0x01], Nothing),
    ("test edx,edx", &[0x85, 0xD2], Nothing),
    ("mov ecx", &[0xB9], Word),
    ("mov edx", &[0xBA], Word),
    ("xor eax,eax", &[0x31, 0xC0], Nothing),
    ("rdmsr", &[0x0F, 0x32], Nothing),
    ("lea rax", &[0x48, 0x8D, 0x05], Distance),
    ("jmp rax", &[0xFF, 0xE0], Nothing),
    ("call rax", &[0xFF, 0xD0], Nothing),
    ("jmp", &[0xE9], Distance),
    ("call", &[0xE8], Distance),
    ("je", &[0x0F, 0x84], Distance),
    ("jne", &[0x0F, 0x85], Distance),
    ("ret", &[0xC3], Nothing),
    ("syscall", &[0x0F, 0x05], Nothing),
    ("sysret", &[0x48, 0x0F, 0x07], Nothing),
    ("iret", &[0x48, 0xCF], Nothing),
    ("xbegin", &[0xC7, 0xF8], Distance),
    ("xend", &[0x0F, 0x01, 0xD5], Nothing),
    ("xabort", &[0xC6, 0xF8], Byte),
];

/// An instruction that is being assembled into a [`Line`].
struct Draft<'a> {
    address: u64,
    label: &'a str,
    source: &'a str,
    marks: Vec<&'a str>,
}

/// The code of one privilege level.
struct Part<'a> {
    isa: Isa,
    assembler: Assembler,
    labels: HashMap<&'a str, Label>,
    drafts: Vec<Draft<'a>>,
    /// AArch64 instructions by address: the label that a field of them refers to, its first bit
    /// and its width.
    fields: Vec<(u64, Label, u32, u32)>,
}

impl<'a> Part<'a> {
    fn at(isa: Isa, start: u64) -> Part<'a> {
        let (assembler, labels) = (Assembler::at(start), HashMap::new());
        Part { isa, assembler, labels, drafts: Vec::new(), fields: Vec::new() }
    }

    fn label(&mut self, name: &'a str) -> Label {
        *self.labels.entry(name).or_insert_with(|| self.assembler.label())
    }

    /// Parses `label: instruction ; source @mark ..`; label, source and marks are optional.
    fn line(&mut self, line: &'a str) -> Option<()> {
        let (code, rest) = line.split_once(';').unwrap_or((line, ""));
        let mut rest = rest.split('@');
        let source = rest.next().unwrap_or_default().trim_end();
        let (label, code) = match code.split_once(':') {
            Some((label, code)) => (label.trim(), code.trim()),
            None => ("", code.trim()),
        };
        if !label.is_empty() {
            let bound = self.label(label);
            self.assembler.bind(bound);
        }
        let address = self.assembler.here();
        let marks = rest.map(str::trim).collect();
        self.drafts.push(Draft {
            address,
            label,
            source: source.strip_prefix(' ').unwrap_or(source),
            marks,
        });
        self.instruction(code)
    }

    fn instruction(&mut self, code: &'a str) -> Option<()> {
        let opcodes = if self.isa == Isa::Aarch64 { AARCH64 } else { OPCODES };
        let (_, opcode, operand, rest) = opcodes.iter().find_map(|(name, opcode, operand)| {
            let rest = code.strip_prefix(name)?;
            let ends = matches!(operand, Nothing) == rest.is_empty()
                && (rest.is_empty() || rest.starts_with([' ', ',']));
            ends.then(|| (name, opcode, operand, rest.trim_start_matches([' ', ','])))
        })?;
        match operand {
            Nothing => self.assembler.raw(opcode),
            Distance => {
                let to = self.label(rest);
                self.assembler.relative(opcode, to);
            }
            Field(low, width) => {
                let to = self.label(rest);
                self.fields.push((self.assembler.here(), to, *low, *width));
                self.assembler.raw(opcode);
            }
            Byte => self.assembler.raw(&[opcode, &[rest.parse::<u8>().ok()?][..]].concat()),
            Word => {
                let value = rest.parse::<u32>().ok()?.to_le_bytes();
                self.assembler.raw(&[opcode, &value[..]].concat());
            }
        }
        Some(())
    }

    fn lines(&self, place: impl Fn(&str) -> Option<u64>) -> Option<Vec<Line>> {
        let mut code = self.assembler.finish();
        let start = self.drafts.first().map_or(0, |draft| draft.address);
        for (address, to, low, width) in &self.fields {
            let word = code.get_mut((address - start) as usize..)?.first_chunk_mut()?;
            let distance = self.assembler.address_of(*to).wrapping_sub(*address) as u32 >> 2;
            let field = (distance & ((1 << width) - 1)) << low;
            *word = (u32::from_le_bytes(*word) | field).to_le_bytes();
        }
        let mut disassembler = Disassembler::of(self.isa, Syntax::Intel);
        let mut lines = Vec::new();
        for draft in &self.drafts {
            let bytes = code.get((draft.address - start) as usize..)?;
            let mut line = Line::of(&mut disassembler, bytes, draft.address)?;
            line.label = draft.label.to_owned();
            line.source = draft.source.to_owned();
            line.marks =
                draft.marks.iter().map(|mark| Mark::of(mark, &place)).collect::<Option<_>>()?;
            lines.push(line);
        }
        Some(lines)
    }
}

impl Mark {
    fn of(text: &str, place: impl Fn(&str) -> Option<u64>) -> Option<Mark> {
        let mut words = text.split_whitespace();
        let name = words.next()?;
        let event = match name {
            "taken" => return Some(Mark::Taken(pattern(words.next()?))),
            "stop" => return Some(Mark::Stop),
            "to" => return Some(Mark::To(words.map(place).collect::<Option<_>>()?)),
            "irq" => {
                let handler = place(words.next()?)?;
                return Some(Mark::Interrupt(handler, runs(words)?));
            }
            "pmi" => super::Event::Pmi,
            "smi" => super::Event::Smi,
            "sleep" => super::Event::DeepCState,
            "db" => super::Event::DebugException,
            _ => return None,
        };
        Some(Mark::Event(event, runs(words)?))
    }
}

/// Parses outcomes, taken or not, one for each execution.
fn pattern(text: &str) -> Vec<bool> {
    match text.parse() {
        Ok(often) => (0..often).map(|_| true).chain([false]).collect(),
        Err(_) => text.chars().map(|c| c == 'T').collect(),
    }
}

fn runs<'a>(words: impl Iterator<Item = &'a str>) -> Option<Vec<u32>> {
    words.map(|word| word.parse().ok()).collect()
}

impl Line {
    /// Disassembles the instruction at the start of `bytes`; `None` if it is invalid.
    pub(super) fn of(disassembler: &mut Disassembler, bytes: &[u8], address: u64) -> Option<Line> {
        let text = disassembler.text(bytes, address)?;
        Some(Line {
            address,
            bytes: bytes.get(..usize::from(text.len))?.to_vec(),
            text: format!("{} {}", text.mnemonic, text.operands).trim_end().to_owned(),
            label: String::new(),
            source: String::new(),
            marks: Vec::new(),
        })
    }
}

impl Program {
    /// Assembles a lesson's text: one instruction per line, as `label: instruction ; source @mark`.
    /// Code after the line `kernel` runs in ring 0 (EL1). A first line `aarch64` selects that
    /// instruction set. Returns `None` on a syntax error.
    pub fn assemble(text: &str) -> Option<Program> {
        let text = text.trim_start();
        let (isa, text) = match text.strip_prefix("aarch64\n") {
            Some(text) => (Isa::Aarch64, text),
            None => (Isa::X86_64, text),
        };
        let (mut user, mut kernel) = (Part::at(isa, USER), Part::at(isa, KERNEL));
        let mut in_kernel = false;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if line.trim() == "kernel" {
                in_kernel = true;
            } else if in_kernel {
                kernel.line(line)?;
            } else {
                user.line(line)?;
            }
        }
        let parts = [user, kernel];
        let place = |name: &str| {
            let label = |part: &Part<'_>| Some(part.assembler.address_of(*part.labels.get(name)?));
            parts.iter().find_map(label)
        };
        let mut lines = Vec::new();
        for part in &parts {
            lines.extend(part.lines(place)?);
        }
        Some(Program { lines, isa })
    }

    /// Returns the instruction at an address.
    pub fn at(&self, address: u64) -> Option<&Line> {
        self.index(address).and_then(|index| self.lines.get(index))
    }

    /// Returns the index in `lines` of the instruction at an address.
    pub fn index(&self, address: u64) -> Option<usize> {
        self.lines.binary_search_by_key(&address, |line| line.address).ok()
    }

    /// Returns a label's address.
    pub fn address_of(&self, label: &str) -> Option<u64> {
        self.lines.iter().find(|line| line.label == label).map(|line| line.address)
    }

    /// Names an address by the nearest label at or before it in the same ring: `main+0x5`; `None`
    /// if no label precedes it.
    pub fn name(&self, address: u64) -> Option<String> {
        let near = |line: &&Line| {
            line.address <= address && address - line.address < 0x1000 && !line.label.is_empty()
        };
        let line = self.lines.iter().rev().find(near)?;
        let distance = address - line.address;
        // A label may itself contain an offset: `work+0x2f`.
        let within = line.label.rsplit_once("+0x").and_then(|(name, before)| {
            Some((name, u64::from_str_radix(before, 16).ok()?.checked_add(distance)?))
        });
        Some(match (within, distance) {
            (_, 0) => line.label.clone(),
            (Some((name, distance)), _) => format!("{name}+{distance:#x}"),
            (None, distance) => format!("{}+{distance:#x}", line.label),
        })
    }
}
