//! The code under test between two marker jumps, with recording switched on around them.
//!
//! ```text
//! entry:  entry of a frame, which switches recording on
//! open:   jmp body                           the first record
//! body:   CODE, unrolled, in a loop
//! close:  jmp tail                           the last record
//! tail:   exit of the frame, which switches recording off
//! ```
//!
//! Between the frame's two system calls only the code and the two marker jumps branch. With a
//! user-mode filter the records are therefore: the return from the first system call (far), `open`,
//! the code's branches, `close`. A far record between the two jumps is an interrupt.
#![allow(unsafe_code, reason = "jumps into generated code")]

use std::io;
use std::ops::Range;

use crate::code::assembler::Assembler;
pub use crate::code::assembler::Gpr;
use crate::code::counted::COUNTERS;
use crate::code::frame::{self, CODE, COUNTER_PAGES, Ends, Frame};
pub use crate::code::frame::{AREA, AREAS, FrameRun, GprValues, STACK, SwitchWrites};
use crate::code::memory::PAGE;

/// The contents of a bracket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// Runs before recording is switched on.
    pub init: Vec<u8>,
    /// The code itself, entered at its first byte and left after its last.
    pub code: Vec<u8>,
    /// Offset of the code's first byte within its page; `None` for a cache line's start.
    pub page_offset: Option<u64>,
    /// Number of consecutive copies; 0 means 1.
    pub unroll: u32,
    /// Iterations of a loop around the copies, counted in R15; `None` for no loop. 0 means 1.
    pub rounds: Option<u32>,
    /// Reloads the initial registers and runs `init` again in each iteration; iterations are then
    /// counted in memory. Always so for [calls](Body::call) and code with `init`.
    pub fresh: bool,
    /// The address of a function to call indirectly instead of `code`.
    pub call: Option<u64>,
    /// Its first argument, if it is a closure of this program. Its process keeps the descriptors
    /// and rights of this one.
    pub closure: Option<u64>,
    /// Stops at an INT3 before `open` and switches nothing, for a source that single-steps the
    /// code.
    pub stepped: bool,
    /// Reads the counters of perf events before and after the code.
    pub counters: bool,
}

impl Body {
    /// Executions of the code in one run.
    pub(super) fn iterations(&self) -> u64 {
        u64::from(self.unroll.max(1)) * u64::from(self.rounds.unwrap_or(1).max(1))
    }

    /// Registers are set up before each iteration and each call, not just once per run. Unrolled
    /// copies always continue with the registers of the previous copy.
    pub fn sets_up_again(&self) -> bool {
        match self.call {
            Some(_) => self.rounds.is_some() || self.unroll > 1,
            None => self.rounds.is_some() && (self.fresh || !self.init.is_empty()),
        }
    }
}

/// Addresses of a bracket's parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The whole mapping.
    pub mapping: Range<u64>,
    /// Its executable part.
    pub text: Range<u64>,
    /// Set-up code.
    pub init: Range<u64>,
    /// Code that [sets up](Body::sets_up_again) an iteration's registers, including `init`; empty
    /// if none does.
    pub set_up: Range<u64>,
    /// The opening jump.
    pub open: u64,
    /// All copies of the code; empty for a [function](Body::call).
    pub code: Range<u64>,
    /// Length of one copy.
    pub copy: u64,
    /// The call of a [function](Body::call).
    pub call: Option<u64>,
    /// The loop's branch. The instruction before it decrements the counter.
    pub around: Option<u64>,
    /// The closing jump.
    pub close: u64,
    /// Target of the closing jump.
    pub tail: u64,
    /// An endless loop of INT3 and one run of the bracket, for a process under a tracer. A stop
    /// there has the instruction pointer `home + 1`.
    pub home: u64,
    /// The INT3 before the opening jump, if any.
    pub halt: Option<u64>,
    /// Return addresses of the two system calls that switch recording on and off; 0 without them.
    pub switches: [u64; 2],
}

impl Layout {
    /// Returns whether the instruction at this address belongs to the bracket, not to the code.
    pub fn is_ours(&self, address: u64) -> bool {
        self.text.contains(&address) && !self.code.contains(&address)
    }

    /// Translates an address to the corresponding one in `other`, a bracket around the same code.
    pub fn moved(&self, address: u64, other: &Layout) -> u64 {
        // From the opening jump to the tail both are identical, byte for byte.
        if (self.open..=self.tail).contains(&address) {
            let inside = address.wrapping_sub(self.code.start);
            return other.code.start.wrapping_add(inside);
        }
        address
    }
}

/// Maximum length of code in bytes.
pub const LONGEST: usize = 1 << 28;

/// Code in its bracket, ready to run.
#[derive(Debug)]
pub struct Bracket {
    frame: Frame,
    layout: Layout,
    closure: Option<u64>,
}

impl Bracket {
    /// Maps the code.
    ///
    /// # Errors
    /// Code longer than [`LONGEST`] bytes, or out of memory.
    pub fn new(body: &Body) -> io::Result<Bracket> {
        let unroll = usize::try_from(body.unroll.max(1)).unwrap_or(usize::MAX);
        let code = body.code.len().saturating_mul(unroll);
        if code.saturating_add(body.init.len()) > LONGEST {
            return Err(io::Error::other(format!(
                "the code takes {code} bytes with all its copies; at most {LONGEST} can be measured"
            )));
        }
        let start = |body| (write(body, 0).2)(0..0).code.start;
        let shift = body.page_offset.map_or(0, |at| at.wrapping_sub(start(body)) % PAGE);
        let (code, entry, layout) = write(body, shift);
        let frame = Frame::new(&code, entry)?;
        let layout = layout(frame.mapping());
        Ok(Bracket { frame, layout, closure: body.closure })
    }

    /// The addresses of its parts.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The default register values of a run: pointers into the middle of areas of [`AREA`] bytes in
    /// RBP, RSI, RDI and R14, a stack of [`STACK`] bytes in RSP, 0 in all others. For a
    /// [closure](Body::closure), RDI points to it.
    pub fn start(&self) -> GprValues {
        let start = self.frame.start();
        self.closure.map_or(start, |closure| start.with(Gpr::Rdi, closure))
    }

    /// Addresses where the counters' pages are to be mapped.
    pub(super) fn counter_pages(&self) -> [u64; COUNTERS] {
        let first = self.layout.mapping.start + COUNTER_PAGES;
        std::array::from_fn(|which| first + which as u64 * PAGE)
    }

    /// Runs it each time a tracer continues this process after an INT3.
    ///
    /// # Safety
    /// Control never returns to the caller. Call it only in a process forked for this.
    pub(super) unsafe fn serve(&self) -> ! {
        // SAFETY: `home` never returns.
        unsafe {
            let home: extern "sysv64" fn() -> ! =
                std::mem::transmute(self.layout.home as *const ());
            home()
        }
    }
}

/// Writes everything, the code `shift` bytes after the start of a cache line: returns the code, the
/// function's address relative to the start of the mapping, and the layout of a mapping.
fn write(body: &Body, shift: u64) -> (Vec<u8>, u64, impl FnOnce(Range<u64>) -> Layout) {
    let mut code = Assembler::at(CODE);
    let pointer = code.here();
    code.raw(&body.call.unwrap_or(0).to_le_bytes());
    let ends = Ends { switches: !body.stepped && !body.counters, counters: body.counters };
    let again = body.sets_up_again();
    let entered = frame::enter(&mut code, if again { &[] } else { &body.init }, ends);
    let rounds = body.rounds.map(|rounds| rounds.max(1));
    match rounds {
        Some(rounds) if again => frame::count_in_memory(&mut code, rounds),
        Some(rounds) => code.constant(Gpr::R15, rounds),
        None => {}
    }
    let halt = body.stepped.then(|| code.here());
    if body.stepped {
        code.trap();
    }
    // The body and the tail each start on a new cache line.
    let [inside, outside, home] = [(); 3].map(|()| code.label());
    let open = code.jump(inside);
    code.align();
    (0..shift).for_each(|_| code.trap());
    code.bind(inside);
    let set_up_start = code.here();
    let mut init = entered.init;
    // Without the fences the code would overlap with its set-up, and appear to take no time.
    let mut set_up = |code: &mut Assembler| {
        init = frame::set_up(code, &body.init);
        code.fence();
    };
    if again {
        set_up(&mut code);
    }
    let start = code.here();
    let mut call = None;
    for copy in 0..body.unroll.max(1) {
        match body.call {
            None => code.raw(&body.code),
            Some(_) => {
                if copy > 0 {
                    code.fence();
                    set_up(&mut code);
                }
                call = Some(code.call_at(pointer));
            }
        }
    }
    let copies_end = code.here();
    if again {
        code.fence();
    }
    let around = rounds.map(|_| match again {
        true => frame::count_down_in_memory(&mut code, inside),
        false => code.count_down(Gpr::R15, inside),
    });
    let close = code.jump(outside);
    code.align();
    code.bind(outside);
    let tail = code.here();
    let switched_off = frame::leave(&mut code, ends);
    code.align();
    code.bind(home);
    let home_at = code.here();
    code.trap();
    code.call_to(entered.entry);
    code.jump(home);

    let text = CODE..code.here();
    let copies = if body.call.is_none() { start..copies_end } else { start..start };
    let (copy, switches) = (body.code.len() as u64, [entered.switched, switched_off]);
    let layout = move |mapping: Range<u64>| {
        let at = |address: u64| mapping.start + address;
        let range = |range: Range<u64>| at(range.start)..at(range.end);
        Layout {
            text: range(text),
            init: range(init),
            set_up: range(set_up_start..start),
            open: at(open),
            code: range(copies),
            copy,
            call: call.map(at),
            around: around.map(at),
            close: at(close),
            tail: at(tail),
            home: at(home_at),
            halt: halt.map(at),
            switches: switches.map(|address| if address == 0 { 0 } else { at(address) }),
            mapping,
        }
    };
    (code.finish(), entered.entry, layout)
}
