//! What is asked of the operating system: the memory shared with `lbr`, the
//! program's own memory, and who we are.
#![allow(unsafe_code, reason = "system calls that have no safe form in libc")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::channel::Region;

/// Maps the shared memory that `lbr` has put behind the descriptor, for as
/// long as this process lives, and closes the descriptor, so that the program
/// does not find one that it never opened.
pub(super) fn map(fd: RawFd) -> io::Result<&'static Region> {
    // SAFETY: `lbr` left this descriptor to us by number; nothing else in
    // this process knows of it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: `stat` is plain integers, for which all-zero bytes are valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` outlives the call.
    if unsafe { libc::fstat(fd.as_raw_fd(), &raw mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if usize::try_from(stat.st_size) != Ok(size_of::<Region>()) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it was made by an lbr of another version",
        ));
    }
    // SAFETY: a new mapping at an address of the kernel's choice.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Region>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd.as_raw_fd(),
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is page-aligned, of the size of a `Region`, never
    // unmapped, and shared with code that accesses it atomically. Any bytes
    // are a valid `Region`, which consists of atomic integers alone.
    let region = unsafe { &*address.cast::<Region>() };
    if !region.header.is_ours() {
        let what = "it was made by an lbr of another version";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(region)
}

/// Reads the program's memory, where the program's addresses are ours. `None`
/// where there is none.
pub(super) fn read<const N: usize>(address: u64, len: usize) -> Option<[u8; N]> {
    let mut bytes = [0u8; N];
    let len = len.min(N);
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
    let remote = libc::iovec { iov_base: usize::try_from(address).ok()? as *mut _, iov_len: len };
    // SAFETY: the kernel writes at most `len` bytes to `bytes`, which has
    // them, and fails where there is no memory at `address`.
    let read = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    (usize::try_from(read) == Ok(len)).then_some(bytes)
}

/// The calling thread's id.
pub(super) fn tid() -> u32 {
    // SAFETY: gettid takes nothing and cannot fail.
    unsafe { libc::gettid() }.cast_unsigned()
}

/// The process that started this one; another once that has died.
pub(super) fn parent() -> i32 {
    // SAFETY: getppid takes nothing and cannot fail.
    unsafe { libc::getppid() }
}

/// Has this process killed when the one that started it ends, as a program that
/// is traced is. Whether that is still `parent`.
pub(super) fn end_with(parent: i32) -> bool {
    // SAFETY: takes a number; it cannot fail for a signal that exists.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    self::parent() == parent
}

/// Ends the process at once, with status 0.
pub(super) fn succeed() -> ! {
    // SAFETY: _exit may be called at any time.
    unsafe { libc::_exit(0) }
}

/// Has these called after each fork(2), in the process that forks and in the
/// one that it makes.
pub(super) fn at_fork(parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: both live as long as the plugin, which is never unloaded; what
    // they may do after a fork is the caller's business. Failure (no memory)
    // leaves nothing to undo.
    unsafe { libc::pthread_atfork(None, Some(parent), Some(child)) };
}
