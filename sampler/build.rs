//! Builds the plugin for `qemu-x86_64` (the crate `machine`), which this crate carries and hands to
//! the emulator. Cargo has no stable way to depend on a `cdylib`: as an ordinary dependency it is
//! neither built by `cargo check` nor installed by `cargo install`.

use std::env::var_os;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(var_os("CARGO_MANIFEST_DIR").ok_or("cargo sets CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let is = |name: &str, value| var_os(name).is_some_and(|set| set == value);
    let runs_plugins = is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && var_os("HOST") == var_os("TARGET")
        && var_os("CARGO_CFG_MIRI").is_none();
    // Missing from the package on a registry.
    let machine = here.join("../machine");
    let has_source = machine.join("Cargo.toml").is_file();
    println!("cargo::rerun-if-changed=build.rs");
    if has_source {
        let inputs =
            ["Cargo.toml", "Cargo.lock", "src/lib.rs", "src/user"].map(|name| machine.join(name));
        let shared = ["src/source/qemu/channel", "src/source/qemu/record.rs", "../lbr-msr/src"];
        for input in inputs.into_iter().chain(shared.map(|name| here.join(name))) {
            println!("cargo::rerun-if-changed={}", input.display());
        }
    }
    // Empty: `lbr` says that it was built without the plugin.
    let mut plugin = Vec::new();
    if runs_plugins && has_source {
        match build(&machine, &out.join("machine")) {
            Ok(library) => plugin = library,
            Err(why) => {
                println!("cargo::warning=no plugin for qemu-x86_64, so recording is slower: {why}")
            }
        }
    }
    Ok(std::fs::write(out.join("plugin.so"), plugin)?)
}

fn build(machine: &Path, target: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut cargo = Command::new(var_os("CARGO").ok_or("cargo sets CARGO")?);
    cargo.args(["build", "--quiet", "--locked", "--release", "--features", "user"]);
    cargo.arg("--manifest-path").arg(machine.join("Cargo.toml")).arg("--target-dir").arg(target);
    // Settings of the outer build: sanitizers, coverage, a static C library, clippy.
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"]
    {
        cargo.env_remove(name);
    }
    cargo.env_remove("CARGO_BUILD_TARGET");
    let output = cargo.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().find(|line| line.starts_with("error"));
        return Err(line.unwrap_or("cargo failed").into());
    }
    Ok(std::fs::read(target.join("release/liblbr_machine.so"))?)
}
