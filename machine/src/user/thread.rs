//! A thread of the program: its control flow, and its ring.

use std::sync::atomic::Ordering;

use lbr_msr::insn::Isa;
use lbr_msr::soft::Model;

use super::block::{Block, Ending};
use super::channel::producer::Producer;
use super::channel::{Counts, Region, Sent, Stopped};
use super::flow::{Arrival, Flow};
use super::handlers::Handlers;
use super::os;
use super::record::{self, Record, Words};
use lbr_msr::record::MoveKind;

/// The x86-64 number of a system call of AArch64 (`asm-generic/unistd.h`); 0 (read) for calls other
/// than these.
const fn of_aarch64(call: i64) -> i64 {
    match call {
        134 => libc::SYS_rt_sigaction,
        139 => libc::SYS_rt_sigreturn,
        167 => libc::SYS_prctl,
        221 => libc::SYS_execve,
        222 => libc::SYS_mmap,
        226 => libc::SYS_mprotect,
        281 => libc::SYS_execveat,
        288 => libc::SYS_pkey_mprotect,
        _ => 0,
    }
}

/// The process state that a thread needs.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) region: &'static Region,
    /// The program's instruction set.
    pub(super) isa: Isa,
    pub(super) handlers: &'a Handlers,
    /// Branches are sent; otherwise they are only followed.
    pub(super) recording: bool,
    /// Branches carry predictions and cycles of the model.
    pub(super) modelled: bool,
    /// Waits briefly for the consumer; returns false if it is gone.
    pub(super) wait: fn(u32) -> bool,
}

/// A thread of the program.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) flow: Flow,
    ring: Link,
    /// The creating thread.
    parent: u32,
    /// Executable memory that the current system call will map: address (0 if the kernel chooses)
    /// and length.
    mapping: Option<(u64, u64)>,
    /// The current system call names the thread.
    naming: bool,
    /// The model of the thread's predictions and cycles, if requested.
    model: Option<Box<Timed>>,
}

/// The model of a thread, and the state of its clock.
#[derive(Debug, Default)]
struct Timed {
    model: Model,
    /// The last instruction, if it is not a branch: a repeated string instruction starts a block
    /// for each of its iterations.
    last: u64,
}

impl Timed {
    /// The branch at the end of a block was taken.
    fn taken(&mut self, from: &Block, words: Words) -> Words {
        let Some((ip, class, _)) = record::branch(from.word) else { return words };
        let modelled = self.model.taken(ip, from.next, class, words[1]);
        record::with_model(words, modelled)
    }

    /// The instructions of a block execute.
    fn enter(&mut self, block: &Block) {
        self.model.tick(block.instructions - u32::from(block.start == self.last));
        self.last = if block.ending == Ending::Straight { block.last } else { 0 };
    }
}

#[derive(Debug, Default)]
enum Link {
    /// Nothing was sent yet.
    #[default]
    None,
    Ring(Producer<'static>),
    /// All rings were in use.
    Refused,
}

impl Link {
    /// The thread's ring; `None` if all were in use. A new ring's thread starts at `begin`.
    #[inline]
    fn producer(
        &mut self,
        parent: u32,
        begin: u64,
        context: &Context<'_>,
    ) -> Result<Option<&mut Producer<'static>>, Stopped> {
        if let Link::None = self {
            *self = Link::claim(parent, begin, context)?;
        }
        Ok(match self {
            Link::Ring(producer) => Some(producer),
            Link::None | Link::Refused => None,
        })
    }

    #[cold]
    fn claim(parent: u32, begin: u64, context: &Context<'_>) -> Result<Link, Stopped> {
        let Some(mut producer) = context.region.claim() else {
            context.region.header.threads_left.fetch_add(1, Ordering::Relaxed);
            return Ok(Link::Refused);
        };
        let start = Record::Start { tid: os::tid(), parent };
        ship_and_wait(&mut producer, start, context)?;
        moved(&mut producer, MoveKind::Start, (0, begin), context)?;
        Ok(Link::Ring(producer))
    }
}

impl Context<'_> {
    /// The number of a system call as on x86-64.
    fn call(&self, call: i64) -> i64 {
        match self.isa {
            Isa::X86_64 => call,
            Isa::Aarch64 => of_aarch64(call),
        }
    }
}

impl Thread {
    pub(super) const fn new(parent: u32) -> Thread {
        Thread {
            flow: Flow::new(),
            ring: Link::None,
            parent,
            mapping: None,
            naming: false,
            model: None,
        }
    }

    /// Starts recording this thread at `at`, its next instruction.
    pub(super) fn begin(&mut self, at: u64, context: &Context<'_>) -> Sent {
        self.ring.producer(self.parent, at, context).map(|_| ())
    }

    /// The fast path when `block` starts, with the result of [`Flow::go_to`]; it neither
    /// waits nor fails. On `false` nothing was done, and [`enter`](Self::enter) must be called. Not
    /// for blocks that [end invisibly](Ending::Invisible).
    #[inline(always)]
    pub(super) fn pass(
        &mut self,
        reached: Option<&'static Block>,
        block: &Block,
        handlers: &Handlers,
    ) -> bool {
        let Link::Ring(producer) = &mut self.ring else { return false };
        let passed = self.flow.pass(reached, block.start, |to| handlers.may_contain(to));
        let Some(taken) = passed else { return false };
        if let Some(from) = taken
            && from.word != 0
            && !producer.offer([from.word, block.start])
        {
            return false;
        }
        Counts::add(&producer.counts().instructions, block.instructions.into());
        producer.counts().at.store(block.start, Ordering::Relaxed);
        true
    }

    /// `block` starts, with the result of [`Flow::go_to`].
    pub(super) fn enter(
        &mut self,
        (before, reached): (Option<&'static Block>, Option<&'static Block>),
        block: &Block,
        context: &Context<'_>,
    ) -> Sent {
        let arrival = self.flow.enter((before, reached), block.start, context.handlers);
        if !context.recording {
            return Ok(());
        }
        let begin = match arrival {
            // The branch is the first recorded instruction.
            Arrival::Branch(from) => from.last,
            _ => block.start,
        };
        let producer = self.ring.producer(self.parent, begin, context)?;
        let Some(producer) = producer else { return Ok(()) };
        let counts = producer.counts();
        counts.at.store(block.start, Ordering::Relaxed);
        Counts::add(&counts.instructions, block.instructions.into());
        if block.ending == Ending::Invisible {
            Counts::add(&counts.invisible, 1);
        }
        let mut timed = context.modelled.then(|| self.model.get_or_insert_default());
        let taken = match arrival {
            Arrival::Straight => {
                let passed = reached.filter(|from| from.falls_to == block.start);
                if let (Some(timed), Some(from)) = (&mut timed, passed) {
                    timed.model.not_taken(from.last, from.next);
                }
                None
            }
            Arrival::Branch(from) => Some(from),
            Arrival::Impossible => {
                Counts::add(&counts.impossible, 1);
                let from = reached.map_or(0, |reached| reached.last);
                moved(producer, MoveKind::Unknown, (from, block.start), context)?;
                None
            }
            Arrival::Signal(interrupted) | Arrival::Again(interrupted) => {
                Counts::add(&counts.kernel_returns, 1);
                counts.interrupted.store(self.flow.unresolved, Ordering::Relaxed);
                if let Arrival::Again(_) = arrival {
                    let from = before.map_or(0, |before| before.next);
                    moved(producer, MoveKind::Return, (from, interrupted.at), context)?;
                }
                let kind = match interrupted.branch {
                    Some(_) => MoveKind::SignalAtBranch,
                    None => MoveKind::Signal,
                };
                moved(producer, kind, (interrupted.at, block.start), context)?;
                None
            }
            Arrival::Resumed(at, from) => {
                counts.interrupted.store(self.flow.unresolved, Ordering::Relaxed);
                let returned = before.map_or(0, |before| before.next);
                moved(producer, MoveKind::Return, (returned, at), context)?;
                from
            }
        };
        let words = taken.filter(|from| from.word != 0).map(|from| {
            let words = [from.word, block.start];
            timed.as_mut().map_or(words, |timed| timed.taken(from, words))
        });
        if let Some(timed) = timed {
            timed.enter(block);
        }
        let Some(words) = words else { return Ok(()) };
        producer.branch(words, patience(context))
    }

    /// Stops sending.
    pub(super) fn refuse(&mut self) {
        self.ring = Link::Refused;
    }

    /// The thread ends.
    pub(super) fn end(&mut self, context: &Context<'_>) -> Sent {
        let ring = std::mem::replace(self, Thread::new(0)).ring;
        match ring {
            Link::Ring(mut producer) => {
                producer.hand_over(patience(context))?;
                ship(&mut producer, Record::End, context)
            }
            Link::None | Link::Refused => Ok(()),
        }
    }

    /// The thread enters a system call.
    pub(super) fn syscall(
        &mut self,
        call: i64,
        [a1, a2, a3]: [u64; 3],
        context: &Context<'_>,
    ) -> Sent {
        let call = context.call(call);
        let behind = self.flow.calls();
        if let Link::Ring(producer) = &self.ring {
            producer.counts().at.store(behind, Ordering::Relaxed);
        }
        self.mapping = None;
        self.naming = call == libc::SYS_prctl && a1 == libc::PR_SET_NAME as u64;
        match call {
            libc::SYS_rt_sigreturn => self.flow.returning = true,
            libc::SYS_rt_sigaction => {
                // The handler is the first word of the kernel's structure; 0 and 1 are SIG_DFL and
                // SIG_IGN.
                let handler = os::read::<8>(a2, 8).map(u64::from_ne_bytes);
                if let Some(handler) = handler.filter(|&handler| a2 != 0 && handler > 1) {
                    context.handlers.add(handler);
                }
            }
            libc::SYS_mmap if executable(a3) => self.mapping = Some((0, a2)),
            libc::SYS_mprotect | libc::SYS_pkey_mprotect if executable(a3) => {
                self.mapping = Some((a1, a2));
            }
            libc::SYS_execve | libc::SYS_execveat => return self.tell(Record::Exec, context),
            _ => {}
        }
        Ok(())
    }

    /// The system call returns.
    pub(super) fn syscall_returns(
        &mut self,
        call: i64,
        result: i64,
        context: &Context<'_>,
    ) -> Sent {
        if let Link::Ring(producer) = &self.ring {
            Counts::add(&producer.counts().kernel_returns, 1);
        }
        let mapping = self.mapping.take();
        if std::mem::take(&mut self.naming) && result == 0 {
            return self.tell(Record::Named, context);
        }
        match (context.call(call), mapping) {
            (libc::SYS_execve | libc::SYS_execveat, _) => self.tell(Record::ExecFailed, context),
            (_, Some((addr, len))) if !(-4095..0).contains(&result) => {
                let addr = if addr == 0 { result.cast_unsigned() } else { addr };
                self.tell(Record::Mapped { addr, len }, context)
            }
            _ => Ok(()),
        }
    }

    /// Sends a record and waits until the consumer has processed it.
    fn tell(&mut self, record: Record, context: &Context<'_>) -> Sent {
        if !context.recording {
            return Ok(());
        }
        let begin = self.flow.position();
        let producer = self.ring.producer(self.parent, begin, context)?;
        let Some(producer) = producer else { return Ok(()) };
        ship_and_wait(producer, record, context)
    }
}

/// Sends a record and waits until the consumer, which may inspect this process's current state, has
/// processed it.
fn ship_and_wait(producer: &mut Producer<'_>, record: Record, context: &Context<'_>) -> Sent {
    ship(producer, record, context)?;
    producer.flush(patience(context))
}

fn executable(protection: u64) -> bool {
    protection & libc::PROT_EXEC as u64 != 0
}

/// Ships a move, if the consumer wants every branch.
fn moved(
    producer: &mut Producer<'_>,
    kind: MoveKind,
    (from, to): (u64, u64),
    context: &Context<'_>,
) -> Sent {
    if !producer.wants_all() {
        return Ok(());
    }
    ship(producer, Record::Moved { kind, from, to }, context)
}

fn ship(producer: &mut Producer<'_>, record: Record, context: &Context<'_>) -> Sent {
    match record.encode() {
        Some(words) => producer.push(words, patience(context)),
        None => Ok(()),
    }
}

/// Counts the tries of one wait.
#[inline]
fn patience(context: &Context<'_>) -> impl FnMut() -> bool + use<> {
    let (wait, mut tries) = (context.wait, 0u32);
    move || {
        tries = tries.saturating_add(1);
        wait(tries)
    }
}
