//! Registers through msr-safe: only those in its list, many in one call.

use std::io;
use std::os::fd::OwnedFd;

use lbr_msr::access::MsrSafe;

use super::driver::{Driver, Registers};

pub(super) const DRIVER: Driver = Driver {
    name: "msr-safe",
    through: "msr-safe",
    node: |cpu, root| root.join(&format!("dev/cpu/{cpu}/msr_safe")),
    open: |cpu, root, needs, write| {
        let registers = MsrSafe::open(cpu, root, write)?;
        registers.check(needs)?;
        Ok(Box::new(registers))
    },
};

impl Registers for MsrSafe {
    fn driver(&self) -> &'static Driver {
        &DRIVER
    }

    fn taints(&self) -> bool {
        false
    }

    fn same_cpu(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }
}
