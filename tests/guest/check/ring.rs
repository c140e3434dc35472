//! The ring of records: what is to be put into it, and reading it.

use std::io;
use std::os::fd::AsRawFd;

use crate::Check;
use crate::cpus::{Cycles, Filter};
use crate::graph::Kind;
use crate::known;

/// What is to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Captured {
    Everything,
    User,
    UserWithoutFar,
    /// Far branches of either ring.
    Far,
    /// User, these kinds alone.
    Only(&'static [Kind]),
}

impl Captured {
    /// As suppress bits: 0 ends in ring 0, 1 ends elsewhere, 2 Jcc, 3 near
    /// relative call, 4 near indirect call, 5 near return, 6 near indirect
    /// jump, 7 near relative jump, 8 far. SDM Table 17-11.
    pub(crate) fn suppressed(self) -> u64 {
        match self {
            Captured::Everything => 0x000,
            Captured::User => 0x001,
            Captured::UserWithoutFar => 0x101,
            Captured::Far => 0x0FC,
            Captured::Only(kinds) => kinds.iter().fold(0x1FD, |bits, kind| {
                bits & !match kind {
                    Kind::Cond => 1 << 2,
                    Kind::RelCall | Kind::ZeroLengthCall => 1 << 3,
                    Kind::IndCall => 1 << 4,
                    Kind::Ret => 1 << 5,
                    Kind::IndJmp => 1 << 6,
                    Kind::RelJmp => 1 << 7,
                }
            }),
        }
    }

    /// As IA32_LBR_CTL: 0 enable, 1 OS, 2 USR, 16 Jcc, 17 near relative jump,
    /// 18 near indirect jump, 19 near relative call, 20 near indirect call, 21
    /// near return, 22 other. Linux msr-index.h.
    pub(crate) fn arch_control(self) -> u64 {
        match self {
            Captured::Everything => 0x7F_0007,
            Captured::User => 0x7F_0005,
            Captured::UserWithoutFar => 0x3F_0005,
            Captured::Far => 0x40_0007,
            Captured::Only(kinds) => kinds.iter().fold(0x5, |bits, kind| {
                bits | match kind {
                    Kind::Cond => 1 << 16,
                    Kind::RelJmp => 1 << 17,
                    Kind::IndJmp => 1 << 18,
                    Kind::RelCall | Kind::ZeroLengthCall => 1 << 19,
                    Kind::IndCall => 1 << 20,
                    Kind::Ret => 1 << 21,
                }
            }),
        }
    }

    pub(crate) fn includes(self, kind: Kind) -> bool {
        match self {
            Captured::Only(kinds) => kinds.contains(&kind),
            Captured::Everything | Captured::User | Captured::UserWithoutFar => true,
            Captured::Far => false,
        }
    }
}

/// The bits of an address that every format has in the same place.
pub(crate) const LOW_48: u64 = (1 << 48) - 1;

/// A record as the registers hold it.
pub(crate) struct Record {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) info: Option<u64>,
}

impl Record {
    /// The address bits, which every format has in the same place.
    pub(crate) fn is(&self, from: u64, to: u64) -> bool {
        self.from & LOW_48 == from && self.to & LOW_48 == to
    }

    pub(crate) fn ends_in_kernel(&self) -> bool {
        self.to >> 47 & 1 == 1
    }
}

impl Check {
    /// Writes the filter; returns the value of the control register that switches recording on.
    pub(crate) fn write_filter(&self, captured: Captured) -> io::Result<u64> {
        match self.cpu.filter {
            Filter::None => Ok(self.cpu.enable),
            Filter::Select(select) => {
                self.write(select, captured.suppressed())?;
                Ok(self.cpu.enable)
            }
            Filter::Control => Ok(captured.arch_control()),
        }
    }

    pub(crate) fn clear(&self) -> io::Result<()> {
        for i in 0..self.cpu.depth {
            self.write(self.cpu.from + i * self.cpu.stride, 0)?;
            self.write(self.cpu.to + i * self.cpu.stride, 0)?;
        }
        Ok(())
    }

    /// The ring, newest first.
    pub(crate) fn ring(&self) -> io::Result<Vec<Record>> {
        let cpu = self.cpu;
        let newest = match cpu.tos {
            Some(tos) => (self.read(tos)? as u32) % cpu.depth,
            None => 0,
        };
        (0..cpu.depth)
            .map(|k| if cpu.tos.is_some() { (newest + cpu.depth - k) % cpu.depth } else { k })
            .map(|i| {
                Ok(Record {
                    from: self.read(cpu.from + i * cpu.stride)?,
                    to: self.read(cpu.to + i * cpu.stride)?,
                    info: cpu.info.map(|info| self.read(info + i)).transpose()?,
                })
            })
            .collect()
    }

    /// Records a loop with a given number of rounds.
    pub(crate) fn recorded(
        &self,
        captured: Captured,
        rounds: u64,
    ) -> io::Result<(known::Loop, Vec<Record>)> {
        self.clear()?;
        let on = self.write_filter(captured)?;
        let run = known::run_loop(self.msr.as_raw_fd(), self.cpu.control, on, 0, rounds)?;
        Ok((run, self.ring()?))
    }

    /// Where the records tell cycles.
    pub(crate) fn cycles(&self, record: &Record) -> Option<u64> {
        let low_16 = |info: u64| info & 0xFFFF;
        match self.cpu.cycles {
            Cycles::None => None,
            Cycles::Info => record.info.map(low_16),
            Cycles::InfoIfBit60 => record.info.filter(|info| info >> 60 & 1 == 1).map(low_16),
            Cycles::To => Some(record.to >> 48),
        }
    }
}
