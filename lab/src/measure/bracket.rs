//! A piece of code between two jumps of ours, and recording on between them.
//!
//! ```text
//! entry:  the way into a frame, which switches recording on
//! open:   jmp body                           the first record
//! body:   CODE, unrolled, in a loop of ours
//! close:  jmp tail                           the last record
//! tail:   the way out of the frame, which switches recording off
//! ```
//!
//! Between the two system calls of the frame there is no
//! call, return or branch but those of the code and the two jumps, so that with
//! a filter on user mode the records are: the return from the first system call
//! (far), `open`, the code's, `close`. A far record between the two jumps is an
//! interrupt.
#![allow(unsafe_code, reason = "a jump into what was written")]

use std::io;
use std::ops::Range;

use crate::code::assembler::Assembler;
use crate::code::counted::COUNTERS;
pub use crate::code::counted::CounterDeltas;
use crate::code::frame::{self, CODE, COUNTER_PAGES, Ends, Frame};
pub use crate::code::frame::{AREA, AREAS, FrameRun, Gpr, GprValues, STACK, SwitchWrites};
use crate::code::memory::PAGE;

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
    /// Rounds of a loop around the copies, counted in R15; `None` for
    /// no loop. 0 is taken for 1.
    pub rounds: Option<u32>,
    /// Each round of the loop starts with the registers of a run and runs `init` again; its rounds
    /// are counted in memory. [Calls](Body::call) and code with `init` always do.
    pub fresh: bool,
    /// The address of a function that is called in place of `code`, by an
    /// indirect call of ours.
    pub call: Option<u64>,
    /// Stop at an INT3 in front of `open`, and switch nothing: for a source
    /// that steps through the code.
    pub stepped: bool,
    /// Read the counters of perf events at both ends.
    pub counters: bool,
}

impl Body {
    /// Executions of the code in a run.
    pub(super) fn iterations(&self) -> u64 {
        u64::from(self.unroll.max(1)) * u64::from(self.rounds.unwrap_or(1).max(1))
    }

    /// Registers are set up again between executions in one run: before each round, and before
    /// each call. Copies of code run on from one another.
    #[must_use]
    pub fn sets_up_again(&self) -> bool {
        match self.call {
            Some(_) => self.rounds.is_some() || self.unroll > 1,
            None => self.rounds.is_some() && (self.fresh || !self.init.is_empty()),
        }
    }
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
    /// What [sets up](Body::sets_up_again) the registers of a round, `init` too; empty where
    /// nothing does.
    pub set_up: Range<u64>,
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
        self.text.contains(&address) && !self.code.contains(&address)
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

    /// The layout of a mapping, from one that counts from its start.
    fn put(self, mapping: Range<u64>) -> Layout {
        let at = |address: u64| mapping.start + address;
        let range = |range: Range<u64>| at(range.start)..at(range.end);
        Layout {
            text: range(self.text),
            init: range(self.init),
            set_up: range(self.set_up),
            open: at(self.open),
            code: range(self.code),
            copy: self.copy,
            call: self.call.map(at),
            around: self.around.map(at),
            close: at(self.close),
            tail: at(self.tail),
            home: at(self.home),
            halt: self.halt.map(at),
            switches: self.switches.map(|address| if address == 0 { 0 } else { at(address) }),
            mapping,
        }
    }
}

/// Code that is longer is refused.
pub const LONGEST: usize = 1 << 28;

/// A piece of code in its bracket, ready to run.
#[derive(Debug)]
pub struct Bracket {
    frame: Frame,
    layout: Layout,
}

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
        let (code, entry, layout) = write(body);
        let frame = Frame::new(&code, entry)?;
        let layout = layout.put(frame.mapping());
        Ok(Bracket { frame, layout })
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
    pub const fn start(&self) -> GprValues {
        self.frame.start()
    }

    /// Where the page of each counter is mapped.
    pub(super) fn counter_pages(&self) -> [u64; COUNTERS] {
        let first = self.layout.mapping.start + COUNTER_PAGES;
        std::array::from_fn(|which| first + which as u64 * PAGE)
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
}

/// Writes everything; the code, the address of the function, and where the
/// parts are, counted from the start of the mapping.
fn write(body: &Body) -> (Vec<u8>, u64, Layout) {
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
    // The body starts at a cache line of its own, and so does the tail.
    let [inside, outside, home] = [(); 3].map(|()| code.label());
    let open = code.jump(inside);
    code.align();
    code.bind(inside);
    let set_up_start = code.here();
    let mut init = entered.init;
    // Without the fences the code would overlap with its set-up, and take no time.
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

    let layout = Layout {
        mapping: 0..0,
        text: CODE..code.here(),
        init,
        set_up: set_up_start..start,
        open,
        code: if body.call.is_none() { start..copies_end } else { start..start },
        copy: body.code.len() as u64,
        call,
        around,
        close,
        tail,
        home: home_at,
        halt,
        switches: [entered.switched, switched_off],
    };
    (code.finish(), entered.entry, layout)
}
