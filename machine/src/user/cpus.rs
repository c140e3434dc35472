//! The program's threads by QEMU's vCPU index.
#![allow(unsafe_code, reason = "a list that is read without a lock")]

use std::cell::UnsafeCell;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::thread::Thread;

/// Buckets of [`CPUS`].
const BUCKETS: usize = 1024;

/// A thread with its QEMU index.
pub(super) struct Cpu {
    /// QEMU's index, which may be reused when this thread ends.
    index: AtomicU32,
    pub(super) thread: UnsafeCell<Thread>,
    /// The next entry of the same bucket.
    next: AtomicPtr<Cpu>,
}

// SAFETY: a thread's state is accessed only by that thread or, before it runs, by its creator; the
// rest is atomic.
unsafe impl Sync for Cpu {}

/// An index that is not in use.
const NOBODY: u32 = u32::MAX;

/// The process's first thread. While it is the only one, no lookup is needed.
pub(super) static FIRST: Cpu = Cpu {
    index: AtomicU32::new(NOBODY),
    thread: UnsafeCell::new(Thread::new(0)),
    next: AtomicPtr::new(std::ptr::null_mut()),
};

/// Threads by index. Indices grow without bound as threads start and end, so a bucket may hold
/// several; entries are never removed, only reused.
static CPUS: [AtomicPtr<Cpu>; BUCKETS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; BUCKETS];

/// Serializes starting and ending threads.
static COMING: Mutex<()> = Mutex::new(());

/// The thread with an index.
#[inline]
pub(super) fn cpu(index: c_uint) -> Option<&'static Cpu> {
    let mut cpu = CPUS.get(index as usize % BUCKETS)?.load(Ordering::Acquire);
    loop {
        // SAFETY: the list contains only null, `FIRST` and leaked boxes.
        let found = unsafe { cpu.as_ref() }?;
        if found.index.load(Ordering::Relaxed) == index {
            return Some(found);
        }
        cpu = found.next.load(Ordering::Acquire);
    }
}

/// Adds a thread. `parent` is called with whether it is the first, and returns its creator.
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
    // SAFETY: the list contains only null, `FIRST` and leaked boxes.
    while let Some(found) = unsafe { entry.as_ref() } {
        if found.index.load(Ordering::Relaxed) == NOBODY {
            // SAFETY: the entry is unused, and additions are serialized.
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

/// Removes a thread; its index may be reused.
pub(super) fn go(index: c_uint) {
    if let Some(cpu) = cpu(index) {
        cpu.index.store(NOBODY, Ordering::Release);
    }
}

/// Calls a function for every thread so far.
///
/// # Safety
/// Only the calling thread runs.
pub(super) unsafe fn each(mut body: impl FnMut(&mut Thread)) {
    for bucket in &CPUS {
        let mut entry = bucket.load(Ordering::Acquire);
        // SAFETY: the list contains only null, `FIRST` and leaked boxes.
        while let Some(cpu) = unsafe { entry.as_ref() } {
            // SAFETY: guaranteed by the caller.
            body(unsafe { &mut *cpu.thread.get() });
            entry = cpu.next.load(Ordering::Acquire);
        }
    }
}
