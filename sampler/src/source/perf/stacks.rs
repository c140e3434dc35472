//! Branch stacks of one process on one CPU, read directly by the caller.

use std::fmt;

use lbr_msr::caps::LbrCaps;
use lbr_msr::record::{BranchEntry, EntryFlags, RawBranch};
use lbr_msr::{BranchFilter, record::RawEntry};

use super::host::Host;
use super::open::{EventRequest, Events, open};
use super::records::{DecodedRecord, Reading};
use super::refused::Refused;
use crate::config::Sampling;

/// Branch stacks of user mode, taken each time a number of branches has retired.
pub struct Stacks {
    events: Events,
    tsx: bool,
    depth: u32,
}

impl fmt::Debug for Stacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stacks").field("depth", &self.depth).finish_non_exhaustive()
    }
}

impl Stacks {
    /// Opens and enables the event. `caps`: the branch records of the CPU.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn of(
        pid: u32,
        cpu: u32,
        period: u64,
        host: &Host,
        caps: &LbrCaps,
    ) -> Result<Stacks, Refused> {
        let thread = i32::try_from(pid).map_err(|_| Refused::NoProcess { pid })?;
        let mut events = open(&EventRequest {
            host,
            filter: BranchFilter::ANY | BranchFilter::USER,
            sampling: Sampling::Period(period),
            on_exec: false,
            threads: Some(&[thread]),
            cpus: &[cpu],
        })?;
        events.rings.iter_mut().try_for_each(|ring| ring.enable()).map_err(Refused::Os)?;
        Ok(Stacks { events, tsx: caps.tsx(), depth: caps.depth })
    }

    /// The stacks since the last call, each newest branch first.
    pub fn take(&mut self) -> Vec<Vec<BranchEntry>> {
        let mut stacks = Vec::new();
        for ring in &mut self.events.rings {
            let config = ring.config().clone();
            let reading = Reading { config, depth: self.depth, call_stack: false };
            while let Some(record) = ring.next_record() {
                let said = reading.read(record.ty(), record.misc(), &record.to_contiguous());
                if let DecodedRecord::Stack(stack) = said {
                    stacks.push(
                        stack.entries().iter().map(|entry| decode(entry, self.tsx)).collect(),
                    );
                }
            }
        }
        stacks
    }
}

/// Decodes a branch from the kernel's form.
pub(super) fn decode(entry: &RawEntry, tsx: bool) -> BranchEntry {
    let flags = EntryFlags(entry.info.unwrap_or(0));
    RawBranch { from: entry.from, to: entry.to, flags }.decode(tsx)
}
