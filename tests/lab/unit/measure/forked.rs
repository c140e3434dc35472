use std::fs::OpenOptions;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use super::super::bracket::Body;
use super::*;

/// A child does not outlive a parent that is killed right after its fork.
#[test]
fn one_whose_parent_is_gone_ends() {
    let bracket = Bracket::new(&Body::default()).unwrap();
    let setting = Setting { alone: true, ..Setting::default() };
    let null = OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
    let mut confinement = Confinement::one_process();
    // SAFETY: the child calls nothing but async-signal-safe functions.
    let child = match unsafe { fork() }.unwrap() {
        ForkResult::Child => serve(&bracket, &setting, &null, Pid::from_raw(-1), &mut confinement),
        ForkResult::Parent { child } => child,
    };
    let status = waitpid(child, None).unwrap();
    if !matches!(status, WaitStatus::Exited(..)) {
        let _ = kill(child, Signal::SIGKILL);
    }
    assert_eq!(status, WaitStatus::Exited(child, 1));
}
