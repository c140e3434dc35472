//! Saves and restores everything that verification may change: the controls and, unlike recording,
//! the records and TOS as well.

use lbr_msr::address::{
    IA32_DEBUGCTL, IA32_LER_INFO, MSR_LASTBRANCHFROMIP, MSR_LASTBRANCHTOIP, MSR_LER_FROM_LIP,
    MSR_LER_TO_LIP,
};
use lbr_msr::arm::Need;
use lbr_msr::caps::Facility;
use lbr_msr::register::{DebugCtl, PerfGlobalStatus};
use lbr_msr::{LbrCaps, Msr, MsrError, MsrRead, MsrWrite};

use super::SubjectKind;

pub(super) const DEBUGCTL_LBR: u64 = DebugCtl::LBR.bits();
pub(super) const FREEZE_LBRS_ON_PMI: u64 = DebugCtl::FREEZE_LBRS_ON_PMI.bits();
/// The bits of DEBUGCTL that are changed on hardware.
pub(super) const OWN_DEBUGCTL: u64 = DEBUGCTL_LBR | FREEZE_LBRS_ON_PMI;
/// GLOBAL_STATUS.LBR_FRZ. SDM 18.2.4.1.
pub(super) const LBR_FRZ: u64 = PerfGlobalStatus::LBR_FRZ.bits();
/// Bits 62:61 of FROM in format 4.
const TSX_FLAGS: u64 = 3 << 61;

/// Saved registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preserved {
    control: Msr,
    enable: u64,
    /// On AMD, DEBUGCTL.LBR additionally enables the one-entry pair and the last-exception pair.
    pair: bool,
    /// Registers to restore whole, in write order.
    whole: Vec<(Msr, u64)>,
    /// Registers of records beyond the current depth: they hold nothing.
    beyond: Vec<Msr>,
    /// Registers to restore in part: value and mask.
    bits: Vec<(Msr, u64, u64)>,
    /// The status register, the one that clears it, and its saved value.
    status: Option<(Msr, Msr, u64)>,
    /// The registers are read-only.
    read_only: bool,
}

impl Preserved {
    /// Saves the registers. Absent ones are skipped.
    ///
    /// # Errors
    /// The control register or the first record cannot be read, or reading fails with an error
    /// other than #GP.
    pub fn read<M: MsrRead + ?Sized>(
        cpu: &mut M,
        caps: &LbrCaps,
        kind: SubjectKind,
    ) -> Result<Preserved, MsrError> {
        let map = &caps.registers;
        let mut whole = Vec::new();
        let mut note = |cpu: &mut M, msr: Option<Msr>| -> Result<(), MsrError> {
            let Some(msr) = msr else { return Ok(()) };
            match read_again(cpu, msr) {
                Ok(value) => whole.push((msr, value)),
                Err(MsrError::Fault { .. } | MsrError::Unpopulated { .. }) => {}
                Err(error) => return Err(error),
            }
            Ok(())
        };
        let control = cpu.read(map.control)?;
        // Depth first: writing it clears the records. TOS before the records if it decides which
        // slot an index names.
        note(cpu, map.depth)?;
        note(cpu, map.tos)?;
        let depth = match map.depth {
            Some(msr) => u32::try_from(cpu.read(msr)?).unwrap_or(caps.depth).min(caps.depth),
            None => caps.depth,
        };
        for index in 0..depth {
            for msr in map.record(index) {
                note(cpu, Some(msr))?;
            }
        }
        let beyond = (depth..caps.depth).flat_map(|index| map.record(index)).collect();
        if has_last_exception(caps) {
            note(cpu, Some(MSR_LER_FROM_LIP))?;
            note(cpu, Some(MSR_LER_TO_LIP))?;
            note(cpu, (caps.facility == Facility::IntelArch).then_some(IA32_LER_INFO))?;
        }
        let pair = matches!(caps.facility, Facility::AmdLbrV2 | Facility::AmdBrs);
        if pair {
            note(cpu, Some(MSR_LASTBRANCHFROMIP))?;
            note(cpu, Some(MSR_LASTBRANCHTOIP))?;
        }
        note(cpu, map.select.filter(|select| *select != map.control))?;

        let own = |bits| if kind == SubjectKind::Hardware { bits } else { u64::MAX };
        let mut bits = Vec::new();
        if map.control != IA32_DEBUGCTL
            && let Ok(value) = read_again(cpu, IA32_DEBUGCTL)
        {
            bits.push((IA32_DEBUGCTL, value, own(OWN_DEBUGCTL)));
        }
        // Last, because it may switch recording on again.
        let ours = match map.control {
            IA32_DEBUGCTL => own(OWN_DEBUGCTL),
            control if map.select == Some(control) => u64::MAX,
            _ => own(map.enable),
        };
        bits.push((map.control, control, ours));

        let status = caps.freeze_status();
        let status = status.and_then(|(msr, reset)| Some((msr, reset, read_again(cpu, msr).ok()?)));
        Ok(Preserved {
            control: map.control,
            enable: map.enable,
            pair,
            whole,
            beyond,
            bits,
            status,
            read_only: caps.facility == Facility::NetBurst,
        })
    }

    /// Recording was on.
    pub fn recording(&self) -> bool {
        self.bits.last().is_some_and(|(_, value, _)| value & self.enable != 0)
    }

    /// Every register that [`put_back`](Self::put_back) may write, which is every register that
    /// verification may change. Includes NetBurst's records, for which the write is refused.
    pub fn registers(&self) -> Vec<Msr> {
        let whole = self.whole.iter().map(|(msr, _)| *msr);
        let bits = self.bits.iter().map(|(msr, ..)| *msr);
        whole
            .chain(self.beyond.iter().copied())
            .chain(bits)
            .chain(self.status.map(|(_, reset, _)| reset))
            .collect()
    }

    /// The registers and bits that a backend with an allowlist must permit.
    pub fn needs(&self) -> Vec<Need> {
        let mask = |msr: &Msr| {
            let ours = self.bits.iter().find(|(other, ..)| other == msr);
            let reset = self.status.filter(|(_, reset, _)| reset == msr).map(|_| LBR_FRZ);
            ours.map(|(_, _, ours)| *ours).or(reset).unwrap_or(u64::MAX)
        };
        let mut needs: Vec<Need> =
            self.registers().into_iter().map(|msr| Need { write_mask: mask(&msr), msr }).collect();
        needs.extend(self.status.map(|(status, ..)| Need { msr: status, write_mask: 0 }));
        needs
    }

    /// Restores everything: recording off, then depth, TOS, records, the filter, the controls, and
    /// last a freeze by a PMI. May be called repeatedly.
    ///
    /// # Errors
    /// The first write that failed; the others are made nevertheless.
    pub fn put_back<M: MsrWrite + ?Sized>(&self, cpu: &mut M) -> Result<(), MsrError> {
        let mut first = Ok(());
        let mut note = |result: Result<(), MsrError>| {
            if first.is_ok() {
                first = result;
            }
        };
        // While recording is on, it would overwrite restored records.
        let pair = self.pair.then_some((IA32_DEBUGCTL, DEBUGCTL_LBR));
        for (msr, on) in [(self.control, self.enable)].into_iter().chain(pair) {
            let off = cpu
                .read(msr)
                .and_then(|now| if now & on == 0 { Ok(()) } else { cpu.write(msr, now & !on) });
            note(off);
        }
        for (msr, value) in self.whole.iter().filter(|_| !self.read_only) {
            note(write_record(cpu, *msr, *value));
        }
        for (msr, value, ours) in &self.bits {
            let put = cpu.read(*msr).and_then(|now| {
                let then = now & !ours | value & ours;
                if then == now { Ok(()) } else { cpu.write(*msr, then) }
            });
            note(put);
        }
        // After FREEZE_LBRS_ON_PMI: otherwise the next PMI would set it again.
        if let Some((status, reset, before)) = self.status
            && before & LBR_FRZ == 0
            && cpu.read(status).is_ok_and(|now| now & LBR_FRZ != 0)
        {
            note(cpu.write(reset, LBR_FRZ));
        }
        first
    }
}

/// Restores a record register. Haswell and Broadwell refuse values of FROM and of the
/// last-exception pair that they reported themselves (HSM182, BDM127, BDM131): these are written
/// with a sign that the CPU accepts.
fn write_record<M: MsrWrite + ?Sized>(cpu: &mut M, msr: Msr, value: u64) -> Result<(), MsrError> {
    match cpu.write(msr, value) {
        Err(error @ MsrError::Fault { .. }) => {
            let sign = if value >> 60 & 1 == 0 { 0 } else { TSX_FLAGS };
            let flagged = cpu.write(msr, value & !TSX_FLAGS | sign);
            let extended = ((value << 16) as i64 >> 16) as u64;
            flagged.or_else(|_| cpu.write(msr, extended)).map_err(|_| error)
        }
        other => other,
    }
}

/// Whether the last-exception pair is at 1DDH and 1DEH. Not on Pentium M and Yonah: the only table
/// that lists it has it swapped.
pub(super) fn has_last_exception(caps: &LbrCaps) -> bool {
    match caps.facility {
        Facility::NetBurst => false,
        Facility::IntelLegacy => caps.registers.to.is_some(),
        _ => true,
    }
}

/// Reads again after a failure: an absent register fails twice, a transient failure must not lose
/// the value.
fn read_again<M: MsrRead + ?Sized>(cpu: &mut M, msr: Msr) -> Result<u64, MsrError> {
    match cpu.read(msr) {
        Err(MsrError::Fault { .. }) => cpu.read(msr),
        other => other,
    }
}
