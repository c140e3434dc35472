//! The ways to the registers of a CPU.

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use lbr_msr::access::Root;
use lbr_msr::arm::Need;
use lbr_msr::{MsrError, MsrWrite};

use super::{msr, msr_safe};

/// Every way to the registers, the preferred one first: a file here that
/// implements [`Registers`], and a line.
pub const DRIVERS: [Driver; 2] = [msr_safe::DRIVER, msr::DRIVER];

/// A driver of the kernel through which registers are reached.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// As `--backend` spells it.
    pub name: &'static str,
    /// What people know it by.
    pub through: &'static str,
    /// The node of a CPU.
    pub(super) node: fn(u32, &Root) -> PathBuf,
    /// Opens the registers of a CPU, for writing too or for reading alone; what
    /// is needed and not allowed is an error.
    pub(super) open: Open,
}

type Open = fn(u32, &Root, &[Need], bool) -> Result<Box<dyn Registers>, MsrError>;

/// The registers of a CPU of this machine.
pub trait Registers: MsrWrite + Debug + Send {
    /// The driver they are reached through.
    fn driver(&self) -> &'static Driver;

    /// Writing them taints the kernel.
    fn taints(&self) -> bool;

    /// A descriptor of the node, open as the registers are, for a sampler [on
    /// the CPU itself](super::same_cpu); `None` where one call does it all.
    ///
    /// # Errors
    /// The system's.
    fn same_cpu(&self) -> io::Result<Option<OwnedFd>>;

    /// The node: eight bytes at an offset are the register of that address.
    fn node(&self, root: &Root) -> PathBuf {
        (self.driver().node)(self.cpu(), root)
    }
}

/// Opens the registers of a CPU through the driver of that name, or without one
/// through the first that is there and allows what is needed.
///
/// # Errors
/// The access that failed; without a name, of the last driver.
pub fn open(
    name: Option<&str>,
    cpu: u32,
    root: &Root,
    needs: &[Need],
    write: bool,
) -> Result<Box<dyn Registers>, MsrError> {
    let is_wanted = |driver: &&Driver| match name {
        Some(name) => driver.name == name,
        // Where no driver is there, the error of this one says what to do.
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
