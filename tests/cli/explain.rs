//! `lbr explain`.

use std::process::Output;

use serde_json::Value;

use crate::support::lbr::{command, done, lbr};

fn explain(args: &[&str]) -> Output {
    command(&["explain"]).args(args).output().unwrap()
}

fn json(args: &[&str]) -> Value {
    let output = explain(&[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{args:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1);
    serde_json::from_str(&text).unwrap()
}

/// (name, high, low, value) of each field, bit 0 first.
fn fields(value: &Value) -> Vec<(String, u64, u64, Option<u64>)> {
    let fields = value["fields"].as_array().unwrap();
    fields
        .iter()
        .map(|f| {
            assert!(f["meaning"].is_string() && f["source"].is_string());
            let name = f["name"].as_str().unwrap().to_owned();
            (name, f["high"].as_u64().unwrap(), f["low"].as_u64().unwrap(), f["value"].as_u64())
        })
        .collect()
}

fn expect(args: &[&str], msr: &str, name: &str, value: &str, expected: &[(&str, u64, u64, u64)]) {
    let answer = json(args);
    assert_eq!((&answer["msr"], &answer["name"]), (&Value::from(msr), &Value::from(name)));
    assert_eq!(answer["value"], value);
    let expected: Vec<_> =
        expected.iter().map(|(n, h, l, v)| ((*n).to_owned(), *h, *l, Some(*v))).collect();
    assert_eq!(fields(&answer), expected, "{args:?}");
}

#[test]
fn perf_capabilities_bit_for_bit() {
    expect(
        &["IA32_PERF_CAPABILITIES", "0x33c5"],
        "0x345",
        "IA32_PERF_CAPABILITIES",
        "0x33c5",
        &[
            ("LBR_FMT", 5, 0, 5),
            ("PEBS_TRAP", 6, 6, 1),
            ("PEBS_SAVE_ARCH_REGS", 7, 7, 1),
            ("PEBS_REC_FMT", 11, 8, 3),
            ("SMM_FREEZE", 12, 12, 1),
            ("FW_WRITE", 13, 13, 1),
            ("PEBS_BASELINE", 14, 14, 0),
            ("PERF_METRICS", 15, 15, 0),
            ("PEBS_OUTPUT_PT", 16, 16, 0),
            ("PEBS_TIMING_INFO", 17, 17, 0),
            ("reserved", 18, 18, 0),
            ("RDPMC_METRICS_CLEAR", 19, 19, 0),
            ("reserved", 63, 20, 0),
        ],
    );
}

#[test]
fn lbr_select_bit_for_bit() {
    expect(
        &["LBR_SELECT", "0x3c5"],
        "0x1c8",
        "MSR_LBR_SELECT",
        "0x3c5",
        &[
            ("CPL_EQ_0", 0, 0, 1),
            ("CPL_NEQ_0", 1, 1, 0),
            ("JCC", 2, 2, 1),
            ("NEAR_REL_CALL", 3, 3, 0),
            ("NEAR_IND_CALL", 4, 4, 0),
            ("NEAR_RET", 5, 5, 0),
            ("NEAR_IND_JMP", 6, 6, 1),
            ("NEAR_REL_JMP", 7, 7, 1),
            ("FAR_BRANCH", 8, 8, 1),
            ("EN_CALLSTACK", 9, 9, 1),
            ("reserved", 63, 10, 0),
        ],
    );
}

#[test]
fn debugctl_bit_for_bit() {
    expect(
        &["DEBUGCTL", "0x4801"],
        "0x1d9",
        "IA32_DEBUGCTL",
        "0x4801",
        &[
            ("LBR", 0, 0, 1),
            ("BTF", 1, 1, 0),
            ("BLD", 2, 2, 0),
            ("reserved", 5, 3, 0),
            ("TR", 6, 6, 0),
            ("BTS", 7, 7, 0),
            ("BTINT", 8, 8, 0),
            ("BTS_OFF_OS", 9, 9, 0),
            ("BTS_OFF_USR", 10, 10, 0),
            ("FREEZE_LBRS_ON_PMI", 11, 11, 1),
            ("FREEZE_PERFMON_ON_PMI", 12, 12, 0),
            ("ENABLE_UNCORE_PMI", 13, 13, 0),
            ("FREEZE_WHILE_SMM", 14, 14, 1),
            ("RTM_DEBUG", 15, 15, 0),
            ("reserved", 63, 16, 0),
        ],
    );
}

#[test]
fn netburst_has_another_order() {
    expect(
        &["1d9", "4801", "--cpu", "0F_02H"],
        "0x1d9",
        "MSR_DEBUGCTLA",
        "0x4801",
        &[
            ("LBR", 0, 0, 1),
            ("BTF", 1, 1, 0),
            ("TR", 2, 2, 0),
            ("BTS", 3, 3, 0),
            ("BTINT", 4, 4, 0),
            ("BTS_OFF_OS", 5, 5, 0),
            ("BTS_OFF_USR", 6, 6, 0),
            ("reserved", 63, 7, 0x4801 >> 7),
        ],
    );
}

#[test]
fn without_a_value_the_layout_is_shown() {
    let answer = json(&["LBR_CTL"]);
    assert_eq!(answer["value"], Value::Null);
    assert!(fields(&answer).iter().all(|field| field.3.is_none()));
    let output = explain(&["LBR_CTL"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("IA32_LBR_CTL (0x14ce)"));
    assert!(text.contains(
        "1: conditional branches are recorded; 0: conditional branches are not recorded"
    ));
}

/// SDM 17.4.8.1 for LBR_FMT, SDM24 Table 20-2 for BR_TYPE.
#[test]
fn a_layout_explains_field_values() {
    let codes = |register: &str, field: &str| {
        let answer = json(&[register]);
        let fields = answer["fields"].as_array().unwrap();
        let field = fields.iter().find(|f| f["name"] == field).unwrap();
        let codes = field["codes"].as_array().unwrap().iter();
        codes
            .map(|code| format!("{} {}", code["value"], code["meaning"]))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let formats = codes("PERF_CAPABILITIES", "LBR_FMT");
    assert_eq!(formats.lines().count(), 9, "{formats}");
    assert!(formats.contains("\"3\" \"EIP_FLAGS: effective addresses, MISPRED in FROM[63]\""));
    let types = codes("IA32_LBR_0_INFO", "BR_TYPE");
    for line in ["\"0\" \"COND: ", "\"5\" \"NEAR_RET: ", "\"8 to 15\" \"OTHER_BRANCH: "] {
        assert!(types.contains(line), "{types}");
    }
    assert!(codes("BRBINF0_EL1", "TYPE").contains("\"46\" \"IRQ\""));
    let text = String::from_utf8(explain(&["BRBCR_EL1"]).stdout).unwrap();
    assert!(text.contains("2 = guest physical time"), "{text}");
    // A value needs no list.
    assert_eq!(json(&["PERF_CAPABILITIES", "5"])["fields"][0]["codes"], Value::Null);
}

#[test]
fn bits_are_drawn_over_their_letters() {
    let text = String::from_utf8(explain(&["DEBUGCTL", "4801"]).stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let ruler = lines.iter().position(|line| line.starts_with("63 ")).unwrap();
    assert_eq!(
        lines[ruler + 1],
        "0000 0000 0000 0000 0000 0000 0000 0000  0000 0000 0000 0000 0100 1000 0000 0001"
    );
    assert_eq!(
        lines[ruler + 2],
        ".... .... .... .... .... .... .... ....  .... .... .... .... mlkj ihgf ed.. .cba"
    );
    let row = |name: &str| *lines.iter().find(|line| line.contains(name)).unwrap();
    assert!(row(" FREEZE_LBRS_ON_PMI ").starts_with("i  11 "));
    assert!(row(" FREEZE_LBRS_ON_PMI ").contains(" 1 "));
    assert!(row(" BTF ").starts_with("b  1 "));
}

#[test]
fn a_value_is_built_from_field_names() {
    assert_eq!(json(&["--build", "DEBUGCTL", "lbr,freeze_lbrs_on_pmi"])["value"], "0x801");
    assert_eq!(json(&["LBR_SELECT", "jcc,far_branch", "--build"])["value"], "0x104");
    assert_eq!(json(&["--build", "LBR_CTL", "LBREn, USR, COND"])["value"], "0x10005");
}

#[test]
fn arm_registers_have_no_msr_number() {
    let answer = json(&["BRBINF0_EL1", "3"]);
    assert_eq!((&answer["msr"], &answer["name"]), (&Value::Null, &Value::from("BRBINF0_EL1")));
}

#[test]
fn bad_input_is_status_2_and_one_sentence() {
    let cases: [(&[&str], &str); 16] = [
        (&["FOO"], "no register is called \"FOO\"; lbr explain lists the registers\n"),
        (&[""], "no register is called \"\""),
        (&["x\u{1b}[31m"], "\"x\\u{1b}[31m\""),
        (&["--build", "LBR_SELECT", "call_stack,u"], "nor branches to record in perf's names"),
        (&["LBR_SELCT"], "did you mean LBR_SELECT"),
        (&["0x1234"], "0x1234 is not the address"),
        (&["DEBUGCTL", "zz"], "\"zz\" is not a hexadecimal number"),
        (&["DEBUGCTL", "0x10000000000000000"], "64 bits"),
        (&["LBR_SELECT", "1", "--cpu", "06_0FH"], "CPU 06_0FH has no LBR_SELECT"),
        (&["LBR_SELECT", "--cpu", "skylke"], "FF_MMH"),
        (&["LBR"], "did you mean MSR_LBR_SELECT, IA32_LBR_CTL"),
        (&["--cpu", "06_EE"], "nothing is known"),
        (&["--build"], "<REGISTER>"),
        (&["LBR_SELECT", "--cpu", "06_EE"], "nothing is known"),
        (&["--build", "DEBUGCTL", "lbrr"], "has no field lbrr"),
        (&["--build", "DEBUGCTL", ","], "--build needs words"),
    ];
    for (args, reason) in cases {
        let output = explain(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr.contains(reason), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_cpu_has_a_name() {
    let by_name = json(&["LBR_SELECT", "--cpu", "Sandy Bridge"]);
    assert_eq!(by_name, json(&["LBR_SELECT", "--cpu", "06_2A"]));
    assert!(by_name["variant"].as_str().unwrap().contains("without call-stack mode"));
}

#[test]
fn a_value_may_be_binary() {
    assert_eq!(json(&["LBR_SELECT", "0b1_0000_0100"])["value"], "0x104");
}

/// AMD's manuals word it differently from Linux.
#[test]
fn a_register_is_found_by_the_words_of_its_name() {
    let output = explain(&["LbrExtV2BranchFromIp3"]);
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.starts_with("AMD_SAMP_BR_FROM_3 (0xc0010306)"), "{stdout}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("no register is called \"LbrExtV2BranchFromIp3\""), "{stderr}");
}

/// The addresses are those of the fact sheet, section 3.
#[test]
fn the_registers_of_a_cpu_are_listed() {
    let output = explain(&["--cpu", "skylake", "--json"]);
    let lines = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let at = |name: &str| {
        let row = rows.iter().find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("{name} is not listed: {lines}"))["at"].clone()
    };
    assert_eq!(at("IA32_DEBUGCTL"), "0x1d9");
    assert_eq!(at("MSR_LASTBRANCH_n_FROM_IP"), "0x680-0x69f");
    assert_eq!(at("MSR_LBR_INFO_n"), "0xdc0-0xddf");
    assert!(rows.iter().all(|row| row["name"] != "IA32_LBR_CTL" && row["name"] != "LBR_SELECT"));

    let all = String::from_utf8(explain(&[]).stdout).unwrap();
    assert!(
        all.contains("IA32_LBR_CTL") && all.contains("BRBCR_EL1") && all.contains("0xc0010300")
    );
}

#[test]
fn every_source_is_cited() {
    let told = String::from_utf8(explain(&["--sources"]).stdout).unwrap();
    for tag in ["SDM", "SDM24", "APM", "Linux", "EDK2", "BRBE"] {
        assert!(
            told.lines().any(|line| line.split_whitespace().next() == Some(tag)),
            "{tag}: {told}"
        );
    }
}

/// A box for each bit, and each field by name; a page for one register, or all.
#[test]
fn registers_are_drawn_as_pictures() {
    let svg = done(&["explain", "LBR_SELECT", "0x3c5", "--svg", "-"]);
    // The page, and 64 bits.
    assert_eq!(svg.matches("<rect ").count(), 65);
    assert!(
        svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"") && svg.ends_with("</svg>")
    );
    // Six bits of 0x3c5 are set.
    assert_eq!(svg.matches(">1</text>").count(), 6 + 6 + 2, "bits, values, two places");
    for word in ["MSR_LBR_SELECT (0x1c8) = 0x3c5", "EN_CALLSTACK", "call-stack mode"] {
        assert!(svg.contains(word), "{word}");
    }
    let page = done(&["explain", "DEBUGCTL", "--html", "-"]);
    assert!(page.contains("FREEZE_LBRS_ON_PMI") && page.contains("prefers-color-scheme: dark"));
    let all = done(&["explain", "--cpu", "zen4", "--html", "-"]);
    let listed = done(&["explain", "--cpu", "zen4"]).lines().count() - 1;
    assert_eq!(all.matches("<svg ").count(), listed);
    assert_eq!(lbr(&["explain", "--svg", "-"]).status.code(), Some(2));
}
