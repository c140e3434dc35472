//! A profile of each program and library of a recording.

use std::collections::HashSet;

use anyhow::Context;
use profile::export::{ProfileKind, ProgramChoice, Traced};

use super::{Export, Kind, check_lines, traced};
use crate::exit::{DONE, OrExit, Result, USAGE, usage};
use crate::head;
use crate::output::Output;
use crate::present::{counted, escaped, escaped_lines, grouped, say};

/// Makes the folder that the profiles go into.
fn folder(args: &Export) -> Result<()> {
    if args.output.as_os_str() == "-" {
        return Err(usage!("--dso all writes a file for each program and library: -o FOLDER"));
    }
    let failed = || format!("cannot make the folder {}", args.output.display());
    std::fs::create_dir_all(&args.output).with_context(failed).or_exit(USAGE)
}

/// Writes them, each into a file named by program and build id.
pub(super) fn write(args: &Export, kind: ProfileKind) -> Result {
    folder(args)?;
    let (mut traced, read) = traced(args, kind)?;
    let inputs = || args.inputs.paths().iter().chain(args.symbols.files());
    let (mut names, mut written) = (HashSet::new(), 0u64);
    for file in traced.files() {
        let made = traced.profile(kind, &ProgramChoice::Indexed(file)).or_exit(USAGE);
        let made = made.and_then(|made| check_lines(args, &made).map(|()| made));
        let made = match made {
            Ok(made) => made,
            Err(failure) => {
                say!("not written: {}", escaped(&format!("{:#}", failure.error)));
                continue;
            }
        };
        let mut name = name(&traced, file, args.to);
        while !names.insert(name.clone()) {
            name.push('_');
        }
        let path = args.output.join(&name);
        Output::new(&path, inputs())?.write(escaped_lines(&made.text))?;
        written += 1;
        say!(
            "{}: {} of {}",
            escaped(&path.display().to_string()),
            grouped(made.losses.branches.0),
            counted(made.losses.recorded, "branch", "branches")
        );
    }
    head::finish(&read, &traced.maps);
    if written == 0 {
        return Err(usage!("no profile was written: see above why, file by file"));
    }
    Ok(DONE)
}

/// The last part of the path, the build id if it is known, and the kind.
fn name(traced: &Traced, file: usize, kind: Kind) -> String {
    let path = traced.maps.path(file).unwrap_or_default();
    let last = path.rsplit('/').next().unwrap_or_default();
    let id = traced.maps.build_id(file).unwrap_or_default();
    let id = profile::hex(id);
    let dot = if id.is_empty() { "" } else { "." };
    let extension = match kind {
        Kind::Llvm => "prof",
        Kind::LlvmRaw => "raw",
        Kind::Autofdo => "autofdo",
        _ => "preagg",
    };
    format!("{}{dot}{id}.{extension}", escaped(last))
}
