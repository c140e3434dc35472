//! Counters of user mode that a program reads itself with RDPMC: no sampling, and no system call
//! between two readings.

use std::fmt;

use lbr_msr::BranchFilter;
use perf_event::Builder;
use perf_event::events::Hardware;
use perf_event_open_sys::bindings::perf_event_attr;

use super::host::Host;
use super::open::EventRequest;
use super::refused::Refused;

/// The counted events: core cycles, instructions, branches, mispredicted branches.
const EVENTS: [Hardware; 4] = [
    Hardware::CPU_CYCLES,
    Hardware::INSTRUCTIONS,
    Hardware::BRANCH_INSTRUCTIONS,
    Hardware::BRANCH_MISSES,
];

/// Counters from the kernel: core cycles, instructions, branches, mispredicted branches, in this
/// order.
#[derive(Clone, Copy)]
pub struct Counting {
    /// The attributes of each; `None` if the CPU lacks the event.
    pub attributes: [Option<perf_event_attr>; 4],
}

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.attributes.map(|attributes| attributes.is_some())).finish()
    }
}

impl Counting {
    /// Requests each for a program of ours on a CPU. Counts nothing yet.
    ///
    /// # Errors
    /// [`Refused`] if there is none, or RDPMC is forbidden.
    pub fn look(host: &Host, cpu: u32) -> Result<Counting, Refused> {
        let filter = BranchFilter::USER;
        host.permits(filter, false)?;
        let monitor = host.monitors.iter().flatten().find(|monitor| monitor.is_of(cpu));
        if monitor.is_some_and(|monitor| !monitor.rdpmc) {
            return Err(Refused::NoRdpmc);
        }
        let kind = monitor.map_or(0, |monitor| monitor.kind);
        let asked = EventRequest::own(host, filter);
        let mut counting = Counting { attributes: [None; 4] };
        let mut refused = Refused::NoCounters;
        for (event, attributes) in EVENTS.into_iter().zip(&mut counting.attributes) {
            let mut builder = Builder::new(event);
            // Pinned to a counter or not counted at all: nothing is extrapolated.
            builder.observe_self().any_cpu().enabled(true).pinned(true);
            builder.attrs_mut().config |= u64::from(kind) << 32;
            match builder.build() {
                Ok(_) => *attributes = Some(*builder.attrs()),
                Err(error) => refused = host.refused(error, &asked),
            }
        }
        let is_any = counting.attributes.iter().any(Option::is_some);
        if is_any { Ok(counting) } else { Err(refused) }
    }
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/perf/counting.rs"]
mod tests;
