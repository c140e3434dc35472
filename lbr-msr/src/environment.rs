//! What surrounds this process: variables that choose code or files, and rights.
#![allow(unsafe_code, reason = "getauxval(3), which nix does not have")]

use std::ffi::OsString;

use nix::libc;

use crate::access::Root;

/// Whether this process has rights that who started it may not have: it is
/// setuid or setgid, or has capabilities by its file. Who set the environment
/// then must not choose what is done with these rights. getauxval(3), AT_SECURE.
#[must_use]
pub fn is_secure() -> bool {
    // SAFETY: reads a number that the kernel gave the process at its start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// A variable that chooses code to run or files to read; `None` where it is not
/// set, and in a process with rights of [its own](is_secure).
#[must_use]
pub fn trusted(name: &str) -> Option<OsString> {
    (!is_secure()).then(|| std::env::var_os(name)).flatten()
}

/// The capabilities in force, as a bitmap; `None` where the system under that
/// root does not say. proc(5), `CapEff` of `/proc/self/status`.
#[must_use]
pub fn capabilities(root: &Root) -> Option<u64> {
    let status = std::fs::read_to_string(root.join("proc/self/status")).ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}
