//! Mapped files that are truncated while they are read.
//!
//! The kernel answers an access beyond the new end with SIGBUS, which would end the process. The
//! handler maps an empty page there and notes it, so that reading can finish and its results can be
//! discarded. Copying debug information instead would take gigabytes of memory.
#![allow(unsafe_code, reason = "a signal handler that maps memory beyond a file's end")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use nix::libc::{self, c_int, c_void, siginfo_t};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// A mapping, in a form that the handler can read without locks.
struct Watched {
    /// 0: free; 1: being claimed.
    start: AtomicUsize,
    len: AtomicUsize,
    cut: AtomicBool,
}

/// Maximum number of mapped files.
const PLACES: usize = 256;
static MAPPED: [Watched; PLACES] = [const {
    Watched { start: AtomicUsize::new(0), len: AtomicUsize::new(0), cut: AtomicBool::new(false) }
}; PLACES];
/// The file of each slot, and earlier files that were truncated.
static NAMES: Mutex<(BTreeMap<usize, PathBuf>, BTreeSet<PathBuf>)> =
    Mutex::new((BTreeMap::new(), BTreeSet::new()));
/// Page size, and the previous handler of SIGBUS.
static BEFORE: OnceLock<Option<(usize, SigAction)>> = OnceLock::new();

/// Debug files that were truncated while they were read: their source lines are missing.
pub fn cut_files() -> Vec<PathBuf> {
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let (mapped, gone) = &*names;
    let cut = mapped.iter().filter(|(at, _)| is_cut(**at)).map(|(_, path)| path);
    gone.iter().chain(cut).collect::<BTreeSet<_>>().into_iter().cloned().collect()
}

fn is_cut(at: usize) -> bool {
    MAPPED[at].cut.load(Ordering::Relaxed)
}

/// Watches a mapping; must be dropped before it.
#[derive(Debug)]
pub(super) struct Watch(usize);

impl Watch {
    /// Watches these bytes of a mapped file; `None` if that is impossible.
    pub(super) fn over(bytes: &[u8], path: &Path) -> Option<Watch> {
        BEFORE.get_or_init(listen).as_ref()?;
        let free = |place: &Watched| {
            place.start.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let at = MAPPED.iter().position(free)?;
        let place = &MAPPED[at];
        place.len.store(bytes.len(), Ordering::Relaxed);
        place.cut.store(false, Ordering::Relaxed);
        place.start.store(bytes.as_ptr() as usize, Ordering::Release);
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        names.0.insert(at, path.to_owned());
        Some(Watch(at))
    }

    /// Whether an access found a part missing.
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
        MAPPED[self.0].start.store(0, Ordering::Release);
    }
}

fn listen() -> Option<(usize, SigAction)> {
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
    let flags = SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK;
    let action = SigAction::new(SigHandler::SigAction(gone), flags, SigSet::empty());
    // SAFETY: the handler only reads and writes atomics, and calls mmap and sigaction, which do not
    // wait.
    let before = unsafe { sigaction(Signal::SIGBUS, &action) }.ok()?;
    Some((usize::try_from(page).ok()?, before))
}

extern "C" fn gone(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    let Some(Some((page, before))) = BEFORE.get() else { return };
    // SAFETY: the kernel passes a valid structure to a handler with SA_SIGINFO, and for SIGBUS it
    // holds an address.
    let at = unsafe { (*info).si_addr() } as usize;
    for place in &MAPPED {
        let start = place.start.load(Ordering::Acquire);
        if start <= 1 || at.wrapping_sub(start) >= place.len.load(Ordering::Relaxed) {
            continue;
        }
        let (here, access) = (at - at % page, libc::PROT_READ);
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page is in one of our mappings, which exists as long as it is in the list, is
        // only read, and was unreadable.
        let new = unsafe { libc::mmap(here as *mut c_void, *page, access, kind, -1, 0) };
        if new != libc::MAP_FAILED {
            place.cut.store(true, Ordering::Relaxed);
            return;
        }
    }
    // Not ours: the access repeats with the previous handler.
    // SAFETY: this action was installed before.
    let _ = unsafe { sigaction(Signal::SIGBUS, before) };
}
