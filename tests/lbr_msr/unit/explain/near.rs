use super::*;

#[test]
fn distance_counts_slips() {
    for (a, b, expected) in
        [("", "", 0), ("abc", "", 3), ("", "ab", 2), ("kitten", "sitting", 3), ("ab", "ba", 2)]
    {
        assert_eq!(distance(a, b, expected), Some(expected), "{a} {b}");
        assert_eq!(expected.checked_sub(1).and_then(|less| distance(a, b, less)), None);
    }
}

fn near(asked: &str, all: &[&'static str]) -> Vec<String> {
    names(asked, all.iter().copied())
}

/// A slip for every three letters, and one at least. Prefixes do not count.
#[test]
fn longer_names_may_have_more_slips() {
    for (name, asked, is_near) in [
        ("TOS", "TOX", true),
        ("TOS", "TXX", false),
        ("TOS", "TO", true),
        ("TOS", "TOSXX", false),
        ("DEPTH", "DEPXX", false),
        ("SELECT", "SELXXT", true),
        ("SELECT", "SEXXXT", false),
        ("SELECT", "SELE", true),
        ("SELECT", "SEL", false),
        ("MSR_SELECT", "SEXXXT", false),
        ("IA32_SELECT", "msr_selxxt", true),
    ] {
        assert_eq!(!near(asked, &[name]).is_empty(), is_near, "{asked} for {name}");
    }
}

#[test]
fn the_three_best_names_are_suggested_once() {
    let all = ["SELAAT", "MSR_SELECA", "SELECB", "IA32_SELECA", "MSR_SELECT", "SELECC"];
    assert_eq!(near("SELECT", &all), ["MSR_SELECT", "IA32_SELECA", "SELECB"]);
    assert_eq!(near("SELECB", &["SELECT", "SELECB"]), ["SELECB", "SELECT"]);
}

/// No register has an index of three digits.
#[test]
fn a_suggestion_has_the_index_asked_for() {
    let near = |asked| near(asked, &["MSR_RECORD_{n}_FROM"]);
    assert_eq!(near("RECORD_7_FORM"), ["MSR_RECORD_7_FROM"]);
    assert_eq!(near("RECORD_12_FRM"), ["MSR_RECORD_12_FROM"]);
    assert_eq!(near("RECORD_123_FROM"), ["MSR_RECORD_12_FROM"]);
    assert_eq!(near("RECORD_FROM"), ["MSR_RECORD_0_FROM"]);
}

/// Two registers whose names share a word.
static ENTRIES: [Entry; 2] = {
    const ONE: &[Variant] = &[Variant {
        location: super::super::catalogue::Location::At(crate::address::Msr(1)),
        on: &[],
        cpus: "some",
        fields: &[],
        lacks: 0,
    }];
    let (aliases, source): (&[&str], _) = (&[], "");
    [
        Entry { name: "ABC_{n}_FROM", aliases, source, summary: "source, branch", variants: ONE },
        Entry { name: "ABC_{n}_TO", aliases, source, summary: "target, branch", variants: ONE },
    ]
};

#[test]
fn other_words_find_a_register_if_four_fifths_of_the_letters_match() {
    let find = |asked| by_words(asked, ENTRIES.iter().map(|entry| (entry, &entry.variants[0])));
    let none = || Err(Vec::new());
    assert_eq!(find("AbcSourceBranch7"), Ok("ABC_7_FROM".to_string()));
    assert_eq!(find("AbcTargetBranch"), Ok("ABC_0_TO".to_string()));
    // 15 of 18 letters, and of 19.
    assert_eq!(find("AbcSourceBranchXyz"), Ok("ABC_0_FROM".to_string()));
    assert_eq!(find("AbcSourceBranchWxyz"), none());
    // 12 of 15: four fifths.
    assert_eq!(find("SourceBranchXyz"), Ok("ABC_0_FROM".to_string()));
    assert_eq!(find("SourceBranch"), none(), "two words");
    assert_eq!(find("AbcBranchSome"), none(), "both have these words");
    // All words are in a name.
    assert_eq!(find("abc_from_12"), Err(["ABC_12_FROM".to_string()].to_vec()));
    assert_eq!(find("abc"), Err(["ABC_0_FROM", "ABC_0_TO"].map(str::to_string).to_vec()));
    assert_eq!(find("12"), none());
}

#[test]
fn words_begin_at_capitals_and_end_at_digits() {
    assert_eq!(words("LbrExtV2BranchFromIp0"), ["lbr", "ext", "branch", "from", "ip"]);
    assert_eq!(words("MSR_LASTBRANCH_0_FROM_IP"), ["msr", "lastbranch", "from", "ip"]);
    assert!(words("0x1_2").is_empty());
}

#[test]
fn an_index_is_digits_and_nothing_else() {
    assert_eq!(index_in("MSR_LASTBRANCH_{n}_TO_IP", "LASTBRANCH_12_TO_IP"), Some(Some(12)));
    assert_eq!(index_in("MSR_LASTBRANCH_{n}", "LASTBRANCH_TOS"), None);
    assert_eq!(index_in("MSR_LASTBRANCH_{n}", "LASTBRANCH_"), None);
    assert_eq!(index_in("MSR_LASTBRANCH_{n}", "LASTBRANCH_+1"), None);
    assert_eq!(index_in("MSR_LASTBRANCH_{n}", "LASTBRANCH_99999999999"), None);
    assert_eq!(index_in("IA32_DEBUGCTL", "DEBUGCTL"), Some(None));
}
