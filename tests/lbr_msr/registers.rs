//! Registers as types: names, addresses, bits, and the bits that a write preserves.

use lbr_msr::{
    LbrFormat, Msr, MsrError, MsrRead, MsrWrite,
    access::Access,
    register::{
        AmdLbrSelect, DbgExtnCfg, DebugCtl, DebugCtlA, LbrCtl, LbrDepth, LbrSelect, NetBurstTos,
        PerfCapabilities, PerfGlobalStatus, PerfGlobalStatusReset, Register, RtitCtl, Tos,
        amd::{AmdFrom, AmdTo},
    },
};

/// One register with a value, and a log of accesses.
struct One {
    msr: Msr,
    value: u64,
    log: Vec<(Access, u64)>,
}

impl One {
    fn holding(msr: Msr, value: u64) -> One {
        One { msr, value, log: Vec::new() }
    }
}

impl MsrRead for One {
    fn cpu(&self) -> u32 {
        0
    }
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        if msr != self.msr {
            return Err(MsrError::Fault { cpu: 0, msr, access: Access::Read });
        }
        self.log.push((Access::Read, self.value));
        Ok(self.value)
    }
}

impl MsrWrite for One {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        if msr != self.msr {
            return Err(MsrError::Fault { cpu: 0, msr, access: Access::Write });
        }
        self.log.push((Access::Write, value));
        self.value = value;
        Ok(())
    }
}

fn named<R: Register>() -> (&'static str, u32) {
    (R::NAME, R::MSR.0)
}

#[test]
fn names_and_addresses_are_those_of_the_manuals() {
    assert_eq!(named::<PerfCapabilities>(), ("IA32_PERF_CAPABILITIES", 0x345));
    assert_eq!(named::<DebugCtl>(), ("IA32_DEBUGCTL", 0x1D9));
    assert_eq!(named::<DebugCtlA>(), ("MSR_DEBUGCTLA", 0x1D9));
    assert_eq!(named::<LbrSelect>(), ("MSR_LBR_SELECT", 0x1C8));
    assert_eq!(named::<LbrCtl>(), ("IA32_LBR_CTL", 0x14CE));
    assert_eq!(named::<LbrDepth>(), ("IA32_LBR_DEPTH", 0x14CF));
    assert_eq!(named::<Tos>(), ("MSR_LASTBRANCH_TOS", 0x1C9));
    assert_eq!(named::<NetBurstTos>(), ("MSR_LASTBRANCH_TOS", 0x1DA));
    assert_eq!(named::<DbgExtnCfg>(), ("DBG_EXTN_CFG", 0xC000_010F));
    assert_eq!(named::<AmdLbrSelect>(), ("LBR_SELECT", 0xC000_010E));
    assert_eq!(named::<PerfGlobalStatus>(), ("IA32_PERF_GLOBAL_STATUS", 0x38E));
    assert_eq!(named::<PerfGlobalStatusReset>(), ("IA32_PERF_GLOBAL_STATUS_RESET", 0x390));
    assert_eq!(named::<RtitCtl>(), ("IA32_RTIT_CTL", 0x570));
}

#[test]
fn documented_bits_are_those_of_the_manuals() {
    assert_eq!(DebugCtl::DOCUMENTED, 0xFFC7);
    assert_eq!(DebugCtlA::DOCUMENTED, 0x7F);
    assert_eq!(LbrSelect::DOCUMENTED, 0x3FF);
    assert_eq!(AmdLbrSelect::DOCUMENTED, 0x1FF);
    assert_eq!(LbrCtl::DOCUMENTED, 0x7F_000F);
    assert_eq!(PerfCapabilities::DOCUMENTED, 0xB_FFFF);
    assert_eq!(PerfGlobalStatus::DOCUMENTED, 7 << 58);
    assert_eq!(RtitCtl::DOCUMENTED, 1);
    // Bits 2 to 6, MSROFF, PMC.
    assert_eq!(DbgExtnCfg::DOCUMENTED, 0x070F_007C);
}

#[test]
fn update_keeps_every_other_bit() {
    // Every bit except LBR, including reserved ones and the kernel's.
    let mut msr = One::holding(DebugCtl::MSR, 0xFFFF_FFFF_FFFF_FFFE);
    let written = DebugCtl::update(&mut msr, |f| f.insert(DebugCtl::LBR)).unwrap();
    assert_eq!((msr.value, written.raw()), (u64::MAX, u64::MAX));
    DebugCtl::update(&mut msr, |f| f.remove(DebugCtl::LBR)).unwrap();
    assert_eq!(msr.value, 0xFFFF_FFFF_FFFF_FFFE);
}

#[test]
fn write_keeps_undocumented_bits_and_sets_the_others() {
    let mut msr = One::holding(DebugCtl::MSR, 0xABCD_0000_0000_4002);
    (DebugCtl::LBR | DebugCtl::FREEZE_LBRS_ON_PMI).write(&mut msr).unwrap();
    assert_eq!(msr.value, 0xABCD_0000_0000_0801);
    // Undocumented bits of the value are not written.
    DebugCtl::from_raw(1 << 40 | 1).write(&mut msr).unwrap();
    assert_eq!(msr.value, 0xABCD_0000_0000_0001);

    DebugCtl::write_raw(&mut msr, 1 << 40).unwrap();
    assert_eq!(msr.value, 1 << 40);
}

#[test]
fn reading_writes_nothing() {
    let mut msr = One::holding(LbrSelect::MSR, 0x3C5);
    let select = LbrSelect::read(&mut msr).unwrap();
    assert_eq!(LbrSelect::read_raw(&mut msr).unwrap(), 0x3C5);
    assert!(msr.log.iter().all(|(access, _)| *access == Access::Read));
    assert!(select.contains(LbrSelect::EN_CALLSTACK | LbrSelect::FAR_BRANCH | LbrSelect::JCC));
    assert!(!select.intersects(LbrSelect::NEAR_RET | LbrSelect::CPL_NEQ_0));
    assert!(LbrCtl::read(&mut msr).is_err());
}

#[test]
fn perf_capabilities_of_a_skylake() {
    // i7-6700K; corpus/msr/perf_capabilities.csv has the same columns.
    let caps = PerfCapabilities::from_raw(0x33C5);
    assert_eq!((caps.lbr_format(), caps.pebs_record_format()), (LbrFormat::INFO, 3));
    let named = PerfCapabilities::PEBS_TRAP
        | PerfCapabilities::PEBS_SAVE_ARCH_REGS
        | PerfCapabilities::SMM_FREEZE
        | PerfCapabilities::FW_WRITE;
    assert!(caps.contains(named));
    assert!(!caps.intersects(PerfCapabilities::PEBS_BASELINE | PerfCapabilities::PERF_METRICS));
}

#[test]
fn perf_capabilities_of_real_machines() {
    let Some(corpus) = crate::support::corpus::corpus() else { return };
    let text = std::fs::read_to_string(corpus.join("msr/perf_capabilities.csv")).unwrap();
    let mut seen = 0;
    for row in text.lines().skip(1) {
        let cells: Vec<&str> = row.split(',').collect();
        let value = u64::from_str_radix(cells[4].trim_start_matches("0x"), 16).unwrap();
        // The text in column 6 may contain commas: count the flags from there.
        let flags: Vec<&str> =
            cells[7..].iter().copied().skip_while(|c| c.parse::<u8>().is_err()).collect();
        let caps = PerfCapabilities::from_raw(value);
        let bit = |flag| u8::from(caps.contains(flag)).to_string();
        assert_eq!(caps.lbr_format().0.to_string(), cells[5], "{row}");
        let ours = [
            bit(PerfCapabilities::PEBS_TRAP),
            bit(PerfCapabilities::PEBS_SAVE_ARCH_REGS),
            caps.pebs_record_format().to_string(),
            bit(PerfCapabilities::SMM_FREEZE),
            bit(PerfCapabilities::FW_WRITE),
            bit(PerfCapabilities::PEBS_BASELINE),
        ];
        assert_eq!(ours.as_slice(), &flags[..6], "{row}");
        seen += 1;
    }
    assert!(seen >= 4, "only {seen} rows");
}

#[test]
fn dbg_extn_cfg_fields() {
    let cfg = DbgExtnCfg::from_raw(0x0305_007C);
    assert_eq!((cfg.must_be_3(), cfg.msroff(), cfg.pmc()), (3, 5, 3));
    assert!(cfg.contains(DbgExtnCfg::BRSMEN | DbgExtnCfg::VB | DbgExtnCfg::LBRV2EN));
    // Enabling LbrExtV2 does not change bits 4:3.
    let mut msr = One::holding(DbgExtnCfg::MSR, 0x18);
    DbgExtnCfg::update(&mut msr, |f| f.insert(DbgExtnCfg::LBRV2EN)).unwrap();
    assert_eq!(msr.value, 0x58);
}

#[test]
fn tos_is_masked_to_the_depth() {
    assert_eq!(Tos(0xFFFF_FFFF_FFFF_FFE3).index(4), 3);
    assert_eq!(Tos(0x1F).index(8), 7);
    assert_eq!(Tos(0x25).index(32), 5);
    assert_eq!(Tos(7).index(0), 0);
}

#[test]
fn amd_records_hold_58_bits_whatever_the_width() {
    assert_eq!(AmdFrom(0x0200_0000_0000_0000).ip(64), 0xFE00_0000_0000_0000);
    assert_eq!(AmdTo(0x0000_8000_0000_0000).ip(48), 0xFFFF_8000_0000_0000);
    assert_eq!(AmdTo(0x0000_8000_0000_0000).ip(57), 0x0000_8000_0000_0000);
}
