//! Mapped files that somebody cuts short while they are read.
//!
//! The kernel answers a look at what is gone with SIGBUS, which would end the
//! process. The handler puts an empty page there instead and notes it, so that
//! reading goes on to its end and what was read can be thrown away. Copies of
//! debug information would take gigabytes of memory for the same.
#![allow(unsafe_code, reason = "a signal handler that puts memory where a file has ended")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use nix::libc::{self, c_int, c_void, siginfo_t};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// A mapping, as the handler finds it: without locks.
struct Watched {
    /// 0: free; 1: being taken.
    start: AtomicUsize,
    len: AtomicUsize,
    cut: AtomicBool,
}

/// Files that can be mapped at a time.
const PLACES: usize = 256;
static MAPPED: [Watched; PLACES] = [const {
    Watched { start: AtomicUsize::new(0), len: AtomicUsize::new(0), cut: AtomicBool::new(false) }
}; PLACES];
/// What lies in each place, and what was found to be cut and is not there any
/// more.
static NAMES: Mutex<(BTreeMap<usize, PathBuf>, BTreeSet<PathBuf>)> =
    Mutex::new((BTreeMap::new(), BTreeSet::new()));
/// Size of a page, and who handled SIGBUS before us.
static BEFORE: OnceLock<Option<(usize, SigAction)>> = OnceLock::new();

/// Files with debug information that were cut short while they were read: their
/// source lines are missing.
#[must_use]
pub fn cut_files() -> Vec<PathBuf> {
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let (mapped, gone) = &*names;
    let cut = mapped.iter().filter(|(at, _)| is_cut(**at)).map(|(_, path)| path);
    gone.iter().chain(cut).collect::<BTreeSet<_>>().into_iter().cloned().collect()
}

fn is_cut(at: usize) -> bool {
    MAPPED.get(at).is_some_and(|place| place.cut.load(Ordering::Relaxed))
}

/// Watches over a mapping; to be dropped before it is.
#[derive(Debug)]
pub(super) struct Watch(usize);

impl Watch {
    /// Watches over these bytes of a mapped file; `None` where that cannot be.
    pub(super) fn over(bytes: &[u8], path: &Path) -> Option<Watch> {
        BEFORE.get_or_init(listen).as_ref()?;
        let free = |place: &Watched| {
            place.start.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let at = MAPPED.iter().position(free)?;
        let place = MAPPED.get(at)?;
        place.len.store(bytes.len(), Ordering::Relaxed);
        place.cut.store(false, Ordering::Relaxed);
        place.start.store(bytes.as_ptr() as usize, Ordering::Release);
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        names.0.insert(at, path.to_owned());
        Some(Watch(at))
    }

    /// Whether some of it was gone when it was looked at.
    pub(super) fn is_cut(&self) -> bool {
        is_cut(self.0)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = names.0.remove(&self.0).filter(|_| self.is_cut()) {
            names.1.insert(path);
        }
        if let Some(place) = MAPPED.get(self.0) {
            place.start.store(0, Ordering::Release);
        }
    }
}

fn listen() -> Option<(usize, SigAction)> {
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
    let flags = SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK;
    let action = SigAction::new(SigHandler::SigAction(gone), flags, SigSet::empty());
    // SAFETY: the handler reads and writes atomics, and calls mmap and
    // sigaction alone, which wait for nothing.
    let before = unsafe { sigaction(Signal::SIGBUS, &action) }.ok()?;
    Some((usize::try_from(page).ok()?, before))
}

extern "C" fn gone(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    let Some(Some((page, before))) = BEFORE.get() else { return };
    // SAFETY: the kernel hands a valid structure to a handler with SA_SIGINFO,
    // and for SIGBUS it holds an address.
    let at = unsafe { (*info).si_addr() } as usize;
    for place in &MAPPED {
        let start = place.start.load(Ordering::Acquire);
        if start <= 1 || at.wrapping_sub(start) >= place.len.load(Ordering::Relaxed) {
            continue;
        }
        let (here, access) = (at - at % page, libc::PROT_READ);
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page lies in a mapping of ours that is there as long as
        // it is in the list, is only read, and could not be read.
        let new = unsafe { libc::mmap(here as *mut c_void, *page, access, kind, -1, 0) };
        if new != libc::MAP_FAILED {
            place.cut.store(true, Ordering::Relaxed);
            return;
        }
    }
    // Not ours: it comes again, to whoever had it before.
    // SAFETY: the action was there before us.
    let _ = unsafe { sigaction(Signal::SIGBUS, before) };
}
