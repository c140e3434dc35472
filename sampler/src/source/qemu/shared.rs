//! The two files of memory that the emulator gets: the shared memory, and the plugin.
#![allow(unsafe_code, reason = "mapping shared memory, and code between fork and execve")]

use std::fs::File;
use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command as Process;
use std::ptr::NonNull;

use nix::fcntl::{FcntlArg, FdFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use super::channel::Region;

/// The shared memory, mapped in this process.
#[derive(Debug)]
pub(super) struct Shared {
    address: NonNull<Region>,
    fd: OwnedFd,
}

impl Shared {
    /// New memory, to be opened for a plugin. Pages are allocated on first use.
    pub(super) fn new() -> io::Result<Shared> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let fd = memfd_create(c"lbr-branches", flags)?;
        let size = NonZeroUsize::new(size_of::<Region>()).ok_or(io::ErrorKind::InvalidInput)?;
        nix::unistd::ftruncate(&fd, i64::try_from(size.get()).map_err(io::Error::other)?)?;
        // The program has the descriptor too: if it could truncate the memory, reading would crash
        // this process.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(seals))?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address chosen by the kernel.
        let address = unsafe { mmap(None, size, protection, MapFlags::MAP_SHARED, &fd, 0)? };
        Ok(Shared { address: address.cast(), fd })
    }

    pub(super) fn region(&self) -> &Region {
        // SAFETY: the mapping is page-aligned, has the size of a `Region`, and lives as long as
        // `self`. Both sides access it atomically, and any bytes are a valid `Region`, which
        // consists only of atomic integers.
        unsafe { self.address.as_ref() }
    }

    /// The descriptor's number.
    pub(super) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// The plugin, as a sealed file of memory.
#[derive(Debug)]
pub(super) struct Plugin(OwnedFd);

impl Plugin {
    /// Writes the library to new memory.
    pub(super) fn new(library: &[u8]) -> io::Result<Plugin> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let mut file = File::from(memfd_create(c"lbr-plugin", flags)?);
        file.write_all(library)?;
        let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals | SealFlag::F_SEAL_SEAL))?;
        Ok(Plugin(file.into()))
    }

    /// Adds the option that loads the plugin with these arguments, and lets the process inherit its
    /// descriptor, which the plugin closes.
    /// `self` must live until the process starts.
    pub(super) fn load(&self, arguments: &[String], process: &mut Process) {
        let fd = self.0.as_raw_fd();
        let option = format!("file=/proc/self/fd/{fd},self={fd},{}", arguments.join(","));
        process.arg("-plugin").arg(option);
        inherit(fd, process);
    }
}

/// Lets the process to be started inherit a descriptor, which must stay open until then.
pub(super) fn inherit(fd: RawFd, process: &mut Process) {
    // SAFETY: between fork and execve the closure makes one system call, fcntl, and does not
    // allocate; the descriptor it borrows was open when the fork copied it.
    unsafe {
        process.pre_exec(move || {
            let fd = BorrowedFd::borrow_raw(fd);
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
            Ok(())
        })
    };
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: only this value owns the mapping, it has this size, and no reference to it
        // outlives `self`.
        let _ = unsafe { munmap(self.address.cast(), size_of::<Region>()) };
    }
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/qemu/shared.rs"]
mod tests;
