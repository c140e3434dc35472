//! The summary of a recording, in a few lines on stderr.

use std::path::Path;
use std::time::Duration;

use lbr_msr::record::{Label, SourceKnowledge};
use sampler::Summary;
use sampler::outlet::{KernelReport, SamplerReport};
use sampler::source::SourceNotes;

use crate::output::name;
use crate::present::{applicable, counted, counted_nonzero, joined, say};

/// After a shorter time single-stepping needs no explanation.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is printed about a recording besides its counts.
pub(super) struct Details<'a> {
    pub(super) output: &'a Path,
    /// An older recording became `FILE.old`.
    pub(super) has_moved: bool,
    /// The fields that its source records.
    pub(super) knowledge: SourceKnowledge,
    /// Whether lbr ended it before the program ended.
    pub(super) stopped: bool,
    /// Also print each sampler's counts.
    pub(super) verbose: bool,
    /// Findings of `lbr lint` in a complete recording, if it was run.
    pub(super) doubts: Option<&'a [String]>,
}

/// Prints the summary: how much was recorded, where to and how complete, then anomalies.
pub(super) fn print(summary: &Summary, told: &Details<'_>) {
    for line in lines(summary, told) {
        say!("{line}");
    }
    for cpu in &summary.samplers {
        let is_hardware = told.knowledge == SourceKnowledge::HARDWARE;
        if is_hardware && (told.verbose || is_unusual(cpu)) {
            say!("{}", cpu_line(cpu));
        }
    }
}

/// Whether a sampler met something that readers of the recording must know.
fn is_unusual(cpu: &SamplerReport) -> bool {
    let kernel = cpu.kernel.as_ref();
    cpu.not_held > 0
        || cpu.taken_over
        || kernel.is_some_and(|kernel| {
            kernel.lost > 0 || kernel.throttled > 0 || recorded_share(kernel).is_some()
        })
}

fn cpu_line(cpu: &SamplerReport) -> String {
    if let Some(kernel) = &cpu.kernel {
        return kernel_line(kernel);
    }
    let mut line = format!("CPU {}: {}", cpu.cpu, counted(cpu.drains, "drain", "drains"));
    if cpu.drains > 0 {
        let each = cpu.accesses as f64 / cpu.drains as f64;
        line += &format!(", {each:.1} register accesses each, {} at most", cpu.most_accesses);
    }
    if let Some((drains, cycles)) = cpu.timed.filter(|(drains, _)| *drains > 0) {
        line += &format!(", {:.0} TSC cycles each", cycles as f64 / drains as f64);
    }
    if cpu.not_held > 0 {
        let times = counted(cpu.not_held, "time", "times");
        line +=
            &format!(", gave its CPU away with the ring off {times} (no join is claimed there)");
    }
    if cpu.taken_over {
        line += "; something else has changed its control or filter register";
    }
    line
}

/// The kernel's counts of its samples.
fn kernel_line(kernel: &KernelReport) -> String {
    let records = counted(kernel.lost, "record", "records");
    let times = counted(kernel.throttled, "time", "times");
    let mut line = format!("the kernel lost {records} for want of room, and throttled {times}");
    if let Some(share) = recorded_share(kernel) {
        line += &format!(
            "; it recorded for {share:.0}% of the time, as others use the counters, or the branch \
             records with another filter"
        );
    }
    line
}

/// The percentage of the time that the kernel recorded, if other users took the rest.
fn recorded_share(kernel: &KernelReport) -> Option<f64> {
    // Switching takes the rest.
    const SHARED: f64 = 95.0;
    let share = |(on, ran): (Duration, Duration)| 100.0 * ran.as_secs_f64() / on.as_secs_f64();
    kernel.scheduled.map(share).filter(|share| *share < SHARED)
}

fn lines(summary: &Summary, told: &Details<'_>) -> Vec<String> {
    let old = told.has_moved.then(|| format!(" (the older one is now {0}.old)", name(told.output)));
    let mut lines = vec![format!(
        "{} in {} to {}{}, {}",
        counted(summary.branches, "branch", "branches"),
        counted(summary.samples, "sample", "samples"),
        name(told.output),
        old.unwrap_or_default(),
        quality(summary, told)
    )];
    if told.verbose {
        let cost = cost(summary, told.knowledge);
        lines.push(format!("{:.1} s, {cost}", summary.time.as_secs_f64()));
        lines.extend(unknown(summary, told.knowledge));
    }
    lines.extend(missed(&summary.notes));
    if summary.notes.without_breakpoints && summary.time > PATIENCE {
        lines.push("every instruction was stepped: no dependable debug registers here".to_owned());
    }
    lines
}

/// Branches that the source saw but could not record.
fn missed(notes: &SourceNotes) -> impl Iterator<Item = String> {
    counted_nonzero([
        (notes.undecoded, "transfer", "transfers", "at code that could not be read: not recorded"),
        (
            notes.invisible,
            "conditional branch",
            "conditional branches",
            "to the very next instruction, taken or not: not recorded",
        ),
        (notes.unresolved, "branch", "branches", "cut off by a signal, taken or not: not recorded"),
        (notes.threads_left, "thread", "threads", "too many at once: not recorded"),
        (
            notes.children_left,
            "child process left alone (--children records it)",
            "child processes left alone (--children records them)",
            "",
        ),
    ])
}

fn cost(summary: &Summary, knowledge: SourceKnowledge) -> String {
    if summary.drains == 0 {
        return "no drain".to_owned();
    }
    if summary.samplers.iter().any(|sampler| sampler.kernel.is_some()) {
        return format!("{} of the kernel", counted(summary.drains, "interrupt", "interrupts"));
    }
    let drains = counted(summary.drains, "drain", "drains");
    // Accesses cost something only if the registers are a CPU's.
    if knowledge != SourceKnowledge::HARDWARE {
        return drains;
    }
    let each = summary.accesses as f64 / summary.drains as f64;
    format!("{drains}, {each:.1} register accesses each")
}

/// The quality of the whole recording.
fn quality(summary: &Summary, told: &Details<'_>) -> String {
    let end = if told.stopped { ", until it was stopped" } else { "" };
    if summary.complete {
        let every = "every taken branch that passes the filter, once and in order";
        if summary.notes.replaced {
            return format!(
                "{every}{end}, but only until the program ran another one in its place (exec): \
                 --source ptrace records that too"
            );
        }
        return match told.doubts {
            Some(doubts) if !doubts.is_empty() => {
                format!("{every}{end}; but lbr lint finds {}", doubts.join(", "))
            }
            Some(_) => format!("complete: {every}{end}"),
            None => format!("complete: {every}{end}; not checked by lbr lint"),
        };
    }
    if let Some(why) = empty(summary) {
        return format!("{why}{end}");
    }
    if !summary.labels.is_empty() && summary.labels.keys().all(|label| *label == Label::Snapshot) {
        return format!("each a snapshot of a call stack{end}");
    }
    // Stacks that are joined into one stream are the usual case.
    let unusual = summary.labels.iter().filter(|(label, _)| **label != Label::Stream);
    let unusual = unusual.map(|(label, tally)| format!("{} {}", tally.stacks, label.name()));
    let mut said: Vec<String> = unusual.collect();
    let counts = [
        (summary.not_joined, "not joined to the stack before"),
        (summary.dropped, "dropped, the queue was full"),
        (summary.lost, "dropped and counted as lost"),
        (summary.unreadable, "unreadable records"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    said.extend(counts.map(|(count, what)| format!("{count} {what}")));
    if !said.is_empty() {
        return format!("not one stream: {}{end}", said.join(", "));
    }
    if summary.samples == 0 {
        return format!("no stack came{end}");
    }
    format!("every stack joins to the one before{end}")
}

/// Why the kernel gave no branch at all, as far as that can be seen from outside.
fn empty(summary: &Summary) -> Option<String> {
    let is_kernel = summary.samplers.iter().any(|sampler| sampler.kernel.is_some());
    if !is_kernel || summary.branches > 0 || summary.lost > 0 {
        return None;
    }
    Some(match summary.drains {
        0 => "no stack came: it ended before the kernel's first interrupt; a longer run or a \
              shorter period (-c) helps"
            .to_owned(),
        drains => format!(
            "no branch came: the stacks of all {} were empty; none passed the filter, or the \
             kernel's driver has no selector for it on this CPU",
            counted(drains, "interrupt", "interrupts")
        ),
    })
}

/// Fields that this source never records.
fn unknown(summary: &Summary, knowledge: SourceKnowledge) -> Option<String> {
    let kernel = match summary.notes.kernel_returns_omitted {
        0 => "the kernel".to_owned(),
        n => format!("the kernel ({} omitted)", counted(n, "return", "returns")),
    };
    let fields = [
        (!knowledge.mispredict, "predictions"),
        (!knowledge.cycles, "cycles"),
        (!knowledge.kernel, kernel.as_str()),
    ];
    let unknown = joined(applicable(fields), ", ");
    (!unknown.is_empty()).then(|| format!("not known to {}: {unknown}", summary.source))
}
