//! Why a signal came, in one sentence.

use lbr_msr::insn;
use lbr_msr::record::HwBranchType;
use nix::libc;
use nix::sys::signal::Signal;
use sampler::flight::StepKind;
use sampler::target::SignalStop;
use serde::Serialize;

use super::Scene;

/// How the instruction accessed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Access {
    Read,
    Write,
    Execution,
}

/// Why a signal came.
pub(super) struct Cause<'a> {
    stop: &'a SignalStop,
    /// The access that failed, and its address.
    pub(super) access: Option<(Access, u64)>,
}

/// The number of a signal's name, with or without `SIG`.
pub(super) fn number(name: &str) -> Option<i32> {
    let name = name.to_ascii_uppercase();
    let with = if name.starts_with("SIG") { name.clone() } else { format!("SIG{name}") };
    let named = with.parse::<Signal>().ok().map(|signal| signal as i32);
    named.or_else(|| name.parse().ok().filter(|number| (1..=64).contains(number)))
}

/// The name of a signal.
pub(super) fn name(signal: i32) -> String {
    Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |s| s.to_string())
}

impl<'a> Cause<'a> {
    pub(super) fn new(scene: &mut Scene<'_>, stop: &'a SignalStop) -> Cause<'a> {
        let faults = matches!(stop.signal, libc::SIGSEGV | libc::SIGBUS) && stop.sender.is_none();
        Cause { stop, access: faults.then(|| access(scene, stop)).flatten() }
    }

    /// The first line of the report.
    pub(super) fn headline(&self, scene: &mut Scene<'_>) -> String {
        let stop = self.stop;
        let thread = scene.path.thread;
        let what = match (self.access, stop.sender) {
            (Some((Access::Read, address)), _) => format!("read of {address:#x}"),
            (Some((Access::Write, address)), _) => format!("write to {address:#x}"),
            (Some((Access::Execution, address)), _) => format!("execution of {address:#x}"),
            (None, Some(sender)) if sender == thread.pid => "raised".to_owned(),
            (None, Some(sender)) => format!("sent by process {sender}"),
            (None, None) => match stop.signal {
                libc::SIGFPE => "integer division by zero, or its result is too large".to_owned(),
                libc::SIGILL => "invalid instruction".to_owned(),
                libc::SIGSEGV if insn::decode(&stop.code_bytes, stop.ip).branch().is_some() => {
                    "branch to an address that is not canonical".to_owned()
                }
                libc::SIGSEGV | libc::SIGBUS => "general protection fault".to_owned(),
                libc::SIGTRAP => "breakpoint or trap".to_owned(),
                _ => "raised or received".to_owned(),
            },
        };
        let overflow = match self.stack_overflow() {
            true => ", just below the stack pointer (stack overflow?)",
            false => "",
        };
        let place = if scene.is_code(stop.ip) {
            format!("in {}", scene.place(stop.ip))
        } else {
            format!("at {:#x}, which is not code", stop.ip)
        };
        let start = if scene.path.deadly { "crash" } else { "signal" };
        let by = format!("by thread {}", thread.tid);
        let reached = self.reached(scene).unwrap_or_default();
        format!("{start}: {} {place}: {what}{overflow} {by}{reached}", name(stop.signal))
    }

    /// The branch to something that is not code; else the branch by which the program's own code
    /// was left.
    fn reached(&self, scene: &mut Scene<'_>) -> Option<String> {
        let path = scene.path;
        let with_lines = path.steps.iter().any(|step| scene.has_line(step.from));
        if scene.is_own(self.stop.ip, with_lines) {
            return None;
        }
        let mut steps = path.steps.iter().rev().filter_map(|step| match step.kind {
            StepKind::Branch(class) => Some((step, class)),
            StepKind::Kernel(_) => None,
        });
        let (step, class) = if scene.is_code(self.stop.ip) {
            let leaves = steps.find(|(step, _)| {
                scene.is_own(step.from, with_lines) && !scene.is_own(step.to, with_lines)
            })?;
            // Through the procedure linkage table: the call says more than its jumps.
            let mut since = std::iter::once(leaves).chain(steps);
            since.find(|(step, _)| !scene.is_stub(step.from)).unwrap_or(leaves)
        } else {
            steps.next()?
        };
        let verb = match class {
            HwBranchType::Ret => "return",
            HwBranchType::RelCall | HwBranchType::IndCall => "call",
            _ => "jump",
        };
        Some(format!("; reached by the {verb} at {}", scene.place(step.from)))
    }

    /// Whether the access was just below the stack.
    fn stack_overflow(&self) -> bool {
        let rsp = self.stop.registers.map(|registers| registers[7]);
        let near = |address: u64, rsp: u64| rsp.wrapping_sub(address) <= 4096;
        matches!((self.access, rsp), (Some((Access::Write, address)), Some(rsp)) if near(address, rsp))
    }
}

/// The access that failed: by the address of the fault if the source shows it, else by the
/// instruction's operands.
fn access(scene: &Scene<'_>, stop: &SignalStop) -> Option<(Access, u64)> {
    if stop.address == Some(stop.ip) || !scene.is_code(stop.ip) || stop.code_bytes.is_empty() {
        return Some((Access::Execution, stop.ip));
    }
    let registers = stop.registers?;
    // Instructions number registers in this order.
    let [rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8, r9, r10, r11, r12, r13, r14, r15, ..] =
        registers;
    let encoded = [rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15];
    let all = insn::memory_accesses(&stop.code_bytes, stop.ip, &encoded);
    let kind = |writes| if writes { Access::Write } else { Access::Read };
    // An operand may reach into the page that is missing.
    let is_near = |at: u64| stop.address.is_none_or(|address| address.wrapping_sub(at) < 4096);
    if stop.code == Some(libc::SI_KERNEL) {
        // A fault without an address: of an access, it is not canonical.
        let is_canonical = |at: u64| (at as i64) << 16 >> 16 == at as i64;
        let found = all.iter().find(|(at, _)| !is_canonical(*at));
        return found.map(|(at, writes)| (kind(*writes), *at));
    }
    let found = match all.as_slice() {
        [one] => Some(one),
        all => all.iter().find(|(at, _)| stop.address.is_some() && is_near(*at)),
    };
    match (found, stop.address) {
        (Some((at, writes)), address) => Some((kind(*writes), address.unwrap_or(*at))),
        (None, Some(address)) => Some((Access::Read, address)),
        (None, None) => None,
    }
}
