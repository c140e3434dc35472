//! LLVM's sample profile: functions, the calls inlined into them, and its text format.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// The line relative to the start of its function, and the discriminator.
pub(super) type Line = (u32, u32);

/// The counters of a line.
#[derive(Debug, Default)]
pub(super) struct At {
    pub(super) count: u64,
    /// Number of calls, by callee.
    pub(super) targets: BTreeMap<Arc<str>, u64>,
}

/// A function, or one inlined at a line of another.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) total: u64,
    /// Number of entries; unknown for inlined functions.
    pub(super) head: u64,
    pub(super) body: BTreeMap<Line, At>,
    pub(super) inlined: BTreeMap<Line, BTreeMap<Arc<str>, Samples>>,
}

/// Names shared by several functions once their suffixes are stripped, so that their counts are
/// ambiguous (`filterAmbiguousProfile`).
const AMBIGUOUS: [&str; 2] = ["__cxx_global_var_init", "__tls_init"];

/// Strips the suffixes that compilers append to the names of copies
/// (`FunctionSamples::getCanonicalFnName`). `.__uniq.` stays: it is part of the compiler's own
/// names.
pub(super) fn canonical(name: &str) -> &str {
    let mut name = name;
    for suffix in [".llvm.", ".part."] {
        if let Some(at) = name.rfind(suffix)
            && name.rfind('.') == Some(at + suffix.len() - 1)
        {
            name = name.get(..at).unwrap_or(name);
        }
    }
    name
}

impl Samples {
    /// A call's line was executed at least as often as the call
    /// (`FunctionSamples::updateCallsiteSamples`).
    pub(super) fn raise_to_calls(&mut self) {
        for at in self.body.values_mut() {
            let called = at.targets.values().copied().fold(0, u64::saturating_add);
            at.count = at.count.max(called);
        }
    }

    fn drop_ambiguous(&mut self) {
        for inlined in self.inlined.values_mut() {
            inlined.retain(|name, samples| {
                samples.drop_ambiguous();
                !is_ambiguous(name)
            });
        }
    }

    /// `SampleProfileWriterText::writeSample`.
    fn write(&self, text: &mut String, depth: usize) {
        for (line, at) in &self.body {
            indent(text, depth + 1, *line);
            let _ = write!(text, "{}", at.count);
            // By descending number of calls, then by name.
            let mut targets: Vec<_> = at.targets.iter().collect();
            targets.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
            for (name, count) in targets {
                let _ = write!(text, " {name}:{count}");
            }
            text.push('\n');
        }
        for (line, inlined) in &self.inlined {
            for (name, samples) in inlined {
                indent(text, depth + 1, *line);
                let _ = writeln!(text, "{name}:{}", samples.total);
                samples.write(text, depth + 1);
            }
        }
    }
}

fn indent(text: &mut String, depth: usize, (line, discriminator): Line) {
    let _ = match discriminator {
        0 => write!(text, "{:depth$}{line}: ", ""),
        _ => write!(text, "{:depth$}{line}.{discriminator}: ", ""),
    };
}

fn is_ambiguous(name: &str) -> bool {
    AMBIGUOUS.iter().any(|prefix| name.starts_with(prefix))
}

/// The profile as text, in descending order of samples (`sampleprof::sortFuncProfiles`).
pub(super) fn text(mut functions: BTreeMap<Arc<str>, Samples>) -> String {
    functions.retain(|name, samples| {
        samples.drop_ambiguous();
        samples.raise_to_calls();
        !is_ambiguous(name)
    });
    let mut sorted: Vec<_> = functions.iter().collect();
    sorted.sort_by(|a, b| b.1.total.cmp(&a.1.total).then(a.0.cmp(b.0)));
    let mut text = String::new();
    for (name, samples) in sorted {
        let _ = writeln!(text, "{name}:{}:{}", samples.total, samples.head);
        samples.write(&mut text, 0);
    }
    text
}
