//! Records accesses in order, and replays them in exactly that order.

use alloc::{collections::VecDeque, format, string::String, vec::Vec};

use super::{Access, MsrError, MsrRead, MsrWrite, Op};
use crate::address::Msr;

/// One access and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessDone {
    /// Read or write.
    pub access: Access,
    /// The register.
    pub msr: Msr,
    /// The value read or written; `None` for a failed read.
    pub value: Option<u64>,
    /// The error, if it failed.
    pub error: Option<MsrError>,
}

impl AccessDone {
    fn read(msr: Msr, result: &Result<u64, MsrError>) -> AccessDone {
        let (value, error) = match result {
            Ok(value) => (Some(*value), None),
            Err(error) => (None, Some(error.clone())),
        };
        AccessDone { access: Access::Read, msr, value, error }
    }

    fn write(msr: Msr, value: u64, result: &Result<(), MsrError>) -> AccessDone {
        let error = result.as_ref().err().cloned();
        AccessDone { access: Access::Write, msr, value: Some(value), error }
    }
}

/// Records every access and passes it on to another backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording<M> {
    inner: M,
    accesses: Vec<AccessDone>,
}

impl<M> Recording<M> {
    /// Records the accesses to `inner`.
    #[must_use]
    pub const fn new(inner: M) -> Recording<M> {
        Recording { inner, accesses: Vec::new() }
    }

    /// The accesses so far, in order.
    #[must_use]
    pub fn accesses(&self) -> &[AccessDone] {
        &self.accesses
    }

    /// Discards the accesses recorded so far.
    pub fn clear(&mut self) {
        self.accesses.clear();
    }

    /// The wrapped backend.
    pub const fn inner_mut(&mut self) -> &mut M {
        &mut self.inner
    }

    /// Stops recording; returns the backend and the accesses.
    #[must_use]
    pub fn into_parts(self) -> (M, Vec<AccessDone>) {
        (self.inner, self.accesses)
    }
}

impl<M: MsrRead> MsrRead for Recording<M> {
    fn cpu(&self) -> u32 {
        self.inner.cpu()
    }

    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        let result = self.inner.read(msr);
        self.accesses.push(AccessDone::read(msr, &result));
        result
    }

    fn read_many(&mut self, msrs: &[Msr], out: &mut [u64]) -> Result<(), MsrError> {
        if !self.one_call() {
            for (msr, slot) in msrs.iter().zip(out) {
                *slot = self.read(*msr)?;
            }
            return Ok(());
        }
        let result = self.inner.read_many(msrs, out);
        for (msr, value) in msrs.iter().zip(out.iter()) {
            self.accesses.push(AccessDone::read(*msr, &result.clone().map(|()| *value)));
        }
        result
    }

    fn one_call(&self) -> bool {
        self.inner.one_call()
    }
}

impl<M: MsrWrite> MsrWrite for Recording<M> {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        let result = self.inner.write(msr, value);
        self.accesses.push(AccessDone::write(msr, value, &result));
        result
    }

    fn run(&mut self, batch: &mut [Op]) -> Result<(), MsrError> {
        if !self.one_call() {
            for op in batch {
                match op {
                    Op::Read { msr, value } => *value = self.read(*msr)?,
                    Op::Write { msr, value } => self.write(*msr, *value)?,
                }
            }
            return Ok(());
        }
        let result = self.inner.run(batch);
        for op in batch {
            self.accesses.push(match op {
                Op::Read { msr, value } => AccessDone::read(*msr, &result.clone().map(|()| *value)),
                Op::Write { msr, value } => AccessDone::write(*msr, *value, &result),
            });
        }
        result
    }
}

/// Replays recorded accesses. An access other than the next recorded one is refused with
/// [`MsrError::Unpopulated`], which names both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    cpu: u32,
    accesses: VecDeque<AccessDone>,
}

impl Replay {
    /// Replays `accesses` as those of logical CPU `cpu`.
    #[must_use]
    pub fn new(cpu: u32, accesses: Vec<AccessDone>) -> Replay {
        Replay { cpu, accesses: accesses.into() }
    }

    /// The accesses that were not replayed yet.
    pub fn rest(&self) -> impl ExactSizeIterator<Item = &AccessDone> {
        self.accesses.iter()
    }

    fn next(
        &mut self,
        access: Access,
        msr: Msr,
        written: Option<u64>,
    ) -> Result<Option<u64>, MsrError> {
        let fits = |step: &AccessDone| {
            step.access == access
                && step.msr == msr
                && written.is_none_or(|value| step.value == Some(value))
        };
        if !self.accesses.front().is_some_and(fits) {
            return Err(MsrError::Unpopulated { msr, access, detail: self.expected(written) });
        }
        match self.accesses.pop_front() {
            Some(AccessDone { error: Some(error), .. }) => Err(error),
            step => Ok(step.and_then(|step| step.value)),
        }
    }

    fn expected(&self, written: Option<u64>) -> String {
        let asked = written.map_or_else(String::new, |value| format!(" (with {value:#x})"));
        match self.accesses.front() {
            None => format!("{asked}; the recording ends here"),
            Some(AccessDone { access: Access::Write, msr, value: Some(value), .. }) => {
                format!("{asked}; the next recorded access is write of {msr} with {value:#x}")
            }
            Some(step) => {
                format!("{asked}; the next recorded access is {} of {}", step.access, step.msr)
            }
        }
    }
}

impl MsrRead for Replay {
    fn cpu(&self) -> u32 {
        self.cpu
    }

    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        let missing = MsrError::Unpopulated {
            msr,
            access: Access::Read,
            detail: "; the recording holds neither a value nor an error for it".into(),
        };
        self.next(Access::Read, msr, None)?.ok_or(missing)
    }
}

impl MsrWrite for Replay {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        self.next(Access::Write, msr, Some(value)).map(|_| ())
    }
}
