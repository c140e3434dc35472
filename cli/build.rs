//! Tells `lbr --version` what was built: the commit, where git knows it, and
//! the target. Builds that are not optimized name no commit: each commit would
//! compile the crate anew.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(unoptimized)");
    let mut built = env::var("TARGET").unwrap_or_default();
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        // As cargo packages it, in a folder that may lie in somebody's repository.
        let packaged = std::fs::read_to_string(".cargo_vcs_info.json").ok();
        let packaged = packaged.as_deref().and_then(|info| info.split("\"sha1\": \"").nth(1));
        if let Some(commit) = packaged.and_then(|rest| rest.get(..10)) {
            println!("cargo::rustc-env=LBR_BUILT={commit}, {built}");
            return;
        }
        // Moves with each commit, checkout and reset.
        if let Some(moved) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
            println!("cargo::rerun-if-changed={moved}");
        }
        if let Some(commit) =
            git(&["describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"])
        {
            built = format!("{commit}, {built}");
        }
    } else {
        println!("cargo::rustc-cfg=unoptimized");
    }
    println!("cargo::rustc-env=LBR_BUILT={built}");
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let words = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| words.trim().to_owned())
}
