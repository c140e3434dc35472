//! The results of all CPUs: those with the same result together, and as JSON.

use std::io::{self, Write};

use lab::verify::{Check, Report, SubjectKind, Verdict};
use lbr_msr::access::Root;
use lbr_msr::probe::cores::{CoreType, cpu_list};
use lbr_msr::probe::recorded::RecordedCpu;

use crate::present::{escaped, joined, json};

/// Why a check was not made without `--write`.
pub(super) const NEEDS_WRITE: &str = "needs --write";

/// The CPUs of a machine.
pub(super) struct Machine {
    /// Groups with the same results, in the order of their first CPU.
    pub(super) verified: Vec<Verified>,
    /// The injected faults; `None` for hardware.
    pub(super) soft_lies: Option<Vec<&'static str>>,
    /// The release of its kernel.
    pub(super) kernel: Option<String>,
    /// The day of the report, UTC.
    pub(super) date: Option<String>,
}

/// CPUs with the same result.
pub(super) struct Verified {
    pub(super) cpus: Vec<u32>,
    pub(super) core_type: Option<CoreType>,
    /// The version of their microcode, as the kernel prints it.
    pub(super) microcode: Option<String>,
    pub(super) report: Report,
}

impl Machine {
    /// Adds a CPU's result.
    pub(super) fn add(&mut self, report: Report, cpu: &RecordedCpu, microcode: Option<String>) {
        let core_type = CoreType::of(&cpu.cpuid);
        let same = self.verified.iter_mut().find(|known| {
            known.core_type == core_type
                && known.microcode == microcode
                && known.report.caps == report.caps
                && known.report.checks.len() == report.checks.len()
                && known.report.checks.iter().zip(&report.checks).all(alike)
        });
        match same {
            Some(known) => known.cpus.push(cpu.cpu),
            None => {
                self.verified.push(Verified { cpus: vec![cpu.cpu], core_type, microcode, report });
            }
        }
    }
}

/// The version of a CPU's microcode, from the kernel's list of CPUs.
pub(super) fn microcode(root: &Root, cpu: u32) -> Option<String> {
    let list = std::fs::read_to_string(root.join("proc/cpuinfo")).ok()?;
    let value = |line: &str, key: &str| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    };
    let number = cpu.to_string();
    let is_it =
        |of: &&str| of.lines().any(|line| value(line, "processor").as_ref() == Some(&number));
    list.split("\n\n").find(is_it)?.lines().find_map(|line| value(line, "microcode"))
}

/// The release of the kernel.
pub(super) fn kernel(root: &Root) -> Option<String> {
    Some(std::fs::read_to_string(root.join("proc/sys/kernel/osrelease")).ok()?.trim().to_owned())
}

/// Whether two CPUs have the same result in a check. If it is as documented, the values found may
/// vary from CPU to CPU, cycle counts above all.
fn alike((one, other): (&Check, &Check)) -> bool {
    one.verdict == other.verdict && (one.verdict != Verdict::Differs || one.found == other.found)
}

impl Verified {
    pub(super) fn differs(&self) -> bool {
        self.report.differing().next().is_some()
    }

    /// `CPUs 0-7` or `CPU 0`.
    pub(super) fn cpus(&self) -> String {
        let plural = if self.cpus.len() == 1 { "" } else { "s" };
        format!("CPU{plural} {}", cpu_list(&self.cpus))
    }

    /// A description of the CPUs, in a line.
    pub(super) fn title(&self) -> String {
        let Report { caps, kind, .. } = &self.report;
        let mut title = format!("{}: {}H", self.cpus(), caps.cpu.key());
        if let Some(uarch) = &caps.cpu.uarch {
            title.push_str(&format!(" {uarch}"));
        }
        if let Some(core) = self.core_type.and_then(CoreType::name) {
            title.push_str(&format!(" ({core} cores)"));
        }
        title.push_str(&format!(
            ", stepping {}, {}, depth {}",
            caps.cpu.stepping,
            caps.facility.name(),
            caps.depth
        ));
        if let Some(hypervisor) = &caps.cpu.hypervisor {
            title.push_str(&format!(", under {hypervisor}"));
        }
        if caps.assumed {
            title.push_str(", assumed");
        }
        title.push_str(match kind {
            SubjectKind::Software => " (software LBR)",
            SubjectKind::Emulated => " (test machine, a software LBR)",
            SubjectKind::Hardware => "",
        });
        title
    }

    /// `microcode 0xf4, kernel 6.1.0, 2026-01-31`, as far as known.
    pub(super) fn origin(&self, machine: &Machine) -> String {
        let named = |name: &str, value: &Option<String>| {
            value.as_ref().map(|value| format!("{name}{}", escaped(value)))
        };
        let microcode = named("microcode ", &self.microcode);
        let parts = [microcode, named("kernel ", &machine.kernel), named("", &machine.date)];
        joined(parts.into_iter().flatten(), ", ")
    }

    /// `42 as documented, 1 differs: order`, and how many are not judged.
    pub(super) fn verdict(&self) -> String {
        let checks = || self.report.checks.iter();
        let count = |is: fn(&Verdict) -> bool| checks().filter(|check| is(&check.verdict)).count();
        let differing: Vec<&str> = self.report.differing().map(|check| check.id).collect();
        let differs = match differing.as_slice() {
            [] => "none differs".to_owned(),
            [one] => format!("1 differs: {one}"),
            several => format!("{} differ: {}", several.len(), several.join(", ")),
        };
        let documented = count(|verdict| *verdict == Verdict::AsDocumented);
        let unjudged = count(|verdict| matches!(verdict, Verdict::CannotTell(_)));
        let unjudged =
            if unjudged > 0 { format!("; {unjudged} not judged") } else { String::new() };
        format!("{documented} as documented, {differs}{unjudged}")
    }

    /// The checks: differing ones first, then those not judged, then those as documented.
    pub(super) fn by_verdict(&self) -> Vec<&Check> {
        let rank = |check: &&Check| match check.verdict {
            Verdict::Differs => 0,
            Verdict::CannotTell(_) => 1,
            Verdict::AsDocumented => 2,
            Verdict::NotApplicable(_) => 3,
        };
        let mut checks: Vec<&Check> = self.report.checks.iter().collect();
        checks.sort_by_key(rank);
        checks
    }
}

/// The key of a verdict in JSON.
const fn key(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::AsDocumented => "as_documented",
        Verdict::Differs => "differs",
        Verdict::CannotTell(_) => "cannot_tell",
        Verdict::NotApplicable(_) => "not_applicable",
    }
}

/// A line for each group of CPUs, and after it a line for each of its checks.
pub(super) fn write_json(mut out: &mut dyn Write, machine: &Machine) -> io::Result<()> {
    json::object!(&mut out, { "schema": 1 })?;
    for verified in &machine.verified {
        let Report { caps, kind, written, checks, .. } = &verified.report;
        let cpus = cpu_list(&verified.cpus);
        json::object!(&mut out, {
            "cpus": cpus,
            "vendor": caps.cpu.vendor.as_str(),
            "model": caps.cpu.key(),
            "stepping": caps.cpu.stepping,
            "uarch": caps.cpu.uarch,
            "core_type": verified.core_type.and_then(CoreType::name),
            "hypervisor": caps.cpu.hypervisor,
            "facility": caps.facility.name(),
            "depth": caps.depth,
            "assumed": caps.assumed,
            "registers": match kind {
                SubjectKind::Software => "soft",
                SubjectKind::Emulated => "emulated",
                SubjectKind::Hardware => "hardware",
            },
            "soft_lies": machine.soft_lies,
            "written": written,
            "lbr": env!("CARGO_PKG_VERSION"),
            "microcode": verified.microcode,
            "kernel": machine.kernel,
            "date": machine.date,
        })?;
        for check in checks {
            json::object!(&mut out, {
                "cpus": cpus,
                "check": check.id,
                "what": check.what,
                "needs": check.needs,
                "expected": check.expected,
                "source": check.source,
                "found": check.found,
                "verdict": key(&check.verdict),
                "why": check.verdict.why(),
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/commands/verify/report.rs"]
mod tests;
