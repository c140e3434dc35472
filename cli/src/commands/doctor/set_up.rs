//! `lbr doctor --set-up`: installs and builds what the faster recorder lacks.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, anyhow, bail};
use lbr_msr::text::AsText as _;
use sampler::source::qemu::{Qemu, Unavailable};

use crate::exit::{DONE, Outcome};
use crate::present::out::{Out, say};

/// Runs the missing steps one after another, and prints each before.
pub(super) fn run() -> Outcome {
    // The emulator, then the plugin.
    for _ in 0..2 {
        let Err(why) = Qemu::find() else { break };
        say!("{why}");
        let words = remedy(&why)?;
        let shown = words.join(" ");
        say!("running {shown}");
        let (program, args) = words.split_first().context("nothing to run")?;
        let status = Command::new(program).args(args).status();
        let status = status.with_context(|| shown.clone())?;
        if !status.success() {
            return Err(anyhow!("{shown}: {status}").into());
        }
    }
    Qemu::find().map_err(|why| anyhow!(why))?;
    let mut out = Out::stdout();
    out.line("The faster recorder is in place: lbr record --report -- ls /usr")?;
    out.flush()?;
    Ok(DONE)
}

/// The commands that fix it.
fn remedy(why: &Unavailable) -> anyhow::Result<Vec<String>> {
    match why {
        Unavailable::NoEmulator if !Path::new("/usr/bin/apt-get").is_file() => {
            bail!("install your system's package of QEMU's user-mode emulators, version 7.2")
        }
        Unavailable::NoEmulator if !nix::unistd::geteuid().is_root() => {
            bail!("only root can install it: apt-get install qemu-user")
        }
        Unavailable::NoEmulator => {
            let words =
                ["/usr/bin/apt-get", "install", "--yes", "--no-install-recommends", "qemu-user"];
            Ok(words.map(str::to_owned).to_vec())
        }
        Unavailable::NoPlugin { .. } | Unavailable::OtherVersion { .. } => {
            let tree = source_tree().ok_or_else(|| {
                anyhow!("the plugin comes with lbr's source, its tarball and its Debian package")
            })?;
            Ok(vec![tree.join("scripts/plugins").as_text().into_owned()])
        }
        _ => bail!("nothing that can be set up mends that"),
    }
}

/// The source tree of this program, if it still exists.
fn source_tree() -> Option<PathBuf> {
    let exe = std::env::current_exe().ok()?;
    let holds = |folder: &&Path| {
        ["scripts/plugins", "machine/Cargo.toml"].iter().all(|file| folder.join(file).is_file())
    };
    exe.ancestors().find(holds).map(Path::to_owned)
}
