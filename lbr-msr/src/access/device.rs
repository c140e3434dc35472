//! The `msr` driver's character device.
//!
//! A reader opens it read-only. Who arms opens it for writing: on the real
//! root single writes then go through [`msru`], whose handle is aimed at each
//! register in turn and whose errors are told apart here (it calls any missing
//! path a missing module); reads and batches stay with `pread` and `pwrite`,
//! because `msru` seeks before it reads. Both are one system call for a write.

use crate::text::AsText;
use alloc::{
    format,
    string::{String, ToString},
};
use std::{
    fs::{File, TryLockError},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::PermissionsExt,
    },
    path::{Path, PathBuf},
};

use msru::Accessor as _;
use nix::{
    errno::Errno,
    sys::uio::{pread, pwrite},
};

use super::{Access, MsrError, MsrRead, MsrWrite, Op};
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

    /// What keeps the driver from writing registers, as far as it can be read,
    /// with the remedy. Both refuse with the same errno. Linux msr.c.
    #[must_use]
    pub fn write_filter(&self) -> String {
        let read = |path| std::fs::read_to_string(self.join(path)).unwrap_or_default();
        // The active level stands in brackets: `none [integrity] confidentiality`.
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

    /// The CPUs that are online, as the kernel lists them (`0-7`); `unknown`
    /// where it does not say.
    #[must_use]
    pub fn online(&self) -> String {
        std::fs::read_to_string(self.join("sys/devices/system/cpu/online"))
            .map_or_else(|_| "unknown".into(), |list| list.trim().into())
    }
}

/// `/dev/cpu/N/msr`.
///
/// Each [`read`](MsrRead::read) is one `pread` of 8 bytes at the offset that
/// is the register's address, each [`write`](MsrWrite::write) one `pwrite`.
/// Unless the caller runs on that CPU the kernel interrupts it for every
/// register. Linux msr.c.
///
/// The first write taints the kernel (CPU_OUT_OF_SPEC) until it reboots, even
/// one that faults.
pub struct Device {
    cpu: u32,
    file: File,
    /// Writes through `msru`: on the real root, opened for writing.
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
    /// Opens the node of a CPU read-only: nothing can be written through it,
    /// [`write`](MsrWrite::write) fails with EBADF.
    ///
    /// # Errors
    /// What stands in the way, told apart as far as sysfs allows: no such CPU,
    /// CPU offline, driver not loaded, file mode, capability.
    pub fn open(cpu: u32, root: &Root) -> Result<Device, MsrError> {
        Device::open_with(cpu, root, false)
    }

    /// Opens the node of a CPU for reading and writing. Nothing is written
    /// yet.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`MsrError::InUse`] where another process
    /// has opened it for writing by this function. Whether the kernel lets registers be written
    /// shows at the first write: [`MsrError::WriteFiltered`].
    pub fn open_for_writing(cpu: u32, root: &Root) -> Result<Device, MsrError> {
        let mut device = Device::open_with(cpu, root, true)?;
        if root.is_real() {
            let node = root.msr_node(cpu);
            let number = u16::try_from(cpu).map_err(|_| absent(cpu, root))?;
            // Any register: the handle is aimed anew for each access.
            let opened = msru::Msr::new(0, number).map_err(|error| match error {
                msru::MsrError::IoError(error) => open_error(cpu, root, &node, &error),
                // The node has gone since it was opened above: what sysfs says
                // tells why.
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
        match File::options().read(true).write(write).open(&node) {
            Ok(file) => {
                if write {
                    hold(cpu, &file)?;
                }
                Ok(Device { cpu, file, control: None, root: root.clone() })
            }
            Err(error) => Err(open_error(cpu, root, &node, &error)),
        }
    }

    fn pwrite(&self, msr: Msr, value: u64) -> Result<(), MsrError> {
        loop {
            return match pwrite(&self.file, &value.to_le_bytes(), i64::from(msr.0)) {
                Ok(8) => Ok(()),
                Ok(count) => Err(MsrError::Os {
                    cpu: self.cpu,
                    msr,
                    access: Access::Write,
                    cause: format!("{count} bytes were written instead of 8"),
                }),
                Err(Errno::EINTR) => continue,
                Err(errno) => Err(self.write_error(msr, errno)),
            };
        }
    }

    fn write_error(&self, msr: Msr, errno: Errno) -> MsrError {
        let (cpu, access) = (self.cpu, Access::Write);
        match errno {
            Errno::EIO => MsrError::Fault { cpu, msr, access },
            Errno::ENXIO => absent(cpu, &self.root),
            Errno::EPERM => MsrError::WriteFiltered { msr, why: self.root.write_filter() },
            Errno::EBADF => {
                let cause = "the device was opened for reading only".into();
                MsrError::Os { cpu, msr, access, cause }
            }
            errno => MsrError::Os { cpu, msr, access, cause: errno.to_string() },
        }
    }
}

/// The descriptor that reads and, where opened for writing, writes.
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

impl MsrWrite for Device {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        let Some(control) = &mut self.control else {
            return self.pwrite(msr, value);
        };
        control.reg = msr.0;
        control.set_value(value);
        match control.write() {
            Ok(()) => Ok(()),
            Err(msru::MsrError::IoError(error)) => {
                let errno = error.raw_os_error().map(Errno::from_raw);
                Err(errno.map_or_else(
                    // A short write, which the driver does not do for 8 bytes.
                    || MsrError::Os {
                        cpu: self.cpu,
                        msr,
                        access: Access::Write,
                        cause: error.to_string(),
                    },
                    |errno| self.write_error(msr, errno),
                ))
            }
            Err(error) => Err(MsrError::Os {
                cpu: self.cpu,
                msr,
                access: Access::Write,
                cause: error.to_string(),
            }),
        }
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

/// Takes a node that is open for writing, for as long as it is open here or in
/// a fork of this process: the enable bit, by which others are seen, is off
/// each time their ring is read.
pub(super) fn hold(cpu: u32, node: &File) -> Result<(), MsrError> {
    match node.try_lock() {
        Err(TryLockError::WouldBlock) => Err(MsrError::InUse { cpu }),
        // Where nothing can be locked, nobody holds anything.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

pub(super) fn open_error(cpu: u32, root: &Root, node: &Path, error: &std::io::Error) -> MsrError {
    let path = node.as_text().into_owned();
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
    // CPU 0 often has no such file: it cannot be taken offline.
    std::fs::read_to_string(root.join(&format!("sys/devices/system/cpu/cpu{cpu}/online")))
        .is_ok_and(|text| text.trim() == "0")
}
