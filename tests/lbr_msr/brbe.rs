//! BRBE records: worked values, and a second decoder.

use lbr_msr::{
    decode::brbe::{BrbeRecord, RawBrbe, decode},
    register::brbe::{BrbInf, BrbeType},
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
    let ends = |valid| decode(&RawBrbe { inf: valid, src: 1, tgt: 2 }).map(|r| (r.from, r.to));
    assert_eq!(ends(0), None);
    assert_eq!(ends(1), Some((None, Some(2))));
    assert_eq!(ends(2), Some((Some(1), None)));
    assert_eq!(ends(3), Some((Some(1), Some(2))));
}

#[test]
fn only_the_top_of_the_counter_is_saturated() {
    let saturated = |exponent: u64, mantissa: u64| {
        let inf = exponent << 40 | mantissa << 32 | 3;
        decode(&RawBrbe { inf, src: 1, tgt: 2 }).unwrap().cycles_saturated
    };
    assert_eq!(saturated(12, 255), Some(true));
    assert_eq!(saturated(12, 254), Some(false));
    assert_eq!(saturated(0, 255), Some(false));
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
    for _ in 0..20_000 {
        let raw = RawBrbe { inf: values.brbinf(), src: values.value(), tgt: values.value() };
        let expected = oracle::brbe_line(raw.inf, raw.src, raw.tgt);
        assert_eq!(line(decode(&raw)), expected, "{raw:x?}");
    }
}

#[test]
fn an_unknown_type_is_kept_and_prints_as_unknown() {
    assert_eq!(BrbeType(0x3F).name(), None);
    assert_eq!(format!("{:?}", BrbeType(0x3F)), "BrbeType(0x3f)");
    assert_eq!(BrbInf(0x3F << 8).branch_type(), BrbeType(0x3F));
}
