//! The threads of the program by the index that QEMU calls with.
#![allow(unsafe_code, reason = "a list that is read without a lock")]

use std::cell::UnsafeCell;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::thread::Thread;

/// Buckets of [`CPUS`].
const BUCKETS: usize = 1024;

/// A thread, as QEMU knows it.
pub(super) struct Cpu {
    /// QEMU's index, which may be given to another thread when this one ends.
    index: AtomicU32,
    pub(super) thread: UnsafeCell<Thread>,
    /// The next of the same bucket.
    next: AtomicPtr<Cpu>,
}

// SAFETY: a thread is touched by the one that has it alone, or before that runs by
// the one that makes it; the rest is atomic.
unsafe impl Sync for Cpu {}

/// An index that no thread has.
const NOBODY: u32 = u32::MAX;

/// The first thread of the process. While it is alone, nobody has to be looked up.
pub(super) static FIRST: Cpu = Cpu {
    index: AtomicU32::new(NOBODY),
    thread: UnsafeCell::new(Thread::new(0)),
    next: AtomicPtr::new(std::ptr::null_mut()),
};

/// Threads by index. Indices grow without bound while threads come and go, so
/// that a bucket may hold several; entries are never removed, only reused.
static CPUS: [AtomicPtr<Cpu>; BUCKETS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; BUCKETS];

/// Serializes threads that come and go.
static COMING: Mutex<()> = Mutex::new(());

/// The thread with that index.
#[inline]
pub(super) fn cpu(index: c_uint) -> Option<&'static Cpu> {
    let mut cpu = CPUS.get(index as usize % BUCKETS)?.load(Ordering::Acquire);
    loop {
        // SAFETY: the list holds null, `FIRST` and leaked boxes only.
        let found = unsafe { cpu.as_ref() }?;
        if found.index.load(Ordering::Relaxed) == index {
            return Some(found);
        }
        cpu = found.next.load(Ordering::Acquire);
    }
}

/// A thread comes. `parent` is told whether it is the first, and says who made it.
pub(super) fn come(index: c_uint, parent: impl FnOnce(bool) -> u32) {
    let _coming = COMING.lock().unwrap_or_else(PoisonError::into_inner);
    let is_first = CPUS.iter().all(|bucket| bucket.load(Ordering::Relaxed).is_null());
    let thread = Thread::new(parent(is_first));
    let Some(bucket) = CPUS.get(index as usize % BUCKETS) else { return };
    if is_first {
        FIRST.index.store(index, Ordering::Relaxed);
        bucket.store((&raw const FIRST).cast_mut(), Ordering::Release);
        return;
    }
    let head = bucket.load(Ordering::Acquire);
    let mut entry = head;
    // SAFETY: the list holds null, `FIRST` and leaked boxes only.
    while let Some(found) = unsafe { entry.as_ref() } {
        if found.index.load(Ordering::Relaxed) == NOBODY {
            // SAFETY: nobody has this entry, and comers are serialized.
            unsafe { *found.thread.get() = thread };
            found.index.store(index, Ordering::Release);
            return;
        }
        entry = found.next.load(Ordering::Acquire);
    }
    let cpu = Cpu {
        index: AtomicU32::new(index),
        thread: UnsafeCell::new(thread),
        next: AtomicPtr::new(head),
    };
    bucket.store(Box::into_raw(Box::new(cpu)), Ordering::Release);
}

/// A thread goes: its index may come again.
pub(super) fn go(index: c_uint) {
    if let Some(cpu) = cpu(index) {
        cpu.index.store(NOBODY, Ordering::Release);
    }
}

/// Does something to every thread there ever was.
///
/// # Safety
/// No thread but the calling one runs.
pub(super) unsafe fn each(mut body: impl FnMut(&mut Thread)) {
    for bucket in &CPUS {
        let mut entry = bucket.load(Ordering::Acquire);
        // SAFETY: the list holds null, `FIRST` and leaked boxes only.
        while let Some(cpu) = unsafe { entry.as_ref() } {
            // SAFETY: the caller's.
            body(unsafe { &mut *cpu.thread.get() });
            entry = cpu.next.load(Ordering::Acquire);
        }
    }
}
