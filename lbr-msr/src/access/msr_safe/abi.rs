//! The C layout of msr-safe's batch ioctl.
#![allow(unsafe_code, reason = "an ioctl takes a pointer to what it reads and writes")]

use std::{fs::File, os::fd::AsRawFd};

use nix::errno::Errno;

use crate::{access::Op, address::Msr};

/// `struct msr_batch_op`, 32 bytes. msr-safe msr_safe.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BatchOp {
    /// Logical CPU.
    pub(super) cpu: u16,
    /// Non-zero: read.
    pub(super) is_read: u16,
    /// Out: 0, or a negative errno.
    pub(super) err: i32,
    /// Register.
    pub(super) msr: u32,
    padding: u32,
    /// In for a write, out for a read.
    pub(super) data: u64,
    /// Out: the allowlist's write mask.
    pub(super) write_mask: u64,
}

/// `struct msr_batch_array`, 16 bytes.
#[repr(C)]
#[derive(Debug)]
pub(super) struct BatchArray {
    count: u32,
    version: u32,
    ops: *mut BatchOp,
}

const _: () = assert!(size_of::<BatchOp>() == 32 && size_of::<BatchArray>() == 16);
const _: () = assert!(
    core::mem::offset_of!(BatchOp, err) == 4
        && core::mem::offset_of!(BatchOp, msr) == 8
        && core::mem::offset_of!(BatchOp, data) == 16
        && core::mem::offset_of!(BatchOp, write_mask) == 24
);
// X86_IOC_MSR_BATCH.
const _: () =
    assert!(nix::request_code_readwrite!(b'c', 0xA2, size_of::<BatchArray>()) == 0xC010_63A2);

mod call {
    use super::BatchArray;
    nix::ioctl_readwrite!(msr_batch, b'c', 0xA2, BatchArray);
}

impl BatchOp {
    /// Converts a step to its C layout.
    pub(super) fn new(cpu: u16, op: &Op) -> BatchOp {
        let (is_read, Msr(msr), data) = match *op {
            Op::Read { msr, .. } => (1, msr, 0),
            Op::Write { msr, value } => (0, msr, value),
        };
        BatchOp { cpu, is_read, msr, data, ..BatchOp::default() }
    }
}

/// Copies the values read into the steps. A failed step keeps its value.
pub(super) fn decode(done: &[BatchOp], batch: &mut [Op]) {
    for (done, op) in done.iter().zip(batch) {
        if let (Op::Read { value, .. }, 0) = (op, done.err) {
            *value = done.data;
        }
    }
}

/// Runs a batch: the module's device, or a replacement in tests.
pub(super) trait Batch: core::fmt::Debug + Send {
    /// Runs the steps and fills in `err`, `data` and `write_mask` of each.
    fn run(&mut self, version: u32, ops: &mut [BatchOp]) -> Result<(), Errno>;
}

impl Batch for File {
    fn run(&mut self, version: u32, ops: &mut [BatchOp]) -> Result<(), Errno> {
        let count = u32::try_from(ops.len()).map_err(|_| Errno::E2BIG)?;
        let mut array = BatchArray { count, version, ops: ops.as_mut_ptr() };
        // SAFETY: `array` has the layout that X86_IOC_MSR_BATCH encodes (asserted above). It points
        // to `count` ops, which the module reads and writes and which stay exclusively borrowed
        // until it returns.
        unsafe { call::msr_batch(self.as_raw_fd(), &raw mut array) }.map(drop)
    }
}
