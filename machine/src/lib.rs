//! A plugin for QEMU's emulator, which tells `lbr` the branches that are taken
//! inside. `scripts/plugins` builds it.
//!
//! Feature `user`: a plugin for the user-mode emulator `qemu-x86_64`, which
//! runs one program. It ships every taken branch to `sampler`'s source `qemu`
//! through shared memory.

#[cfg(feature = "user")]
mod user;

#[cfg(not(feature = "user"))]
compile_error!("choose the plugin to build: --features user");
