//! The kernel's msr device.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

pub(crate) fn open(cpu: u32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(format!("/dev/cpu/{cpu}/msr"))
}

pub(crate) fn read(file: &File, msr: u32) -> io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, msr.into())?;
    Ok(u64::from_le_bytes(bytes))
}

pub(crate) fn write(file: &File, msr: u32, value: u64) -> io::Result<()> {
    file.write_all_at(&value.to_le_bytes(), msr.into())
}

/// The driver reports #GP as EIO.
pub(crate) fn faulted<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(error) if error.raw_os_error() == Some(libc::EIO))
}
