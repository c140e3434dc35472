//! CPU affinity and pinning.

use core_affinity::CoreId;
use lbr_msr::probe::cores::cpu_list;
use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

use super::{Doing, SourceError};

/// The CPUs a task may run on.
#[derive(Clone, Copy, Debug)]
pub struct Affinity(CpuSet);

impl Affinity {
    /// The affinity of the calling thread.
    ///
    /// # Errors
    /// [`SourceError::Os`].
    pub fn current() -> Result<Affinity, SourceError> {
        Affinity::of(0)
    }

    /// The set with only that CPU, if `self` contains it.
    ///
    /// # Errors
    /// [`SourceError::NoSuchCpu`].
    pub fn only(&self, cpu: u32) -> Result<Affinity, SourceError> {
        self.only_these(&[cpu])
    }

    /// The CPUs, in ascending order.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        let set = self.0;
        // The kernel's sets are far smaller than 2^32.
        (0..CpuSet::count() as u32).filter(move |&cpu| set.is_set(cpu as usize).unwrap_or(false))
    }

    /// Pins the calling thread to one of these CPUs, and checks that it runs there.
    ///
    /// # Errors
    /// [`SourceError::NoSuchCpu`], [`SourceError::Os`], [`SourceError::NotThere`]. Only in the last
    /// case the thread is pinned.
    pub fn pin_this_thread(&self, cpu: u32) -> Result<(), SourceError> {
        // The crate passes the number to CPU_SET unchecked, which aborts beyond the set's size.
        self.only(cpu)?;
        if !core_affinity::set_for_current(CoreId { id: cpu as usize }) {
            let cause = std::io::Error::last_os_error();
            return Err(SourceError::os(format!("pinning to CPU {cpu}"), cause));
        }
        let seen = sched_getcpu().doing("asking which CPU this is")?;
        if seen == cpu as usize { Ok(()) } else { Err(SourceError::NotThere { cpu, seen }) }
    }

    /// The affinity of a thread; 0 is the calling one.
    ///
    /// # Errors
    /// [`SourceError::Os`].
    pub fn of(tid: i32) -> Result<Affinity, SourceError> {
        let found = sched_getaffinity(Pid::from_raw(tid)).map(Affinity);
        found.doing(format!("reading the CPU affinity of thread {tid}"))
    }

    /// The set with only these CPUs, if `self` contains them all.
    ///
    /// # Errors
    /// [`SourceError::NoSuchCpu`].
    pub fn only_these(&self, cpus: &[u32]) -> Result<Affinity, SourceError> {
        let mut set = CpuSet::new();
        for &cpu in cpus {
            let is_allowed = self.0.is_set(cpu as usize).unwrap_or(false);
            if !is_allowed || set.set(cpu as usize).is_err() {
                return Err(SourceError::NoSuchCpu { cpu, allowed: self.list() });
            }
        }
        Ok(Affinity(set))
    }

    /// The set without these CPUs; `None` if it would be empty.
    pub fn without(&self, cpus: &[u32]) -> Option<Affinity> {
        let mut set = self.0;
        for &cpu in cpus {
            // Fails for CPUs beyond the set, which it does not contain.
            let _ = set.unset(cpu as usize);
        }
        let left = Affinity(set);
        left.cpus().next().is_some().then_some(left)
    }

    /// Sets a thread's affinity; 0 is the calling thread.
    ///
    /// # Errors
    /// [`SourceError::Os`].
    pub fn apply(&self, tid: i32) -> Result<(), SourceError> {
        sched_setaffinity(Pid::from_raw(tid), &self.0)
            .map_err(|cause| SourceError::os(format!("pinning to CPU {}", self.list()), cause))
    }

    /// The CPUs as a list of ranges: `0-3,8`.
    pub fn list(&self) -> String {
        cpu_list(&self.cpus().collect::<Vec<_>>())
    }
}

/// While it lives, the calling thread and the threads and processes it starts run on other CPUs;
/// dropping it restores the previous affinity.
#[derive(Debug)]
pub struct Moved {
    before: Affinity,
}

impl Moved {
    /// Moves the calling thread.
    ///
    /// # Errors
    /// [`SourceError::Os`].
    pub fn to(cpus: &Affinity) -> Result<Moved, SourceError> {
        let before = Affinity::current()?;
        cpus.apply(0)?;
        Ok(Moved { before })
    }

    /// Moves the calling thread off these CPUs to the others of `allowed`, so that its own
    /// execution is not recorded. `None` if there are no others.
    pub fn off(cpus: &[u32], allowed: &Affinity) -> Option<Moved> {
        allowed.without(cpus).and_then(|others| Moved::to(&others).ok())
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        // The CPUs were valid a moment ago; if one has gone offline, nothing is lost.
        let _ = self.before.apply(0);
    }
}
