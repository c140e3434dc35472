//! The `msr` driver's character device.
//!
//! For reading, the node is opened read-only. For writing, single writes on the real root go
//! through [`msru`], whose handle is aimed at each register in turn. This module interprets its
//! errors, because `msru` reports any missing path as a missing module. Reads and batches use
//! `pread` and `pwrite`, because `msru` seeks before it reads. A write is one system call either
//! way.

use crate::text::AsText;
use alloc::{
    format,
    string::{String, ToString},
};
use std::{
    fs::{File, Metadata, TryLockError},
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use msru::Accessor as _;
use nix::{
    errno::Errno,
    libc,
    sys::uio::{pread, pwrite},
};

use super::{
    Access::{self, Read, Write},
    MsrError, MsrRead, MsrWrite, Op,
};
use crate::address::Msr;

/// The directory that holds `/dev`, `/sys` and `/proc`: `/`, or another tree in tests and
/// user-space replacements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Root {
        Root(PathBuf::from("/"))
    }
}

impl Root {
    /// A tree that replaces `/`.
    pub fn at(path: impl Into<PathBuf>) -> Root {
        Root(path.into())
    }

    /// Whether this is the system's own tree.
    pub fn is_real(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// A path inside the tree, given without its leading slash.
    pub fn join(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// The `msr` node of a CPU.
    pub fn msr_node(&self, cpu: u32) -> PathBuf {
        self.join(&format!("dev/cpu/{cpu}/msr"))
    }

    /// Opens the device file of a driver without blocking. It must be a character device, or a
    /// regular file if the root is a test tree instead of `/`.
    ///
    /// # Errors
    /// The error of the system, or the kind of file that is at the path instead.
    pub fn open_node(&self, path: &Path, write: bool) -> io::Result<File> {
        let mut options = File::options();
        options.read(true).write(write).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let opened = options.open(path);
        let found = match &opened {
            Ok(file) => file.metadata(),
            Err(_) => std::fs::metadata(path),
        };
        if let Some(other) = found.ok().and_then(|found| self.not_a_node(&found)) {
            return Err(io::Error::other(format!("it is {other}, not a character device")));
        }
        opened
    }

    /// The kind of a file that cannot be the device file of a driver.
    pub fn not_a_node(&self, found: &Metadata) -> Option<&'static str> {
        let kind = found.file_type();
        if kind.is_char_device() || kind.is_file() && !self.is_real() {
            None
        } else if kind.is_file() {
            Some("a regular file")
        } else if kind.is_dir() {
            Some("a directory")
        } else if kind.is_fifo() {
            Some("a FIFO")
        } else if kind.is_socket() {
            Some("a socket")
        } else {
            Some("a block device")
        }
    }

    /// Why the driver refuses to write registers, as far as the system tells, and the fix. Lockdown
    /// and `allow_writes` cause the same errno. Linux msr.c.
    pub fn write_filter(&self) -> String {
        let read = |path| std::fs::read_to_string(self.join(path)).unwrap_or_default();
        // The active level is in brackets: `none [integrity] confidentiality`.
        let locked = read("sys/kernel/security/lockdown")
            .split_whitespace()
            .find_map(|word| word.strip_prefix('[')?.strip_suffix(']').map(String::from))
            .filter(|level| level != "none");
        let allow_writes = read("sys/module/msr/parameters/allow_writes");
        match locked {
            Some(level) => format!(
                "kernel lockdown is active ({level}); boot without Secure Boot's lockdown, or use \
                 msr-safe"
            ),
            None if allow_writes.trim() == "off" => "the driver's parameter allow_writes is off; \
                 run: echo on > /sys/module/msr/parameters/allow_writes"
                .into(),
            None => "kernel lockdown is active or msr.allow_writes=off".into(),
        }
    }

    /// The online CPUs, as the kernel lists them (`0-7`); `unknown` if it does not.
    pub fn online(&self) -> String {
        std::fs::read_to_string(self.join("sys/devices/system/cpu/online"))
            .map_or_else(|_| "unknown".into(), |list| list.trim().into())
    }
}

/// `/dev/cpu/N/msr`.
///
/// Each [`read`](MsrRead::read) is one `pread` of 8 bytes at the offset equal to the register's
/// address, each [`write`](MsrWrite::write) one `pwrite`. The kernel sends an interrupt to that CPU
/// for every access, unless the caller runs on it. Linux msr.c.
///
/// The first write taints the kernel (CPU_OUT_OF_SPEC) until reboot, even if it faults.
pub struct Device {
    cpu: u32,
    file: File,
    /// Set on the real root if opened for writing: writes go through `msru`.
    control: Option<msru::Msr>,
    root: Root,
}

impl core::fmt::Debug for Device {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Device")
            .field("cpu", &self.cpu)
            .field("file", &self.file)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Opens a CPU's node read-only; [`write`](MsrWrite::write) then fails with EBADF.
    ///
    /// # Errors
    /// No such CPU, CPU offline, driver not loaded, file mode, or capability, as far as sysfs shows
    /// which.
    pub fn open(cpu: u32, root: &Root) -> Result<Device, MsrError> {
        Device::open_with(cpu, root, false)
    }

    /// Opens a CPU's node for reading and writing. Writes nothing yet.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`MsrError::InUse`] if another process has opened it for
    /// writing through this function. Only the first write shows whether the kernel permits writes:
    /// [`MsrError::WriteFiltered`].
    pub fn open_for_writing(cpu: u32, root: &Root) -> Result<Device, MsrError> {
        let mut device = Device::open_with(cpu, root, true)?;
        if root.is_real() {
            let node = root.msr_node(cpu);
            let number = u16::try_from(cpu).map_err(|_| absent(cpu, root))?;
            // Any register: the handle is aimed anew for each access.
            let opened = msru::Msr::new(0, number).map_err(|error| match error {
                msru::MsrError::IoError(error) => open_error(cpu, root, &node, &error),
                // The node has disappeared since it was opened above: sysfs shows why.
                msru::MsrError::MissingKernelModule => {
                    open_error(cpu, root, &node, &Errno::ENOENT.into())
                }
                error @ msru::MsrError::UnknownError => {
                    MsrError::Open { path: node.as_text().into_owned(), cause: error.to_string() }
                }
            })?;
            device.control = Some(opened);
        }
        Ok(device)
    }

    fn open_with(cpu: u32, root: &Root, write: bool) -> Result<Device, MsrError> {
        let node = root.msr_node(cpu);
        let opened = root.open_node(&node, write);
        let file = opened.map_err(|error| open_error(cpu, root, &node, &error))?;
        if write {
            hold(cpu, &file)?;
        }
        Ok(Device { cpu, file, control: None, root: root.clone() })
    }

    fn pwrite(&self, msr: Msr, value: u64) -> Result<(), MsrError> {
        loop {
            return match pwrite(&self.file, &value.to_le_bytes(), i64::from(msr.0)) {
                Ok(8) => Ok(()),
                Ok(count) => {
                    Err(self.other(msr, Write, format!("{count} bytes were written instead of 8")))
                }
                Err(Errno::EINTR) => continue,
                Err(errno) => Err(self.error(msr, Write, errno)),
            };
        }
    }

    fn error(&self, msr: Msr, access: Access, errno: Errno) -> MsrError {
        match (errno, access) {
            (Errno::EIO, _) => MsrError::Fault { cpu: self.cpu, msr, access },
            (Errno::ENXIO, _) => absent(self.cpu, &self.root),
            (Errno::EPERM, Write) => MsrError::WriteFiltered { msr, why: self.root.write_filter() },
            (Errno::EBADF, Write) => {
                self.other(msr, access, "the device was opened for reading only")
            }
            (errno, _) => self.other(msr, access, errno.to_string()),
        }
    }

    fn other(&self, msr: Msr, access: Access, cause: impl Into<String>) -> MsrError {
        MsrError::Os { cpu: self.cpu, msr, access, cause: cause.into() }
    }
}

/// The descriptor for reads and, if opened for writing, writes.
impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl MsrRead for Device {
    fn cpu(&self) -> u32 {
        self.cpu
    }

    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        let mut bytes = [0; 8];
        // Not `read_exact_at`: after a short read it goes on at an offset that is another register.
        loop {
            return match pread(&self.file, &mut bytes, i64::from(msr.0)) {
                Ok(8) => Ok(u64::from_le_bytes(bytes)),
                Ok(count) => {
                    Err(self.other(msr, Read, format!("{count} bytes came back instead of 8")))
                }
                Err(Errno::EINTR) => continue,
                Err(errno) => Err(self.error(msr, Read, errno)),
            };
        }
    }
}

impl MsrWrite for Device {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        let Some(control) = &mut self.control else {
            return self.pwrite(msr, value);
        };
        control.reg = msr.0;
        control.set_value(value);
        control.write().map_err(|error| match error {
            msru::MsrError::IoError(error) => match error.raw_os_error() {
                Some(errno) => self.error(msr, Write, Errno::from_raw(errno)),
                // A short write; the driver makes none of 8 bytes.
                None => self.other(msr, Write, error.to_string()),
            },
            error => self.other(msr, Write, error.to_string()),
        })
    }

    fn run(&mut self, batch: &mut [Op]) -> Result<(), MsrError> {
        for op in batch {
            match op {
                Op::Read { msr, value } => *value = self.read(*msr)?,
                Op::Write { msr, value } => self.pwrite(*msr, *value)?,
            }
        }
        Ok(())
    }
}

/// Locks a node that is open for writing, until this process and its forks close it. The enable bit
/// cannot show another user: it is off while that user reads its LBR stack.
pub(super) fn hold(cpu: u32, node: &File) -> Result<(), MsrError> {
    match node.try_lock() {
        Err(TryLockError::WouldBlock) => Err(MsrError::InUse { cpu }),
        // Without file locks, access is not exclusive.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

pub(super) fn open_error(cpu: u32, root: &Root, node: &Path, error: &io::Error) -> MsrError {
    let path = node.as_text().into_owned();
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ENOTDIR) => match absent(cpu, root) {
            // sysfs lists the CPU as online: the driver made no node.
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

/// The error for a CPU that does not exist or is offline.
pub(super) fn absent(cpu: u32, root: &Root) -> MsrError {
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
    // CPU 0 often has no such file because it cannot be taken offline.
    std::fs::read_to_string(root.join(&format!("sys/devices/system/cpu/cpu{cpu}/online")))
        .is_ok_and(|text| text.trim() == "0")
}

#[cfg(test)]
#[path = "../../../tests/lbr_msr/unit/access/device.rs"]
mod tests;
