//! A callable function around arbitrary code, with recording switched on just around that code.
//!
//! ```text
//! entry:  save the caller's registers
//!         x87 and vector registers as in a new process
//!         load the requested register values
//!         set-up CODE
//!         pwrite(control register, on)       inline SYSCALL
//!         read the counters                  RDPMC
//!         time stamp
//!         load the registers as the setup left them
//!         ...                                what is recorded
//!         time stamp
//!         store the registers
//!         read the counters                  RDPMC
//!         pwrite(control register, off)      inline SYSCALL
//!         restore the caller's registers, return
//! ```
//!
//! Between the two system calls only the code itself executes calls, returns or branches. [`Ends`]
//! selects whether the frame has the system calls and the counter readings.
//!
//! Everything is in one mapping: a page of data, pages of counters, the code, and memory areas
//! separated by guard pages. RBP, RSI, RDI and R14 each point into the middle of an area, RSP into
//! a stack ([`Frame::start`]); the other registers are 0.
#![allow(unsafe_code, reason = "calls generated code, and shares the data page with it")]

use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::RawFd;

use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags};

use super::assembler::Gpr::{self, R10, R12, R13, R14, R15, Rax, Rbp, Rbx, Rdi, Rdx, Rsi, Rsp};
use super::assembler::{Assembler, Label};
use super::counted::{COUNTERS, CounterDeltas, Reading, differences};
use super::memory::{EXECUTABLE, Mapping, PAGE, WRITABLE};

/// Values of the general-purpose registers and RFLAGS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct GprValues {
    general: [u64; 16],
    /// RFLAGS.
    pub rflags: u64,
}

impl Default for GprValues {
    fn default() -> GprValues {
        // Bit 1 is always 1, interrupts are enabled. SDM Vol. 1, 3.4.3.
        GprValues { general: [0; 16], rflags: 0x202 }
    }
}

impl GprValues {
    /// The value of a register.
    pub const fn get(&self, register: Gpr) -> u64 {
        self.general[register as usize]
    }

    /// The same with one register changed.
    #[must_use]
    pub const fn with(mut self, register: Gpr, value: u64) -> GprValues {
        self.general[register as usize] = value;
        self
    }
}

/// How to switch recording on and off: a write of 8 bytes at an offset of a descriptor, the
/// interface of `/dev/cpu/N/msr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchWrites {
    /// The descriptor; -1 writes nothing.
    pub descriptor: RawFd,
    /// The control register's address.
    pub msr: u32,
    /// Its value while recording.
    pub on: u64,
    /// Its value while not recording.
    pub off: u64,
}

impl SwitchWrites {
    /// Switches nothing.
    pub const NONE: SwitchWrites = SwitchWrites { descriptor: -1, msr: 0, on: 0, off: 0 };
}

/// Results of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRun {
    /// Registers at the end of the code.
    pub registers: GprValues,
    /// Time stamps before and after the code.
    pub tsc: [u64; 2],
    /// Return values of the two writes: 8, or a negative errno.
    pub switched: [i64; 2],
    /// Differences of the counters between their two readings; `None` if the kernel multiplexed one.
    pub(crate) counted: Option<CounterDeltas>,
}

impl FrameRun {
    /// Elapsed time stamp counter ticks.
    pub const fn ticks(&self) -> u64 {
        self.tsc[1].wrapping_sub(self.tsc[0])
    }
}

/// The data page. The generated code addresses its fields by offset.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Data {
    /// Registers at entry to the set-up code.
    start: GprValues,
    /// Registers at the start of the code.
    live: GprValues,
    /// Registers at the end of the code.
    end: GprValues,
    /// The caller's stack pointer.
    host: u64,
    descriptor: i64,
    msr: u64,
    /// Addresses of the values that switch recording on and off.
    values_at: [u64; 2],
    /// Remaining rounds of a loop that repeats the set-up.
    rounds: u64,
    switched: [i64; 2],
    tsc: [u64; 2],
    counters: [[Reading; COUNTERS]; 2],
}

impl Data {
    /// `values_at`: addresses in the process of the two values of `switch`.
    pub(crate) fn new(start: GprValues, switch: SwitchWrites, values_at: [u64; 2]) -> Data {
        Data {
            start,
            descriptor: i64::from(switch.descriptor),
            msr: u64::from(switch.msr),
            values_at,
            ..Data::default()
        }
    }

    /// Its bytes, to be written to another process's memory.
    pub(crate) fn bytes(&self) -> [u8; size_of::<Data>()] {
        // SAFETY: every field is a 64-bit number, so there is no padding.
        unsafe { std::mem::transmute(*self) }
    }

    /// Reads it from bytes of another process's memory.
    pub(crate) fn from_bytes(bytes: &[u8; size_of::<Data>()]) -> Data {
        // SAFETY: any bytes are valid numbers.
        unsafe { std::mem::transmute(*bytes) }
    }

    pub(crate) fn ran(&self) -> FrameRun {
        FrameRun {
            registers: self.end,
            tsc: self.tsc,
            switched: self.switched,
            counted: differences(&self.counters),
        }
    }
}

/// A private stack in the data page, for PUSHF and POPF.
const OWN_STACK: u64 = 2048;
const _: () = assert!(size_of::<Data>() < 1024);
/// The initial state of x87 and vector registers: 512 bytes and a header, all zero except for the
/// values that a new process has (System V ABI, 3.4.1). SDM Vol. 1, 13.4.
const VECTORS: u64 = 3072;
const _: () = assert!(VECTORS.is_multiple_of(64) && VECTORS + 512 + 64 <= PAGE);
/// The x87 control word, at offset 0, and MXCSR, at offset 24.
const CLEAN: [(u64, u32); 2] = [(0, 0x037F), (24, 0x1F80)];
/// Offset of the counters' pages, after the data page. Their initial zeros mean "inactive".
pub(crate) const COUNTER_PAGES: u64 = PAGE;
/// Offset of the code.
pub(crate) const CODE: u64 = COUNTER_PAGES + COUNTERS as u64 * PAGE;
/// Size of each area of memory.
pub const AREA: u64 = 1 << 16;
/// The registers that point into the middle of an area.
pub const AREAS: [Gpr; 4] = [Rbp, Rsi, Rdi, R14];
/// Size of the stack.
pub const STACK: u64 = 8 << 20;
/// Bytes of the stack above the initial stack pointer.
const ABOVE: u64 = AREA;

/// A function, ready to run.
#[derive(Debug)]
pub(crate) struct Frame {
    mapping: Mapping,
    entry: u64,
    start: GprValues,
}

impl Frame {
    /// Maps code written for offset [`CODE`], with [`enter`] at `entry` and [`leave`] at its end.
    pub(crate) fn new(code: &[u8], entry: u64) -> io::Result<Frame> {
        let text = (code.len() as u64).next_multiple_of(PAGE);
        let stack = CODE + text + PAGE;
        let length = stack + STACK + PAGE + (AREA + PAGE) * AREAS.len() as u64;
        let mut mapping = Mapping::reserve(length, MapFlags::MAP_NORESERVE)?;
        let mut data = vec![0; PAGE as usize];
        for (offset, value) in CLEAN {
            let at = (VECTORS + offset) as usize;
            if let Some(field) = data.get_mut(at..at + 4) {
                field.copy_from_slice(&value.to_le_bytes());
            }
        }
        mapping.fill(0, PAGE, &data, WRITABLE)?;
        mapping.fill(COUNTER_PAGES, CODE - COUNTER_PAGES, &[], ProtFlags::PROT_READ)?;
        mapping.fill(CODE, text, code, EXECUTABLE)?;
        mapping.protect(stack, STACK, WRITABLE)?;
        let base = mapping.address();
        let mut start = GprValues::default().with(Rsp, base + stack + STACK - ABOVE);
        for (i, register) in (0u64..).zip(AREAS) {
            let area = stack + STACK + PAGE + i * (AREA + PAGE);
            mapping.protect(area, AREA, WRITABLE)?;
            start = start.with(register, base + area + AREA / 2);
        }
        Ok(Frame { mapping, entry, start })
    }

    /// The whole mapping. It starts with the data page.
    pub(crate) fn mapping(&self) -> Range<u64> {
        self.mapping.address()..self.mapping.end()
    }

    /// The default register values of a run: pointers into the middle of areas of [`AREA`] bytes in
    /// RBP, RSI, RDI and R14, a stack of [`STACK`] bytes in RSP, 0 in all others.
    pub(crate) const fn start(&self) -> GprValues {
        self.start
    }

    /// Runs it in this process, on this thread. x87 and vector registers keep the code's values
    /// until the next run.
    ///
    /// # Safety
    /// The code must be known: it reaches its end, touches only memory that its registers point to,
    /// leaves the data page, MXCSR and the x87 control word alone, and makes no system call that
    /// would harm this process.
    pub(crate) unsafe fn run(&mut self, start: GprValues, switch: SwitchWrites) -> FrameRun {
        let data = self.mapping.pointer().cast::<Data>();
        let values_at = [&raw const switch.on as u64, &raw const switch.off as u64];
        // SAFETY: the data page is at the start of the mapping, writable, large enough (asserted
        // above) and aligned. `entry` is a function without arguments that follows the C calling
        // convention; the caller vouches for the code inside.
        unsafe {
            data.write_volatile(Data::new(start, switch, values_at));
            let entry: extern "sysv64" fn() =
                std::mem::transmute((self.mapping.address() + self.entry) as *const ());
            entry();
            data.read_volatile().ran()
        }
    }
}

/// Registers that a function must preserve. System V ABI, Figure 3.4.
const CALLEE_SAVED: [Gpr; 6] = [Rbx, Rbp, R12, R13, R14, R15];

/// Addresses in the frame's entry.
pub(crate) struct Entered {
    /// The function.
    pub(crate) entry: u64,
    /// Set-up code.
    pub(crate) init: Range<u64>,
    /// Return address of the system call that switches recording on; 0 without one.
    pub(crate) switched: u64,
}

/// What the frame does around the code in addition to time stamps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// Switch recording on and off by system calls.
    pub(crate) switches: bool,
    /// Read the counters.
    pub(crate) counters: bool,
}

/// Writes everything that precedes the code. When it ends, recording is on if it is switched at
/// all.
pub(crate) fn enter(code: &mut Assembler, init: &[u8], ends: Ends) -> Entered {
    code.align();
    let entry = code.here();
    for register in CALLEE_SAVED {
        code.push(register);
    }
    code.store(offset_of!(Data, host) as u64, Rsp);
    let init = set_up(code, init);
    store(code, offset_of!(Data, live));
    let switched = if ends.switches { switch(code, 0) } else { 0 };
    if ends.counters {
        // The first counter, cycles, is read closest to the code.
        (0..COUNTERS).rev().for_each(|which| read_counter(code, 0, which));
    }
    code.time_stamp(offset_of!(Data, tsc) as u64);
    load(code, offset_of!(Data, live));
    Entered { entry, init, switched }
}

/// Writes the loading of the initial registers, then the set-up code; returns that range.
pub(crate) fn set_up(code: &mut Assembler, init: &[u8]) -> Range<u64> {
    code.load_vectors(VECTORS, std::arch::is_x86_feature_detected!("xsave"));
    load(code, offset_of!(Data, start));
    let start = code.here();
    code.raw(init);
    start..code.here()
}

/// Writes the start of a loop that counts its rounds in memory, out of reach of the code's
/// registers. Clobbers RAX.
pub(crate) fn count_in_memory(code: &mut Assembler, rounds: u32) {
    code.constant(Rax, rounds);
    code.store(offset_of!(Data, rounds) as u64, Rax);
}

/// Writes the end of such a loop; returns its branch's address.
pub(crate) fn count_down_in_memory(code: &mut Assembler, to: Label) -> u64 {
    code.count_down_in_memory(offset_of!(Data, rounds) as u64, to)
}

/// Writes everything that follows the code, up to the return; returns the return address of the
/// system call that switches recording off, or 0.
pub(crate) fn leave(code: &mut Assembler, ends: Ends) -> u64 {
    let end_of = |register: Gpr| offset_of!(Data, end) as u64 + 8 * register as u64;
    code.store(end_of(Rax), Rax);
    code.store(end_of(Rdx), Rdx);
    code.time_stamp(offset_of!(Data, tsc) as u64 + 8);
    code.load(Rax, end_of(Rax));
    code.load(Rdx, end_of(Rdx));
    store(code, offset_of!(Data, end));
    if ends.counters {
        (0..COUNTERS).for_each(|which| read_counter(code, 1, which));
    }
    let switched = if ends.switches { switch(code, 1) } else { 0 };
    code.load(Rsp, offset_of!(Data, host) as u64);
    code.raw(&[0xFC]); // cld
    for register in CALLEE_SAVED.iter().rev() {
        code.pop(*register);
    }
    code.ret();
    switched
}

/// Reads a counter, before (`end` 0) or after (1) the code.
fn read_counter(code: &mut Assembler, end: usize, which: usize) {
    let into = offset_of!(Data, counters) + (end * COUNTERS + which) * size_of::<Reading>();
    code.read_counter(COUNTER_PAGES + which as u64 * PAGE, into as u64);
}

/// Loads registers and flags from memory.
fn load(code: &mut Assembler, area: usize) {
    let area = area as u64;
    code.address(Rsp, OWN_STACK);
    code.load_flags(area + 8 * 16);
    for register in Gpr::ALL.into_iter().filter(|r| *r != Rsp) {
        code.load(register, area + 8 * register as u64);
    }
    code.load(Rsp, area + 8 * Rsp as u64);
}

/// Stores registers and flags in memory. RSP points to the private stack afterwards.
fn store(code: &mut Assembler, area: usize) {
    let area = area as u64;
    for register in Gpr::ALL {
        code.store(area + 8 * register as u64, register);
    }
    code.address(Rsp, OWN_STACK);
    code.store_flags(area + 8 * 16);
}

/// Switches recording; returns the system call's return address.
fn switch(code: &mut Assembler, which: u64) -> u64 {
    code.load(Rsi, offset_of!(Data, values_at) as u64 + 8 * which);
    code.load(R10, offset_of!(Data, msr) as u64);
    write_register(code);
    code.syscall();
    let returns_to = code.here();
    code.store(offset_of!(Data, switched) as u64 + 8 * which, Rax);
    returns_to
}

/// Sets up pwrite64(descriptor, RSI, 8, R10).
pub(crate) fn write_register(code: &mut Assembler) {
    code.constant(Rax, libc::SYS_pwrite64 as u32);
    code.load(Rdi, offset_of!(Data, descriptor) as u64);
    code.constant(Rdx, 8);
}
