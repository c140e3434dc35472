//! A thread of the program: its way through the code, and its ring.

use std::sync::atomic::Ordering;

use super::block::{Block, Ending};
use super::channel::producer::Producer;
use super::channel::{Counts, Region, Stopped};
use super::flow::{Arrival, Flow};
use super::handlers::Handlers;
use super::os;
use super::record::Record;

/// System calls by number (x86-64).
mod number {
    pub(super) const MMAP: i64 = libc::SYS_mmap;
    pub(super) const MPROTECT: i64 = libc::SYS_mprotect;
    pub(super) const PKEY_MPROTECT: i64 = libc::SYS_pkey_mprotect;
    pub(super) const RT_SIGACTION: i64 = libc::SYS_rt_sigaction;
    pub(super) const RT_SIGRETURN: i64 = libc::SYS_rt_sigreturn;
    pub(super) const PRCTL: i64 = libc::SYS_prctl;
    pub(super) const EXECVE: i64 = libc::SYS_execve;
    pub(super) const EXECVEAT: i64 = libc::SYS_execveat;
}

/// What a thread needs of the process.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) region: &'static Region,
    pub(super) handlers: &'a Handlers,
    /// Branches are shipped; otherwise they are only followed.
    pub(super) recording: bool,
    /// Waits a little for the consumer; false where there is none any more.
    pub(super) wait: fn(u32) -> bool,
}

/// A thread of the program.
#[derive(Debug)]
pub(super) struct Thread {
    flow: Flow,
    ring: Link,
    /// The thread that made this one.
    parent: u32,
    /// Executable memory that a running system call will make: address (0
    /// where the kernel chooses) and length.
    mapping: Option<(u64, u64)>,
    /// A running system call gives the thread a name.
    naming: bool,
}

#[derive(Debug, Default)]
enum Link {
    /// It has shipped nothing yet.
    #[default]
    None,
    Ring(Producer<'static>),
    /// There was no free ring.
    Refused,
}

impl Link {
    /// The thread's ring; `None` where there was none left.
    #[inline]
    fn producer(
        &mut self,
        parent: u32,
        context: &Context<'_>,
    ) -> Result<Option<&mut Producer<'static>>, Stopped> {
        if let Link::None = self {
            *self = Link::claim(parent, context)?;
        }
        Ok(match self {
            Link::Ring(producer) => Some(producer),
            Link::None | Link::Refused => None,
        })
    }

    #[cold]
    fn claim(parent: u32, context: &Context<'_>) -> Result<Link, Stopped> {
        let Some(mut producer) = context.region.claim() else {
            context.region.header.threads_left.fetch_add(1, Ordering::Relaxed);
            return Ok(Link::Refused);
        };
        let start = Record::Start { tid: os::tid(), parent };
        ship_and_wait(&mut producer, start, context)?;
        Ok(Link::Ring(producer))
    }
}

impl Thread {
    pub(super) const fn new(parent: u32) -> Thread {
        Thread { flow: Flow::new(), ring: Link::None, parent, mapping: None, naming: false }
    }

    /// Execution leaves the block entered last for this one. The block before, where
    /// the branch at its end was reached.
    #[inline]
    pub(super) fn go_to(&mut self, block: &'static Block) -> Option<&'static Block> {
        self.flow.go_to(block)
    }

    /// The branch at the end of the block entered last executes.
    #[inline]
    pub(super) fn branch(&mut self) {
        self.flow.branch();
    }

    /// What is to be made other than 0 in place of a call of
    /// [`branch`](Self::branch).
    pub(super) const fn reached(&mut self) -> *mut u64 {
        self.flow.reached()
    }

    /// Execution enters `block`, with what [`go_to`](Self::go_to) said: what has to be
    /// done for almost every block, and can neither wait nor fail. `false` where nothing
    /// was done, and [`enter`](Self::enter) has to be called. Not for blocks that
    /// [end invisibly](Ending::Invisible).
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
        true
    }

    /// Execution enters `block`, with what [`go_to`](Self::go_to) said.
    pub(super) fn enter(
        &mut self,
        reached: Option<&'static Block>,
        block: &Block,
        context: &Context<'_>,
    ) -> Result<(), Stopped> {
        let arrival = self.flow.enter(reached, block.start, context.handlers);
        if !context.recording {
            return Ok(());
        }
        let Some(producer) = self.ring.producer(self.parent, context)? else { return Ok(()) };
        let counts = producer.counts();
        Counts::add(&counts.instructions, block.instructions.into());
        if block.ending == Ending::Invisible {
            Counts::add(&counts.invisible, 1);
        }
        let from = match arrival {
            Arrival::Straight => return Ok(()),
            Arrival::Branch(from) => from,
            Arrival::Impossible => {
                Counts::add(&counts.impossible, 1);
                return Ok(());
            }
            Arrival::Signal => {
                Counts::add(&counts.kernel_returns, 1);
                counts.interrupted.store(self.flow.unresolved(), Ordering::Relaxed);
                return Ok(());
            }
            Arrival::Resumed(from) => {
                counts.interrupted.store(self.flow.unresolved(), Ordering::Relaxed);
                let Some(from) = from else { return Ok(()) };
                from
            }
        };
        if from.word == 0 {
            return Ok(());
        }
        let mut patience = Patience::new(context);
        producer.branch([from.word, block.start], || patience.wait())
    }

    /// Nothing is shipped any more.
    pub(super) fn refuse(&mut self) {
        self.ring = Link::Refused;
    }

    /// The thread ends.
    pub(super) fn end(&mut self, context: &Context<'_>) -> Result<(), Stopped> {
        let ring = std::mem::replace(self, Thread::new(0)).ring;
        match ring {
            Link::Ring(mut producer) => {
                let mut patience = Patience::new(context);
                producer.hand_over(|| patience.wait())?;
                ship(&mut producer, Record::End, context)
            }
            Link::None | Link::Refused => Ok(()),
        }
    }

    /// The thread calls the kernel.
    pub(super) fn syscall(
        &mut self,
        call: i64,
        [a1, a2, a3]: [u64; 3],
        context: &Context<'_>,
    ) -> Result<(), Stopped> {
        self.mapping = None;
        self.naming = call == number::PRCTL && a1 == libc::PR_SET_NAME as u64;
        match call {
            number::RT_SIGRETURN => self.flow.signal_returns(),
            number::RT_SIGACTION => {
                // The handler is the first word of the kernel's structure; 0
                // and 1 are SIG_DFL and SIG_IGN.
                let handler = os::read::<8>(a2, 8).map(u64::from_ne_bytes);
                if let Some(handler) = handler.filter(|&handler| a2 != 0 && handler > 1) {
                    context.handlers.add(handler);
                }
            }
            number::MMAP if executable(a3) => self.mapping = Some((0, a2)),
            number::MPROTECT | number::PKEY_MPROTECT if executable(a3) => {
                self.mapping = Some((a1, a2));
            }
            number::EXECVE | number::EXECVEAT => return self.tell(Record::Exec, context),
            _ => {}
        }
        Ok(())
    }

    /// The kernel returns.
    pub(super) fn syscall_returns(
        &mut self,
        call: i64,
        result: i64,
        context: &Context<'_>,
    ) -> Result<(), Stopped> {
        if let Link::Ring(producer) = &self.ring {
            Counts::add(&producer.counts().kernel_returns, 1);
        }
        let mapping = self.mapping.take();
        if std::mem::take(&mut self.naming) && result == 0 {
            return self.tell(Record::Named, context);
        }
        match (call, mapping) {
            (number::EXECVE | number::EXECVEAT, _) => self.tell(Record::ExecFailed, context),
            (_, Some((addr, len))) if !(-4095..0).contains(&result) => {
                let addr = if addr == 0 { result.cast_unsigned() } else { addr };
                self.tell(Record::Mapped { addr, len }, context)
            }
            _ => Ok(()),
        }
    }

    /// Ships a record and waits until the consumer has dealt with it.
    fn tell(&mut self, record: Record, context: &Context<'_>) -> Result<(), Stopped> {
        if !context.recording {
            return Ok(());
        }
        let Some(producer) = self.ring.producer(self.parent, context)? else { return Ok(()) };
        ship_and_wait(producer, record, context)
    }
}

/// Ships a record and waits until the consumer has dealt with it, which may
/// have to look at this process while it is as it is now.
fn ship_and_wait(
    producer: &mut Producer<'_>,
    record: Record,
    context: &Context<'_>,
) -> Result<(), Stopped> {
    ship(producer, record, context)?;
    let mut patience = Patience::new(context);
    producer.flush(|| patience.wait())
}

fn executable(protection: u64) -> bool {
    protection & libc::PROT_EXEC as u64 != 0
}

fn ship(producer: &mut Producer<'_>, record: Record, context: &Context<'_>) -> Result<(), Stopped> {
    match record.encode() {
        Some(words) => {
            let mut patience = Patience::new(context);
            producer.push(words, || patience.wait())
        }
        None => Ok(()),
    }
}

/// Counts the tries of one wait.
struct Patience {
    tries: u32,
    wait: fn(u32) -> bool,
}

impl Patience {
    #[inline]
    fn new(context: &Context<'_>) -> Patience {
        Patience { tries: 0, wait: context.wait }
    }

    fn wait(&mut self) -> bool {
        self.tries = self.tries.saturating_add(1);
        (self.wait)(self.tries)
    }
}
