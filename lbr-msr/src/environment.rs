//! The environment of this process: its rights, and the variables that choose code or files.
#![allow(unsafe_code, reason = "getauxval(3), which nix does not have")]

use std::ffi::OsString;

use nix::libc;

use crate::access::Root;

/// Whether this process has more rights than the user who started it: setuid, setgid, or file
/// capabilities. Environment variables then come from a less trusted user and must not choose code
/// or files. getauxval(3), AT_SECURE.
pub fn is_secure() -> bool {
    // SAFETY: reads a number from the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The value of a variable that chooses code to run or files to read; `None` if unset, or if this
/// process has [extra rights](is_secure).
pub fn trusted(name: &str) -> Option<OsString> {
    (!is_secure()).then(|| std::env::var_os(name)).flatten()
}

/// The effective capabilities as a bitmap; `None` if the system under `root` does not show them.
/// proc(5), `CapEff` of `/proc/self/status`.
pub fn capabilities(root: &Root) -> Option<u64> {
    let status = std::fs::read_to_string(root.join("proc/self/status")).ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}
