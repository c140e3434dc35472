//! Reports exhausted memory as an error; Rust's default aborts the process.
#![allow(unsafe_code, reason = "an allocator: the system's, and a sentence where it has nothing")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::OnceLock;

use nix::libc;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use crate::exit::FAILED;
use crate::present::escaped;

/// The system allocator, with an error message when memory is exhausted.
#[derive(Debug)]
pub struct Memory;

impl Memory {
    /// Makes the C library return each large block to the system as soon as it is freed; otherwise
    /// it keeps them in its heap once it has seen a larger one freed.
    pub fn give_back() {
        /// The size of large blocks, bytes.
        #[cfg(target_env = "gnu")]
        const LARGE: libc::c_int = 128 << 10;
        // SAFETY: it changes a setting, before there is another thread.
        #[cfg(target_env = "gnu")]
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE)
        };
    }
}

/// The file that survives if this process ends here.
static KEPT: OnceLock<String> = OnceLock::new();

/// Notes that this file holds a recording that survives a crash.
pub(crate) fn keeps(file: &str) {
    // One process writes one recording.
    let _ = KEPT.set(escaped(file).into_owned());
}

/// Prints the error without allocating, and exits. The watchdog process restores the registers.
#[cold]
fn none(bytes: usize) -> ! {
    let mut text = [0; 512];
    let mut left = &mut text[..];
    // Truncates if it does not fit.
    let _ = write!(left, "lbr: out of memory: {bytes} bytes more were refused");
    match getrlimit(Resource::RLIMIT_AS) {
        Ok((limit, _)) if limit != RLIM_INFINITY => {
            let _ = write!(left, " (RLIMIT_AS, ulimit -v, is {} KiB)", limit >> 10);
        }
        _ => {}
    }
    if let Some(file) = KEPT.get() {
        let _ = write!(left, "; {file} has what was written before, and can be read");
    }
    let _ = left.write_all(b"\n");
    let unused = left.len();
    let length = text.len() - unused;
    // SAFETY: the bytes lie in this frame; both calls may be made anywhere.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), length);
        libc::_exit(FAILED.into())
    }
}

// SAFETY: every block is the system's, and what is asked of it is passed on.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let block = unsafe { System.alloc(layout) };
        if block.is_null() { none(layout.size()) } else { block }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let block = unsafe { System.alloc_zeroed(layout) };
        if block.is_null() { none(layout.size()) } else { block }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        let block = unsafe { System.realloc(block, layout, size) };
        if block.is_null() { none(size) } else { block }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
}
