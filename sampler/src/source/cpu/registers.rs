//! The drivers that give access to CPU registers.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use lbr_msr::access::{Device, MsrSafe, Root};
use lbr_msr::arm::Need;
use lbr_msr::{MsrError, MsrWrite};

/// A kernel driver for register access.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// Its name for `--backend`.
    pub name: &'static str,
    /// Its usual name.
    pub through: &'static str,
    /// Whether writing taints the kernel.
    pub taints: bool,
    /// The path of a CPU's node.
    node: fn(u32, &Root) -> PathBuf,
    /// Opens a CPU's registers, read-write or read-only; fails if a need is not permitted.
    open: Open,
}

type Open = fn(u32, &Root, &[Need], bool) -> Result<Box<dyn Registers>, MsrError>;

/// The registers of a CPU of this machine.
pub trait Registers: MsrWrite + Debug + Send {
    /// The driver in use.
    fn driver(&self) -> &'static Driver;

    /// A descriptor of the node with the same access, for a sampler [on the same
    /// CPU](super::same_cpu); `None` if one call reaches all registers.
    ///
    /// # Errors
    /// The system's error.
    fn same_cpu(&self) -> io::Result<Option<OwnedFd>>;

    /// The node's path: eight bytes at an offset are the register with that address.
    fn node(&self, root: &Root) -> PathBuf {
        (self.driver().node)(self.cpu(), root)
    }
}

/// Every driver, preferred ones first: each has an implementation of [`Registers`].
pub const DRIVERS: [Driver; 2] = [MSR_SAFE, MSR];

/// Opens a CPU's registers through the named driver, or else through the first one that is present
/// and permits the needed access.
///
/// # Errors
/// The failed access; without a name, of the last driver.
pub fn open(
    name: Option<&str>,
    cpu: u32,
    root: &Root,
    needs: &[Need],
    write: bool,
) -> Result<Box<dyn Registers>, MsrError> {
    let is_wanted = |driver: &&Driver| match name {
        Some(name) => driver.name == name,
        // Without any driver, the msr driver's error says what to do.
        None => (driver.node)(cpu, root).exists() || driver.name == MSR.name,
    };
    let mut failed = MsrError::DriverMissing { path: name.unwrap_or_default().to_owned() };
    for driver in DRIVERS.iter().filter(is_wanted) {
        match (driver.open)(cpu, root, needs, write) {
            Ok(registers) => return Ok(registers),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// The kernel's `msr` driver: one system call per access.
const MSR: Driver = Driver {
    name: "msr",
    through: "/dev/cpu/N/msr",
    taints: true,
    node: |cpu, root| root.msr_node(cpu),
    open: |cpu, root, _, write| {
        let open = if write { Device::open_for_writing } else { Device::open };
        Ok(Box::new(open(cpu, root)?))
    },
};

impl Registers for Device {
    fn driver(&self) -> &'static Driver {
        &MSR
    }

    fn same_cpu(&self) -> io::Result<Option<OwnedFd>> {
        self.as_fd().try_clone_to_owned().map(Some)
    }
}

/// msr-safe: only the registers in its list, many in one call.
const MSR_SAFE: Driver = Driver {
    name: "msr-safe",
    through: "msr-safe",
    taints: false,
    node: |cpu, root| root.join(&format!("dev/cpu/{cpu}/msr_safe")),
    open: |cpu, root, needs, write| {
        let registers = MsrSafe::open(cpu, root, write)?;
        registers.check(needs)?;
        Ok(Box::new(registers))
    },
};

impl Registers for MsrSafe {
    fn driver(&self) -> &'static Driver {
        &MSR_SAFE
    }

    fn same_cpu(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/cpu/registers.rs"]
mod tests;
