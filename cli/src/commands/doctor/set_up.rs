//! `lbr doctor --set-up`: installs the emulator of the faster recorder.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, anyhow, bail};
use sampler::source::qemu::{Qemu, Unavailable};

use crate::exit::{Result, done};
use crate::present::{Out, say};

/// Runs the missing step, and prints it before.
pub(super) fn run() -> Result {
    if let Err(why) = Qemu::find() {
        say!("{why}");
        let words = remedy(&why)?;
        let shown = words.join(" ");
        say!("running {shown}");
        let (program, args) = words.split_first().context("nothing to run")?;
        let status = Command::new(program).args(args).status().with_context(|| shown.clone())?;
        if !status.success() {
            return Err(anyhow!("{shown}: {status}").into());
        }
    }
    Qemu::find().map_err(|why| anyhow!(why))?;
    let mut out = Out::stdout();
    out.line("The faster recorder is in place: lbr record --report -- ls /usr")?;
    done(&mut out)
}

/// The command that fixes it.
fn remedy(why: &Unavailable) -> anyhow::Result<Vec<String>> {
    match why {
        Unavailable::NoEmulator(_) if !Path::new("/usr/bin/apt-get").is_file() => {
            bail!("install your system's package of QEMU's user-mode emulators, version 7.2")
        }
        Unavailable::NoEmulator(_) if !nix::unistd::geteuid().is_root() => {
            bail!("only root can install it: apt-get install qemu-user")
        }
        Unavailable::NoEmulator(_) => {
            let words =
                ["/usr/bin/apt-get", "install", "--yes", "--no-install-recommends", "qemu-user"];
            Ok(words.map(str::to_owned).to_vec())
        }
        _ => bail!("--set-up cannot fix that"),
    }
}
