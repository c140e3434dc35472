//! A piece of code between two jumps of ours, and recording on between them.
//!
//! ```text
//! entry:  save the caller's registers        (a function without arguments)
//!         x87 and vector registers as in a new process
//!         load the registers of the caller's choice
//!         CODE that sets up (--init)
//!         pwrite(control register, on)       inline SYSCALL
//!         time stamp
//!         load the registers as the setup left them
//! open:   jmp body                           the first record
//! body:   CODE, unrolled, in a loop of ours
//! close:  jmp tail                           the last record
//! tail:   store the registers
//!         time stamp
//!         pwrite(control register, off)      inline SYSCALL
//!         restore the caller's registers, return
//! ```
//!
//! Between the two system calls there is no call, return or branch but those
//! of the code and the two jumps, so that with a filter on user mode the
//! records are: the return from the first system call (far), `open`, the
//! code's, `close`. A far record between the two jumps is an interrupt.
//!
//! All of it lies in one mapping: a page of data, the code, and areas of
//! memory with guard pages between them. RBP, RSI, RDI and R14 point into the
//! middle of an area each, RSP into a stack ([`Bracket::start`]); the other
//! registers are 0.
#![allow(unsafe_code, reason = "executable memory, and a jump into it")]

use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::fd::RawFd;
use std::ptr::NonNull;

use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::emit::Emit;

/// A general-purpose register, numbered as instructions number it. SDM Vol. 2,
/// Table 3-1.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Register {
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

impl Register {
    /// All, in the order of their numbers.
    pub const ALL: [Register; 16] = [
        Register::Rax,
        Register::Rcx,
        Register::Rdx,
        Register::Rbx,
        Register::Rsp,
        Register::Rbp,
        Register::Rsi,
        Register::Rdi,
        Register::R8,
        Register::R9,
        Register::R10,
        Register::R11,
        Register::R12,
        Register::R13,
        Register::R14,
        Register::R15,
    ];
}

/// Values of the general-purpose registers and RFLAGS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Registers {
    general: [u64; 16],
    /// RFLAGS.
    pub rflags: u64,
}

impl Default for Registers {
    fn default() -> Registers {
        // Bit 1 is always 1, interrupts are enabled. SDM Vol. 1, 3.4.3.
        Registers { general: [0; 16], rflags: 0x202 }
    }
}

impl Registers {
    /// The value of a register.
    #[must_use]
    pub const fn get(&self, register: Register) -> u64 {
        self.general[register as usize]
    }

    /// The same with one register changed.
    #[must_use]
    pub const fn with(mut self, register: Register, value: u64) -> Registers {
        self.general[register as usize] = value;
        self
    }
}

/// How recording is switched on and off: a write of 8 bytes at an offset of a
/// descriptor, which is what `/dev/cpu/N/msr` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The descriptor; -1 leaves the registers alone.
    pub descriptor: RawFd,
    /// The control register's address.
    pub msr: u32,
    /// Its value with recording on.
    pub on: u64,
    /// Its value with recording off.
    pub off: u64,
}

impl Switch {
    /// Nothing is switched.
    pub const NONE: Switch = Switch { descriptor: -1, msr: 0, on: 0, off: 0 };
}

/// What is put into a bracket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// Runs before recording is switched on.
    pub init: Vec<u8>,
    /// The code itself: it is entered at its first byte and left behind its
    /// last.
    pub code: Vec<u8>,
    /// Copies of it, one behind the other; 0 is taken for 1.
    pub unroll: u32,
    /// Rounds of a loop of ours around the copies, counted in R15; `None` for
    /// no loop. 0 is taken for 1.
    pub rounds: Option<u32>,
    /// The address of a function that is called in place of `code`, by an
    /// indirect call of ours.
    pub call: Option<u64>,
    /// Stop at an INT3 in front of `open`, and switch nothing: for a source
    /// that steps through the code.
    pub stepped: bool,
}

/// Where the parts of a bracket lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The whole mapping.
    pub mapping: Range<u64>,
    /// The part of it that is executable.
    pub text: Range<u64>,
    /// Set-up code.
    pub init: Range<u64>,
    /// The opening jump.
    pub open: u64,
    /// All copies of the code. Empty for a [function](Body::call).
    pub code: Range<u64>,
    /// Length of one copy.
    pub copy: u64,
    /// The call of a [function](Body::call).
    pub call: Option<u64>,
    /// The branch of the loop around the copies. The instruction before it
    /// counts.
    pub around: Option<u64>,
    /// The closing jump.
    pub close: u64,
    /// Where the closing jump goes.
    pub tail: u64,
    /// A loop that stops at an INT3 and then runs the bracket, for ever: for
    /// a process that is controlled from outside. Stops there show `home + 1`.
    pub home: u64,
    /// The INT3 before the opening jump, where there is one.
    pub halt: Option<u64>,
    /// Where the two system calls that switch recording on and off return to;
    /// 0 where there are none.
    pub switches: [u64; 2],
}

impl Layout {
    /// Whether an instruction at this address is the bracket's own.
    #[must_use]
    pub fn is_ours(&self, address: u64) -> bool {
        self.text.contains(&address)
            && !self.code.contains(&address)
            && !self.init.contains(&address)
    }

    /// The address that means in `other`, a bracket with the same code, what
    /// `address` means in this one.
    #[must_use]
    pub fn moved(&self, address: u64, other: &Layout) -> u64 {
        // From the opening jump to the tail both are alike, byte for byte.
        if (self.open..=self.tail).contains(&address) {
            let inside = address.wrapping_sub(self.code.start);
            return other.code.start.wrapping_add(inside);
        }
        address
    }
}

/// What a run left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Registers at the closing jump.
    pub registers: Registers,
    /// Time stamps before the opening and behind the closing jump.
    pub tsc: [u64; 2],
    /// What the two writes returned: 8, or a negative errno.
    pub switched: [i64; 2],
}

impl Ran {
    /// Ticks of the time stamp counter between the two.
    #[must_use]
    pub const fn ticks(&self) -> u64 {
        self.tsc[1].wrapping_sub(self.tsc[0])
    }
}

/// The data page. The code counts its fields.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Data {
    /// Registers at entry of the set-up code.
    pub(super) start: Registers,
    /// Registers at the opening jump.
    pub(super) live: Registers,
    /// Registers at the closing jump.
    pub(super) end: Registers,
    /// The caller's stack pointer.
    host: u64,
    pub(super) descriptor: i64,
    pub(super) msr: u64,
    pub(super) on: u64,
    pub(super) off: u64,
    pub(super) switched: [i64; 2],
    pub(super) tsc: [u64; 2],
}

impl Data {
    pub(super) fn new(start: Registers, switch: Switch) -> Data {
        Data {
            start,
            live: Registers::default(),
            end: Registers::default(),
            host: 0,
            descriptor: i64::from(switch.descriptor),
            msr: u64::from(switch.msr),
            on: switch.on,
            off: switch.off,
            switched: [0; 2],
            tsc: [0; 2],
        }
    }

    /// Its bytes, for the memory of another process.
    pub(super) fn bytes(&self) -> [u8; size_of::<Data>()] {
        // SAFETY: every field is a 64-bit number, so that there is no padding.
        unsafe { std::mem::transmute(*self) }
    }

    /// From the bytes of another process's memory.
    pub(super) fn from_bytes(bytes: &[u8; size_of::<Data>()]) -> Data {
        // SAFETY: any bytes are numbers.
        unsafe { std::mem::transmute(*bytes) }
    }

    pub(super) const fn ran(&self) -> Ran {
        Ran { registers: self.end, tsc: self.tsc, switched: self.switched }
    }
}

const PAGE: u64 = 4096;
/// A stack of our own in the data page, for the flags.
const OWN_STACK: u64 = 2048;
const _: () = assert!(size_of::<Data>() < 1024);
/// The state of x87 and vector registers that a run starts with: 512 bytes
/// and a header, all zero but for what a new process has (System V ABI, 3.4.1).
/// SDM Vol. 1, 13.4.
const VECTORS: u64 = 3072;
const _: () = assert!(VECTORS.is_multiple_of(64) && VECTORS + 512 + 64 <= PAGE);
/// The x87 control word, at 0, and MXCSR, at 24.
const CLEAN: [(u64, u32); 2] = [(0, 0x037F), (24, 0x1F80)];
/// Size of each area of memory.
pub const AREA: u64 = 1 << 16;
/// The registers that point into the middle of an area.
pub const AREAS: [Register; 4] = [Register::Rbp, Register::Rsi, Register::Rdi, Register::R14];
/// Size of the stack.
pub const STACK: u64 = 8 << 20;
/// What lies above the stack pointer at first.
const ABOVE: u64 = AREA;
/// Code that is longer is refused.
pub const LONGEST: usize = 1 << 28;

/// A piece of code in its bracket, ready to run.
#[derive(Debug)]
pub struct Bracket {
    mapping: NonNull<libc::c_void>,
    length: usize,
    entry: u64,
    layout: Layout,
    start: Registers,
}

// SAFETY: the mapping belongs to this value alone, and what it points to is
// touched through `&mut` only.
unsafe impl Send for Bracket {}

impl Bracket {
    /// Maps the code.
    ///
    /// # Errors
    /// Code of more than [`LONGEST`] bytes, or no memory.
    pub fn new(body: &Body) -> io::Result<Bracket> {
        let unroll = usize::try_from(body.unroll.max(1)).unwrap_or(usize::MAX);
        let code = body.code.len().saturating_mul(unroll);
        if code.saturating_add(body.init.len()) > LONGEST {
            return Err(io::Error::other(format!(
                "the code takes {code} bytes with all its copies; at most {LONGEST} can be measured"
            )));
        }
        // What is ours takes less than a page.
        let text = (code + body.init.len()) as u64 + PAGE;
        let text = text.next_multiple_of(PAGE);
        let areas = STACK + PAGE + (AREA + PAGE) * AREAS.len() as u64;
        let length = (PAGE + text + PAGE + areas) as usize;
        let size = NonZeroUsize::new(length).ok_or(io::ErrorKind::InvalidInput)?;
        let writable = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapping = unsafe { mmap_anonymous(None, size, ProtFlags::PROT_NONE, flags)? };
        let base = mapping.as_ptr() as u64;
        let stack = base + PAGE + text + PAGE;
        let mut start = Registers::default().with(Register::Rsp, stack + STACK - ABOVE);
        for (i, register) in (0u64..).zip(AREAS) {
            let area = stack + STACK + PAGE + i * (AREA + PAGE);
            start = start.with(register, area + AREA / 2);
        }
        let (bytes, entry, layout) = write(base, base + length as u64, body);
        let bracket = Bracket { mapping, length, entry, layout, start };
        let protect = |at: u64, length: u64, as_what| {
            let at = bracket.inside(at);
            // SAFETY: the range lies in the mapping, which holds nothing yet
            // that anybody points to.
            unsafe { mprotect(at, length as usize, as_what) }
        };
        protect(base, PAGE + text, writable)?;
        protect(stack, STACK, writable)?;
        for register in AREAS {
            protect(start.get(register) - AREA / 2, AREA, writable)?;
        }
        // SAFETY: `bytes` is no longer than what was made writable behind the
        // data page: the code, and less than a page of ours. The clean state
        // lies in the data page (asserted above), and is aligned.
        unsafe {
            for (offset, value) in CLEAN {
                bracket.inside(base + VECTORS + offset).cast::<u32>().write(value);
            }
            let code = bracket.inside(base + PAGE).cast::<u8>().as_ptr();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), code, bytes.len());
        }
        protect(base + PAGE, text, ProtFlags::PROT_READ | ProtFlags::PROT_EXEC)?;
        Ok(bracket)
    }

    /// Where its parts lie.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The registers that a run starts with unless others are given: pointers
    /// into the middle of areas of [`AREA`] bytes in RBP, RSI, RDI and R14, a
    /// stack of [`STACK`] bytes in RSP, 0 in all others.
    #[must_use]
    pub const fn start(&self) -> Registers {
        self.start
    }

    /// Address of the data page, in this process and in those forked from it.
    pub(super) const fn data(&self) -> u64 {
        self.layout.mapping.start
    }

    /// Runs it in this process, on this thread: switches recording on, runs
    /// the code, switches recording off.
    ///
    /// What the writes returned is in [`Ran::switched`]: look at it. The code
    /// finds x87 and vector registers as in a new process; what it leaves there
    /// stays until the next run.
    ///
    /// # Safety
    /// The code has to be known: it ends behind its last byte, touches no
    /// memory but that which its registers point to, leaves the bracket's data
    /// page, MXCSR and the x87 control word alone, and makes no system call
    /// that this process could not bear. A bracket made for a
    /// [stepping source](Body::stepped) stops at an INT3.
    pub unsafe fn run(&mut self, start: Registers, switch: Switch) -> Ran {
        let data = self.mapping.cast::<Data>();
        // SAFETY: the data page is at the start of the mapping, writable,
        // large enough (asserted above) and aligned. `entry` is a function
        // without arguments that follows the C calling convention; of the code
        // inside the caller promises the rest.
        unsafe {
            data.write_volatile(Data::new(start, switch));
            let entry: extern "sysv64" fn() = std::mem::transmute(self.entry as *const ());
            entry();
            data.read_volatile().ran()
        }
    }

    /// Runs it whenever another process lets this one go on from an INT3.
    ///
    /// # Safety
    /// Nothing of this process may be needed afterwards: it is a fork made for
    /// this.
    pub(super) unsafe fn serve(&self) -> ! {
        // SAFETY: `home` never returns.
        unsafe {
            let home: extern "sysv64" fn() -> ! =
                std::mem::transmute(self.layout.home as *const ());
            home()
        }
    }

    /// A pointer to an address of the mapping.
    fn inside(&self, address: u64) -> NonNull<libc::c_void> {
        let offset = address.wrapping_sub(self.mapping.as_ptr() as u64) as usize;
        // SAFETY: every caller adds parts of the mapping's length to its base.
        unsafe { self.mapping.byte_add(offset.min(self.length)) }
    }
}

impl Drop for Bracket {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own; nothing borrows from it.
        let _ = unsafe { munmap(self.mapping, self.length) };
    }
}

/// What a function keeps for its caller. System V ABI, Figure 3.4.
const KEPT: [Register; 6] =
    [Register::Rbx, Register::Rbp, Register::R12, Register::R13, Register::R14, Register::R15];

/// Writes everything; the code, the address of `entry`, and where the parts
/// are.
fn write(base: u64, end: u64, body: &Body) -> (Vec<u8>, u64, Layout) {
    let field = |offset: usize| base + offset as u64;
    let start = field(std::mem::offset_of!(Data, start));
    let live = field(std::mem::offset_of!(Data, live));
    let finish = field(std::mem::offset_of!(Data, end));
    let tsc = field(std::mem::offset_of!(Data, tsc));
    let own_stack = base + OWN_STACK;

    let mut code = Emit::at(base + PAGE);
    let pointer = code.here();
    code.raw(&body.call.unwrap_or(0).to_le_bytes());
    code.align(LINE);
    let entry = code.here();
    for register in KEPT {
        code.push(register);
    }
    code.store(field(std::mem::offset_of!(Data, host)), Register::Rsp);
    code.load_vectors(base + VECTORS, std::arch::is_x86_feature_detected!("xsave"));
    load(&mut code, start, own_stack);
    let init = code.here();
    code.raw(&body.init);
    let init = init..code.here();
    store(&mut code, live, own_stack);
    let mut switches = [0; 2];
    if !body.stepped {
        switches[0] = switch(&mut code, base, std::mem::offset_of!(Data, on), 0);
    }
    code.time_stamp(tsc);
    load(&mut code, live, own_stack);
    let rounds = body.rounds.map(|rounds| rounds.max(1));
    if let Some(rounds) = rounds {
        code.constant(Register::R15, rounds);
    }
    let halt = body.stepped.then(|| code.here());
    if body.stepped {
        code.trap();
    }
    // The body starts at a cache line of its own.
    let inside = (code.here() + 5).next_multiple_of(LINE);
    let open = code.jump(inside);
    code.align(LINE);
    let mut call = None;
    for _ in 0..body.unroll.max(1) {
        match body.call {
            None => code.raw(&body.code),
            Some(_) => call = Some(code.call_at(pointer)),
        }
    }
    let copies_end = code.here();
    let around = rounds.map(|_| code.count_down(Register::R15, inside));
    let close = code.here();
    let tail = (close + 5).next_multiple_of(LINE);
    code.jump(tail);
    code.align(LINE);
    let end_register = |register: Register| finish + 8 * register as u64;
    code.store(end_register(Register::Rax), Register::Rax);
    code.store(end_register(Register::Rdx), Register::Rdx);
    code.time_stamp(tsc + 8);
    code.load(Register::Rax, end_register(Register::Rax));
    code.load(Register::Rdx, end_register(Register::Rdx));
    store(&mut code, finish, own_stack);
    if !body.stepped {
        switches[1] = switch(&mut code, base, std::mem::offset_of!(Data, off), 1);
    }
    code.load(Register::Rsp, field(std::mem::offset_of!(Data, host)));
    code.raw(&[0xFC]); // cld
    for register in KEPT.iter().rev() {
        code.pop(*register);
    }
    code.raw(&[0xC3]); // ret
    code.align(LINE);
    let home = code.here();
    code.trap();
    code.call(entry);
    code.jump(home);

    let layout = Layout {
        mapping: base..end,
        text: base + PAGE..code.here(),
        init,
        open,
        code: if body.call.is_none() { inside..copies_end } else { inside..inside },
        copy: body.code.len() as u64,
        call,
        around,
        close,
        tail,
        home,
        halt,
        switches,
    };
    (code.finish(), entry, layout)
}

/// Bytes of a cache line.
const LINE: u64 = 64;

/// Registers and flags from memory.
fn load(code: &mut Emit, area: u64, own_stack: u64) {
    code.address(Register::Rsp, own_stack);
    code.load_flags(area + 8 * 16);
    for register in Register::ALL.into_iter().filter(|r| *r != Register::Rsp) {
        code.load(register, area + 8 * register as u64);
    }
    code.load(Register::Rsp, area + 8 * Register::Rsp as u64);
}

/// Registers and flags into memory. RSP is `own_stack` afterwards.
fn store(code: &mut Emit, area: u64, own_stack: u64) {
    for register in Register::ALL {
        code.store(area + 8 * register as u64, register);
    }
    code.address(Register::Rsp, own_stack);
    code.store_flags(area + 8 * 16);
}

/// pwrite64(descriptor, &value, 8, msr). Returns where it returns to.
fn switch(code: &mut Emit, data: u64, value: usize, which: u64) -> u64 {
    let field = |offset: usize| data + offset as u64;
    code.constant(Register::Rax, libc::SYS_pwrite64 as u32);
    code.load(Register::Rdi, field(std::mem::offset_of!(Data, descriptor)));
    code.address(Register::Rsi, field(value));
    code.constant(Register::Rdx, 8);
    code.load(Register::R10, field(std::mem::offset_of!(Data, msr)));
    code.syscall();
    let returns_to = code.here();
    code.store(field(std::mem::offset_of!(Data, switched)) + 8 * which, Register::Rax);
    returns_to
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    /// `mov rcx, rax; pushfq; pop rdx; inc r9`, behind `mov eax, 7`.
    fn body() -> Body {
        Body {
            init: vec![0xB8, 7, 0, 0, 0],
            code: vec![0x48, 0x89, 0xC1, 0x9C, 0x5A, 0x49, 0xFF, 0xC1],
            ..Body::default()
        }
    }

    #[test]
    fn it_runs_code_between_two_writes() {
        // A file is a register file as well: eight bytes at an offset.
        let file = tempfile::tempfile().expect("a file");
        let switch = Switch { descriptor: file.as_raw_fd(), msr: 0x1D9, on: 0x4801, off: 0x4800 };
        let body = Body { unroll: 3, rounds: Some(5), ..body() };
        let mut bracket = Bracket::new(&body).expect("a bracket");
        let start = bracket.start().with(Register::R9, 100);
        // SAFETY: the code touches registers and its own stack alone.
        let ran = unsafe { bracket.run(start, switch) };
        assert_eq!(ran.switched, [8, 8]);
        assert_eq!(ran.registers.get(Register::Rcx), 7);
        assert_eq!(ran.registers.get(Register::R9), 115, "three copies, five rounds");
        assert_eq!(ran.registers.get(Register::R15), 0);
        assert_eq!(ran.registers.get(Register::R14), start.get(Register::R14));
        assert_eq!(ran.registers.get(Register::Rsp), start.get(Register::Rsp));
        assert_eq!(ran.registers.get(Register::Rdx) & 0x602, 0x202, "flags were loaded");
        assert!(ran.tsc[1] > ran.tsc[0]);
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0x1D9).expect("eight bytes");
        assert_eq!(u64::from_le_bytes(bytes), 0x4800, "switched off at the end");
    }

    #[test]
    fn without_a_descriptor_nothing_is_switched() {
        let mut bracket = Bracket::new(&body()).expect("a bracket");
        // SAFETY: as above.
        let ran = unsafe { bracket.run(bracket.start(), Switch::NONE) };
        assert_eq!(ran.switched, [-i64::from(libc::EBADF); 2]);
        assert_eq!(ran.registers.get(Register::Rcx), 7);
    }

    #[test]
    fn a_function_is_called() {
        extern "sysv64" fn add(a: u64, b: u64) -> u64 {
            a + b
        }
        let call = add as extern "sysv64" fn(u64, u64) -> u64 as usize as u64;
        let body = Body { call: Some(call), ..Body::default() };
        let mut bracket = Bracket::new(&body).expect("a bracket");
        let start = bracket.start().with(Register::Rdi, 30).with(Register::Rsi, 12);
        // SAFETY: a function of this test.
        let ran = unsafe { bracket.run(start, Switch::NONE) };
        assert_eq!(ran.registers.get(Register::Rax), 42);
        assert!(bracket.layout().code.is_empty());
    }

    /// Between the two system calls stand the two jumps and no other branch.
    #[test]
    fn nothing_branches_but_the_two_jumps() {
        let body = body();
        let bracket = Bracket::new(&body).expect("a bracket");
        let layout = bracket.layout();
        let code = layout.mapping.start + PAGE;
        let (bytes, entry, _) = write(layout.mapping.start, layout.mapping.end, &body);
        let (mut ip, mut kinds) = (entry, Vec::new());
        while ip < layout.home {
            let rest = bytes.get((ip - code) as usize..).unwrap_or_default();
            ip += match lbr_msr::insn::decode(rest, ip) {
                lbr_msr::insn::Insn::Branch(branch) => {
                    let name = branch.branch_type.name().unwrap_or("-");
                    kinds.push((name, ip));
                    match branch.target.filter(|_| !branch.is_conditional()) {
                        Some(target) => target - ip,
                        None if name == "RET" => break,
                        None => u64::from(branch.len),
                    }
                }
                lbr_msr::insn::Insn::Straight { len } => u64::from(len),
                lbr_msr::insn::Insn::Invalid => panic!("no instruction at {ip:#x}"),
            };
        }
        let names: Vec<_> = kinds.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["SYSCALL", "UNCOND", "UNCOND", "SYSCALL", "RET"]);
        assert_eq!((kinds[1].1, kinds[2].1), (layout.open, layout.close));
    }
}
