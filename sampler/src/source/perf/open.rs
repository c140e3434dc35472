//! Opens events and their ring buffers.
#![allow(unsafe_code, reason = "the ioctl by which events share a ring buffer")]

use std::io;
use std::os::fd::AsRawFd;

use lbr_msr::BranchFilter;
use nix::libc;
use perf_event::events::Hardware;
use perf_event::{Builder, Clock, Counter, SampleFlag, Sampler};
use perf_event_open_sys as sys;
use perf_event_open_sys::bindings;

use super::host::Host;
use super::refused::Refused;
use crate::config::Sampling;

/// Sizes of a ring buffer in bytes, preferred ones first. With its header page, the first is the
/// limit for an ordinary user per CPU (`kernel.perf_event_mlock_kb`, 516).
const RING_SIZES: [usize; 4] = [512 << 10, 128 << 10, 32 << 10, 8 << 10];

/// The ring buffers of CPUs, and the events that write to them.
pub(super) struct Events {
    /// One per CPU. Each is also an event.
    pub(super) rings: Vec<Sampler>,
    /// Events of further threads, which write to the same buffers.
    pub(super) others: Vec<Counter>,
}

/// The events to open.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventRequest<'a> {
    pub(super) host: &'a Host,
    pub(super) filter: BranchFilter,
    pub(super) sampling: Sampling,
    /// Enabled when the program starts.
    pub(super) on_exec: bool,
    /// Threads; `None`: everything on the CPUs.
    pub(super) threads: Option<&'a [i32]>,
    pub(super) cpus: &'a [u32],
}

impl<'a> EventRequest<'a> {
    /// An event of this process, to see whether the kernel permits it.
    pub(super) fn own(host: &'a Host, filter: BranchFilter) -> EventRequest<'a> {
        let sampling = Sampling::Period(1 << 40);
        EventRequest { host, filter, sampling, on_exec: true, threads: Some(&[0]), cpus: &[] }
    }
}

/// Opens the events, disabled.
pub(super) fn open(wanted: &EventRequest<'_>) -> Result<Events, Refused> {
    // Linux 4.14 and later save branch types.
    match open_all(wanted, true) {
        Err(Refused::Filter { .. }) => open_all(wanted, false),
        opened => opened,
    }
}

fn open_all(wanted: &EventRequest<'_>, types: bool) -> Result<Events, Refused> {
    let mut events = Events { rings: Vec::new(), others: Vec::new() };
    let threads = wanted.threads.unwrap_or(&[-1]);
    let monitors = wanted.host.monitors.as_deref().unwrap_or_default();
    for &cpu in wanted.cpus {
        let monitor = monitors.iter().find(|monitor| monitor.is_of(cpu));
        if monitor.is_none() && !monitors.is_empty() {
            continue;
        }
        let kind = monitor.map_or(0, |monitor| monitor.kind);
        let mut is_mapped = false;
        for &thread in threads {
            let mut builder = attributes(wanted, kind, types);
            builder.one_cpu(cpu as usize);
            match wanted.threads {
                Some(_) => builder.observe_pid(thread),
                None => builder.any_pid(),
            };
            let counter = match builder.build() {
                Ok(counter) => counter,
                // The CPU has gone offline.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => break,
                // A thread may end at any time.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) && threads.len() > 1 => {
                    continue;
                }
                Err(error) => return Err(wanted.host.refused(error, wanted)),
            };
            match events.rings.last().filter(|_| is_mapped) {
                Some(ring) => {
                    share(&counter, ring).map_err(Refused::Os)?;
                    events.others.push(counter);
                }
                None => {
                    events.rings.push(mapped(counter, &builder)?);
                    is_mapped = true;
                }
            }
        }
    }
    if events.rings.is_empty() {
        return Err(Refused::NoCpu);
    }
    Ok(events)
}

/// Whether the kernel would provide branch stacks for a program of this user. Records nothing.
///
/// # Errors
/// [`Refused`].
pub fn attempt(host: &Host, filter: BranchFilter) -> Result<(), Refused> {
    host.allows(filter, false)?;
    let wanted = EventRequest::own(host, filter);
    let kind = host.monitors.iter().flatten().next().map_or(0, |monitor| monitor.kind);
    let mut builder = attributes(&wanted, kind, false);
    builder.observe_self().any_cpu();
    builder.build().map(drop).map_err(|error| host.refused(error, &wanted))
}

/// Attributes of an event that counts retired branches, as the recording's header says, with a
/// branch stack in each sample.
fn attributes(wanted: &EventRequest<'_>, kind: u32, types: bool) -> Builder<'static> {
    let filter = wanted.filter.normalized();
    let mut builder = Builder::new(Hardware::BRANCH_INSTRUCTIONS);
    builder
        .enable_on_exec(wanted.on_exec)
        .inherit(wanted.threads.is_some())
        .exclude_user(!filter.user())
        .exclude_kernel(!filter.kernel())
        .mmap(true)
        .mmap2(true)
        .comm(true)
        .comm_exec(true)
        .task(true)
        .sample_id_all(true)
        .clockid(Clock::MONOTONIC)
        // No wake-ups are needed: the buffers are read by the clock.
        .wakeup_watermark(RING_SIZES[0])
        .sample(SampleFlag::TID)
        .sample(SampleFlag::TIME)
        .sample(SampleFlag::CPU)
        .sample(SampleFlag::PERIOD)
        .sample(SampleFlag::BRANCH_STACK);
    match wanted.sampling {
        Sampling::Period(period) => builder.sample_period(period),
        Sampling::Rate { hz, .. } => builder.sample_frequency(hz.into()),
    };
    let attrs = builder.attrs_mut();
    // PERF_TYPE_HARDWARE of one of several kinds of counters: linux/perf_event.h,
    // PERF_PMU_TYPE_SHIFT.
    attrs.config |= u64::from(kind) << 32;
    attrs.branch_sample_type = branch_sample_type(filter, types);
    builder
}

/// The filter as the kernel's bits, which cannot express `no_far`.
fn branch_sample_type(filter: BranchFilter, types: bool) -> u64 {
    const BITS: [(BranchFilter, u32); 10] = [
        (BranchFilter::USER, bindings::PERF_SAMPLE_BRANCH_USER),
        (BranchFilter::KERNEL, bindings::PERF_SAMPLE_BRANCH_KERNEL),
        (BranchFilter::ANY, bindings::PERF_SAMPLE_BRANCH_ANY),
        (BranchFilter::ANY_CALL, bindings::PERF_SAMPLE_BRANCH_ANY_CALL),
        (BranchFilter::ANY_RET, bindings::PERF_SAMPLE_BRANCH_ANY_RETURN),
        (BranchFilter::IND_CALL, bindings::PERF_SAMPLE_BRANCH_IND_CALL),
        (BranchFilter::IND_JMP, bindings::PERF_SAMPLE_BRANCH_IND_JUMP),
        (BranchFilter::CALL, bindings::PERF_SAMPLE_BRANCH_CALL),
        (BranchFilter::COND, bindings::PERF_SAMPLE_BRANCH_COND),
        (BranchFilter::STACK, bindings::PERF_SAMPLE_BRANCH_CALL_STACK),
    ];
    let bits = BITS.iter().filter(|(name, _)| filter.contains(*name)).map(|(_, bit)| bit);
    let types = if types { bindings::PERF_SAMPLE_BRANCH_TYPE_SAVE } else { 0 };
    u64::from(bits.fold(types, |all, bit| all | bit))
}

/// Maps a ring buffer for the event, as large as permitted.
fn mapped(counter: Counter, builder: &Builder<'_>) -> Result<Sampler, Refused> {
    let mut counter = Some(counter);
    for size in RING_SIZES {
        // A failed mapping consumes the event.
        let event = counter.take().map_or_else(|| builder.build(), Ok).map_err(Refused::Os)?;
        match event.sampled(size) {
            Ok(ring) => return Ok(ring),
            // mmap(2) of an event: EPERM means the limit of locked memory.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM)) => {}
            Err(error) => return Err(Refused::Os(error)),
        }
    }
    Err(Refused::Memory)
}

/// Redirects an event to the ring buffer of another on the same CPU.
fn share(counter: &Counter, ring: &Sampler) -> io::Result<()> {
    // SAFETY: both are open descriptors of perf events; the kernel keeps the ring buffer while any
    // event writes to it.
    match unsafe { sys::ioctls::SET_OUTPUT(counter.as_raw_fd(), ring.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/perf/open.rs"]
mod tests;
