//! The interface of a driver for CPU registers.

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use lbr_msr::access::Root;
use lbr_msr::arm::Need;
use lbr_msr::{MsrError, MsrWrite};

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
