//! A minimal assembler: the few instructions that frames, brackets and kernels consist of.

/// A general-purpose register, numbered as in instruction encodings. SDM Vol. 2, Table 3-1.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Gpr {
    Rax,
    Rcx,
    Rdx,
    Rbx,
    Rsp,
    Rbp,
    Rsi,
    Rdi,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
}

use Gpr::{R8, R9, R10, R11, R12, R13, R14, R15, Rax, Rbp, Rbx, Rcx, Rdi, Rdx, Rsi, Rsp};

impl Gpr {
    /// All, in encoding order.
    pub const ALL: [Gpr; 16] =
        [Rax, Rcx, Rdx, Rbx, Rsp, Rbp, Rsi, Rdi, R8, R9, R10, R11, R12, R13, R14, R15];
}

/// State components: x87, SSE, AVX, and AVX-512's three. SDM Vol. 1, 13.1.
const VECTORS: u32 = 0xE7;
/// A cache line. Labels one line apart never share one.
pub(crate) const LINE: u64 = 64;

/// Orders what executes before it against what executes after it.
const LFENCE: [u8; 3] = [0x0F, 0xAE, 0xE8];

/// An address in the code, possibly not yet known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// Code under construction. Addresses are offsets from the start of the final mapping, and the code
/// refers to itself by distance only: it runs wherever the mapping is.
#[derive(Debug)]
pub(crate) struct Assembler {
    start: u64,
    bytes: Vec<u8>,
    labels: Vec<u64>,
    /// Four bytes at this offset that will hold the distance from their end to a label.
    distances: Vec<(usize, Label)>,
}

impl Assembler {
    /// Starts code whose first byte is at offset `start` of the mapping.
    pub(crate) const fn at(start: u64) -> Assembler {
        Assembler { start, bytes: Vec::new(), labels: Vec::new(), distances: Vec::new() }
    }

    /// The address of the next instruction.
    pub(crate) fn here(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Resolves all labels and returns the code.
    pub(crate) fn finish(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for (at, label) in &self.distances {
            let next = self.start + *at as u64 + 4;
            if let Some(field) = bytes.get_mut(*at..at + 4) {
                field.copy_from_slice(&distance(next, self.address_of(*label)));
            }
        }
        bytes
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(0);
        Label(self.labels.len() - 1)
    }

    /// Binds the label to the next instruction.
    pub(crate) fn bind(&mut self, label: Label) {
        let here = self.here();
        if let Some(address) = self.labels.get_mut(label.0) {
            *address = here;
        }
    }

    /// Returns a label bound to the next instruction.
    pub(crate) fn bound(&mut self) -> Label {
        let label = self.label();
        self.bind(label);
        label
    }

    /// The label's address. The label must be bound.
    pub(crate) fn address_of(&self, label: Label) -> u64 {
        self.labels.get(label.0).copied().unwrap_or(0)
    }

    /// Pads to the start of a cache line and binds the label there. Execution must not fall through
    /// into it: the padding is INT3.
    pub(crate) fn place(&mut self, label: Label) {
        self.trap();
        self.align();
        self.bind(label);
    }

    /// Pads to a cache line with INT3.
    pub(crate) fn align(&mut self) {
        while !self.here().is_multiple_of(LINE) {
            self.trap();
        }
    }

    /// Writes INT3.
    pub(crate) fn trap(&mut self) {
        self.raw(&[0xCC]);
    }

    /// Writes an opcode and a rel32 to a label; returns the instruction's address.
    pub(crate) fn relative(&mut self, opcode: &[u8], to: Label) -> u64 {
        let from = self.here();
        self.raw(opcode);
        self.distances.push((self.bytes.len(), to));
        self.raw(&[0; 4]);
        from
    }

    /// Writes an opcode with a `[rip + ...]` operand; returns the instruction's address.
    fn memory(&mut self, opcode: &[u8], address: u64) -> u64 {
        let from = self.here();
        self.raw(opcode);
        let next = self.here() + 4;
        self.raw(&distance(next, address));
        from
    }

    /// `opcode` with a 64-bit register and `[rip + ...]`.
    fn transfer(&mut self, opcode: u8, register: Gpr, address: u64) {
        let number = register as u8;
        self.memory(&[0x48 | (number >> 3) << 2, opcode, (number & 7) << 3 | 5], address);
    }

    /// MOV register to memory. No flags change.
    pub(crate) fn store(&mut self, address: u64, register: Gpr) {
        self.transfer(0x89, register, address);
    }

    /// MOV memory to register. No flags change.
    pub(crate) fn load(&mut self, register: Gpr, address: u64) {
        self.transfer(0x8B, register, address);
    }

    /// LEA.
    pub(crate) fn address(&mut self, register: Gpr, address: u64) {
        self.transfer(0x8D, register, address);
    }

    /// An opcode whose low three bits encode a register.
    fn short(&mut self, opcode: u8, register: Gpr) {
        let number = register as u8;
        if number >= 8 {
            self.raw(&[0x41]);
        }
        self.raw(&[opcode | number & 7]);
    }

    /// MOV of a 32-bit constant, zero-extended.
    pub(crate) fn constant(&mut self, register: Gpr, value: u32) {
        self.short(0xB8, register);
        self.raw(&value.to_le_bytes());
    }

    pub(crate) fn push(&mut self, register: Gpr) {
        self.short(0x50, register);
    }

    pub(crate) fn pop(&mut self, register: Gpr) {
        self.short(0x58, register);
    }

    /// Loads RFLAGS from memory, through the stack.
    pub(crate) fn load_flags(&mut self, address: u64) {
        self.memory(&[0xFF, 0x35], address); // push qword [rip + ...]
        self.raw(&[0x9D]); // popfq
    }

    /// Stores RFLAGS to memory, through the stack.
    pub(crate) fn store_flags(&mut self, address: u64) {
        self.memory(&[0x9C, 0x8F, 0x05], address); // pushfq; pop qword [rip + ...]
    }

    /// XRSTOR of x87, SSE, AVX and AVX-512 state from an area (SDM Vol. 1,
    /// 13.8), or FXRSTOR where the system has no XSAVE. RAX and RDX are lost.
    pub(crate) fn load_vectors(&mut self, area: u64, xsave: bool) {
        self.constant(Gpr::Rax, VECTORS);
        self.constant(Gpr::Rdx, 0);
        let extension = if xsave { 5 } else { 1 };
        self.memory(&[0x48, 0x0F, 0xAE, extension << 3 | 5], area);
    }

    /// LFENCE: later instructions start only after all earlier ones have completed.
    pub(crate) fn fence(&mut self) {
        self.raw(&LFENCE);
    }

    pub(crate) fn syscall(&mut self) {
        self.raw(&[0x0F, 0x05]);
    }

    pub(crate) fn ret(&mut self) {
        self.raw(&[0xC3]);
    }

    /// Reads the counter whose page (perf_event_open(2), "mmap layout") is at `page` into four
    /// words: the page's lock and index, the two halves that RDPMC returns, then lock and index
    /// again. If the index is 0 the counter is not active, and the halves keep their values.
    /// Clobbers RAX, RCX, RDX and flags.
    pub(crate) fn read_counter(&mut self, page: u64, into: u64) {
        /// Offset of the 32-bit fields `lock` and `index`.
        const LOCK: u64 = 8;
        let behind = self.label();
        self.load(Gpr::Rax, page + LOCK);
        self.store(into, Gpr::Rax);
        self.raw(&[0x48, 0x89, 0xC1, 0x48, 0xC1, 0xE9, 32]); // mov rcx, rax; shr rcx, 32
        self.relative(&[0x0F, 0x84], behind); // jz
        self.raw(&[0xFF, 0xC9]); // dec ecx
        self.raw(&LFENCE);
        self.raw(&[0x0F, 0x33]); // rdpmc
        self.raw(&LFENCE);
        self.store(into + 8, Gpr::Rax);
        self.store(into + 16, Gpr::Rdx);
        self.bind(behind);
        self.load(Gpr::Rax, page + LOCK);
        self.store(into + 24, Gpr::Rax);
    }

    /// Stores the time stamp in memory. Clobbers RAX and RDX, keeps flags. LFENCE on both sides
    /// stops RDTSC from being reordered (SDM Vol. 2, RDTSC).
    pub(crate) fn time_stamp(&mut self, address: u64) {
        self.raw(&LFENCE);
        self.raw(&[0x0F, 0x31]); // rdtsc
        self.raw(&LFENCE);
        self.memory(&[0x89, 0x05], address); // mov [rip + ...], eax
        self.memory(&[0x89, 0x15], address + 4); // mov [rip + ...], edx
    }

    /// JMP rel32; its address.
    pub(crate) fn jump(&mut self, to: Label) -> u64 {
        self.relative(&[0xE9], to)
    }

    /// CALL rel32; its address.
    pub(crate) fn call(&mut self, to: Label) -> u64 {
        self.relative(&[0xE8], to)
    }

    /// CALL rel32 of an address; its own address.
    pub(crate) fn call_to(&mut self, address: u64) -> u64 {
        self.memory(&[0xE8], address)
    }

    /// CALL of the address stored at `pointer`; returns the instruction's address.
    pub(crate) fn call_at(&mut self, pointer: u64) -> u64 {
        self.memory(&[0xFF, 0x15], pointer)
    }

    /// DEC of a 64-bit register, then JNZ rel32; the address of JNZ.
    pub(crate) fn count_down(&mut self, register: Gpr, to: Label) -> u64 {
        let number = register as u8;
        self.raw(&[0x48 | number >> 3, 0xFF, 0xC8 | number & 7]);
        self.relative(&[0x0F, 0x85], to)
    }

    /// DEC of 64 bits of memory, then JNZ rel32; the address of JNZ.
    pub(crate) fn count_down_in_memory(&mut self, address: u64, to: Label) -> u64 {
        self.memory(&[0x48, 0xFF, 0x0D], address);
        self.relative(&[0x0F, 0x85], to)
    }
}

/// The rel32 from the end of the four bytes that hold it. The target is in the same mapping, which
/// is smaller than 2 GiB.
const fn distance(next: u64, to: u64) -> [u8; 4] {
    (to.wrapping_sub(next) as u32).to_le_bytes()
}
