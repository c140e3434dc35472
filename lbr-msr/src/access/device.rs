//! The `msr` driver's character device, opened for reading.

use alloc::{
    format,
    string::{String, ToString},
};
use std::{
    fs::File,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use nix::{errno::Errno, sys::uio::pread};

use super::{Access, MsrError, MsrRead};
use crate::address::Msr;

/// Where `/dev`, `/sys` and `/proc` are looked for: `/`, unless a test or a
/// user-space stand-in provides another tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Root {
        Root(PathBuf::from("/"))
    }
}

impl Root {
    /// A tree that stands in for `/`.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Root {
        Root(path.into())
    }

    /// Whether this is the system's own tree.
    #[must_use]
    pub fn is_real(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// A path inside the tree, given without its leading slash.
    #[must_use]
    pub fn join(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// The `msr` node of a CPU.
    #[must_use]
    pub fn msr_node(&self, cpu: u32) -> PathBuf {
        self.join(&format!("dev/cpu/{cpu}/msr"))
    }

    /// The CPUs that are online, as the kernel lists them (`0-7`); `unknown`
    /// where it does not say.
    #[must_use]
    pub fn online(&self) -> String {
        std::fs::read_to_string(self.join("sys/devices/system/cpu/online"))
            .map_or_else(|_| "unknown".into(), |list| list.trim().into())
    }
}

/// `/dev/cpu/N/msr`, opened read-only: nothing can be written through it.
///
/// Each [`read`](MsrRead::read) is one `pread` of 8 bytes at the offset that
/// is the register's address. Unless the caller runs on that CPU the kernel
/// interrupts it for every register. Linux msr.c.
#[derive(Debug)]
pub struct Device {
    cpu: u32,
    file: File,
    root: Root,
}

impl Device {
    /// Opens the node of a CPU.
    ///
    /// # Errors
    /// What stands in the way, told apart as far as sysfs allows: no such CPU,
    /// CPU offline, driver not loaded, file mode, capability.
    pub fn open(cpu: u32, root: &Root) -> Result<Device, MsrError> {
        let node = root.msr_node(cpu);
        match File::open(&node) {
            Ok(file) => Ok(Device { cpu, file, root: root.clone() }),
            Err(error) => Err(open_error(cpu, root, &node, &error)),
        }
    }
}

impl MsrRead for Device {
    fn cpu(&self) -> u32 {
        self.cpu
    }

    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        let mut bytes = [0; 8];
        let os = |cause: String| MsrError::Os { cpu: self.cpu, msr, access: Access::Read, cause };
        loop {
            return match pread(&self.file, &mut bytes, i64::from(msr.0)) {
                Ok(8) => Ok(u64::from_le_bytes(bytes)),
                Ok(count) => Err(os(format!("{count} bytes came back instead of 8"))),
                Err(Errno::EINTR) => continue,
                Err(Errno::EIO) => {
                    Err(MsrError::Fault { cpu: self.cpu, msr, access: Access::Read })
                }
                Err(Errno::ENXIO) => Err(absent(self.cpu, &self.root)),
                Err(errno) => Err(os(errno.to_string())),
            };
        }
    }
}

fn open_error(cpu: u32, root: &Root, node: &Path, error: &std::io::Error) -> MsrError {
    let path = node.display().to_string();
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ENOTDIR) => match absent(cpu, root) {
            // sysfs has nothing against the CPU: the driver made no node.
            MsrError::Offline { .. } if !is_offline(cpu, root) => MsrError::DriverMissing { path },
            error => error,
        },
        Some(Errno::ENXIO) => absent(cpu, root),
        Some(Errno::EACCES) => {
            let mode = std::fs::metadata(node).map_or(0, |meta| meta.permissions().mode() & 0o7777);
            MsrError::Permission { path, mode }
        }
        Some(Errno::EPERM) => MsrError::Capability { path },
        Some(Errno::EIO) => {
            MsrError::Open { path, cause: "this CPU has no model-specific registers".into() }
        }
        _ => MsrError::Open { path, cause: error.to_string() },
    }
}

/// A CPU whose registers nobody answers for: it does not exist, or it is
/// offline.
fn absent(cpu: u32, root: &Root) -> MsrError {
    let cpus = root.join("sys/devices/system/cpu");
    let known = cpus.join(format!("cpu{cpu}")).is_dir();
    // Without sysfs (a re-rooted tree) the device directory decides.
    let known = known || !cpus.is_dir() && root.join(&format!("dev/cpu/{cpu}")).is_dir();
    if known {
        MsrError::Offline { cpu }
    } else {
        MsrError::NoSuchCpu { cpu, online: root.online() }
    }
}

fn is_offline(cpu: u32, root: &Root) -> bool {
    // CPU 0 often has no such file: it cannot be taken offline.
    std::fs::read_to_string(root.join(&format!("sys/devices/system/cpu/cpu{cpu}/online")))
        .is_ok_and(|text| text.trim() == "0")
}
