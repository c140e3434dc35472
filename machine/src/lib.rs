//! Plugins for QEMU's emulators, one per feature.
//!
//! Feature `user`: a plugin for the user-mode emulator `qemu-x86_64`, which runs one program. It
//! sends every taken branch to `sampler`'s source `qemu` through shared memory. `sampler`'s
//! build script builds it.
//!
//! Feature `guest`: a plugin for the system emulator `qemu-system-x86_64`,
//! which gives a virtual machine's CPU an LBR. `scripts/test-machine` builds it.

#[cfg(feature = "guest")]
mod guest;
#[cfg(feature = "user")]
mod user;

#[cfg(not(any(feature = "user", feature = "guest")))]
compile_error!("choose the plugin to build: --features user or --features guest");
#[cfg(all(feature = "user", feature = "guest"))]
compile_error!("each plugin is a separate library: choose one feature");
