//! Perf events with branch stacks: capabilities, and restrictions. Lockdown is not one.

use lbr_msr::BranchFilter;
use lbr_msr::access::Root;
use sampler::source::perf::{Host, attempt};

use super::Check;

const PERF: &str = "perf";

/// Asks the kernel if the root is this machine's (`is_live`), otherwise reads its files only.
/// Competing users of the counters cannot be detected.
pub(super) fn check(root: &Root, is_live: bool) -> Check {
    let host = Host::look(root);
    let filter = BranchFilter::DEFAULT;
    let refused = match &host.monitors {
        None => return Check::unknown(PERF, "the kernel lists no sources of events"),
        Some(_) if is_live => attempt(&host, filter),
        Some(_) => host.allows(filter, false),
    };
    if let Err(refused) = refused {
        let check = Check::bad(PERF, refused.to_string());
        return match refused.remedy() {
            Some(remedy) => check.remedy(remedy),
            None => check,
        };
    }
    let stacks = match host.branches() {
        Some(depth) => format!("branch stacks of {depth}"),
        None if is_live => "branch stacks".to_owned(),
        None => return Check::unknown(PERF, "nothing says whether there are branch stacks"),
    };
    let level = host.level.map_or_else(|| "unknown".to_owned(), |level| level.to_string());
    let of = match (host.privileged, host.level) {
        (Some(true), _) | (_, Some(..=0)) => "any program, the kernel, whole CPUs",
        (_, Some(1)) => "own programs, with the kernel",
        _ => "own programs, without the kernel",
    };
    Check::ok(PERF, format!("{stacks}: {of} (kernel.perf_event_paranoid {level})"))
}
