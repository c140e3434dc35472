//! BRBE records: worked values, a second decoder, and the registers of the software BRBE.

use lbr_msr::{
    Msr, MsrRead, MsrWrite, RawEntry,
    caps::Layout,
    decode::brbe::{BrbeRecord, decode},
    record::{BranchType as T, HwBranchType as H},
    register::brbe::{BrbInf, BrbeType},
    soft::{Retired, SoftCpu, SoftLbr},
};

use crate::support::oracle::{self, Values};
use crate::support::random::Random;

fn cycles(exponent: u64, mantissa: u64) -> Option<u64> {
    BrbInf(exponent << 40 | mantissa << 32 | 3).cycles()
}

#[test]
fn cycles_are_mantissa_and_exponent() {
    assert_eq!(cycles(0, 0), Some(0));
    assert_eq!(cycles(0, 200), Some(200));
    assert_eq!(cycles(1, 0), Some(256));
    assert_eq!(cycles(1, 255), Some(511));
    assert_eq!(cycles(2, 1), Some(514));
    // The maximum of a 20-bit counter.
    assert_eq!(cycles(12, 255), Some(1_046_528));
    assert_eq!(BrbInf(1 << 46 | 5 << 32 | 3).cycles(), None);
    // Exponents that no counter reaches.
    assert_eq!(cycles(56, 255), Some(0x1FF << 55));
    assert_eq!(cycles(57, 0), None);
    assert_eq!(cycles(63, 255), None);
}

#[test]
fn valid_selects_the_recorded_addresses() {
    let raw = |valid| RawEntry { from: 1, to: 2, info: Some(valid) };
    let ends = |valid| decode(&raw(valid)).map(|r| (r.from, r.to));
    assert_eq!(ends(0), None);
    assert_eq!(ends(1), Some((None, Some(2))));
    assert_eq!(ends(2), Some((Some(1), None)));
    assert_eq!(ends(3), Some((Some(1), Some(2))));
}

#[test]
fn only_the_top_of_the_counter_is_saturated() {
    let saturated = |exponent: u64, mantissa: u64| {
        let inf = exponent << 40 | mantissa << 32 | 3;
        decode(&RawEntry { from: 1, to: 2, info: Some(inf) }).unwrap().cycles_saturated
    };
    assert_eq!(saturated(12, 255), Some(true));
    assert_eq!(saturated(12, 254), Some(false));
    assert_eq!(saturated(0, 255), Some(false));
}

/// Arm's codes of TYPE and perf's types, as Linux's arm_brbe.c maps them.
#[test]
fn types_in_perfs_terms() {
    let expected = [
        (0x00, H::RelJmp, Some(T::UNCOND)),
        (0x01, H::IndJmp, Some(T::IND)),
        (0x02, H::RelCall, Some(T::CALL)),
        (0x03, H::IndCall, Some(T::IND_CALL)),
        (0x05, H::Ret, Some(T::RET)),
        (0x07, H::Other, Some(T::ERET)),
        (0x08, H::Cond, Some(T::COND)),
        (0x21, H::Other, None),
        (0x22, H::Other, Some(T::SYSCALL)),
        (0x23, H::Other, Some(T::IRQ)),
        (0x24, H::Other, Some(T::SERROR)),
        // PERF_BR_NEW_FAULT_ALGN, _INST and _DATA.
        (0x2A, H::Other, Some(T(16))),
        (0x2B, H::Other, Some(T(18))),
        (0x2C, H::Other, Some(T(17))),
        (0x2E, H::Other, Some(T::IRQ)),
        (0x30, H::Other, None),
    ];
    for (code, class, branch_type) in expected {
        let raw = RawEntry { from: 1, to: 2, info: Some(code << 8 | 3) };
        let entry = lbr_msr::decode::decode(Layout::Brbe, &raw).unwrap();
        assert_eq!((entry.hw_type, entry.branch_type), (Some(class), branch_type), "{code:#x}");
    }
}

/// MPRED says nothing of a branch whose source is not recorded.
#[test]
fn a_target_alone_has_no_prediction() {
    let predicted = |valid: u64| {
        let raw = RawEntry { from: 1, to: 2, info: Some(1 << 5 | valid) };
        lbr_msr::decode::decode(Layout::Brbe, &raw).unwrap().mispredicted
    };
    assert_eq!([1, 2, 3].map(predicted), [None, Some(true), Some(true)]);
}

fn line(record: Option<BrbeRecord>) -> String {
    let Some(r) = record else { return "{\"empty\":true}".to_owned() };
    fn or_null(value: Option<impl ToString>) -> String {
        value.map_or("null".to_owned(), |v| v.to_string())
    }
    let address = |ip: Option<u64>| or_null(ip.map(|ip| format!("\"{ip:#x}\"")));
    format!(
        "{{\"from\":{},\"to\":{},\"mispredicted\":{},\"in_tx\":{},\"abort\":null,\"cycles\":{},\
         \"cycles_saturated\":{},\"type\":{},\"spec\":null,\"counters\":null,\"el\":{},\
         \"last_failed\":{}}}",
        address(r.from),
        address(r.to),
        r.mispredicted,
        r.transactional,
        or_null(r.cycles),
        or_null(r.cycles_saturated),
        or_null(r.branch_type.name().map(|name| format!("\"{}\"", name.to_ascii_lowercase()))),
        r.el,
        r.last_failed,
    )
}

#[test]
fn agrees_with_a_second_decoder_on_random_records() {
    let mut values = Values(Random(0xb1be));
    for _ in 0..2_000 {
        let inf = values.brbinf();
        let raw = RawEntry { from: values.value(), to: values.value(), info: Some(inf) };
        let expected = oracle::brbe_line(inf, raw.from, raw.to);
        assert_eq!(line(decode(&raw)), expected, "{raw:x?}");
    }
}

#[test]
fn an_unknown_type_is_kept_and_prints_as_unknown() {
    assert_eq!(BrbeType(0x3F).name(), None);
    assert_eq!(format!("{:?}", BrbeType(0x3F)), "BrbeType(0x3f)");
    assert_eq!(BrbInf(0x3F << 8).branch_type(), BrbeType(0x3F));
}

/// A system register by op0, op1, CRn, CRm and op2.
const fn system(op0: u32, op1: u32, crn: u32, crm: u32, op2: u32) -> Msr {
    Msr(op0 << 14 | op1 << 11 | crn << 7 | crm << 3 | op2)
}

const BRBCR: Msr = system(2, 1, 9, 0, 0);
const BRBFCR: Msr = system(2, 1, 9, 0, 1);
const BRBIDR0: Msr = system(2, 1, 9, 2, 0);
const IALL: Msr = system(1, 1, 7, 2, 4);
const INJ: Msr = system(1, 1, 7, 2, 5);
/// DIRECT to CONDDIR.
const ALL: u64 = 0x7E << 16;

/// BRBINF, BRBSRC and BRBTGT of the record with this number in its bank.
fn record(n: u32) -> [Msr; 3] {
    let (crm, high) = (n & 15, n >> 4);
    [0, 1, 2].map(|op2| system(2, 1, 8, crm, high << 2 | op2))
}

fn brbe(name: &str, cr: u64, fcr: u64) -> SoftLbr {
    let cpu = SoftCpu::preset(name).unwrap();
    let mut soft = SoftLbr::new(&cpu.caps, None);
    soft.write(BRBFCR, fcr).unwrap();
    soft.write(BRBCR, cr).unwrap();
    soft
}

fn words(soft: &mut SoftLbr, n: u32) -> [u64; 3] {
    record(n).map(|msr| soft.read(msr).unwrap())
}

fn branch(n: u64, class: H) -> Retired {
    Retired::user(0x1000 + 4 * n, 0x2000 + 4 * n, class)
}

#[test]
fn the_software_brbe_has_the_documented_registers() {
    for (name, records) in [("brbe-8", 8), ("brbe-16", 16), ("BRBE-32", 32), ("brbe-64", 64)] {
        let mut soft = brbe(name, 1, ALL);
        assert_eq!(soft.read(BRBIDR0).unwrap(), 0x5000 | records, "20-bit cycles, format 0");
        for n in 0..100 {
            soft.retire(&branch(n, H::RelJmp));
        }
        // Index 0 is the newest; bit 5 of a number is in BRBFCR.BANK.
        for n in 0..64u64 {
            soft.write(BRBFCR, ALL | (n >> 5) << 28).unwrap();
            let [inf, src, tgt] = words(&mut soft, n as u32 & 31);
            let there = n < records;
            assert_eq!(inf & 3, if there { 3 } else { 0 }, "{name} {n}");
            let wanted = (0x1000 + 4 * (99 - n), 0x2000 + 4 * (99 - n));
            assert_eq!((src, tgt), if there { wanted } else { (0, 0) }, "{name} {n}");
        }
        soft.write(BRBFCR, ALL).unwrap();
        soft.write(IALL, 0).unwrap();
        assert_eq!(words(&mut soft, 0), [0; 3], "BRB IALL");
        assert!(soft.write(record(0)[0], 3).is_err(), "records cannot be written");
        assert!(soft.write(BRBIDR0, 0).is_err());
        assert!(soft.read(Msr(0x1D9)).is_err(), "it has no DEBUGCTL");
        soft.write(BRBFCR, !0).unwrap();
        soft.write(BRBCR, !0).unwrap();
        // E0BRE, ExBRE, CC, MPRED, TS, FZP, FZPSS, ERTN, EXCEPTION; LASTFAILED, PAUSED, EnI, the
        // types, BANK.
        let all = [soft.read(BRBCR).unwrap(), soft.read(BRBFCR).unwrap()];
        assert_eq!(all, [0b1100_0000_0000_0011_0111_1011, 3 << 28 | 0x7F << 16 | 3 << 6]);
    }
}

#[test]
fn a_record_of_the_software_brbe_bit_by_bit() {
    let types = [
        (H::RelJmp, 0x00),
        (H::IndJmp, 0x01),
        (H::RelCall, 0x02),
        (H::IndCall, 0x03),
        (H::Ret, 0x05),
        (H::Cond, 0x08),
    ];
    for (class, code) in types {
        // MPRED and CC: both are recorded, or neither.
        let (mut with, mut without) = (brbe("brbe-8", 0x19, ALL), brbe("brbe-8", 1, ALL));
        for soft in [&mut with, &mut without] {
            soft.retire(&Retired { cycles: Some(5), ..branch(0, class) });
            let missed =
                Retired { mispredicted: Some(true), cycles: Some(515), ..branch(1, class) };
            soft.retire(&missed);
        }
        // 515 is (256 + 1) << 1, and one more is lost.
        let counted = 2 << 40 | 1 << 32;
        assert_eq!(words(&mut with, 0), [3 | 1 << 5 | code << 8 | counted, 0x1004, 0x2004]);
        assert_eq!(words(&mut with, 1)[0], 3 | code << 8 | 1 << 46, "the first count is unknown");
        assert_eq!(words(&mut without, 0)[0], 3 | code << 8 | 1 << 46);
    }
    let mut soft = brbe("brbe-8", 0x19, ALL);
    for cycles in [0, 255, 256, 1_046_528, u32::MAX] {
        soft.retire(&Retired { cycles: Some(0), ..branch(0, H::Ret) });
        soft.retire(&Retired { cycles: Some(cycles), ..branch(0, H::Ret) });
        let inf = words(&mut soft, 0)[0];
        assert_eq!(BrbInf(inf).cycles(), Some(u64::from(cycles.min(1_046_528))));
    }
}

#[test]
fn the_filters_of_the_software_brbe() {
    let classes = [H::RelJmp, H::IndJmp, H::Ret, H::IndCall, H::RelCall, H::Cond];
    let taken = |cr: u64, fcr: u64| {
        let mut soft = brbe("brbe-16", cr, fcr);
        let all = classes.into_iter().chain([H::Other]);
        all.filter(|class| soft.retire(&branch(0, *class))).collect::<Vec<_>>()
    };
    for (bit, class) in (17..).zip(classes) {
        assert_eq!(taken(1, 1 << bit), [class]);
        let others: Vec<H> = classes.into_iter().filter(|other| *other != class).collect();
        assert_eq!(taken(1, 1 << bit | 1 << 16), others, "EnI excludes");
    }
    assert_eq!(taken(1, ALL), classes, "exceptions are of the kernel");
    assert_eq!(taken(1, ALL | 1 << 7), [], "PAUSED");
    assert_eq!(taken(2, ALL), [], "without E0BRE");
    let mut soft = brbe("brbe-16", 1, ALL);
    soft.retire(&Retired { cpl_after: 0, ..branch(0, H::RelJmp) });
    assert_eq!(words(&mut soft, 0), [0; 3], "EL1");
    for (msr, value) in [(0x8C88, 3 | 0x21 << 8 | 1 << 63), (0x8C89, 7), (0x8C8A, 9)] {
        soft.write(Msr(msr), value).unwrap();
    }
    soft.write(INJ, 0).unwrap();
    assert_eq!(words(&mut soft, 0), [3 | 0x21 << 8, 7, 9], "injected, without reserved bits");
}
