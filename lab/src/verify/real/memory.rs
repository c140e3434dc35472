//! Memory that code is written into and executed from, and a page to fault on.
#![allow(unsafe_code, reason = "kernels are written into memory that is then executed")]

use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::libc;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};

use super::program::{Frame, Program};

const PAGE: usize = 4096;

/// Anonymous memory of this process.
#[derive(Debug)]
struct Mapping {
    start: NonNull<libc::c_void>,
    length: NonZeroUsize,
}

impl Mapping {
    fn new(length: usize, flags: MapFlags) -> io::Result<Mapping> {
        let length = length.max(1).next_multiple_of(PAGE);
        let length = NonZeroUsize::new(length).ok_or(io::ErrorKind::OutOfMemory)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: new memory at an address of the kernel's choice.
        let start =
            unsafe { mmap_anonymous(None, length, protection, MapFlags::MAP_PRIVATE | flags)? };
        Ok(Mapping { start, length })
    }

    fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing borrows from it
        // or runs in it. It cannot fail on what mmap returned.
        let _ = unsafe { munmap(self.start, self.length.get()) };
    }
}

/// What the code of a kernel reads.
#[derive(Debug)]
pub(super) enum Data<'a> {
    /// See [`Program::choices`].
    Choices(&'a [u8]),
    /// See [`Program::fault`].
    Page(&'a Untouched),
}

/// The code of a kernel in memory, in place before it runs: executing it
/// raises no page fault.
#[derive(Debug)]
pub(super) struct Code {
    mapping: Mapping,
    choices: usize,
    fault: bool,
}

impl Code {
    /// # Errors
    /// No memory, or a system that forbids to execute what was written.
    pub(super) fn new(program: &Program) -> io::Result<Code> {
        let code = program.code.code();
        let mapping = Mapping::new(code.len(), MapFlags::MAP_POPULATE)?;
        // SAFETY: the mapping is at least as long as the code, writable, and
        // nobody else knows of it; afterwards it is executable and no longer
        // writable.
        unsafe {
            let to = mapping.start.as_ptr().cast::<u8>();
            std::ptr::copy_nonoverlapping(code.as_ptr(), to, code.len());
            let protection = ProtFlags::PROT_READ | ProtFlags::PROT_EXEC;
            mprotect(mapping.start, mapping.length.get(), protection)?;
        }
        Ok(Code { mapping, choices: program.choices.len(), fault: program.fault })
    }

    pub(super) fn address(&self) -> u64 {
        self.mapping.address()
    }

    /// Runs it with this frame, whose [`Frame::data`] is set.
    ///
    /// # Errors
    /// The data are not those that the kernel reads.
    pub(super) fn run(&self, frame: &mut Frame, data: &Data<'_>) -> io::Result<()> {
        frame.data = match data {
            Data::Choices(choices) if !self.fault && choices.len() >= self.choices => {
                choices.as_ptr() as u64
            }
            Data::Page(page) if self.fault => page.0.address(),
            Data::Choices(_) | Data::Page(_) => return Err(io::ErrorKind::InvalidInput.into()),
        };
        // SAFETY: the code of a `Program` is a function of one argument that
        // follows the C calling convention and touches nothing but its stack,
        // the frame, and the data, which are the ones it reads. Its system
        // calls are getpid or write eight bytes of the frame to a descriptor.
        unsafe {
            let entry: extern "sysv64" fn(*mut Frame) =
                std::mem::transmute(self.mapping.start.as_ptr().cast_const());
            entry(std::ptr::from_mut(frame));
        }
        Ok(())
    }
}

/// A page that is not there until it is read.
#[derive(Debug)]
pub(super) struct Untouched(Mapping);

impl Untouched {
    pub(super) fn new() -> io::Result<Untouched> {
        Ok(Untouched(Mapping::new(PAGE, MapFlags::empty())?))
    }

    /// Takes the page away again.
    pub(super) fn renew(&mut self) -> io::Result<()> {
        // SAFETY: nothing of the page is referred to; it reads as 0 again.
        unsafe { madvise(self.0.start, PAGE, MmapAdvise::MADV_DONTNEED)? };
        Ok(())
    }
}
