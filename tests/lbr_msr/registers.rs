//! Registers as types: the bits of each.

use lbr_msr::{
    LbrFormat,
    caps::Quirks,
    filter::BranchClasses,
    register::{
        DbgExtnCfg, DebugCtl, DebugCtlA, LbrCtl, LbrSelect, PerfCapabilities, PerfGlobalStatus,
        RtitCtl, Tos,
        amd::{AmdFrom, AmdTo},
    },
};

#[test]
fn documented_bits_are_those_of_the_manuals() {
    assert_eq!(DebugCtl::DOCUMENTED, 0xFFC7);
    assert_eq!(DebugCtlA::DOCUMENTED, 0x7F);
    assert_eq!(LbrSelect::DOCUMENTED, 0x3FF);
    assert_eq!(LbrCtl::DOCUMENTED, 0x7F_000F);
    assert_eq!(PerfCapabilities::DOCUMENTED, 0xB_FFFF);
    assert_eq!(PerfGlobalStatus::DOCUMENTED, 7 << 58);
    assert_eq!(RtitCtl::DOCUMENTED, 1);
    // Bits 2 to 6, MSROFF, PMC.
    assert_eq!(DbgExtnCfg::DOCUMENTED, 0x070F_007C);
}

#[test]
fn quirks_and_branch_classes_have_one_bit_each() {
    fn distinct<F: bitflags::Flags>() -> bool
    where
        F::Bits: Into<u64>,
    {
        let bits: Vec<u64> = F::FLAGS.iter().map(|flag| flag.value().bits().into()).collect();
        let all = bits.iter().fold(0, |all, bit| all | bit);
        bits.iter().all(|bit| bit.count_ones() == 1) && all.count_ones() as usize == bits.len()
    }
    assert!(distinct::<Quirks>() && distinct::<BranchClasses>());
}

#[test]
fn perf_capabilities_of_a_skylake() {
    // i7-6700K; corpus/msr/perf_capabilities.csv has the same columns.
    let caps = PerfCapabilities::from_bits_retain(0x33C5);
    assert_eq!((caps.lbr_format(), caps.pebs_record_format()), (LbrFormat::INFO, 3));
    let named = PerfCapabilities::PEBS_TRAP
        | PerfCapabilities::PEBS_SAVE_ARCH_REGS
        | PerfCapabilities::SMM_FREEZE
        | PerfCapabilities::FW_WRITE;
    assert!(caps.contains(named));
    assert!(!caps.intersects(PerfCapabilities::PEBS_BASELINE | PerfCapabilities::PERF_METRICS));
}

/// Linux's LBR_FORMAT_* in arch/x86/events/perf_event.h.
#[test]
fn formats_have_linuxs_names() {
    let names = ["32", "LIP", "EIP", "EIP_FLAGS", "EIP_FLAGS2", "INFO", "TIME", "INFO2"];
    for (code, name) in (0..).zip(names) {
        let format = LbrFormat(code);
        assert_eq!((format.name(), format.is_known()), (Some(name), true), "{code}");
        assert_eq!(format.has_info(), matches!(name, "INFO" | "INFO2"), "{code}");
        assert_eq!(format.to_string(), format!("{code:#x} {name}"));
    }
    for code in [8, 0x3E, 0x40] {
        assert_eq!((LbrFormat(code).name(), LbrFormat(code).is_known()), (None, false));
    }
    assert_eq!(LbrFormat(0x2A).to_string(), "0x2a unknown");
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
        let caps = PerfCapabilities::from_bits_retain(value);
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
    let cfg = DbgExtnCfg::from_bits_retain(0x0305_007C);
    assert_eq!(cfg.msroff(), 5);
    assert!(cfg.contains(DbgExtnCfg::BRSMEN | DbgExtnCfg::VB | DbgExtnCfg::LBRV2EN));
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
