//! NetBurst's own registers, which later CPUs do not share.

use super::{Register, Tos, flag_register};
use crate::{Msr, address};

bitflags::bitflags! {
    /// MSR_DEBUGCTLA of NetBurst: the address of IA32_DEBUGCTL, other bits.
    /// SDM 17.11.1.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct DebugCtlA: u64 {
        /// Record branches.
        const LBR = 1 << 0;
        /// TF single-steps on branches.
        const BTF = 1 << 1;
        /// Send branch trace messages.
        const TR = 1 << 2;
        /// Log branch trace messages in the BTS buffer.
        const BTS = 1 << 3;
        /// Interrupt when the BTS buffer is full.
        const BTINT = 1 << 4;
        /// No branch trace messages at CPL 0.
        const BTS_OFF_OS = 1 << 5;
        /// No branch trace messages at CPL above 0.
        const BTS_OFF_USR = 1 << 6;
        const _ = !0;
    }
}

impl DebugCtlA {
    const FIELDS: u64 = 0;
}
flag_register!(DebugCtlA, address::IA32_DEBUGCTL, "MSR_DEBUGCTLA");

/// MSR_LASTBRANCH_TOS of NetBurst, at another address and read-only. SDM
/// 17.11.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NetBurstTos(pub u64);

impl NetBurstTos {
    /// As [`Tos::index`].
    #[must_use]
    pub const fn index(self, depth: u32) -> u32 {
        Tos(self.0).index(depth)
    }
}

impl Register for NetBurstTos {
    const MSR: Msr = address::MSR_LASTBRANCH_TOS_NETBURST;
    const NAME: &'static str = "MSR_LASTBRANCH_TOS";
    const DOCUMENTED: u64 = 0xF;
    fn from_raw(value: u64) -> Self {
        NetBurstTos(value)
    }
    fn raw(self) -> u64 {
        self.0
    }
}
