//! The protocol between host (`boot`) and guest (`init`) of the test machine: frames in which the
//! guest sends back its command's output and files, and the initramfs archive.

pub mod archive;
pub mod frame;

/// The port on which the guest writes its frames, one byte at a time: QEMU's
/// `isa-debugcon`. No driver is needed, so that nothing but the command itself
/// depends on what the guest's kernel can do.
pub const FRAME_PORT: u16 = 0xE9;

/// Where the guest finds the words of its command, each ended by a zero byte.
pub const COMMAND_FILE: &str = "etc/command";

/// Where the guest finds its environment, `NAME=VALUE`, each ended by a zero byte.
pub const ENVIRONMENT_FILE: &str = "etc/environment";

/// Kernel modules in this folder are loaded, in the order of their names.
pub const MODULE_FOLDER: &str = "modules";

/// The command runs here; files without a directory are put here.
pub const WORK_FOLDER: &str = "work";

/// Whatever the command leaves here is brought back to the host.
pub const OUT_FOLDER: &str = "out";
