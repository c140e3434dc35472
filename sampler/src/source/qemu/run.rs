//! The emulator's process: start and end.

use lbr_msr::insn::Isa;
use lbr_msr::text::AsText;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command as Process};
use std::sync::atomic::Ordering;

use super::gdb::Gdb;
use super::reader::{Reader, Thinning, failed};
use super::shared::{Plugin, Shared, inherit};
use super::{Emulated, code, find};
use crate::gate::Recorder;
use crate::source::{Exit, SourceError, SourceNotes, Stop};
use crate::target::Doing;

/// The libraries of Debian's packages for cross compiling.
const AARCH64_ROOT: &str = "/usr/aarch64-linux-gnu";

/// The running emulator. Killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both succeed for any child of this process, even a dead one.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Emulated {
    /// Like [`run`](crate::source::Source::run), with any recorder.
    ///
    /// Returns when the program has ended. When the recorder closes, the program is killed;
    /// processes that it forked continue running.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn run_into<R: Recorder>(
        &mut self,
        recorder: &R,
    ) -> Result<(Exit, SourceNotes), SourceError> {
        let shared = Shared::new().doing("making memory to share with qemu")?;
        let thinning = if self.command.model { Thinning::NONE } else { Thinning::of(recorder) };
        let header = &shared.region().header;
        header.open(thinning.wanted, thinning.sampling, self.command.model);
        if recorder.wants_signals() && self.qemu.isa != Isa::X86_64 {
            let why = "signals are shown with the registers of x86-64 alone".to_owned();
            return Err(SourceError::Unavailable { why });
        }
        let gdb = recorder.wants_signals().then(|| Gdb::new(self.command.rights().as_ref()));
        let mut gdb = gdb.transpose().doing("making a socket for qemu")?;
        let mut running = Running(start(self, &shared, gdb.as_ref())?);
        let pid = running.0.id();
        if let Some(pin) = &self.pin {
            pin.apply(pid.cast_signed())?;
        }
        recorder.started(pid);
        if let Some(gdb) = &mut gdb {
            gdb.connect(&mut running.0).doing("connecting to qemu's GDB stub")?;
        }
        let mut reader = Reader::new(self, recorder, pid, shared.region(), thinning);
        reader.gdb = gdb;
        let ended = reader.read(&mut running.0);
        // The plugin stops waiting, and forked children hold none of our locks.
        header.close();
        let status = match ended {
            Ok(status) => status,
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::Closed(_)) => {
                let wait = running.0.kill().and_then(|()| running.0.wait());
                wait.doing("ending QEMU")?
            }
        };
        let closed = recorder.is_closed();
        let nothing = !reader.introduced;
        let notes = reader.finish();
        if header.failed.load(Ordering::Acquire) != 0 {
            return Err(failed("the plugin has failed; standard error has its reason".to_owned()));
        }
        if let Some(start) = self.start.filter(|_| !closed)
            && header.attached.load(Ordering::Acquire) != 0
            && header.reached.load(Ordering::Acquire) == 0
        {
            return Err(SourceError::NeverReached { symbol: format!("{:#x}", start.from) });
        }
        if nothing && !closed {
            let why = if header.attached.load(Ordering::Acquire) == 0 {
                "it did not load the plugin"
            } else {
                "it did not start the program"
            };
            return Err(failed(format!("{why} ({status}); standard error has its reason")));
        }
        Ok((Exit::of(status.into_raw()), notes))
    }
}

fn start(source: &Emulated, shared: &Shared, gdb: Option<&Gdb>) -> Result<Child, SourceError> {
    let parent = std::process::id();
    let plugin = Plugin::new(find::LIBRARY).doing("making the plugin's memory")?;
    let mut arguments = vec![format!("fd={}", shared.fd()), format!("parent={parent}")];
    if let Some(code::Start { from, text }) = source.start {
        arguments.push(format!("from={from:#x}"));
        arguments.push(format!("text={text:#x}"));
    }
    let mut process = Process::new(&source.qemu.emulator);
    match source.qemu.isa {
        Isa::X86_64 => process.args(["-cpu", "max"]),
        Isa::Aarch64 => {
            arguments.push("isa=aarch64".to_owned());
            if Path::new(AARCH64_ROOT).is_dir() && std::env::var_os("QEMU_LD_PREFIX").is_none() {
                process.args(["-L", AARCH64_ROOT]);
            }
            // Pointer authentication as the architecture defines it takes most of the time.
            process.args(["-cpu", "max,pauth-impdef=on"])
        }
    };
    plugin.load(&arguments, &mut process);
    if let Some(gdb) = gdb {
        process.arg("-g").arg(gdb.path());
    }
    process.args(["-0", &source.command.program]);
    // A path that starts with `-` would be parsed as an option.
    process.arg(Path::new(".").join(&source.path)).args(&source.command.args);
    inherit(shared.fd(), &mut process);
    if let Some(user) = source.command.rights() {
        // Supplementary groups are dropped.
        process.uid(user.uid).gid(user.gid);
    }
    process.spawn().doing(format!("starting {}", source.qemu.emulator.as_text()))
}
