//! Names of measured addresses.

use std::fmt;

use lab::measure::bracket::Layout;
use lab::measure::{Fault, FaultKind};
use nix::sys::signal::Signal;

use super::code::TimedCode;

/// A location of an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CodePlace {
    /// In a copy of the code.
    Code {
        /// Bytes from the start of its copy.
        offset: u64,
        copy: u64,
    },
    /// In a function of a file.
    Symbol(String, u64),
    /// Anywhere else in memory.
    Outside(u64),
    /// The branch of the loop around the code.
    Around,
    /// The closing jump, after the code.
    End,
    /// In the code that sets up.
    Init(u64),
    /// In the measurement harness.
    Ours,
}

impl CodePlace {
    pub(super) fn of(address: u64, layout: &Layout, code: &TimedCode) -> CodePlace {
        if layout.around == Some(address) {
            CodePlace::Around
        } else if layout.close == address {
            CodePlace::End
        } else if layout.code.contains(&address) && layout.copy > 0 {
            let offset = address - layout.code.start;
            CodePlace::Code { offset: offset % layout.copy, copy: offset / layout.copy }
        } else if layout.init.contains(&address) {
            CodePlace::Init(address - layout.init.start)
        } else if layout.text.contains(&address) {
            CodePlace::Ours
        } else if let Some(named) = code.image.as_ref().and_then(|image| image.name(address)) {
            CodePlace::Symbol(named.symbol, named.offset)
        } else {
            CodePlace::Outside(address)
        }
    }

    /// The same location in the first copy, and the number of its copy.
    pub(super) fn folded(self) -> (CodePlace, u64) {
        match self {
            CodePlace::Code { offset, copy } => (CodePlace::Code { offset, copy: 0 }, copy),
            place => (place, 0),
        }
    }
}

impl fmt::Display for CodePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodePlace::Code { offset, copy: 0 } => write!(f, "+{offset:#x}"),
            CodePlace::Code { offset, copy } => write!(f, "+{offset:#x} of copy {}", copy + 1),
            CodePlace::Symbol(symbol, offset) => write!(f, "{symbol}+{offset:#x}"),
            CodePlace::Outside(address) => write!(f, "{address:#x}"),
            CodePlace::Around => f.write_str("loop"),
            CodePlace::End => f.write_str("end"),
            CodePlace::Init(offset) => write!(f, "+{offset:#x} of --init"),
            CodePlace::Ours => f.write_str("the bracket around the code"),
        }
    }
}

/// A fault as a sentence.
pub(super) fn fault(
    fault: &Fault,
    layout: &Layout,
    code: &TimedCode,
    stepped: bool,
    needs: &[String],
) -> String {
    let absent = |at: u64| code.image.as_ref()?.absent(at);
    if let Some(name) = fault.at.and_then(absent) {
        return format!(
            "the code calls {name}, which another file defines: a function is measured without \
             its imports"
        );
    }
    let name = |signal: i32| Signal::try_from(signal).map_or("a signal", Signal::as_str);
    let at = match fault.at.map(|at| (at, CodePlace::of(at, layout, code))) {
        None => String::new(),
        Some((at, CodePlace::Outside(_))) => format!(" at {at:#x}, outside of the code"),
        Some((at, CodePlace::Ours)) => {
            format!(" at {at:#x}, in the bracket around the code, which the code has disturbed")
        }
        Some((_, place)) => format!(" at {place}"),
    };
    match fault.kind {
        FaultKind::Signal { signal, address } => {
            let name = name(signal);
            match (address, address.and_then(absent)) {
                _ if signal == Signal::SIGSYS as i32 => format!(
                    "the code made a system call{at} that it is not let make, because it may affect \
                     other processes; --unconfined allows it"
                ),
                (_, Some(symbol)) => format!(
                    "the code raised {name}{at}: it touched {symbol}, which another file defines"
                ),
                (Some(address), None) => {
                    format!("the code raised {name}{at}, touching {address:#x}")
                }
                (None, None) if !needs.is_empty() => format!(
                    "the code raised {name}{at}: the instruction there needs {}, which this CPU, or \
                     what runs on it, does not offer",
                    needs.join(" and ")
                ),
                (None, None) => format!("the code raised {name}{at}"),
            }
        }
        FaultKind::Hang { in_call: true } => format!(
            "the code did not end in time: it waits in a system call{at}; --timeout allows more"
        ),
        FaultKind::Hang { in_call: false } if stepped => format!(
            "the code did not end in time when it was single-stepped, which takes thousands of \
             times as long; it was stopped{at}; fewer rounds (--loop) make it shorter, --timeout \
             allows more, --stepped 0 leaves it out"
        ),
        FaultKind::Hang { in_call: false } => {
            format!("the code did not end in time: it was stopped{at}; --timeout allows more")
        }
        FaultKind::Exit(status) => {
            format!("the code ended its process with status {status}{at}")
        }
        FaultKind::Fork => {
            format!("the code starts another thread or process{at}: only one can be measured")
        }
        FaultKind::Exec => format!("the code replaces its program{at}"),
        FaultKind::Killed(signal) => {
            format!("the process of the code was killed by {}{at}", name(signal))
        }
        _ => format!("the code did not come to its end{at}"),
    }
}
