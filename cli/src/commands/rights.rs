//! The user whose rights a program runs with.

use anyhow::Context;
use clap::Args;
use sampler::source::Command;
use sampler::target::User;

use crate::args::heading;
use crate::exit::{NOT_PERMITTED, Result, failure};
use crate::present::say;

/// The option of commands that run a program.
#[derive(Debug, Args)]
pub(crate) struct Rights {
    /// Run the program as this user (needs root)
    #[arg(long, value_name = "NAME", requires = "command", value_parser = user,
          help_heading = heading::RECORDING)]
    user: Option<User>,
}

impl Rights {
    /// Refuses `--user` unless lbr is root.
    pub(crate) fn check(&self) -> Result<()> {
        if self.user.is_some() && !nix::unistd::geteuid().is_root() {
            return Err(failure!(
                NOT_PERMITTED,
                "--user: only root can run a program with another user's rights"
            ));
        }
        Ok(())
    }

    /// A program and its arguments, to be run with these rights.
    pub(crate) fn command(&self, words: &[String]) -> anyhow::Result<Command> {
        let (program, args) = words.split_first().context("no program is given")?;
        let (program, args) = (program.clone(), args.to_vec());
        Ok(Command { program, args, user: self.user.clone(), ..Command::default() })
    }

    /// Whether the program runs with all rights of root.
    pub(crate) fn are_roots(&self) -> bool {
        self.user.is_none() && nix::unistd::geteuid().is_root()
    }

    /// Warns root that a program gets its rights.
    pub(crate) fn announce(&self) {
        if self.are_roots() {
            say!("the program runs with all rights of root; --user NAME gives it those of another");
        }
    }
}

/// A user by name.
fn user(name: &str) -> Result<User, String> {
    let unknown = || format!("no user is called {name}");
    let found = nix::unistd::User::from_name(name).map_err(|errno| errno.to_string())?;
    let found = found.ok_or_else(unknown)?;
    let name = std::ffi::CString::new(name).map_err(|_| unknown())?;
    let groups = nix::unistd::getgrouplist(&name, found.gid).map_err(|errno| errno.to_string())?;
    let groups = groups.into_iter().map(nix::unistd::Gid::as_raw).collect();
    Ok(User { uid: found.uid.as_raw(), gid: found.gid.as_raw(), groups })
}
