//! The drivers that give access to CPU registers.

use lbr_msr::MsrError;
use lbr_msr::access::Root;
use lbr_msr::arm::Need;

use super::{msr, msr_safe};

pub use super::driver::{Driver, Registers};

/// Every driver, preferred ones first: a file here that implements [`Registers`], and a line.
pub const DRIVERS: [Driver; 2] = [msr_safe::DRIVER, msr::DRIVER];

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
