//! Writes the few instructions that kernels are made of, and notes which
//! branches they take.

use lbr_msr::record::HwBranchType;

use super::super::Known;

/// Distance between places: a cache line, so that no two branches share one.
const PLACE: usize = 64;

/// A place in the code, perhaps not written yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// Where a branch starts or lands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// At this offset.
    At(usize),
    /// Where this is bound.
    Label(Label),
    /// In ring 0.
    Unknown,
}

/// A branch that will be taken.
#[derive(Clone, Copy, Debug)]
struct Taken {
    from: End,
    to: End,
    /// All but its ends.
    like: Known,
}

/// Code that can be put anywhere, and the branches it takes, in the order of
/// execution.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    bytes: Vec<u8>,
    labels: Vec<usize>,
    /// Four bytes here are the distance from their end to a label.
    distances: Vec<(usize, Label)>,
    taken: Vec<Taken>,
}

impl Assembler {
    /// The code, for any address.
    pub(super) fn code(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for (at, label) in &self.distances {
            // Kernels are far smaller than 2 GiB.
            let distance = self.offset(*label).wrapping_sub(at + 4) as u32;
            if let Some(field) = bytes.get_mut(*at..at + 4) {
                field.copy_from_slice(&distance.to_le_bytes());
            }
        }
        bytes
    }

    /// The branches of the code when it is at `base`.
    pub(super) fn taken(&self, base: u64) -> Vec<Known> {
        let address = |end| match end {
            End::At(offset) => Some(base + offset as u64),
            End::Label(label) => Some(base + self.offset(label) as u64),
            End::Unknown => None,
        };
        let known = |taken: &Taken| Known {
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

    pub(super) fn here(&self) -> usize {
        self.bytes.len()
    }

    fn offset(&self, label: Label) -> usize {
        self.labels.get(label.0).copied().unwrap_or(0)
    }

    pub(super) fn label(&mut self) -> Label {
        self.labels.push(0);
        Label(self.labels.len() - 1)
    }

    /// The next instruction is at the label.
    pub(super) fn bind(&mut self, label: Label) {
        let here = self.here();
        if let Some(offset) = self.labels.get_mut(label.0) {
            *offset = here;
        }
    }

    /// The next instruction is at a place of its own, and at this label. What
    /// lies before it does not run on.
    pub(super) fn place(&mut self, label: Label) {
        self.raw(&[0xCC]); // int3
        while !self.here().is_multiple_of(PLACE) {
            self.raw(&[0xCC]);
        }
        self.bind(label);
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// An opcode and the distance to a label. Returns where it is.
    pub(super) fn relative(&mut self, opcode: &[u8], to: Label) -> usize {
        let at = self.here();
        self.raw(opcode);
        self.distances.push((self.here(), to));
        self.raw(&[0; 4]);
        at
    }

    /// `jmp`, taken at once.
    pub(super) fn jump(&mut self, to: Label) {
        let at = self.relative(&[0xE9], to);
        self.took(at, to, HwBranchType::RelJmp);
    }

    /// `call`. Returns where it is.
    pub(super) fn call(&mut self, to: Label) -> usize {
        self.relative(&[0xE8], to)
    }

    /// `lea rbx, [label]`
    pub(super) fn address_to_rbx(&mut self, of: Label) {
        self.relative(&[0x48, 0x8D, 0x1D], of);
    }

    /// A branch in user code is taken now.
    pub(super) fn took(&mut self, from: usize, to: Label, class: HwBranchType) {
        self.took_like(from, to, Known::user(0, 0, class));
    }

    /// The same with other properties.
    pub(super) fn took_like(&mut self, from: usize, to: Label, like: Known) {
        self.taken.push(Taken { from: End::At(from), to: End::Label(to), like });
    }

    /// Ring 0 is entered at `from` and left to `back`.
    pub(super) fn took_kernel(&mut self, from: usize, back: usize) {
        let other = Known::user(0, 0, HwBranchType::Other);
        self.taken.push(Taken {
            from: End::At(from),
            to: End::Unknown,
            like: Known { cpl_after: 0, ..other },
        });
        self.taken.push(Taken {
            from: End::Unknown,
            to: End::At(back),
            like: Known { cpl_before: 0, ..other },
        });
    }

    /// `syscall`, which returns behind itself; noted as two branches.
    pub(super) fn system_call(&mut self) {
        let at = self.here();
        self.raw(&[0x0F, 0x05]);
        self.took_kernel(at, self.here());
    }
}
