//! msr-safe: opens the registers that an administrator lists to users, and runs a batch of accesses
//! on a CPU in one call with interrupts off.
//!
//! msr-safe needs no capability, does not taint the kernel and works under lockdown: file modes and
//! its list decide. A write changes only the bits in the list's mask and silently keeps the others.
//! [`MsrSafe::check`] therefore compares a plan with the list before anything is written.

mod abi;
mod allowlist;
#[cfg(test)]
#[path = "../../../../tests/lbr_msr/unit/access/msr_safe.rs"]
mod stand_in;

use alloc::{
    boxed::Box,
    format,
    string::{String, ToString},
    vec::Vec,
};
use std::{fs::File, path::Path};

use nix::{
    errno::Errno,
    sys::uio::{pread, pwrite},
};

use super::{
    Access, MsrError, MsrRead, MsrWrite, Op, Root,
    device::{absent, hold, open_error},
};
use crate::{address::Msr, arm::Need, text::leading_number};
use abi::{Batch, BatchOp};
pub use allowlist::{Allowlist, line};

/// One CPU through msr-safe.
///
/// [`read`](MsrRead::read) and [`write`](MsrWrite::write) are one `pread` or
/// `pwrite` of `/dev/cpu/N/msr_safe`; [`run`](MsrWrite::run) is one ioctl of
/// `/dev/cpu/msr_batch`, which runs on the CPU uninterrupted.
/// In a batch, a write first reads the register, so a register must be readable to be writable.
/// msr-safe msr_batch.c.
#[derive(Debug)]
pub struct MsrSafe {
    cpu: u16,
    node: File,
    batch: Box<dyn Batch>,
    version: u32,
    allowlist: Option<Allowlist>,
    root: Root,
}

impl MsrSafe {
    /// Opens a CPU for reading, and for writing if `write` is set.
    ///
    /// # Errors
    /// No such CPU, CPU offline, module not loaded, or file mode.
    pub fn open(cpu: u32, root: &Root, write: bool) -> Result<MsrSafe, MsrError> {
        let path = root.join(&format!("dev/cpu/{cpu}/msr_safe"));
        let node =
            root.open_node(&path, write).map_err(|error| not_opened(cpu, root, &path, &error))?;
        if write {
            hold(cpu, &node)?;
        }
        let number = u16::try_from(cpu).map_err(|_| absent(cpu, root))?;
        let path = root.join("dev/cpu/msr_batch");
        let batch = root.open_node(&path, false);
        let batch = batch.map_err(|error| not_opened(cpu, root, &path, &error))?;
        let text = |name: &str| std::fs::read_to_string(root.join(&format!("dev/cpu/{name}"))).ok();
        Ok(MsrSafe {
            cpu: number,
            node,
            batch: Box::new(batch),
            version: text("msr_safe_version").as_deref().and_then(packed_version).unwrap_or(0),
            allowlist: text("msr_allowlist").as_deref().map(Allowlist::parse),
            root: root.clone(),
        })
    }

    /// Compares the list with the registers that will be needed, such as
    /// [`ArmPlan::needs`](crate::arm::ArmPlan::needs). Succeeds if the list is unreadable: the
    /// module then refuses single registers.
    ///
    /// # Errors
    /// [`MsrError::NotListed`] with every missing line.
    pub fn check(&self, needs: &[Need]) -> Result<(), MsrError> {
        let Some(allowlist) = &self.allowlist else { return Ok(()) };
        let missing = allowlist.missing(needs);
        let Some(first) = missing.first() else { return Ok(()) };
        let listed = allowlist.write_mask(first.msr).is_some();
        let access = if listed { Access::Write } else { Access::Read };
        let lines: String = missing.iter().map(|need| format!("\n{}", line(need))).collect();
        Err(MsrError::NotListed { msr: first.msr, access, line: lines })
    }

    fn error(&self, msr: Msr, access: Access, errno: Errno) -> MsrError {
        let cpu = self.cpu.into();
        match errno {
            Errno::EIO => MsrError::Fault { cpu, msr, access },
            Errno::ENXIO => absent(cpu, &self.root),
            Errno::EACCES | Errno::EROFS => {
                let write_mask = if access == Access::Write { u64::MAX } else { 0 };
                MsrError::NotListed { msr, access, line: line(&Need { msr, write_mask }) }
            }
            errno => MsrError::Os { cpu, msr, access, cause: errno.to_string() },
        }
    }

    fn short(&self, msr: Msr, access: Access, count: usize) -> MsrError {
        let cause = format!("{count} bytes were transferred instead of 8");
        MsrError::Os { cpu: self.cpu.into(), msr, access, cause }
    }

    fn call(&mut self, batch: &mut [Op]) -> Result<(), MsrError> {
        // The module rejects an empty batch.
        if batch.is_empty() {
            return Ok(());
        }
        let mut ops: Vec<_> = batch.iter().map(|op| BatchOp::new(self.cpu, op)).collect();
        let result = self.batch.run(self.version, &mut ops);
        let have_run = match result {
            Ok(()) => true,
            // The module checks its list before anything runs, so nothing was read.
            Err(Errno::EACCES | Errno::EROFS | Errno::ENXIO) => false,
            // One step faulted; the others have run.
            Err(_) => ops.iter().any(|op| op.err != 0),
        };
        if have_run {
            abi::decode(&ops, batch);
        }
        result.map_err(|errno| self.blame(&ops, errno))
    }

    /// The error of the first failed step; if none is marked, of the first step that the list
    /// forbids.
    fn blame(&self, ops: &[BatchOp], errno: Errno) -> MsrError {
        let access = |op: &BatchOp| if op.is_read != 0 { Access::Read } else { Access::Write };
        if let Some(op) = ops.iter().find(|op| op.err != 0) {
            let errno = Errno::from_raw(op.err.checked_neg().unwrap_or(0));
            return self.error(Msr(op.msr), access(op), errno);
        }
        let refused = |op: &&BatchOp| {
            let mask = self.allowlist.as_ref().and_then(|list| list.write_mask(Msr(op.msr)));
            matches!((access(op), mask), (_, None) | (Access::Write, Some(0)))
        };
        match ops.iter().find(refused).or(ops.first()) {
            Some(op) => self.error(Msr(op.msr), access(op), errno),
            None => MsrError::Open { path: "msr_batch".into(), cause: errno.to_string() },
        }
    }
}

impl MsrRead for MsrSafe {
    fn cpu(&self) -> u32 {
        self.cpu.into()
    }

    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        let mut bytes = [0; 8];
        loop {
            return match pread(&self.node, &mut bytes, i64::from(msr.0)) {
                Ok(8) => Ok(u64::from_le_bytes(bytes)),
                Ok(count) => Err(self.short(msr, Access::Read, count)),
                Err(Errno::EINTR) => continue,
                Err(errno) => Err(self.error(msr, Access::Read, errno)),
            };
        }
    }

    fn one_call(&self) -> bool {
        true
    }
}

impl MsrWrite for MsrSafe {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        loop {
            return match pwrite(&self.node, &value.to_le_bytes(), i64::from(msr.0)) {
                Ok(8) => Ok(()),
                Ok(count) => Err(self.short(msr, Access::Write, count)),
                Err(Errno::EINTR) => continue,
                Err(errno) => Err(self.error(msr, Access::Write, errno)),
            };
        }
    }

    fn run(&mut self, batch: &mut [Op]) -> Result<(), MsrError> {
        self.call(batch)
    }
}

/// Why an msr-safe node could not be opened. No capability is needed, so EPERM also means file
/// permissions.
fn not_opened(cpu: u32, root: &Root, path: &Path, error: &std::io::Error) -> MsrError {
    match open_error(cpu, root, path, error) {
        MsrError::DriverMissing { path } => MsrError::Open {
            path,
            cause: "no such file: the msr-safe module is not loaded; run: modprobe msr-safe".into(),
        },
        MsrError::Capability { path } => MsrError::Open { path, cause: error.to_string() },
        other => other,
    }
}

/// Packs a version such as `1.8.0` for the batch call: major, minor and patch, 8 bits each.
/// msr-safe 2.0.0 and later check it.
fn packed_version(text: &str) -> Option<u32> {
    let text = text.trim().trim_start_matches('v');
    let mut numbers = text.splitn(3, '.').map(leading_number::<u8>);
    let major = numbers.next()??;
    let mut next = || numbers.next().flatten().unwrap_or(0);
    let (minor, patch) = (next(), next());
    Some(u32::from_be_bytes([0, major, minor, patch]))
}
