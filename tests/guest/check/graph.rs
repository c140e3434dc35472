//! Code that is generated at run time: blocks at random addresses, connected by branches of random
//! kinds, and the expected path through them.
#![allow(unsafe_code, reason = "the code is written into memory that is then executed")]

use std::io;
use std::ptr::NonNull;

/// A kind of branch, in the order of the types that Architectural LBR tells
/// (SDM24 Table 20-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Cond,
    IndJmp,
    RelJmp,
    IndCall,
    RelCall,
    Ret,
    /// A call to the next instruction.
    ZeroLengthCall,
}

/// A taken branch of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) kind: Kind,
    /// Instructions since the one before, this one included.
    pub(crate) instructions: u64,
}

/// Bytes that each block has room in.
const SLOT: usize = 64;
/// Number of blocks.
const BLOCKS: usize = 160;

/// The code and its path.
pub(crate) struct Graph {
    code: NonNull<libc::c_void>,
    /// From the first branch after the entry to the return at the end, whose
    /// target is the caller's: 0 here.
    pub(crate) path: Vec<Step>,
    pub(crate) entry: u64,
}

impl Graph {
    /// Writes a graph that this number alone determines, but for the address.
    pub(crate) fn new(seed: u64) -> io::Result<Graph> {
        let len = SLOT * BLOCKS;
        // SAFETY: new memory, nothing of the process is there.
        let code = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if code == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let code = NonNull::new(code).ok_or_else(|| io::Error::other("memory at 0"))?;
        let base = code.as_ptr() as u64;
        let mut writer = Writer {
            bytes: vec![0xCC; len],
            base,
            at: 0,
            instructions: 0,
            path: Vec::new(),
            random: Random(seed),
        };
        let entry = writer.write();
        let graph = Graph { code, path: writer.path, entry };
        // SAFETY: the mapping is `len` bytes long and not executed yet.
        let failed = unsafe {
            std::ptr::copy_nonoverlapping(writer.bytes.as_ptr(), code.as_ptr().cast(), len);
            libc::mprotect(code.as_ptr(), len, libc::PROT_READ | libc::PROT_EXEC)
        };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(graph)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`; its code is not running.
        unsafe { libc::munmap(self.code.as_ptr(), SLOT * BLOCKS) };
    }
}

struct Writer {
    bytes: Vec<u8>,
    base: u64,
    /// Where the next instruction goes.
    at: usize,
    instructions: u64,
    path: Vec<Step>,
    random: Random,
}

impl Writer {
    /// Writes all blocks in the order of execution; tells the first's address.
    fn write(&mut self) -> u64 {
        let mut slots: Vec<usize> = (0..BLOCKS).collect();
        for i in (1..BLOCKS).rev() {
            slots.swap(i, self.random.below(i as u64 + 1) as usize);
        }
        let mut called = false;
        for (block, next) in slots.iter().zip(slots.iter().skip(1)) {
            self.at = block * SLOT;
            self.straight(called);
            called = self.link(next * SLOT);
        }
        self.at = slots.last().map_or(0, |slot| slot * SLOT);
        self.straight(called);
        // The way back to the caller, whose address is not known here.
        self.taken(&[0xC3], 0, Kind::Ret);
        self.base + slots.first().map_or(0, |slot| slot * SLOT) as u64
    }

    /// The instructions of a block before its branch.
    fn straight(&mut self, called: bool) {
        if called {
            // lea rsp, [rsp + 8]: the return address is not needed.
            self.plain(&[0x48, 0x8D, 0x64, 0x24, 0x08]);
        }
        for _ in 0..self.random.below(5) {
            // inc eax
            self.plain(&[0xFF, 0xC0]);
        }
    }

    /// Goes on at `next` by a branch of a random kind. Whether it is a call.
    fn link(&mut self, next: usize) -> bool {
        let to = self.base + next as u64;
        // cmp eax, eax: ZF is set.
        const EQUAL: [u8; 2] = [0x39, 0xC0];
        match self.random.below(9) {
            0 => self.jump(next),
            1 => {
                self.plain(&EQUAL);
                self.relative(&[0x0F, 0x84], next, Kind::Cond);
            }
            2 => {
                // jnz, not taken.
                self.plain(&EQUAL);
                let elsewhere = self.random.below((BLOCKS * SLOT) as u64) as usize;
                let code = self.encoded(&[0x0F, 0x85], elsewhere);
                self.plain(&code);
                self.jump(next);
            }
            3 => {
                self.address_to_rdx(next);
                self.taken(&[0xFF, 0xE2], to, Kind::IndJmp);
            }
            4 => {
                self.relative(&[0xE8], next, Kind::RelCall);
                return true;
            }
            5 => {
                self.address_to_rdx(next);
                self.taken(&[0xFF, 0xD2], to, Kind::IndCall);
                return true;
            }
            6 => {
                let after = self.base + self.at as u64 + 5;
                self.taken(&[0xE8, 0, 0, 0, 0], after, Kind::ZeroLengthCall);
                self.plain(&[0x48, 0x8D, 0x64, 0x24, 0x08]);
                self.jump(next);
            }
            7 => {
                self.address_to_rdx(next);
                // push rdx; ret
                self.plain(&[0x52]);
                self.taken(&[0xC3], to, Kind::Ret);
            }
            _ => {
                // mov ecx, rounds; then: dec ecx; jnz back
                let rounds = 1 + self.random.below(4);
                self.plain(&[0xB9, rounds as u8, 0, 0, 0]);
                let top = self.base + self.at as u64;
                self.plain(&[0xFF, 0xC9]);
                let from = self.base + self.at as u64;
                for _ in 1..rounds {
                    self.instructions += 1;
                    self.record(from, top, Kind::Cond);
                    // The next round's dec.
                    self.instructions += 1;
                }
                self.plain(&[0x75, 0xFC]);
                self.jump(next);
            }
        }
        false
    }

    fn jump(&mut self, next: usize) {
        self.relative(&[0xE9], next, Kind::RelJmp);
    }

    /// lea rdx, [rip + distance]
    fn address_to_rdx(&mut self, next: usize) {
        let code = self.encoded(&[0x48, 0x8D, 0x15], next);
        self.plain(&code);
    }

    /// An opcode with the 32-bit distance from its end to an offset.
    fn encoded(&self, opcode: &[u8], next: usize) -> Vec<u8> {
        let end = self.at + opcode.len() + 4;
        let distance = next as i32 - end as i32;
        [opcode, &distance.to_le_bytes()].concat()
    }

    fn relative(&mut self, opcode: &[u8], next: usize, kind: Kind) {
        let code = self.encoded(opcode, next);
        self.taken(&code, self.base + next as u64, kind);
    }

    fn plain(&mut self, code: &[u8]) {
        self.bytes[self.at..self.at + code.len()].copy_from_slice(code);
        self.at += code.len();
        self.instructions += 1;
    }

    fn taken(&mut self, code: &[u8], to: u64, kind: Kind) {
        let from = self.base + self.at as u64;
        self.plain(code);
        self.record(from, to, kind);
    }

    fn record(&mut self, from: u64, to: u64, kind: Kind) {
        let instructions = std::mem::take(&mut self.instructions);
        self.path.push(Step { from, to, kind, instructions });
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31) % end
    }
}
