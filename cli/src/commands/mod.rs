//! One file a command.

use crate::{args::Command, exit::Outcome};

pub(crate) mod decode;
pub(crate) mod explain;
mod number;

/// Runs a command.
pub(crate) fn run(command: Command) -> Outcome {
    match command {
        Command::Decode(args) => decode::run(args),
        Command::Explain(args) => explain::run(args),
    }
}
