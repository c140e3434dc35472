//! The description of registers: complete, found by name and address, and right for each bit.

use lbr_msr::{
    Msr,
    caps::FilterRegister,
    explain::{self, BuildError, CpuKey, FindError, Register},
};

fn on(name: &str, cpu: &str) -> Register {
    explain::find(name, Some(cpu.parse().unwrap())).unwrap()
}

fn find(name: &str) -> Register {
    explain::find(name, None).unwrap()
}

/// Names of the one-bit fields that are set, and `NAME=value` of the wider ones, without reserved
/// ones.
fn said(register: &Register, value: u64) -> Vec<String> {
    let fields = register.fields();
    let told = fields.iter().filter(|f| !f.is_reserved() && f.of(value) != 0);
    told.map(|f| match f.width() {
        1 => f.name.to_owned(),
        _ => format!("{}={:#x}", f.name, f.of(value)),
    })
    .collect()
}

#[test]
fn every_bit_of_every_register_belongs_to_one_field() {
    for register in explain::all() {
        let mut covered = 0_u64;
        for field in register.fields() {
            assert!(field.low <= field.high && field.high < 64, "{}", register.name());
            assert_eq!(covered & field.mask(), 0, "{} {}", register.name(), field.name);
            assert!(!field.source.is_empty() && !field.about().is_empty());
            covered |= field.mask();
        }
        assert_eq!(covered, u64::MAX, "{}", register.name());
    }
}

#[test]
fn a_field_is_explained_for_any_value() {
    for register in explain::all() {
        for field in register.fields() {
            for value in [0, u64::MAX, 0x5555_5555_5555_5555, 0xAAAA_AAAA_AAAA_AAAA, 1 << 63] {
                assert!(!field.meaning(value).is_empty());
            }
        }
    }
}

#[test]
fn perf_capabilities_0x33c5() {
    let register = find("IA32_PERF_CAPABILITIES");
    assert_eq!(register.msr(), Some(Msr(0x345)));
    assert_eq!(
        said(&register, 0x33C5),
        [
            "LBR_FMT=0x5",
            "PEBS_TRAP",
            "PEBS_SAVE_ARCH_REGS",
            "PEBS_REC_FMT=0x3",
            "SMM_FREEZE",
            "FW_WRITE"
        ]
    );
    // Bit 18 is reserved, although Linux once named it.
    let eighteen = register.fields().into_iter().find(|f| f.mask() == 1 << 18).unwrap();
    assert!(eighteen.is_reserved());
}

#[test]
fn lbr_select_0x3c5() {
    let expected =
        ["CPL_EQ_0", "JCC", "NEAR_IND_JMP", "NEAR_REL_JMP", "FAR_BRANCH", "EN_CALLSTACK"];
    assert_eq!(said(&on("LBR_SELECT", "06_5EH"), 0x3C5), expected);
    assert_eq!(said(&find("MSR_LBR_SELECT"), 0x3C5), expected);
    // Bit 9 does not exist before Haswell.
    assert_eq!(said(&on("LBR_SELECT", "06_2A"), 0x3C5), expected[..5]);
    assert_eq!(said(&on("LBR_SELECT", "06_1A"), 0x3C5), expected[..5]);
    // AMD's has bits 0 to 8, as Linux defines them.
    let amd = on("LBR_SELECT", "19_61");
    assert_eq!(said(&amd, 0x3C5), expected[..5]);
    assert_eq!(said(&amd, 0x03A), ["CPL_NEQ_0", "NEAR_REL_CALL", "NEAR_IND_CALL", "NEAR_RET"]);
}

#[test]
fn debugctl_0x4801_and_its_other_orders() {
    assert_eq!(said(&find("DEBUGCTL"), 0x4801), ["LBR", "FREEZE_LBRS_ON_PMI", "FREEZE_WHILE_SMM"]);
    let expected: [(&str, &str, u64, &[&str]); 5] = [
        ("06_5E", "IA32_DEBUGCTL", 0xC4, &["BLD", "TR", "BTS"]),
        ("0F_02", "MSR_DEBUGCTLA", 0x0C, &["TR", "BTS"]),
        ("06_0D", "DEBUGCTLMSR", 0x3D, &["LBR", "PB0", "PB1", "PB2", "PB3"]),
        ("19_11", "DebugCtl", 0x803, &["LBR", "BTF", "FREEZE_LBRS_ON_PMI"]),
        ("1A_44", "DebugCtl", 0x1000, &["FREEZE_PERFMON_ON_PMI"]),
    ];
    for (cpu, name, value, fields) in expected {
        let register = on("0x1d9", cpu);
        assert_eq!(register.name(), name);
        assert_eq!(said(&register, value), fields, "{cpu}");
    }
    let arch = on("DEBUGCTL", "06_8F");
    assert!(arch.fields()[0].meaning(1).contains("no effect"));
}

/// The meaning of a field of a register that holds `value`.
fn meaning(register: &Register, name: &str, value: u64) -> String {
    register.fields().iter().find(|field| field.name == name).unwrap().meaning(value)
}

#[test]
fn debugctl_bits_exist_where_the_cpu_has_them() {
    let names = |cpu| {
        let fields = on("DEBUGCTL", cpu).fields();
        let named = fields.iter().filter(|field| !field.is_reserved());
        named.map(|field| field.low).collect::<Vec<u8>>()
    };
    // BTS_OFF_* came with 06_0F, the uncore with 06_1A; Yonah has perfmon 1.
    assert_eq!(names("06_0E"), [0, 1, 6, 7, 8]);
    assert_eq!(names("06_17"), [0, 1, 6, 7, 8, 9, 10, 11, 12, 14]);
    assert_eq!(names("06_1A"), [0, 1, 2, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    let about: Vec<String> = find("DEBUGCTL").fields().iter().map(|f| f.about()).collect();
    for condition in ["CPUID.07H:ECX[24]", "IA32_PERF_CAPABILITIES[12]", "CPUID.07H:EBX[11]"] {
        assert_eq!(about.iter().filter(|text| text.ends_with(condition)).count(), 1, "{condition}");
    }
}

#[test]
fn a_register_that_a_cpu_lacks_is_not_explained_for_it() {
    for (name, cpu) in [
        // Architectural LBR's own, on CPUs with a model-specific LBR.
        ("IA32_LBR_CTL", "06_5E"),
        ("0x14cf", "06_3C"),
        // PDCM exists only on Intel CPUs after Pentium M.
        ("IA32_PERF_CAPABILITIES", "19_61"),
        ("IA32_PERF_CAPABILITIES", "06_0D"),
        ("IA32_PERF_GLOBAL_STATUS", "06_0E"),
        ("IA32_RTIT_CTL", "06_2A"),
        ("BRBCR_EL1", "06_5E"),
        // The only table for Pentium M has the pair swapped.
        ("LER_FROM_LIP", "06_09"),
        ("0x1dd", "06_0D"),
    ] {
        let found = explain::find(name, Some(cpu.parse().unwrap()));
        let refused = matches!(found, Err(FindError::NotOnCpu { .. }));
        assert!(refused, "{name} on {cpu}: {found:?}");
    }
    assert_eq!(on("LER_FROM_LIP", "06_0E").msr(), Some(Msr(0x1DD)));
    assert_eq!(on("PerfCntrGlobalStatus", "19_61").msr(), Some(Msr(0xC000_0300)));
    assert_eq!(said(&find("0xC0000302"), 1 << 58), ["LBRS_FROZEN"]);
}

#[test]
fn a_filter_bits_meaning_depends_on_the_others() {
    // Nehalem: the jump bits swallow calls and returns (SDM 17.8).
    let nehalem = on("LBR_SELECT", "06_1A");
    for (name, value, recorded) in [
        ("NEAR_REL_CALL", 0x000, true),
        ("NEAR_REL_CALL", 0x080, false),
        ("NEAR_REL_CALL", 0x040, true),
        ("NEAR_IND_CALL", 0x040, false),
        ("NEAR_IND_CALL", 0x080, true),
        ("NEAR_RET", 0x040, false),
        ("NEAR_RET", 0x020, false),
    ] {
        let says = !meaning(&nehalem, name, value).contains("not recorded");
        assert_eq!(says, recorded, "{name} {value:#x}");
        assert!(!meaning(&on("LBR_SELECT", "06_2A"), name, value & 0xC0).contains("not"));
    }
    // SDM 17.9: 0x3C5 and 0x3C6 are valid call-stack mode; Fuchsia's 0x2C5, both rings suppressed,
    // and bit 9 alone are not.
    let haswell = on("LBR_SELECT", "06_3C");
    for (value, defined) in [
        (0x3C5, true),
        (0x3C6, true),
        (0x3C4, true),
        (0x2C5, false),
        (0x3C7, false),
        (0x200, false),
    ] {
        let says = !meaning(&haswell, "EN_CALLSTACK", value).contains("undefined");
        assert_eq!(says, defined, "{value:#x}");
    }
    assert_eq!(meaning(&haswell, "EN_CALLSTACK", 0x2C5 & 0x1FF), "no call-stack mode");
}

/// IA32_LBR_CTL hides the FROM of a branch from a ring that is not enabled.
#[test]
fn a_hidden_from_is_not_an_address() {
    let from = find("IA32_LBR_0_FROM_IP");
    assert!(meaning(&from, "IP", u64::MAX).starts_with("hidden"));
    assert_eq!(meaning(&from, "IP", 0xFFFF_FFFF_8100_0123), "address 0xffffffff81000123");
    // TO is never hidden.
    assert_eq!(meaning(&find("IA32_LBR_0_TO_IP"), "IP", u64::MAX), "address 0xffffffffffffffff");
}

#[test]
fn lbr_ctl_bits() {
    assert_eq!(
        said(&find("IA32_LBR_CTL"), 0x38_000D),
        ["LBREn", "USR", "CALL_STACK", "NEAR_REL_CALL", "NEAR_IND_CALL", "NEAR_RET"]
    );
    assert_eq!(
        said(&find("0x14CE"), 0x47_0002),
        ["OS", "COND", "NEAR_REL_JMP", "NEAR_IND_JMP", "OTHER_BRANCH"]
    );
}

#[test]
fn dbg_extn_cfg_depends_on_the_generation() {
    assert_eq!(said(&on("0xC000010F", "19_11"), 0x58), ["RSVD_11B=0x3", "LBRV2EN"]);
    assert_eq!(
        said(&on("DBG_EXTN_CFG", "19_01"), 0x0105_003C),
        ["BRSMEN", "RSVD_11B=0x3", "VB", "MSROFF=0x5", "PMC=0x1"]
    );
    // Bit 6 came with Zen 4. MSROFF counts from 0 and names the record after the newest.
    let zen_3 = on("DBG_EXTN_CFG", "19_01");
    assert_eq!(said(&zen_3, 1 << 6), Vec::<String>::new());
    let newest = "record 5 will be written next, record 4 is the newest";
    assert_eq!(meaning(&zen_3, "MSROFF", 0x0105_003C), newest);
}

/// Families 10H to 17H have the last branch alone, Zen 3 BRS, Zen 4 and later LbrExtV2: AMD's
/// revision guides, Linux's amd/brs.c and amd/lbr.c.
#[test]
fn an_amd_family_has_the_registers_of_its_generation() {
    for cpu in ["10_02", "11_03", "14_01", "15_02", "16_30", "17_71"] {
        assert_eq!(on("LastBranchFromIP", cpu).msr(), Some(Msr(0x1DB)), "{cpu}");
        let extension = explain::find("DBG_EXTN_CFG", Some(cpu.parse().unwrap()));
        assert!(matches!(extension, Err(FindError::NotOnCpu { .. })), "{cpu}: {extension:?}");
    }
    for (cpus, bit) in [
        (["19_01", "19_0F", "19_21", "19_50", "19_5F"], "BRSMEN"),
        (["19_10", "19_1F", "19_60", "19_7C", "1A_24"], "LBRV2EN"),
    ] {
        for cpu in cpus {
            assert_eq!(said(&on("DBG_EXTN_CFG", cpu), 1 << 2 | 1 << 6), [bit], "{cpu}");
        }
    }
}

#[test]
fn from_depends_on_the_format() {
    let raw = 0xE000_5555_5555_4444;
    let flags = |cpu| said(&on("MSR_LASTBRANCH_3_FROM_IP", cpu), raw & 7 << 61);
    assert_eq!(flags("06_3C"), ["TSX_ABORT", "IN_TSX", "MISPRED"]);
    assert_eq!(flags("06_3A"), ["SIGN_EXT=0x6000", "MISPRED"]);
    assert_eq!(flags("06_5C"), ["SIGN_EXT=0x6000", "MISPRED"]);
    assert_eq!(flags("06_57"), ["SIGN_EXT=0x6000", "MISPRED"]);
    assert_eq!(flags("06_5E"), ["SIGN_EXT=0xe000"]);
    let address = |cpu, value| on("MSR_LASTBRANCH_3_FROM_IP", cpu).fields()[0].meaning(value);
    assert_eq!(address("06_3C", 0x9FFF_FFFF_8100_0123), "address 0xffffffff81000123");
    let to = on("LASTBRANCH_3_TO_IP", "06_5C");
    assert_eq!(to.fields()[0].meaning(0x0019_FFFF_8100_0123), "address 0xffffffff81000123");
    assert!(to.fields()[1].meaning(0x0019_FFFF_8100_0123).starts_with("25 core cycles"));
}

#[test]
fn addresses_of_indexed_registers() {
    let at = |name: &str, cpu: &str| on(name, cpu).msr().unwrap().0;
    assert_eq!(at("MSR_LASTBRANCH_31_FROM_IP", "06_5E"), 0x69F);
    assert_eq!(at("MSR_LASTBRANCH_31_TO_IP", "06_5E"), 0x6DF);
    assert_eq!(at("MSR_LBR_INFO_31", "06_5E"), 0xDDF);
    assert_eq!(at("LBR_INFO_5", "06_8F"), 0x1205);
    assert_eq!(at("LBR_5_FROM_IP", "06_8F"), 0x1505);
    assert_eq!(at("lastbranch_2_to_ip", "06_17"), 0x62);
    assert_eq!(at("LASTBRANCH_7", "06_0E"), 0x47);
    assert_eq!(at("LASTBRANCH_3", "0F_02"), 0x1DE);
    assert_eq!(at("LASTBRANCH_TOS", "0F_03"), 0x1DA);
    assert_eq!(at("AMD_SAMP_BR_FROM_15", "19_11"), 0xC001_031E);
    assert_eq!(at("AMD_SAMP_BR_TO_15", "19_11"), 0xC001_031F);
    // And from addresses to names.
    assert_eq!(on("0xc001031f", "19_11").name(), "AMD_SAMP_BR_TO_15");
    assert_eq!(on("161f", "06_8F").name(), "IA32_LBR_31_TO_IP");
    assert_eq!(on("1dd", "06_8F").name(), "IA32_LER_FROM_IP");
    assert_eq!(on("1dd", "06_5E").name(), "MSR_LER_FROM_LIP");
    assert_eq!(on("1dd", "0F_02").name(), "MSR_LASTBRANCH_2");
}

#[test]
fn an_ambiguous_name_reports_the_chosen_meaning() {
    assert!(!find("LBR_SELECT").is_certain());
    assert!(on("LBR_SELECT", "06_2A").is_certain());
    assert!(find("AMD_LBR_SELECT").is_certain());
    assert_eq!(find("AMD_LBR_SELECT").msr(), Some(Msr(0xC000_010E)));
    assert_eq!(on("LBR_SELECT", "1A_02").msr(), Some(Msr(0xC000_010E)));
    assert!(find("IA32_PERF_CAPABILITIES").is_certain());
}

#[test]
fn brbe_registers_have_no_msr_address() {
    let register = find("BRBINF31_EL1");
    assert_eq!((register.name().as_str(), register.msr()), ("BRBINF31_EL1", None));
    for (name, encoding) in [
        ("BRBINF0_EL1", "S2_1_C8_C0_0"),
        ("BRBSRC15_EL1", "S2_1_C8_C15_1"),
        ("BRBTGT16_EL1", "S2_1_C8_C0_6"),
        ("BRBINF31_EL1", "S2_1_C8_C15_4"),
        ("BRBIDR0_EL1", "S2_1_C9_C2_0"),
        ("BRBCR_EL1", "S2_1_C9_C0_0"),
        ("BRBCR_EL2", "S2_4_C9_C0_0"),
        ("BRBCR_EL12", "S2_5_C9_C0_0"),
        ("BRBFCR_EL1", "S2_1_C9_C0_1"),
        ("BRBTS_EL1", "S2_1_C9_C0_2"),
        ("BRBTGTINJ_EL1", "S2_1_C9_C1_2"),
    ] {
        assert_eq!(find(name).encoding().as_deref(), Some(encoding), "{name}");
    }
    assert_eq!(find("IA32_DEBUGCTL").encoding(), None);
    assert_eq!(said(&find("BRBTS_EL1"), 0x1234), ["TS=0x1234"]);
    let all = 1 | 1 << 1 | 1 << 3 | 1 << 4 | 3 << 5 | 1 << 8 | 1 << 9 | 1 << 22 | 1 << 23;
    let names = ["E0BRE", "ExBRE", "CC", "MPRED", "TS=0x3", "FZP", "FZPSS", "ERTN", "EXCEPTION"];
    assert_eq!(said(&find("BRBCR_EL1"), all), names);
    let value = 1 << 40 | 2 << 32 | 1 << 17 | 0x2E << 8 | 1 << 6 | 1 << 5 | 3;
    assert_eq!(
        said(&register, value),
        ["VALID=0x3", "MPRED", "EL=0x1", "TYPE=0x2e", "LASTFAILED", "CC_MANT=0x2", "CC_EXP=0x1"]
    );
    let meanings: Vec<String> = register.fields().iter().map(|f| f.meaning(value)).collect();
    assert!(meanings.contains(&"IRQ".to_owned()));
    assert!(meanings.contains(&"258 cycles since the previous record".to_owned()));
}

#[test]
fn absent_registers_are_refused_by_name() {
    let refused = |name: &str, cpu: Option<&str>| {
        explain::find(name, cpu.map(|c| c.parse().unwrap())).unwrap_err()
    };
    match refused("LBR_SELCT", None) {
        FindError::NoSuchName { near, .. } => assert_eq!(near, ["LBR_SELECT"]),
        other => panic!("{other:?}"),
    }
    // The nearest three, by Levenshtein distance: 2, 2 and 3.
    match refused("BRBX_EL1", None) {
        FindError::NoSuchName { near, .. } => {
            assert_eq!(near, ["BRBCR_EL1", "BRBTS_EL1", "BRBCR_EL12"]);
        }
        other => panic!("{other:?}"),
    }
    // Each name once, whatever its prefix.
    match refused("LASTBRANCH_0_XX_IP", None) {
        FindError::NoSuchName { near, .. } => {
            let expected = ["LASTBRANCH_0_TO_IP", "LASTBRANCH_0_FROM_IP", "LASTBRANCH_0_INFO"];
            assert_eq!(near, expected);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(refused("0x1234", None), FindError::NoSuchAddress { address: Msr(0x1234) }));
    assert!(matches!(
        refused("LASTBRANCH_32_FROM_IP", None),
        FindError::NoSuchIndex { highest: 31, .. }
    ));
    assert!(matches!(refused("LASTBRANCH_16_FROM_IP", Some("06_3C")), FindError::NotOnCpu { .. }));
    assert!(matches!(refused("LBR_SELECT", Some("06_0F")), FindError::NotOnCpu { .. }));
    assert!(matches!(refused("LBR_INFO_0", Some("06_5C")), FindError::NotOnCpu { .. }));
    assert!(matches!(refused("DEBUGCTL", Some("06_EE")), FindError::UnknownCpu { .. }));
    for name in ["", "0x", "é", "0x10000000000000000", "_", &"x".repeat(10_000)] {
        assert!(matches!(refused(name, None), FindError::NoSuchName { .. }), "{name}");
    }
}

#[test]
fn cpus_are_written_as_in_the_sdm() {
    let key = CpuKey { family: 6, model: 0x5E };
    for text in ["06_5EH", "06_5eh", "6_5E", "06_5e", "0x6_0x5e"] {
        assert_eq!(text.parse(), Ok(key), "{text}");
    }
    assert_eq!(key.to_string(), "06_5EH");
    for text in ["", "065E", "06_", "_5E", "06_5G", "06_+5", "06_5E_", "06_123456789"] {
        assert!(text.parse::<CpuKey>().is_err(), "{text}");
    }
}

#[test]
fn a_filter_register_says_how_intent_becomes_its_value() {
    let select = |jumps_swallow_calls, call_stack| {
        Some(FilterRegister::LbrSelect { jumps_swallow_calls, call_stack })
    };
    assert_eq!(on("LBR_SELECT", "06_1A").filter(), select(true, false));
    assert_eq!(on("LBR_SELECT", "06_37").filter(), select(true, false));
    assert_eq!(on("LBR_SELECT", "06_2A").filter(), select(false, false));
    assert_eq!(on("LBR_SELECT", "06_57").filter(), select(false, false));
    assert_eq!(on("LBR_SELECT", "06_3C").filter(), select(false, true));
    assert_eq!(on("LBR_SELECT", "19_11").filter(), Some(FilterRegister::AmdSelect));
    assert!(matches!(find("LBR_CTL").filter(), Some(FilterRegister::LbrCtl { .. })));
    assert_eq!(find("DEBUGCTL").filter(), None);
    assert_eq!(find("BRBFCR_EL1").filter(), None);
}

#[test]
fn values_are_built_from_field_names() {
    let build = |name: &str, words: &[&str]| find(name).build(words.iter().copied());
    assert_eq!(build("DEBUGCTL", &["lbr", "freeze_lbrs_on_pmi"]), Ok(0x801));
    assert_eq!(build("LBR_SELECT", &["jcc", "far_branch"]), Ok(0x104));
    assert_eq!(build("PERF_CAPABILITIES", &["LBR_FMT=5", "pebs_rec_fmt=0x3"]), Ok(0x305));
    assert_eq!(build("DEBUGCTL", &[]), Ok(0));
    assert_eq!(build("PERF_CAPABILITIES", &["LBR_FMT=3f"]), Ok(0x3F));
    assert_eq!(build("PERF_CAPABILITIES", &["LBR_FMT=5", "LBR_FMT=2"]), Ok(2), "the last counts");
    assert!(matches!(build("DEBUGCTL", &["lbrr"]), Err(BuildError::NoSuchField { .. })));
    assert!(matches!(build("DEBUGCTL", &["reserved"]), Err(BuildError::NoSuchField { .. })));
    assert!(matches!(build("PERF_CAPABILITIES", &["LBR_FMT"]), Err(BuildError::NeedsValue { .. })));
    for word in ["LBR_FMT=40", "LBR_FMT=", "LBR_FMT=x", "LBR_FMT=-1"] {
        assert!(
            matches!(build("PERF_CAPABILITIES", &[word]), Err(BuildError::BadValue { .. })),
            "{word}"
        );
    }
}

#[test]
fn every_source_starts_with_a_documented_tag() {
    for register in explain::all() {
        let sources = register.fields().into_iter().map(|field| field.source);
        for source in sources.chain([register.source()]) {
            let tag = source.split(' ').next();
            let told = explain::SOURCES.iter().any(|(known, _)| Some(*known) == tag);
            assert!(told, "{}: {source}", register.name());
        }
    }
}

#[test]
fn words_name_the_bits_of_a_value() {
    let status = find("IA32_PERF_GLOBAL_STATUS");
    assert_eq!(meaning(&status, "OVF_PMC", 0b1101), "overflowed: 0, 2, 3");
    assert_eq!(meaning(&status, "OVF_FIXED_CTR", 1 << 33), "overflowed: 1");
    assert_eq!(meaning(&status, "OVF_PMC", 1 << 33), "no counter overflowed");
    let enabled = [0, 5].map(|value| meaning(&find("IA32_PEBS_ENABLE"), "PEBS_EN_PMC", value));
    assert_eq!(enabled, ["none", "counters 0, 2"]);
    let counted = [0, 1, 2, 3].map(|n| meaning(&find("IA32_LBR_0_INFO"), "PMC1_CNT", n << 34));
    let occurrences = ["0 occurrences", "1 occurrence", "2 occurrences", "3 or more occurrences"];
    assert_eq!(counted, occurrences);
    // Bits 24 to 63 of IA32_PERF_CAPABILITIES.
    let capabilities = find("IA32_PERF_CAPABILITIES").fields();
    let reserved = capabilities.iter().find(|field| field.high == 63).unwrap();
    assert_eq!(reserved.meaning(0xFF), "reserved");
    assert_eq!(reserved.meaning(1 << 63), "reserved, but not zero");
    let fixed = find("IA32_FIXED_CTR_CTRL");
    let counts = [0x0, 0x1, 0x2, 0x3, 0x6].map(|value| meaning(&fixed, "CTR0", value));
    let user_of_core = "counts in user mode, of all threads of the core";
    let [off, kernel, user, all] =
        ["off", "counts in the kernel", "counts in user mode", "counts everywhere"];
    assert_eq!(counts, [off, kernel, user, all, user_of_core]);
    // Format 4's FROM of a kernel address, and with one copy of its sign missing.
    let from = on("LASTBRANCH_0_FROM_IP", "06_3C");
    assert_eq!(meaning(&from, "SIGN_EXT", 0x1FFF_FFFF_8100_0123), "copies of bit 47");
    assert_eq!(meaning(&from, "SIGN_EXT", 0x0FFF_FFFF_8100_0123), "not copies of bit 47");
    assert_eq!(meaning(&from, "SIGN_EXT", 0x1FFF_7FFF_8100_0123), "not copies of bit 47");
    assert_eq!(
        meaning(&on("AMD_SAMP_BR_FROM_0", "19_11"), "IP", 0x8000_0000_0000),
        "address 0xffff800000000000 with 48-bit virtual addresses, 0x800000000000 with 57"
    );
}

/// CYC_CNT saturates at 65535 and may be invalid; MSROFF wraps to 0 when all 16 records are filled;
/// BRBINF has 20 bits of cycles, and CCU.
#[test]
fn values_at_their_limits_are_described() {
    let (legacy, arch) = (on("LBR_INFO_0", "06_5E"), find("IA32_LBR_0_INFO"));
    let goldmont = on("LASTBRANCH_0_TO_IP", "06_5C");
    let brbe = find("BRBINF0_EL1");
    for (register, field, value, words) in [
        (&legacy, "CYC_CNT", 0xFFFF, "65535 core cycles or more"),
        (&legacy, "CYC_CNT", 0xFFFE, "65534 core cycles since"),
        (&goldmont, "CYC_CNT", 0xFFFF << 48, "65535 core cycles or more"),
        (&arch, "CYC_CNT", 0xFFFF, "no count"),
        (&arch, "CYC_CNT", 1 << 60 | 0xFFFF, "65535 core cycles or more"),
        (&arch, "CYC_CNT", 1 << 60, "0 core cycles since"),
        (&brbe, "CC_MANT", 1 << 46 | 7 << 32, "no count: CCU is 1"),
        (&brbe, "CC_MANT", 63 << 40, "out of range"),
        (&brbe, "CC_EXP", 0, "the mantissa alone"),
        (&brbe, "CC_EXP", 3 << 40, "(256 + mantissa) << 2"),
        (&on("DBG_EXTN_CFG", "19_21"), "MSROFF", 0x3C, "no record yet, or all 16 filled"),
        (&on("DBG_EXTN_CFG", "19_21"), "MSROFF", 0xF_003C, "record 15 will be written next"),
    ] {
        let said = meaning(register, field, value);
        assert!(said.starts_with(words), "{} {field} {value:#x}: {said}", register.name());
    }
    // AMD's records extend bit 57, in TO up to bit 60.
    let (from, to) = (on("AMD_SAMP_BR_FROM_0", "19_61"), on("AMD_SAMP_BR_TO_0", "19_61"));
    for (register, value, copies) in [
        (&from, 0x7FFF_FFFF_8100_0123, true),
        (&from, 0x3FFF_FFFF_8100_0123, false),
        (&from, 0x8000_5555_5555_4444, true),
        // Bit 57 alone.
        (&from, 0x7E00_0000_0000_0123, true),
        (&from, 0x7DFF_FFFF_FFFF_0123, false),
        (&to, 0x9FFF_FFFF_8100_0123, true),
        (&to, 0x8FFF_FFFF_8100_0123, false),
    ] {
        let expected = if copies { "copies of bit 57" } else { "not copies of bit 57" };
        assert_eq!(meaning(register, "SIGN_EXT", value), expected, "{value:#x}");
    }
}

/// One CPU of each generation: Intel's by the table's names, AMD's with one record, BRS, LbrExtV2.
const CPUS: [(&str, &str); 20] = [
    ("P6", "06_08"),
    ("PM", "06_0D"),
    ("YNH", "06_0E"),
    ("C2", "06_17"),
    ("BNL", "06_1C"),
    ("SLM", "06_37"),
    ("KNL", "06_57"),
    ("NHM", "06_1A"),
    ("SNB", "06_2A"),
    ("HSW", "06_3C"),
    ("SKL", "06_5E"),
    ("GLM", "06_5C"),
    ("GLP", "06_7A"),
    ("TNT", "06_86"),
    ("ARCH", "06_8F"),
    ("NB0", "0F_02"),
    ("NB3", "0F_03"),
    ("AMD", "17_71"),
    ("BRS", "19_21"),
    ("V2", "19_61"),
];

/// The generations that have each address. SDM 17 and Vol. 4; EDK2; Linux's msr-index.h, and its
/// core.c for PEBS and Intel PT.
#[test]
fn each_generation_has_its_registers() {
    let perfmon_2 = "C2 BNL SLM KNL NHM SNB HSW SKL GLM GLP TNT ARCH";
    let core_tos = "PM YNH C2 BNL SLM KNL NHM SNB HSW SKL GLM GLP TNT";
    let last_exception = "P6 YNH C2 BNL SLM KNL NHM SNB HSW SKL GLM GLP TNT ARCH NB0 AMD BRS V2";
    let every: Vec<&str> = CPUS.iter().map(|(generation, _)| *generation).collect();
    let every = every.join(" ");
    let rows = [
        (0x40_u32, "PM YNH C2 BNL SLM"),
        (0x60, "C2 BNL SLM"),
        (0x186, perfmon_2),
        (0x1C8, "SLM KNL NHM SNB HSW SKL GLM GLP TNT"),
        (0x1C9, core_tos),
        (0x1D7, "NB0 NB3"),
        (0x1D8, "NB0 NB3"),
        (0x1D9, every.as_str()),
        (0x1DA, "NB0 NB3"),
        (0x1DB, "P6 NB0 AMD BRS V2"),
        (0x1DC, "P6 NB0 AMD BRS V2"),
        // On NetBurst the third and fourth of four records.
        (0x1DD, last_exception),
        (0x1DE, last_exception),
        (0x1E0, "ARCH"),
        (0x345, "YNH C2 BNL SLM KNL NHM SNB HSW SKL GLM GLP TNT ARCH NB3"),
        (0x38D, perfmon_2),
        (0x38E, perfmon_2),
        (0x38F, perfmon_2),
        (0x390, perfmon_2),
        (0x3F1, "SKL TNT ARCH"),
        (0x3F2, "SKL TNT ARCH"),
        (0x570, "HSW SKL GLM GLP TNT ARCH"),
        (0x680, "KNL NHM SNB HSW SKL GLM GLP TNT NB3"),
        (0x6C0, "KNL NHM SNB HSW SKL GLM GLP TNT NB3"),
        (0xDC0, "SKL GLP TNT"),
        (0x1200, "ARCH"),
        (0x14CE, "ARCH"),
        (0x14CF, "ARCH"),
        (0x1500, "ARCH"),
        (0x1600, "ARCH"),
        (0x1903, "ARCH"),
        (0x1983, "ARCH"),
        (0xC000_010E, "V2"),
        (0xC000_010F, "BRS V2"),
        (0xC000_0300, "V2"),
        (0xC000_0302, "V2"),
        (0xC001_0300, "BRS V2"),
        (0xC001_0301, "BRS V2"),
    ];
    for (address, expected) in rows {
        let has =
            |cpu: &str| explain::find(&format!("{address:#x}"), Some(cpu.parse().unwrap())).is_ok();
        let found: Vec<&str> =
            CPUS.iter().filter(|(_, cpu)| has(cpu)).map(|(generation, _)| *generation).collect();
        assert_eq!(found.join(" "), expected, "{address:#x}");
    }
}

/// The addresses by name that no other test has. Linux's msr-index.h.
#[test]
fn counters_and_pebs_have_their_addresses() {
    for (name, address) in [
        ("IA32_FIXED_CTR_CTRL", 0x38D),
        ("IA32_PERF_GLOBAL_CTRL", 0x38F),
        ("IA32_PERF_GLOBAL_STATUS_RESET", 0x390),
        ("IA32_PEBS_ENABLE", 0x3F1),
        ("MSR_PEBS_DATA_CFG", 0x3F2),
        ("IA32_PERFEVTSEL7", 0x18D),
        ("IA32_PMC_GP1_CFG_C", 0x1907),
        ("IA32_PMC_FX0_CFG_C", 0x1983),
        ("IA32_RTIT_CTL", 0x570),
    ] {
        assert_eq!(find(name).msr(), Some(Msr(address)), "{name}");
    }
}

/// The number of records of each generation, and with it the width of TOS: SDM Table 17-4, 17.5 to
/// 17.14; Linux's lbr.c.
#[test]
fn each_generation_has_its_number_of_records() {
    let depths = [
        ("PM YNH BNL SLM KNL", 8),
        ("C2 NB0", 4),
        ("NHM SNB HSW NB3", 16),
        ("SKL GLM GLP TNT ARCH", 32),
        ("BRS V2", 16),
    ];
    for (generations, depth) in depths {
        for (generation, cpu) in
            CPUS.iter().filter(|(g, _)| generations.split(' ').any(|n| n == *g))
        {
            let key: CpuKey = cpu.parse().unwrap();
            let records = explain::all_of(key).unwrap().filter(|register| {
                let name = register.template();
                let parts = ["LASTBRANCH_n", "LBR_n", "BR_FROM_n", "BR_TO_n", "INFO_n"];
                parts.iter().any(|part| name.contains(part))
            });
            let counts: Vec<Option<u32>> = records.map(|register| register.count()).collect();
            assert!(!counts.is_empty(), "{generation}");
            assert!(counts.iter().all(|count| *count == Some(depth)), "{generation}: {counts:?}");
            if let Ok(tos) = explain::find("LASTBRANCH_TOS", Some(key)) {
                assert_eq!(1 << tos.fields()[0].width(), depth, "{generation}");
            }
        }
    }
}

/// Bits of records: SDM Vol. 3, Tables 17-7 to 17-10 and 17-16; Linux's msr-index.h and amd/lbr.c.
#[test]
fn fields_have_their_documented_bits() {
    let rows: [(&str, &str, &[&str]); 15] = [
        (
            "LBR_INFO_0",
            "06_5E",
            &["CYC_CNT 15:0", "TSX_ABORT 61:61", "IN_TSX 62:62", "MISPRED 63:63"],
        ),
        (
            "IA32_LBR_0_INFO",
            "06_8F",
            &[
                "CYC_CNT 15:0",
                "PMC0_CNT 33:32",
                "PMC1_CNT 35:34",
                "PMC2_CNT 37:36",
                "PMC3_CNT 39:38",
                "BR_TYPE 59:56",
                "CYC_CNT_VALID 60:60",
                "TSX_ABORT 61:61",
                "IN_TSX 62:62",
                "MISPRED 63:63",
            ],
        ),
        ("IA32_LBR_0_FROM_IP", "06_8F", &["IP 63:0"]),
        (
            "LASTBRANCH_0_FROM_IP",
            "06_3C",
            &["Data 47:0", "SIGN_EXT 60:48", "TSX_ABORT 61:61", "IN_TSX 62:62", "MISPRED 63:63"],
        ),
        ("LASTBRANCH_0_FROM_IP", "06_1A", &["Data 47:0", "SIGN_EXT 62:48", "MISPRED 63:63"]),
        ("LASTBRANCH_0_TO_IP", "06_1A", &["Data 47:0", "SIGN_EXT 63:48"]),
        ("LASTBRANCH_0_TO_IP", "06_5C", &["Data 47:0", "CYC_CNT 63:48"]),
        ("LASTBRANCH_0_FROM_IP", "06_17", &["IP 63:0"]),
        ("LASTBRANCH_0", "06_0D", &["FROM 31:0", "TO 63:32"]),
        ("TOS", "06_5E", &["TOS 4:0"]),
        ("TOS", "06_1A", &["TOS 3:0"]),
        ("TOS", "06_37", &["TOS 2:0"]),
        ("TOS", "06_17", &["TOS 1:0"]),
        ("TOS", "0F_02", &["TOS 1:0"]),
        ("LER_FROM_LIP", "06_5E", &["IP 63:0"]),
    ];
    for (name, cpu, bits) in rows {
        let fields = on(name, cpu).fields();
        let named = fields.iter().filter(|field| !field.is_reserved());
        let of: Vec<String> = named.map(|f| format!("{} {}:{}", f.name, f.high, f.low)).collect();
        assert_eq!(of, bits, "{name} of {cpu}");
    }
}

/// The first word of each code: SDM, Linux, Arm ARM.
#[test]
fn codes_have_their_documented_meanings() {
    type Codes<'a> = &'a [(u64, &'a str)];
    let rows: [(&str, &str, u32, Codes<'_>); 9] = [
        (
            "IA32_LBR_0_INFO",
            "BR_TYPE",
            56,
            &[
                (0, "COND"),
                (1, "NEAR_IND_JMP"),
                (2, "NEAR_REL_JMP"),
                (3, "NEAR_IND_CALL"),
                (4, "NEAR_REL_CALL"),
                (5, "NEAR_RET"),
                (6, "reserved"),
                (7, "reserved"),
                (8, "OTHER_BRANCH"),
                (15, "OTHER_BRANCH"),
            ],
        ),
        ("IA32_PMC_FX1_CFG_C", "LBR", 40, &[(0, "no"), (1, "8"), (2, "16"), (3, "IA32_LBR_DEPTH")]),
        (
            "BRBINF0_EL1",
            "VALID",
            0,
            &[(0, "no"), (1, "the target"), (2, "the source"), (3, "both")],
        ),
        ("BRBINF0_EL1", "EL", 6, &[(0, "EL0"), (1, "EL1"), (2, "EL2"), (3, "EL3")]),
        (
            "BRBINF0_EL1",
            "TYPE",
            8,
            &[
                (0, "DIRECT_UNCOND"),
                (1, "INDIRECT"),
                (2, "DIRECT_LINK"),
                (3, "INDIRECT_LINK"),
                (5, "RET"),
                (7, "ERET"),
                (8, "DIRECT_COND"),
                (0x21, "DEBUG_HALT"),
                (0x22, "CALL"),
                (0x23, "TRAP"),
                (0x24, "SERROR"),
                (0x26, "INSN_DEBUG"),
                (0x27, "DATA_DEBUG"),
                (0x2A, "ALIGN_FAULT"),
                (0x2B, "INSN_FAULT"),
                (0x2C, "DATA_FAULT"),
                (0x2E, "IRQ"),
                (0x2F, "FIQ"),
                (0x39, "DEBUG_EXIT"),
            ],
        ),
        ("BRBIDR0_EL1", "NUMREC", 0, &[(8, "8 "), (16, "16 "), (32, "32 "), (64, "64 ")]),
        ("BRBIDR0_EL1", "CC", 12, &[(5, "20-bit")]),
        ("BRBCR_EL1", "TS", 5, &[(1, "virtual"), (2, "guest physical"), (3, "physical")]),
        ("BRBFCR_EL1", "BANK", 28, &[(0, "records 0 to 31"), (1, "records 32 to 63")]),
    ];
    for (register, field, low, codes) in rows {
        let register = find(register);
        for (code, words) in codes {
            let said = meaning(&register, field, code << low);
            assert!(said.starts_with(words), "{} {field} {code}: {said}", register.name());
        }
    }
}

/// Values as Linux writes them (perf record -b of cycles, with adaptive or Architectural PEBS), taken
/// apart by hand.
#[test]
fn counters_and_pebs_registers() {
    let all = 0x0001_000F_0000_00FF;
    assert_eq!(said(&find("0x38f"), all), ["EN_PMC=0xff", "EN_FIXED_CTR=0xf", "EN_PERF_METRICS"]);
    let fixed = find("IA32_FIXED_CTR_CTRL");
    assert_eq!(said(&fixed, 0x10_0000_00B0), ["CTR1=0xb", "ADAPTIVE1"]);
    assert_eq!(
        meaning(&fixed, "CTR1", 0xB0),
        "counts everywhere; a PMI at overflow, which may freeze the LBR"
    );
    let four = ["CTR0=0x1", "CTR1=0x2", "CTR2=0x3", "CTR3=0x4"];
    assert_eq!(said(&fixed, 0x4321), four);
    for (bit, name) in [(32, "ADAPTIVE0"), (36, "ADAPTIVE1"), (40, "ADAPTIVE2"), (44, "ADAPTIVE3")]
    {
        assert_eq!(said(&fixed, 1 << bit), [name]);
    }
    let event = find("0x187");
    assert_eq!(event.name(), "IA32_PERFEVTSEL1");
    let cycles = ["EVENT=0x3c", "USR", "OS", "INT", "EN", "ADAPTIVE", "BR_CNTR"];
    assert_eq!(said(&event, 0xC_0053_003C), cycles);
    let data = find("MSR_PEBS_DATA_CFG");
    assert_eq!(said(&data, 0x1F00_000A), ["GP", "LBRS", "LBR_ENTRIES=0x1f"]);
    assert_eq!(meaning(&data, "LBR_ENTRIES", 0x1F00_000A), "32 entries");
    let arch = find("IA32_PMC_FX1_CFG_C");
    assert_eq!(arch.msr().map(|msr| msr.0), Some(0x1987));
    let lbr = 1u64 << 63 | 3 << 40 | 0x8000_0000;
    assert_eq!(said(&arch, lbr), ["RELOAD=0x80000000", "LBR=0x3", "EN"]);
    assert_eq!(meaning(&arch, "LBR", lbr), "IA32_LBR_DEPTH entries");
    assert_eq!(
        said(&find("IA32_PEBS_ENABLE"), 0x1_0000_0001),
        ["PEBS_EN_PMC=0x1", "PEBS_EN_FIXED=0x1"]
    );
}

/// Linux's perf_event.h and msr-index.h; SDM Vol. 3, 18.2.
#[test]
fn single_bits_of_counters_and_pebs_have_their_documented_names() {
    type Bits<'a> = &'a [(u32, &'a str)];
    let rows: [(&str, Bits<'_>); 4] = [
        (
            "IA32_PERFEVTSEL0",
            &[
                (16, "USR"),
                (17, "OS"),
                (18, "E"),
                (19, "PC"),
                (20, "INT"),
                (21, "ANY"),
                (22, "EN"),
                (23, "INV"),
                (32, "IN_TX"),
                (33, "IN_TXCP"),
                (34, "ADAPTIVE"),
                (35, "BR_CNTR"),
            ],
        ),
        (
            "MSR_PEBS_DATA_CFG",
            &[(0, "MEMINFO"), (1, "GP"), (2, "XMMS"), (3, "LBRS"), (4, "CNTR"), (5, "METRICS")],
        ),
        (
            "IA32_PMC_GP0_CFG_C",
            &[
                (35, "CNTR_ALLOW"),
                (36, "CNTR_GP"),
                (37, "CNTR_FIXED"),
                (38, "CNTR_METRICS"),
                (49, "XMM"),
                (50, "YMMH"),
                (53, "OPMASK"),
                (54, "ZMMH"),
                (55, "H16ZMM"),
                (61, "GPR"),
                (62, "AUX"),
                (63, "EN"),
            ],
        ),
        ("IA32_PEBS_ENABLE", &[(60, "PMI_AFTER_REC")]),
    ];
    for (name, bits) in rows {
        let register = find(name);
        for (bit, field) in bits {
            assert_eq!(said(&register, 1 << bit), [*field], "{name} {bit}");
        }
    }
    let data = find("MSR_PEBS_DATA_CFG");
    let counters = said(&data, 0x0003_0005_0000_0000);
    assert_eq!(counters, ["CNTR_MASK=0x5", "FIX_MASK=0x3"]);
    let output = [0, 1].map(|code| meaning(&find("IA32_PEBS_ENABLE"), "OUTPUT", code << 61));
    assert_eq!(output, ["to the DS area", "to Intel PT"]);
}
