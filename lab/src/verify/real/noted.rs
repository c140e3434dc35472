//! Generates code together with the list of branches that it takes.

use std::ops::{Deref, DerefMut};

use lbr_msr::record::HwBranchType;
use lbr_msr::soft::Retired;

use super::super::Known;
use crate::code::assembler::{Assembler, Label};

/// A branch that will be taken.
#[derive(Clone, Copy, Debug)]
struct NotedBranch {
    /// `None`: in ring 0, at an unknown address.
    from: Option<u64>,
    to: Option<Label>,
    /// All properties except source and target.
    like: Retired,
}

/// Code under construction, with its taken branches in execution order.
#[derive(Debug)]
pub(super) struct Noted {
    code: Assembler,
    taken: Vec<NotedBranch>,
}

impl Deref for Noted {
    type Target = Assembler;

    fn deref(&self) -> &Assembler {
        &self.code
    }
}

impl DerefMut for Noted {
    fn deref_mut(&mut self) -> &mut Assembler {
        &mut self.code
    }
}

impl Noted {
    pub(super) const fn at(start: u64) -> Noted {
        Noted { code: Assembler::at(start), taken: Vec::new() }
    }

    /// The taken branches, for a mapping at `base`.
    pub(super) fn taken(&self, base: u64) -> Vec<Known> {
        let known = |taken: &NotedBranch| Known {
            from: taken.from.map(|from| base + from),
            to: taken.to.map(|to| base + self.address_of(to)),
            like: taken.like,
        };
        self.taken.iter().map(known).collect()
    }

    /// The number of branches so far.
    pub(super) fn count(&self) -> usize {
        self.taken.len()
    }

    /// Notes a branch in user code.
    pub(super) fn took(&mut self, from: u64, to: Label, class: HwBranchType) {
        self.took_like(from, to, Retired::user(0, 0, class));
    }

    /// Notes a branch with other properties.
    pub(super) fn took_like(&mut self, from: u64, to: Label, like: Retired) {
        self.taken.push(NotedBranch { from: Some(from), to: Some(to), like });
    }

    /// Notes that ring 0 is entered at `from` and returns to `back`.
    pub(super) fn took_kernel(&mut self, from: u64, back: Label) {
        let other = Retired::user(0, 0, HwBranchType::Other);
        let entry = Retired { cpl_after: 0, ..other };
        let exit = Retired { cpl_before: 0, ..other };
        self.taken.push(NotedBranch { from: Some(from), to: None, like: entry });
        self.taken.push(NotedBranch { from: None, to: Some(back), like: exit });
    }

    /// `jmp` to a label; noted.
    pub(super) fn jumps(&mut self, to: Label) {
        let at = self.jump(to);
        self.took(at, to, HwBranchType::RelJmp);
    }

    /// `call` of a label; noted.
    pub(super) fn calls(&mut self, to: Label) {
        let at = self.call(to);
        self.took(at, to, HwBranchType::RelCall);
    }

    /// `syscall`, which returns to the next instruction; noted as two branches.
    pub(super) fn system_call(&mut self) {
        let at = self.here();
        self.syscall();
        let back = self.bound();
        self.took_kernel(at, back);
    }
}
