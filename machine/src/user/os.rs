//! Operating system services: the memory shared with `lbr`, the program's memory, and process ids.
#![allow(unsafe_code, reason = "system calls that have no safe form in libc")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::parent_id;

use super::channel::Region;

/// Maps the shared memory that `lbr` passed in the descriptor, for the life of this process, and
/// closes the descriptor, so that the program does not see it.
pub(super) fn map(fd: RawFd) -> io::Result<&'static Region> {
    // SAFETY: `lbr` passed this descriptor by number; nothing else in this process uses it.
    let file = unsafe { File::from_raw_fd(fd) };
    if file.metadata()?.len() != size_of::<Region>() as u64 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it has another size"));
    }
    // SAFETY: a new mapping at an address chosen by the kernel.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Region>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is page-aligned, has the size of a `Region`, is never unmapped, and is
    // shared with code that accesses it atomically. Any bytes are a valid `Region`, which consists
    // only of atomic integers.
    let region = unsafe { &*address.cast::<Region>() };
    if !region.header.is_ours() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it was not made by lbr"));
    }
    Ok(region)
}

/// Closes a descriptor that `lbr` passed, so that the program does not see it.
pub(super) fn close(fd: RawFd) {
    // SAFETY: `lbr` passed this descriptor by number; nothing else in this process uses it.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

/// Reads the program's memory, whose addresses equal ours. `None` if unmapped.
pub(super) fn read<const N: usize>(address: u64, len: usize) -> Option<[u8; N]> {
    let mut bytes = [0u8; N];
    let len = len.min(N);
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
    let remote = libc::iovec { iov_base: usize::try_from(address).ok()? as *mut _, iov_len: len };
    // SAFETY: the kernel writes at most `len` bytes to `bytes`, which is large enough, and fails if
    // `address` is unmapped.
    let read = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    (usize::try_from(read) == Ok(len)).then_some(bytes)
}

/// The calling thread's id.
pub(super) fn tid() -> u32 {
    // SAFETY: gettid has no arguments and cannot fail.
    unsafe { libc::gettid() }.cast_unsigned()
}

/// Makes the kernel kill this process when its parent ends, as for a traced program. Returns
/// whether the parent is still `parent`.
pub(super) fn end_with(parent: u32) -> bool {
    // SAFETY: the argument is a number; it cannot fail for an existing signal.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    parent_id() == parent
}

/// Exits immediately, with status 0.
pub(super) fn succeed() -> ! {
    // SAFETY: _exit may always be called.
    unsafe { libc::_exit(0) }
}

/// Registers functions to call after each fork(2), in the parent and in the child.
pub(super) fn at_fork(parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: both functions live as long as the plugin, which is never unloaded; the caller
    // ensures that they are safe after a fork. On failure (no memory) there is nothing to undo.
    unsafe { libc::pthread_atfork(None, Some(parent), Some(child)) };
}
