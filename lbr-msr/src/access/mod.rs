//! Access to registers through two traits, so that code with only [`MsrRead`] cannot write.
//!
//! One value represents one logical CPU. Code that only reads takes [`MsrRead`]; code that arms
//! takes [`MsrWrite`].

#[cfg(all(feature = "std", target_os = "linux"))]
pub mod device;
pub mod fake;
#[cfg(all(feature = "std", target_os = "linux"))]
pub mod msr_safe;

#[cfg(all(feature = "std", target_os = "linux"))]
pub use device::{Device, Root};
pub use fake::FakeMsrs;
#[cfg(all(feature = "std", target_os = "linux"))]
pub use msr_safe::MsrSafe;

use alloc::{boxed::Box, string::String};

use crate::address::Msr;

/// The kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// RDMSR.
    Read,
    /// WRMSR.
    Write,
}

impl core::fmt::Display for Access {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Access::Read => "read",
            Access::Write => "write",
        })
    }
}

/// Why a register could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MsrError {
    /// The access raised #GP: the register does not exist on this CPU (or a
    /// hypervisor hides it), or a reserved bit was set.
    #[error(
        "#GP on {access} of {msr} on CPU {cpu}: register absent here, hidden by the hypervisor, or a reserved bit set"
    )]
    Fault {
        /// Logical CPU.
        cpu: u32,
        /// Register.
        msr: Msr,
        /// Read or write.
        access: Access,
    },
    /// The CPU does not exist.
    #[error("CPU {cpu} does not exist; online: {online}")]
    NoSuchCpu {
        /// Logical CPU.
        cpu: u32,
        /// The online CPUs, as the kernel lists them.
        online: String,
    },
    /// The CPU is offline.
    #[error(
        "CPU {cpu} is offline; bring it online: echo 1 > /sys/devices/system/cpu/cpu{cpu}/online"
    )]
    Offline {
        /// Logical CPU.
        cpu: u32,
    },
    /// Another process that uses this crate has the registers open for writing.
    #[error(
        "CPU {cpu} is already recording branches: another lbr has its registers open; wait until it ends"
    )]
    InUse {
        /// Logical CPU.
        cpu: u32,
    },
    /// The `msr` driver is not loaded.
    #[error("{path} does not exist: the msr driver is not loaded; run: modprobe msr")]
    DriverMissing {
        /// The missing node.
        path: String,
    },
    /// The file mode forbids it.
    #[error("no permission to open {path} (mode {mode:04o}); run as root")]
    Permission {
        /// The node.
        path: String,
        /// Its mode bits.
        mode: u32,
    },
    /// The process lacks CAP_SYS_RAWIO.
    #[error(
        "the kernel refused to open {path}: needs CAP_SYS_RAWIO (root, or setcap cap_sys_rawio+ep on the program)"
    )]
    Capability {
        /// The node.
        path: String,
    },
    /// The kernel refuses writes.
    #[error("the kernel refused to write {msr}: {why}")]
    WriteFiltered {
        /// Register.
        msr: Msr,
        /// Lockdown, or the driver's parameter `allow_writes`, and the remedy.
        why: String,
    },
    /// The msr-safe allowlist lacks the register or the bits.
    #[error(
        "msr-safe does not allow {access} of {msr}; add to the list in /dev/cpu/msr_allowlist (writing to that file replaces the list): {line}"
    )]
    NotListed {
        /// Register.
        msr: Msr,
        /// Read or write.
        access: Access,
        /// The missing line; if several are missing, one per line.
        line: String,
    },
    /// Not in this crate's own allowlist: this facility never writes that register.
    #[error("refused: {msr} is not one of the registers that lbr may write on this CPU")]
    NotAllowed {
        /// Register.
        msr: Msr,
    },
    /// A fake was asked for a register that it does not hold.
    #[error("{access} of {msr}: nothing is recorded for this register")]
    Unpopulated {
        /// Register.
        msr: Msr,
        /// Read or write.
        access: Access,
    },
    /// The node could not be opened for another reason.
    #[error("opening {path}: {cause}")]
    Open {
        /// The node.
        path: String,
        /// The system's error message.
        cause: String,
    },
    /// Any other error of the operating system.
    #[error("{access} of {msr} on CPU {cpu}: {cause}")]
    Os {
        /// Logical CPU.
        cpu: u32,
        /// Register.
        msr: Msr,
        /// Read or write.
        access: Access,
        /// The system's error message.
        cause: String,
    },
}

/// The result of an access.
pub type MsrResult<T = ()> = Result<T, MsrError>;

/// Reads registers of one logical CPU.
pub trait MsrRead {
    /// The logical CPU.
    fn cpu(&self) -> u32;

    /// Reads one register.
    ///
    /// # Errors
    /// [`MsrError`]; a register that this CPU lacks is [`MsrError::Fault`].
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError>;

    /// Whether [`MsrWrite::run`] reaches the CPU in one uninterruptible call (msr-safe's batch).
    fn one_call(&self) -> bool {
        false
    }
}

/// One step of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads a register.
    Read {
        /// Register.
        msr: Msr,
        /// The value read; unspecified before.
        value: u64,
    },
    /// Writes a register.
    Write {
        /// Register.
        msr: Msr,
        /// The value.
        value: u64,
    },
}

/// Writes registers of one logical CPU.
pub trait MsrWrite: MsrRead {
    /// Writes one register.
    ///
    /// # Errors
    /// [`MsrError`]; a reserved bit or an absent register is [`MsrError::Fault`].
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError>;

    /// Runs the steps in order; in one uninterruptible call if [`one_call`](MsrRead::one_call).
    ///
    /// # Errors
    /// The first failure. Later steps may have run (msr-safe) or not.
    fn run(&mut self, batch: &mut [Op]) -> Result<(), MsrError> {
        for op in batch {
            match op {
                Op::Read { msr, value } => *value = self.read(*msr)?,
                Op::Write { msr, value } => self.write(*msr, *value)?,
            }
        }
        Ok(())
    }
}

/// Access through a pointer to the registers.
macro_rules! through {
    ($($pointer:ty),*) => {$(
        impl<T: MsrRead + ?Sized> MsrRead for $pointer {
            fn cpu(&self) -> u32 {
                (**self).cpu()
            }
            fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
                (**self).read(msr)
            }
            fn one_call(&self) -> bool {
                (**self).one_call()
            }
        }

        impl<T: MsrWrite + ?Sized> MsrWrite for $pointer {
            fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
                (**self).write(msr, value)
            }
            fn run(&mut self, batch: &mut [Op]) -> Result<(), MsrError> {
                (**self).run(batch)
            }
        }
    )*};
}
through!(&mut T, Box<T>);
