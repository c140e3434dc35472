//! Writes the few instructions that a bracket is made of.

use super::bracket::Register;

/// State components: x87, SSE, AVX, and AVX-512's three. SDM Vol. 1, 13.1.
const VECTORS: u32 = 0xE7;

/// Code that is being written, at an address that is known.
#[derive(Debug)]
pub(super) struct Emit {
    /// Address of the first byte.
    base: u64,
    bytes: Vec<u8>,
}

impl Emit {
    pub(super) const fn at(base: u64) -> Emit {
        Emit { base, bytes: Vec::new() }
    }

    /// The address of the next instruction.
    pub(super) fn here(&self) -> u64 {
        self.base.wrapping_add(self.bytes.len() as u64)
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A distance from the end of the four bytes it takes. What is written
    /// lies within one mapping of less than 2 GiB.
    fn distance(&mut self, to: u64) {
        let next = self.here().wrapping_add(4);
        self.raw(&(to.wrapping_sub(next) as u32).to_le_bytes());
    }

    /// `opcode` with a 64-bit register and `[rip + ...]`.
    fn memory(&mut self, opcode: u8, register: Register, address: u64) {
        let number = register as u8;
        self.raw(&[0x48 | (number >> 3) << 2, opcode, (number & 7) << 3 | 5]);
        self.distance(address);
    }

    /// MOV register to memory. No flags change.
    pub(super) fn store(&mut self, address: u64, register: Register) {
        self.memory(0x89, register, address);
    }

    /// MOV memory to register. No flags change.
    pub(super) fn load(&mut self, register: Register, address: u64) {
        self.memory(0x8B, register, address);
    }

    /// LEA.
    pub(super) fn address(&mut self, register: Register, address: u64) {
        self.memory(0x8D, register, address);
    }

    /// MOV of a 32-bit constant, zero-extended.
    pub(super) fn constant(&mut self, register: Register, value: u32) {
        let number = register as u8;
        if number >= 8 {
            self.raw(&[0x41]);
        }
        self.raw(&[0xB8 | number & 7]);
        self.raw(&value.to_le_bytes());
    }

    /// PUSH of a register.
    pub(super) fn push(&mut self, register: Register) {
        let number = register as u8;
        if number >= 8 {
            self.raw(&[0x41]);
        }
        self.raw(&[0x50 | number & 7]);
    }

    /// POP of a register.
    pub(super) fn pop(&mut self, register: Register) {
        let number = register as u8;
        if number >= 8 {
            self.raw(&[0x41]);
        }
        self.raw(&[0x58 | number & 7]);
    }

    /// RFLAGS from memory, by the stack.
    pub(super) fn load_flags(&mut self, address: u64) {
        self.raw(&[0xFF, 0x35]); // push qword [rip + ...]
        self.distance(address);
        self.raw(&[0x9D]); // popfq
    }

    /// RFLAGS to memory, by the stack.
    pub(super) fn store_flags(&mut self, address: u64) {
        self.raw(&[0x9C, 0x8F, 0x05]); // pushfq; pop qword [rip + ...]
        self.distance(address);
    }

    /// XRSTOR of x87, SSE, AVX and AVX-512 state from an area (SDM Vol. 1,
    /// 13.8), or FXRSTOR where the system has no XSAVE. RAX and RDX are lost.
    pub(super) fn load_vectors(&mut self, area: u64, xsave: bool) {
        self.constant(Register::Rax, VECTORS);
        self.constant(Register::Rdx, 0);
        let extension = if xsave { 5 } else { 1 };
        self.raw(&[0x48, 0x0F, 0xAE, extension << 3 | 5]);
        self.distance(area);
    }

    pub(super) fn syscall(&mut self) {
        self.raw(&[0x0F, 0x05]);
    }

    /// The time stamp into memory; RAX and RDX are lost, flags stay. LFENCE on
    /// both sides keeps it in its place (SDM Vol. 2, RDTSC).
    pub(super) fn time_stamp(&mut self, address: u64) {
        const LFENCE: [u8; 3] = [0x0F, 0xAE, 0xE8];
        self.raw(&LFENCE);
        self.raw(&[0x0F, 0x31]); // rdtsc
        self.raw(&LFENCE);
        self.raw(&[0x89, 0x05]); // mov [rip + ...], eax
        self.distance(address);
        self.raw(&[0x89, 0x15]); // mov [rip + ...], edx
        self.distance(address.wrapping_add(4));
    }

    /// JMP rel32; returns its address.
    pub(super) fn jump(&mut self, to: u64) -> u64 {
        let from = self.here();
        self.raw(&[0xE9]);
        self.distance(to);
        from
    }

    /// CALL rel32; returns its address.
    pub(super) fn call(&mut self, to: u64) -> u64 {
        let from = self.here();
        self.raw(&[0xE8]);
        self.distance(to);
        from
    }

    /// CALL of the address that stands at `pointer`; returns its own address.
    pub(super) fn call_at(&mut self, pointer: u64) -> u64 {
        let from = self.here();
        self.raw(&[0xFF, 0x15]);
        self.distance(pointer);
        from
    }

    /// DEC of a 64-bit register, then JNZ rel32; returns the address of JNZ.
    pub(super) fn count_down(&mut self, register: Register, to: u64) -> u64 {
        let number = register as u8;
        self.raw(&[0x48 | number >> 3, 0xFF, 0xC8 | number & 7]);
        let from = self.here();
        self.raw(&[0x0F, 0x85]);
        self.distance(to);
        from
    }

    /// INT3.
    pub(super) fn trap(&mut self) {
        self.raw(&[0xCC]);
    }

    /// Fills up with INT3 to an address that is a multiple of `alignment`.
    pub(super) fn align(&mut self, alignment: u64) {
        while !self.here().is_multiple_of(alignment) {
            self.trap();
        }
    }
}
