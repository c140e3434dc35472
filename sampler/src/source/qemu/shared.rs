//! Making the shared memory, and starting the emulator with it.
#![allow(unsafe_code, reason = "mapping shared memory, and code between fork and execve")]

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command as Process;
use std::ptr::NonNull;

use nix::fcntl::{FcntlArg, FdFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use super::channel::Region;

/// The memory, mapped here.
#[derive(Debug)]
pub(super) struct Shared {
    address: NonNull<Region>,
    fd: OwnedFd,
}

impl Shared {
    /// New memory, to be opened for a plugin. Pages of it exist once they are used.
    pub(super) fn new() -> io::Result<Shared> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let fd = memfd_create(c"lbr-branches", flags)?;
        let size = NonZeroUsize::new(size_of::<Region>()).ok_or(io::ErrorKind::InvalidInput)?;
        nix::unistd::ftruncate(&fd, i64::try_from(size.get()).map_err(io::Error::other)?)?;
        // The program has the descriptor too: cut short by it, a look at the memory
        // would end us.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(seals))?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe { mmap(None, size, protection, MapFlags::MAP_SHARED, &fd, 0)? };
        Ok(Shared { address: address.cast(), fd })
    }

    pub(super) fn region(&self) -> &Region {
        // SAFETY: the mapping is page-aligned, of the size of a `Region`, and
        // lives as long as `self`. Both sides access it atomically, and any
        // bytes are a valid `Region`, which consists of atomic integers alone.
        unsafe { self.address.as_ref() }
    }

    /// The number under which [`inherit`](Self::inherit) passes it on.
    pub(super) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Lets the process that will be started keep the descriptor. `self` must
    /// live until it is.
    pub(super) fn inherit(&self, process: &mut Process) {
        let fd = self.fd();
        // SAFETY: between fork and execve the closure makes one system call,
        // fcntl, and allocates nothing; the descriptor it borrows was open
        // when the fork copied it.
        unsafe {
            process.pre_exec(move || {
                let fd = BorrowedFd::borrow_raw(fd);
                fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
                Ok(())
            })
        };
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone, of this size, and no reference
        // to it outlives `self`.
        let _ = unsafe { munmap(self.address.cast(), size_of::<Region>()) };
    }
}
