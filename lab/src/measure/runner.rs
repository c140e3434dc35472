//! A bracket in its own child process, with a cache of its decoded code.

use std::collections::HashMap;
use std::time::Duration;

use lbr_msr::insn::features;
use lbr_msr::record::HwBranchType;
use nix::libc;

use super::bracket::{Bracket, FrameRun, SwitchWrites};
use super::child::Child;
use super::forked::Setting;
use super::options::{Fault, FaultKind, MeasureError};
use sampler::source::ptrace::code::{LONGEST, branch_at, bytes_at};

/// A child with its bracket.
pub(super) struct Runner {
    pub(super) child: Child,
    pub(super) code: Sites,
}

impl Runner {
    pub(super) fn new(bracket: &Bracket, setting: &Setting) -> Result<Runner, MeasureError> {
        let child = Child::new(bracket, setting)?;
        Ok(Runner { child, code: Sites::default() })
    }

    pub(super) fn run(
        &mut self,
        switch: SwitchWrites,
        limit: Duration,
    ) -> Result<FrameRun, MeasureError> {
        self.child.run(switch, limit).map_err(|error| self.failed(error, false))
    }

    /// Adds to a fault whether it happened in a stepped run, and what an invalid instruction needs.
    pub(super) fn failed(&self, error: MeasureError, stepped: bool) -> MeasureError {
        let MeasureError::Fault { fault, layout, again, .. } = error else { return error };
        let needs = match fault {
            Fault { kind: FaultKind::Signal { signal: libc::SIGILL, .. }, at: Some(at) } => {
                features(&bytes_at(self.child.pid.as_raw(), at, LONGEST), at)
            }
            _ => Vec::new(),
        };
        MeasureError::Fault { fault, layout, stepped, needs, again }
    }
}

/// Cache of decoded addresses of a child's code.
#[derive(Debug, Default)]
pub(super) struct Sites {
    classes: HashMap<u64, Option<HwBranchType>>,
    calls: HashMap<u64, bool>,
}

impl Sites {
    pub(super) fn class(&mut self, child: &Child, at: u64) -> Option<HwBranchType> {
        let pid = child.pid.as_raw();
        *self.classes.entry(at).or_insert_with(|| branch_at(pid, at).map(|branch| branch.class))
    }

    /// Returns whether SYSCALL or INT 80H precedes an address.
    pub(super) fn is_behind_call(&mut self, child: &Child, at: u64) -> bool {
        *self.calls.entry(at).or_insert_with(|| {
            let before = bytes_at(child.pid.as_raw(), at.wrapping_sub(2), 2);
            matches!(*before, [0x0F, 0x05] | [0xCD, 0x80])
        })
    }
}
