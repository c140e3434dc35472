//! What a recording came to, in a few lines on stderr.

use std::path::Path;
use std::time::Duration;

use lbr_msr::record::{Label, SourceKnowledge};
use sampler::Summary;
use sampler::outlet::{KernelReport, SamplerReport};
use sampler::source::SourceNotes;

use crate::output::name;
use crate::present::number::{counted, counted_nonzero};
use crate::present::out::say;

/// Who waited no longer did not wait for single steps.
const PATIENCE: Duration = Duration::from_secs(5);

/// Prints it.
pub(super) fn print(summary: &Summary, knowledge: SourceKnowledge, output: &Path, stopped: bool) {
    for line in lines(summary, knowledge, output, stopped) {
        say!("{line}");
    }
    if knowledge == SourceKnowledge::HARDWARE {
        print_cpus(&summary.samplers);
    }
}

/// Prints what each CPU's sampler did.
fn print_cpus(cpus: &[SamplerReport]) {
    for cpu in cpus {
        say!("{}", cpu_line(cpu));
    }
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

/// What the kernel told of its samples.
fn kernel_line(kernel: &KernelReport) -> String {
    let records = counted(kernel.lost, "record", "records");
    let times = counted(kernel.throttled, "time", "times");
    let mut line = format!("the kernel lost {records} for want of room, and throttled {times}");
    // What switches cost is none of another's.
    const SHARED: f64 = 95.0;
    let share = |(on, ran): (Duration, Duration)| 100.0 * ran.as_secs_f64() / on.as_secs_f64();
    if let Some(share) = kernel.scheduled.map(share).filter(|share| *share < SHARED) {
        line += &format!(
            "; it recorded for {share:.0} % of the time, as others use the counters, or the branch \
             records with another filter"
        );
    }
    line
}

fn lines(
    summary: &Summary,
    knowledge: SourceKnowledge,
    output: &Path,
    stopped: bool,
) -> Vec<String> {
    let mut lines = Vec::new();
    lines.push(format!(
        "{} in {} to {}, {:.1} s, {}",
        counted(summary.branches, "branch", "branches"),
        counted(summary.samples, "sample", "samples"),
        name(output),
        summary.time.as_secs_f64(),
        cost(summary),
    ));
    lines.push(quality(summary, stopped));
    if let Some(unknown) = unknown(summary, knowledge) {
        lines.push(unknown);
    }
    lines.extend(missed(&summary.notes));
    if summary.notes.without_breakpoints && summary.time > PATIENCE {
        lines.push("every instruction was stepped: there are no debug registers here".to_owned());
    }
    if let Some(seed) = summary.seed {
        lines.push(format!("seed of the jitter: {seed}"));
    }
    lines
}

/// What the source saw and could not record.
fn missed(notes: &SourceNotes) -> impl Iterator<Item = String> {
    counted_nonzero([
        (
            notes.undecoded,
            "transfer at code that could not be read: not recorded",
            "transfers at code that could not be read: not recorded",
        ),
        (
            notes.invisible,
            "conditional branch to the very next instruction, taken or not: not recorded",
            "conditional branches to the very next instruction, taken or not: not recorded",
        ),
        (
            notes.unresolved,
            "branch cut off by a signal, taken or not: not recorded",
            "branches cut off by a signal, taken or not: not recorded",
        ),
        (
            notes.threads_left,
            "thread too many at once: not recorded",
            "threads too many at once: not recorded",
        ),
        (
            notes.children_left,
            "child process left alone (--children with --backend perf or --source ptrace records it)",
            "child processes left alone (--children with --backend perf or --source ptrace records them)",
        ),
    ])
}

fn cost(summary: &Summary) -> String {
    if summary.drains == 0 {
        return "no drain".to_owned();
    }
    if summary.samplers.iter().any(|sampler| sampler.kernel.is_some()) {
        return format!("{} of the kernel", counted(summary.drains, "interrupt", "interrupts"));
    }
    format!(
        "{}, {:.1} register accesses each",
        counted(summary.drains, "drain", "drains"),
        summary.accesses as f64 / summary.drains as f64
    )
}

/// What can be said of the recording as a whole.
fn quality(summary: &Summary, stopped: bool) -> String {
    let end = if stopped { ", until it was stopped" } else { "" };
    if summary.complete {
        return format!(
            "complete: every taken branch that the filter lets into the ring, once and in order{end}"
        );
    }
    if let Some(why) = empty(summary) {
        return format!("{why}{end}");
    }
    let mut said = Vec::new();
    for (label, tally) in &summary.labels {
        // An ordinary stack is told by the rest of the line.
        if *label != Label::Stream {
            said.push(format!("{} {}", tally.stacks, label.name()));
        }
    }
    if summary.not_joined > 0 {
        said.push(format!("{} not joined to the stack before", summary.not_joined));
    }
    if summary.dropped > 0 {
        said.push(format!("{} dropped, the queue was full", summary.dropped));
    }
    if summary.lost > 0 {
        said.push(format!("{} left out and announced as lost", summary.lost));
    }
    if summary.unreadable > 0 {
        said.push(format!("{} unreadable records", summary.unreadable));
    }
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

/// What this source cannot know.
fn unknown(summary: &Summary, knowledge: SourceKnowledge) -> Option<String> {
    let mut unknown = Vec::new();
    if !knowledge.mispredict {
        unknown.push("predictions".to_owned());
    }
    if !knowledge.cycles {
        unknown.push("cycles".to_owned());
    }
    if !knowledge.kernel {
        unknown.push(match summary.notes.kernel_returns_omitted {
            0 => "the kernel".to_owned(),
            n => {
                format!("the kernel ({} to the program left out)", counted(n, "return", "returns"))
            }
        });
    }
    (!unknown.is_empty())
        .then(|| format!("not known to {}: {}", summary.source, unknown.join(", ")))
}
