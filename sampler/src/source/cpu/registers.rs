//! The drivers that give access to CPU registers.

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use lbr_msr::access::Root;
use lbr_msr::arm::Need;
use lbr_msr::{MsrError, MsrWrite};

use super::{msr, msr_safe};

/// Every driver, preferred ones first: a file here that implements [`Registers`], and a line.
pub const DRIVERS: [Driver; 2] = [msr_safe::DRIVER, msr::DRIVER];

/// A kernel driver for register access.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// Its name for `--backend`.
    pub name: &'static str,
    /// Its usual name.
    pub through: &'static str,
    /// The path of a CPU's node.
    pub(super) node: fn(u32, &Root) -> PathBuf,
    /// Opens a CPU's registers, read-write or read-only; fails if a need is not permitted.
    pub(super) open: Open,
}

type Open = fn(u32, &Root, &[Need], bool) -> Result<Box<dyn Registers>, MsrError>;

/// The registers of a CPU of this machine.
pub trait Registers: MsrWrite + Debug + Send {
    /// The driver in use.
    fn driver(&self) -> &'static Driver;

    /// Whether writing taints the kernel.
    fn taints(&self) -> bool;

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
        None => (driver.node)(cpu, root).exists() || driver.name == msr::DRIVER.name,
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
