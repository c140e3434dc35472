//! Assemblers, linkers and simulators, which read what anyone may have written.
#![allow(unsafe_code, reason = "limits between fork and execve")]

use std::io::{self, Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};

use super::confine::limit;

/// Maximum address space of a tool, bytes.
const MEMORY: u64 = 2 << 30;
/// Maximum size of a file that it writes, bytes.
const FILE: u64 = 64 << 20;
/// Between two looks at whether it has ended.
const LOOK: Duration = Duration::from_millis(2);

/// A tool that has ended.
#[derive(Debug)]
pub struct ToolOutput {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error. If a signal ended it, the signal's name.
    pub stderr: Vec<u8>,
}

/// Runs a tool with limits on time, memory and file size. It ends with the calling thread.
///
/// # Errors
/// It cannot be started, or it runs for more than `most`, and was killed.
pub fn run_tool(tool: &mut Command, most: Duration) -> io::Result<ToolOutput> {
    let (mut output, mut errors) = (tempfile::tempfile()?, tempfile::tempfile()?);
    tool.env("LC_ALL", "C").stdout(output.try_clone()?).stderr(errors.try_clone()?);
    let limits = [
        (libc::RLIMIT_AS, MEMORY),
        (libc::RLIMIT_FSIZE, FILE),
        (libc::RLIMIT_CPU, most.as_secs().saturating_add(1)),
        (libc::RLIMIT_CORE, 0),
    ];
    let parent = Pid::this();
    // SAFETY: between fork and execve the closure makes system calls, and allocates nothing.
    unsafe {
        tool.pre_exec(move || {
            for (resource, most) in limits {
                limit(resource, most);
            }
            set_pdeathsig(Signal::SIGKILL)?;
            // No signal comes if the parent has ended already.
            if getppid() == parent { Ok(()) } else { Err(Errno::ESRCH.into()) }
        });
    }
    let mut child = tool.spawn()?;
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if started.elapsed() > most {
            let _ = child.kill();
            child.wait()?;
            let what = format!("it took more than {} s and was ended", most.as_secs_f32());
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        std::thread::sleep(LOOK);
    };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    for (file, bytes) in [(&mut output, &mut stdout), (&mut errors, &mut stderr)] {
        file.rewind()?;
        file.read_to_end(bytes)?;
    }
    if let Some(signal) = status.signal() {
        let name = Signal::try_from(signal).map_or("a signal", Signal::as_str);
        stderr.extend_from_slice(format!("{name} ended it").as_bytes());
    }
    Ok(ToolOutput { status, stdout, stderr })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#[path = "../../../tests/lab/unit/measure/tool.rs"]
mod tests;
