//! Code that notes which branches it takes.

use std::ops::{Deref, DerefMut};

use lbr_msr::record::HwBranchType;

use super::super::Known;
use crate::code::assembler::{Assembler, Label};

/// Where a branch starts or lands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    At(u64),
    Label(Label),
    /// In ring 0.
    Unknown,
}

/// A branch that will be taken.
#[derive(Clone, Copy, Debug)]
struct NotedBranch {
    from: End,
    to: End,
    /// All but its ends.
    like: Known,
}

/// Code that is being written, and the branches it takes, in the order of
/// execution.
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

    /// The branches of the code in a mapping at `base`.
    pub(super) fn taken(&self, base: u64) -> Vec<Known> {
        let address = |end| match end {
            End::At(address) => Some(base + address),
            End::Label(label) => Some(base + self.address_of(label)),
            End::Unknown => None,
        };
        let known = |taken: &NotedBranch| Known {
            from: address(taken.from),
            to: address(taken.to),
            ..taken.like
        };
        self.taken.iter().map(known).collect()
    }

    /// How many branches have been noted.
    pub(super) fn count(&self) -> usize {
        self.taken.len()
    }

    /// A branch in user code is taken now.
    pub(super) fn took(&mut self, from: u64, to: Label, class: HwBranchType) {
        self.took_like(from, to, Known::user(0, 0, class));
    }

    /// The same with other properties.
    pub(super) fn took_like(&mut self, from: u64, to: Label, like: Known) {
        self.taken.push(NotedBranch { from: End::At(from), to: End::Label(to), like });
    }

    /// Ring 0 is entered at `from` and left to `back`.
    pub(super) fn took_kernel(&mut self, from: u64, back: u64) {
        let other = Known::user(0, 0, HwBranchType::Other);
        self.taken.push(NotedBranch {
            from: End::At(from),
            to: End::Unknown,
            like: Known { cpl_after: 0, ..other },
        });
        self.taken.push(NotedBranch {
            from: End::Unknown,
            to: End::At(back),
            like: Known { cpl_before: 0, ..other },
        });
    }

    /// `jmp` to a label, taken at once.
    pub(super) fn jumps(&mut self, to: Label) {
        let at = self.jump(to);
        self.took(at, to, HwBranchType::RelJmp);
    }

    /// `call` of a label, taken at once.
    pub(super) fn calls(&mut self, to: Label) {
        let at = self.call(to);
        self.took(at, to, HwBranchType::RelCall);
    }

    /// `syscall`, which returns behind itself; noted as two branches.
    pub(super) fn system_call(&mut self) {
        let at = self.here();
        self.syscall();
        self.took_kernel(at, self.here());
    }
}
