//! Registers through the kernel's `msr` driver, one system call per access.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use lbr_msr::access::Device;

use super::driver::{Driver, Registers};

pub(super) const DRIVER: Driver = Driver {
    name: "msr",
    through: "/dev/cpu/N/msr",
    node: |cpu, root| root.msr_node(cpu),
    open: |cpu, root, _, write| {
        let open = if write { Device::open_for_writing } else { Device::open };
        Ok(Box::new(open(cpu, root)?))
    },
};

impl Registers for Device {
    fn driver(&self) -> &'static Driver {
        &DRIVER
    }

    fn taints(&self) -> bool {
        true
    }

    fn same_cpu(&self) -> io::Result<Option<OwnedFd>> {
        self.as_fd().try_clone_to_owned().map(Some)
    }
}
