//! Recordings as recordings: perf's text, and a part of a perf.data.

use std::io::{self, Write};

use profile::brstack::event_text;
use profile::export;
use profile::names::Symbols;
use profile::perf_data::ReadError;
use profile::stack::SampleHead;
use profile::{Item, Recording};

use super::Export;
use crate::commands::script::{Field, line};
use crate::exit::{DONE, Result, usage};
use crate::input::{self, Progress, Recordings, Source, selected};
use crate::output::Output;
use crate::present::{Out, applicable, escaped, say};

/// Reads recordings into an output, each by `copy`. Its inner error is one of writing; it returns
/// the file's header.
fn copy(
    args: &Export,
    output: &Output,
    mut copy: impl FnMut(
        &mut Recording,
        &mut Out<'_>,
        Progress<'_>,
    ) -> Result<io::Result<Vec<u8>>, ReadError>,
) -> Result {
    let recordings = Recordings::once(args.inputs.paths(), args.reading())?;
    let mut left = Vec::new();
    let read: Vec<Source> = output.stream_with_header(|out| {
        let mut written = Ok(Vec::new());
        let read = recordings.read(&mut |recording, progress| {
            if written.is_ok() {
                written = copy(recording, out, progress)?;
            }
            left.push(recording.left_out());
            Ok(())
        });
        written.map(|header| read.map(|read| (read, header)))
    })?;
    for (source, left) in read.iter().zip(&left) {
        input::warn(source);
        let sources = std::slice::from_ref(source);
        if let Some(line) = selected::line(sources, source.samples(), left) {
            say!("{}: {line}", source.name);
        }
    }
    Ok(DONE)
}

/// Text as `perf script -F pid,tid,cpu,time,ip,brstack --show-mmap-events
/// --show-task-events` prints it.
pub(super) fn text(args: &Export, output: &Output) -> Result {
    copy(args, output, |recording, out, _| {
        let mut symbols = Symbols::default();
        while let Some(item) = recording.next_item()? {
            let written = match item {
                Item::Stack(stack) => line(out, &stack, &symbols, &fields(&stack.head)),
                Item::Event(event) => match event_text(&event) {
                    Some(text) => writeln!(out, " {}", escaped(&text)),
                    None => Ok(()),
                },
                Item::Symbol(symbol) => {
                    symbols.add(symbol);
                    Ok(())
                }
                Item::Straight(_) | Item::LeftOut => Ok(()),
            };
            if let Err(error) = written {
                return Ok(Err(error));
            }
        }
        Ok(Ok(Vec::new()))
    })
}

/// The columns that a recording fills.
fn fields(head: &SampleHead) -> Vec<Field> {
    let known = [
        (head.pid.is_some(), Field::Pid),
        (head.tid.is_some(), Field::Tid),
        (head.cpu.is_some(), Field::Cpu),
        (head.time.is_some(), Field::Time),
        (head.ip.is_some(), Field::Ip),
        (true, Field::Brstack),
    ];
    applicable(known).collect()
}

/// Writes the selected samples of a perf.data as perf.data, to a file or in the pipe format.
pub(super) fn perf_data(args: &Export, output: &Output) -> Result {
    if args.inputs.paths().len() > 1 {
        return Err(usage!(
            "perf.data has one header, and a copy is of one recording: give one file"
        ));
    }
    let mut is_text = false;
    let done = copy(args, output, |recording, out, progress| {
        is_text = !recording.is_perf_data();
        if is_text {
            return Ok(Err(io::ErrorKind::Unsupported.into()));
        }
        export::perf_data(recording, output.is_file(), out, progress)
    });
    if done.is_ok() && output.is_redirected() {
        say!(
            "written in the form of a pipe, which perf2bolt and llvm-profgen misread: give -o FILE"
        );
    }
    if is_text && done.is_err() {
        return Err(usage!("text has no records to copy: a part of it is --to brstack"));
    }
    done
}
