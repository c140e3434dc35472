//! Decoding compared with hand-computed values, with a second decoder, and with values from real
//! machines.

use lbr_msr::{
    BranchEntry, LbrFormat, RawEntry,
    caps::Layout,
    decode::decode,
    record::{BranchSpec, HwBranchType},
};

use crate::support::oracle::{self, LBR_KINDS, Said, Values};
use crate::support::random::Random;

fn legacy(format: u8) -> Layout {
    Layout::Legacy { format: LbrFormat(format), tsx: true }
}

fn raw(from: u64, to: u64, info: Option<u64>) -> RawEntry {
    RawEntry { from, to, info }
}

const KERNEL: u64 = 0xFFFF_FFFF_8100_0123;

/// Architectural LBR with every field.
const ARCH_ALL_FIELDS: Layout = Layout::of_leaf_1c(0xF_0007, true);

#[test]
fn format_4_worked_values() {
    let entry = decode(legacy(4), &raw(0x9FFF_FFFF_8100_0123, 1, None)).unwrap();
    assert_eq!((entry.from, entry.mispredicted), (KERNEL, Some(true)));
    assert_eq!((entry.in_tx, entry.abort), (Some(false), Some(false)));

    let entry = decode(legacy(4), &raw(0x1FFF_FFFF_8100_0123, 1, None)).unwrap();
    assert_eq!((entry.from, entry.mispredicted), (KERNEL, Some(false)));

    let entry = decode(legacy(4), &raw(0xC000_5555_5555_4444, 1, None)).unwrap();
    assert_eq!(entry.from, 0x0000_5555_5555_4444);
    assert_eq!(
        (entry.mispredicted, entry.in_tx, entry.abort),
        (Some(true), Some(true), Some(false))
    );
}

#[test]
fn format_6_worked_value() {
    let entry = decode(legacy(6), &raw(1, 0x0019_FFFF_8100_0123, None)).unwrap();
    assert_eq!((entry.to, entry.cycles, entry.cycles_saturated), (KERNEL, Some(25), Some(false)));
    assert_eq!((entry.in_tx, entry.abort), (None, None));
}

/// CYC_CNT saturates at 65535: SDM Tables 17-7 and 17-16.
#[test]
fn only_the_highest_count_is_saturated() {
    for (cycles, saturated) in [(0xFFFF, true), (0xFFFE, false), (0x7FFF, false)] {
        for (format, record) in [
            (5, raw(1, 2, Some(cycles))),
            (6, raw(1, cycles << 48 | 2, None)),
            (7, raw(1, 2, Some(cycles))),
        ] {
            let entry = decode(legacy(format), &record).unwrap();
            let found = (entry.cycles, entry.cycles_saturated);
            assert_eq!(found, (Some(cycles as u32), Some(saturated)), "format {format}");
        }
    }
}

#[test]
fn format_3_keeps_kernel_addresses_under_the_flag() {
    for (bits, mispredicted) in [(0x7FFF_FFFF_8100_0123, false), (KERNEL, true)] {
        let entry = decode(legacy(3), &raw(bits, KERNEL, None)).unwrap();
        assert_eq!((entry.from, entry.to), (KERNEL, KERNEL));
        assert_eq!(entry.mispredicted, Some(mispredicted));
        assert_eq!((entry.in_tx, entry.cycles), (None, None));
    }
}

#[test]
fn without_tsx_its_bits_mean_nothing() {
    let flags = 7 << 61;
    for (format, record) in [
        (4, raw(flags | 0x1000, 1, None)),
        (5, raw(0x1000, 1, Some(flags))),
        (7, raw(0x1000, 1, Some(flags))),
    ] {
        let layout = Layout::Legacy { format: LbrFormat(format), tsx: false };
        let entry = decode(layout, &record).unwrap();
        assert_eq!((entry.from, entry.mispredicted), (0x1000, Some(true)), "format {format}");
        assert_eq!((entry.in_tx, entry.abort), (None, None), "format {format}");
    }
}

#[test]
fn a_missing_info_is_not_a_zero_info() {
    for layout in [legacy(5), legacy(7), ARCH_ALL_FIELDS] {
        let plain = BranchEntry { from: 1, to: 2, ..BranchEntry::default() };
        assert_eq!(decode(layout, &raw(1, 2, None)), Some(plain));
        assert_ne!(decode(layout, &raw(1, 2, Some(0))), Some(plain));
    }
}

#[test]
fn arch_branch_types() {
    use HwBranchType::*;
    let expected = [
        Some(Cond),
        Some(IndJmp),
        Some(RelJmp),
        Some(IndCall),
        Some(RelCall),
        Some(Ret),
        None,
        None,
        Some(Other),
        Some(Other),
        Some(Other),
        Some(Other),
        Some(Other),
        Some(Other),
        Some(Other),
        Some(Other),
    ];
    for (code, expected) in (0..).zip(expected) {
        let entry = decode(ARCH_ALL_FIELDS, &raw(1, 2, Some(code << 56))).unwrap();
        assert_eq!(entry.hw_type, expected, "code {code}");
    }
}

#[test]
fn arch_cycles_need_their_valid_bit() {
    let at = |info| decode(ARCH_ALL_FIELDS, &raw(1, 2, Some(info))).unwrap();
    assert_eq!((at(0xFFFF).cycles, at(0xFFFF).cycles_saturated), (None, None));
    assert_eq!(at(1 << 60 | 0xFFFF).cycles, Some(65535));
    assert_eq!(at(1 << 60 | 0xFFFF).cycles_saturated, Some(true));
    assert_eq!(at(1 << 60 | 0xFFFE).cycles_saturated, Some(false));
    assert_eq!(at(1 << 60).cycles, Some(0));
}

#[test]
fn arch_counters_that_the_cpu_does_not_log_are_absent() {
    let info = Some(0b11_10_01_00 << 32);
    let at = |ecx| decode(Layout::of_leaf_1c(ecx, true), &raw(1, 2, info)).unwrap().counters;
    assert_eq!(at(0), None);
    assert_eq!(at(0xF << 16), Some([Some(0), Some(1), Some(2), Some(3)]));
    assert_eq!(at(0b1010 << 16), Some([None, Some(1), None, Some(3)]));
}

#[test]
fn amd_v2_is_extended_from_the_width_of_the_cpu() {
    let at = |virt_bits, from, to| decode(Layout::AmdV2 { virt_bits }, &raw(from, to, None));
    // Bits 57:0 of a kernel address, bits 62:58 junk, valid.
    let entry = at(48, 0x8000_8123_4567_89AB, 0xA3FF_FFFF_8100_0123).unwrap();
    assert_eq!((entry.from, entry.to), (0xFFFF_8123_4567_89AB, KERNEL));
    assert_eq!(entry.mispredicted, Some(true));
    assert_eq!(entry.spec, Some(BranchSpec::NonSpecCorrectPath));
    // With 57 bits, the same bits are a user address.
    assert_eq!(at(57, 0x0000_8123_4567_89AB, 1 << 63).unwrap().from, 0x0000_8123_4567_89AB);
    assert_eq!(at(57, 0x0100_0000_0000_0000, 1 << 62).unwrap().from, 0xFF00_0000_0000_0000);
    assert_eq!(at(48, 1, 1 << 62).unwrap().spec, Some(BranchSpec::WrongPath));
    assert_eq!(at(48, 1, 3 << 62).unwrap().spec, Some(BranchSpec::SpecCorrectPath));
    // Only TO decides whether a record is empty.
    assert_eq!(at(48, 0x8000_0000_0000_1234, 0x3FFF_FFFF_FFFF_FFFF), None);
    assert!(at(48, 0, 1 << 63).is_some());
}

#[test]
fn amd_brs_stops_at_the_poison() {
    let layout = Layout::AmdBrs { virt_bits: 48 };
    assert_eq!(decode(layout, &raw(0x1000, 0xFFFF_FFFF_FFFF_FFFE, None)), None);
    // Bits 63:61 of TO are reserved.
    let entry = decode(layout, &raw(0x1000, 0x1FFF_FFFF_8100_0123, None)).unwrap();
    assert_eq!((entry.from, entry.to, entry.mispredicted), (0x1000, KERNEL, None));
}

#[test]
fn an_undocumented_format_decodes_to_nothing() {
    for code in 8..=0xFF {
        assert_eq!(Layout::of_format(LbrFormat(code), true), None);
        assert_eq!(decode(legacy(code), &raw(1, 2, Some(3))), None);
    }
}

#[test]
fn any_address_width_is_handled() {
    for virt_bits in 0..=u8::MAX {
        let record = raw(u64::MAX, u64::MAX, None);
        assert!(decode(Layout::AmdV2 { virt_bits }, &record).is_some());
        assert!(decode(Layout::AmdBrs { virt_bits }, &record).is_some());
    }
}

fn layout(said: Said) -> Layout {
    let virt_bits = said.virt_bits as u8;
    match said.kind {
        "arch" => Layout::of_leaf_1c(said.ecx, said.tsx),
        "amd_v2" => Layout::AmdV2 { virt_bits },
        "amd_brs" => Layout::AmdBrs { virt_bits },
        "amd_single" => Layout::AmdSingle,
        "p6" | "netburst" => Layout::Plain,
        "pm" => Layout::Packed32,
        format => Layout::of_format(LbrFormat(format.parse().unwrap()), said.tsx).unwrap(),
    }
}

/// An entry in the second decoder's output format.
fn line(entry: Option<BranchEntry>) -> String {
    let Some(entry) = entry else { return "{\"empty\":true}".to_owned() };
    fn or_null(value: Option<impl ToString>) -> String {
        value.map_or("null".to_owned(), |v| v.to_string())
    }
    let hw_type = entry.hw_type.map(|t| {
        let name = match t {
            HwBranchType::Cond => "cond",
            HwBranchType::IndJmp => "ind_jmp",
            HwBranchType::RelJmp => "rel_jmp",
            HwBranchType::IndCall => "ind_call",
            HwBranchType::RelCall => "rel_call",
            HwBranchType::Ret => "ret",
            HwBranchType::Other => "other",
        };
        format!("\"{name}\"")
    });
    let spec = entry.spec.map(|s| format!("\"{}\"", s.name().to_lowercase()));
    let counters = entry.counters.map(|c| format!("[{}]", c.map(or_null).join(",")));
    let cells = [
        format!("\"{:#x}\"", entry.from),
        format!("\"{:#x}\"", entry.to),
        or_null(entry.mispredicted),
        or_null(entry.in_tx),
        or_null(entry.abort),
        or_null(entry.cycles),
        or_null(entry.cycles_saturated),
        or_null(hw_type),
        or_null(spec),
        or_null(counters),
    ];
    let pairs: Vec<String> =
        oracle::KEYS.iter().zip(cells).map(|(key, cell)| format!("\"{key}\":{cell}")).collect();
    format!("{{{}}}", pairs.join(","))
}

#[test]
fn agrees_with_a_second_decoder_on_random_records() {
    let mut values = Values(Random(0x1d9));
    for kind in LBR_KINDS {
        for turn in 0..8_u32 {
            // Covers various combinations of announced fields.
            let ecx = [0xF_0007, 0x7, 0x5, 0x3, 0x1_0004, 0xA_0002, 0, 0x6_0001][turn as usize];
            let virt_bits = [48, 57][turn as usize / 2 % 2];
            let said = Said { kind, tsx: turn % 2 == 0, virt_bits, ecx };
            let layout = layout(said);
            let records: Vec<RawEntry> =
                (0..100).map(|_| raw(values.value(), values.value(), values.info())).collect();

            let mut held = 0;
            for record in &records {
                let expected = oracle::line(said, record.from, record.to, record.info);
                let entry = decode(layout, record);
                assert_eq!(line(entry), expected, "{said:?} {record:x?}");
                held += usize::from(entry.is_some());
            }
            assert!(held < records.len(), "no empty record came up");
        }
    }
}

#[test]
fn values_of_real_machines() {
    let Some(corpus) = crate::support::corpus::corpus() else { return };
    let text = std::fs::read_to_string(corpus.join("msr/raw_lastbranch_msrs.csv")).unwrap();
    let mut seen = 0;
    for row in text.lines().skip(1) {
        // The cells read here contain no commas.
        let cells: Vec<&str> = row.split(',').collect();
        let hex = |cell: &str| u64::from_str_radix(cell.trim_start_matches("0x"), 16).unwrap();
        let (value, canonical) = (hex(cells[6]), hex(cells[7]));
        // All were read on CPUs with at most flags in FROM, so format 3 restores the address; if
        // only sign extension differs, the plain formats do too.
        if canonical != 0 {
            let entry = decode(legacy(3), &raw(value, canonical, None)).unwrap();
            assert_eq!((entry.from, entry.to), (canonical, canonical), "{row}");
            assert_eq!(entry.mispredicted, Some(cells[8] == "1"), "{row}");
            if value == canonical {
                for format in [1, 2, 5, 7] {
                    assert_eq!(
                        decode(legacy(format), &raw(value, 1, None)).unwrap().from,
                        canonical
                    );
                }
            }
            seen += 1;
        }
    }
    assert!(seen >= 10, "only {seen} rows");
}

/// Two bits per counter from bit 32 up, and `None` for a counter that the CPU does not log: SDM
/// 20.1.2.1, MSR_LBR_INFO.
#[test]
fn counters_in_every_combination() {
    for counters in 0..16u8 {
        let layout =
            Layout::Arch { mispredict: true, timed: true, types: true, counters, tsx: false };
        for bits in 0..256u64 {
            let info = Some(1 << 60 | bits << 32 | 7);
            let entry = decode(layout, &RawEntry { from: 1, to: 2, info }).unwrap();
            let logged = [0, 1, 2, 3]
                .map(|i| (counters >> i & 1 == 1).then_some((bits >> (2 * i) & 3) as u8));
            assert_eq!(entry.counters, (counters != 0).then_some(logged), "{counters:#x}");
            assert_eq!((entry.cycles, entry.mispredicted), (Some(7), Some(false)));
        }
    }
}

/// MISPRED is in FROM or INFO of LBR_FMT 3 to 7. SDM Vol. 3, LBR formats.
#[test]
fn formats_with_a_mispredict_flag() {
    let mut caps = crate::caps_by_hand::skylake();
    let flags = (0..10).map(|code| {
        caps.layout = Layout::Legacy { format: LbrFormat(code), tsx: false };
        caps.mispredict()
    });
    let of: Vec<u8> = (0..10).zip(flags).filter(|(_, has)| *has).map(|(code, _)| code).collect();
    assert_eq!(of, [3, 4, 5, 6, 7]);
    // Transactions are in formats 4, 5 and 7 if CPUID has any, cycles in 5 to 7.
    let mut fields = |code, tsx| {
        caps.layout = Layout::Legacy { format: LbrFormat(code), tsx };
        (caps.tsx(), caps.cycles())
    };
    for code in 0..10 {
        let has = (matches!(code, 4 | 5 | 7), matches!(code, 5..=7));
        assert_eq!(fields(code, true), has, "format {code}");
        assert_eq!(fields(code, false), (false, has.1), "format {code}");
    }
    assert!(crate::caps_by_hand::zen4().mispredict() && !crate::caps_by_hand::zen3().mispredict());
}

/// Layouts by hand after Linux's perf_event.h: the first word has the groups.
mod pebs {
    use lbr_msr::decode::pebs::{PebsError, PebsLayout, lbr_entries};
    use lbr_msr::record::RawEntry;

    const ENTRY: RawEntry = RawEntry { from: 0x401000, to: 0x402000, info: Some(7) };

    /// A record whose LBR group has `entries` entries at word `start`, the first of them in use.
    fn record(format: u64, start: usize, entries: usize) -> Vec<u64> {
        let mut words = vec![0; start + 3 * entries];
        words[0] = format;
        words[start..start + 3].copy_from_slice(&[ENTRY.from, ENTRY.to, 7]);
        words
    }

    #[test]
    fn entries_end_at_an_empty_one() {
        // Four words of the basic group, then three entries, the third a leftover.
        let mut words = record(1 << 3 | 2 << 24, 4, 3);
        words[10] = 0x403000;
        assert_eq!(lbr_entries(PebsLayout::Adaptive, &words), Ok(vec![ENTRY]));
        let short = lbr_entries(PebsLayout::Adaptive, &words[..12]);
        assert_eq!(short, Err(PebsError::Short { needed: 13, found: 12 }));
    }

    /// Bit 3 of the adaptive format names the LBR group; bits 41:40 of the architectural one do,
    /// and bit 31 announces another fragment.
    #[test]
    fn a_record_may_have_no_lbr_group() {
        for (layout, format) in [(PebsLayout::Adaptive, 7 | 31 << 24), (PebsLayout::Arch, 1 << 63)]
        {
            let words = [&[format][..], &[1; 200]].concat();
            assert_eq!(lbr_entries(layout, &words), Err(PebsError::NoLbr), "{layout:?}");
            let none = Err(PebsError::Short { needed: 1, found: 0 });
            assert_eq!(lbr_entries(layout, &[]), none, "{layout:?}");
        }
    }

    /// The number of entries, less 1, is in bits 31:24; an entry is empty if its FROM is 0.
    #[test]
    fn more_entries_than_any_lbr_has_today() {
        let mut words = record(1 << 3 | 63 << 24, 4, 64);
        for entry in words[4..].chunks_mut(3) {
            entry.copy_from_slice(&[ENTRY.from, ENTRY.to, 7]);
        }
        assert_eq!(lbr_entries(PebsLayout::Adaptive, &words), Ok(vec![ENTRY; 64]));
        words[4 + 3 * 40] = 0;
        assert_eq!(lbr_entries(PebsLayout::Adaptive, &words), Ok(vec![ENTRY; 40]));
        words.truncate(4 + 3 * 32);
        let short = Err(PebsError::Short { needed: 4 + 3 * 64, found: 4 + 3 * 32 });
        assert_eq!(lbr_entries(PebsLayout::Adaptive, &words), short);
        let all = Err(PebsError::Short { needed: 4 + 3 * 256, found: 4 });
        assert_eq!(lbr_entries(PebsLayout::Adaptive, &record(1 << 3 | 255 << 24, 4, 1)[..4]), all);
    }

    /// Bits 41:40 of the header: 8 or 16 entries, or the number in the LBR group's header.
    #[test]
    fn the_header_has_the_number_of_entries() {
        let mut words = record(1 << 41, 2 + 6, 16);
        words[8 + 3 * 15..].copy_from_slice(&[ENTRY.from, ENTRY.to, 7]);
        for at in 1..16 {
            words[8 + 3 * at] = ENTRY.from;
        }
        let entries = lbr_entries(PebsLayout::Arch, &words).unwrap();
        assert_eq!((entries.len(), entries[15]), (16, ENTRY));
        let mut words = record(3 << 40, 2 + 6, 2);
        words[4] = 1;
        assert_eq!(lbr_entries(PebsLayout::Arch, &words), Ok(vec![ENTRY]));
        // Without the LBR's header.
        let short = Err(PebsError::Short { needed: 8, found: 4 });
        assert_eq!(lbr_entries(PebsLayout::Arch, &words[..4]), short);
    }

    /// The next fragment follows in as many bytes as the first header's low half says.
    #[test]
    fn a_fragment_follows_in_its_distance() {
        let mut words = record(1 << 31 | 40, 5 + 2 + 6, 8);
        words[5] = 1 << 40;
        assert_eq!(lbr_entries(PebsLayout::Arch, &words), Ok(vec![ENTRY]));
        // With XMM and ZMM16 to 31 before it: 33 words, and 164.
        for distance in [33, 164] {
            let mut words = record((1 << 31) | (8 * distance as u64), distance + 2 + 6, 8);
            words[distance] = 1 << 40;
            assert_eq!(lbr_entries(PebsLayout::Arch, &words), Ok(vec![ENTRY]), "{distance}");
        }
    }

    /// Words of Linux's `pebs_meminfo`, `pebs_gprs` and `pebs_xmm`; of `arch_pebs_basic`,
    /// `arch_pebs_aux` and `arch_pebs_gprs`.
    #[test]
    fn each_group_in_front_has_its_size() {
        for (bit, words) in [(0, 4), (1, 18), (2, 32)] {
            let words = record(1 << bit | 1 << 3, 4 + words, 1);
            assert_eq!(lbr_entries(PebsLayout::Adaptive, &words), Ok(vec![ENTRY]), "{bit}");
        }
        for (bit, words) in [(63, 6), (62, 8), (61, 20)] {
            let words = record(1 << bit | 1 << 40, 2 + words + 6, 8);
            assert_eq!(lbr_entries(PebsLayout::Arch, &words), Ok(vec![ENTRY]), "{bit}");
        }
    }

    #[test]
    fn vector_registers_have_a_header_of_their_own() {
        // XMM and the upper halves of YMM, 16 of 16 bytes; eight masks; the upper halves of ZMM0 to
        // 15, of 32 bytes; ZMM16 to 31, of 64. Bytes of Linux's perf_event.h.
        for (bit, bytes) in
            [(49, 16 * 16), (50, 16 * 16), (53, 8 * 8), (54, 16 * 32), (55, 16 * 64)]
        {
            // Two words of header, two of the vectors', six of the LBR's; eight entries.
            let words = record(1 << bit | 1 << 40, 2 + 2 + bytes / 8 + 6, 8);
            assert_eq!(lbr_entries(PebsLayout::Arch, &words), Ok(vec![ENTRY]), "{bit}");
        }
    }

    #[test]
    fn a_fragment_is_never_shorter_than_its_header() {
        let mut words = record(1 << 31 | 8, 2 + 2 + 6, 8);
        words[2] = 1 << 40;
        assert_eq!(lbr_entries(PebsLayout::Arch, &words), Ok(vec![ENTRY]));
    }
}
