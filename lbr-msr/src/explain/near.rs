//! Suggestions for mistyped register names.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use super::{Entry, Variant};

/// The name without its prefix `MSR_` or `IA32_`.
pub(super) fn bare(name: &str) -> &str {
    name.strip_prefix("MSR_").or_else(|| name.strip_prefix("IA32_")).unwrap_or(name)
}

/// Whether `asked` (upper case, without prefix) matches `template`, and the index in place of
/// `{n}`, if any.
pub(super) fn index_in(template: &str, asked: &str) -> Option<Option<u32>> {
    let template = template.to_ascii_uppercase();
    let template = bare(&template);
    let Some((before, after)) = template.split_once("{N}") else {
        return (template == asked).then_some(None);
    };
    let index = asked.strip_prefix(before)?.strip_suffix(after)?;
    if index.is_empty() || !index.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    index.parse().ok().map(Some)
}

/// A hexadecimal number of at most 64 bits, `0x` optional.
pub(super) fn hex(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    // `from_str_radix` accepts a sign.
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then_some(())?;
    u64::from_str_radix(digits, 16).ok()
}

/// The names most similar to `asked`, best first, at most three.
pub(super) fn names(asked: &str, all: impl Iterator<Item = &'static str>) -> Vec<String> {
    // Limits the cost for very long input.
    let asked: String = bare(&asked.to_ascii_uppercase()).chars().take(64).collect();
    let digits: String = asked.chars().filter(char::is_ascii_digit).take(2).collect();
    let index = if digits.is_empty() { "0" } else { &digits };
    let length = asked.chars().count();
    let slips = |name: &str| (bare(name).len() / 3).max(1);
    let mut scored: Vec<(usize, String)> = all
        .map(|name| name.replace("{n}", index))
        // Each additional letter is one edit.
        .filter(|name| bare(name).len().abs_diff(length) <= slips(name))
        .filter_map(|name| {
            Some((distance(&asked, bare(&name.to_ascii_uppercase()), slips(&name))?, name))
        })
        .collect();
    scored.sort();
    let mut near: Vec<String> = Vec::new();
    for (_, name) in scored {
        if near.len() < 3 && !near.iter().any(|other| bare(other) == bare(&name)) {
            near.push(name);
        }
    }
    near
}

/// The single register with nearly all words of `asked` in its names, CPUs or summary; if there is
/// not exactly one, the names that contain all words.
pub(super) fn by_words(
    asked: &str,
    all: impl Iterator<Item = (&'static Entry, &'static Variant)>,
) -> Result<String, Vec<String>> {
    let asked: String = asked.chars().take(64).collect();
    let words = words(&asked);
    let letters: usize = words.iter().map(String::len).sum();
    let index: String = asked.chars().rev().take_while(char::is_ascii_digit).collect();
    let index: String = index.chars().rev().take(2).collect();
    let index = if index.is_empty() { "0" } else { &index };
    let (mut best, mut alone) = ((0, ""), false);
    let mut near: Vec<String> = Vec::new();
    for (entry, variant) in all {
        let names = entry.names().collect::<Vec<_>>().join(" ").to_lowercase();
        let purpose = format!("{names} {} {}", variant.cpus, entry.summary).to_lowercase();
        let held = |text: &str| words.iter().filter(|w| text.contains(*w)).map(String::len).sum();
        let score: usize = held(&purpose);
        if score > best.0 {
            (best, alone) = ((score, entry.name), true);
        } else if score == best.0 && entry.name != best.1 {
            alone = false;
        }
        let named: usize = held(&names);
        let name = entry.name.replace("{n}", index);
        if letters > 0 && named == letters && !near.contains(&name) {
            near.push(name);
        }
    }
    // At least four fifths of the letters match: manuals word the rest differently.
    if alone && near.is_empty() && best.0 * 5 >= letters * 4 && words.len() > 2 {
        return Ok(best.1.replace("{n}", index));
    }
    Err(near)
}

/// The words of a name in lower case: `LbrExtV2BranchFromIp0` gives lbr, ext, branch, from, ip.
/// Single letters and numbers do not count.
fn words(name: &str) -> Vec<String> {
    let mut words = alloc::vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        if !c.is_alphabetic() || before.is_lowercase() && c.is_uppercase() {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphabetic(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| word.chars().count() > 1);
    words
}

/// The suggestion at the end of an unknown-name message.
pub(super) fn suggestion(near: &[String]) -> String {
    match near {
        [] => "".to_string(),
        near => format!("; did you mean {}?", near.join(", ")),
    }
}

/// Levenshtein distance; `None` if it exceeds `most`.
fn distance(a: &str, b: &str, most: usize) -> Option<usize> {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, y) in row.iter_mut().skip(1).zip(b.chars()) {
            let replaced = diagonal + usize::from(x != y);
            diagonal = *cell;
            left = replaced.min(diagonal + 1).min(left + 1);
            *cell = left;
        }
        // The minimum of a row never falls in later rows.
        if row.iter().all(|cell| *cell > most) {
            return None;
        }
    }
    row.last().copied().filter(|distance| *distance <= most)
}

#[cfg(test)]
mod tests {
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
            Entry {
                name: "ABC_{n}_FROM",
                aliases,
                source,
                summary: "source, branch",
                variants: ONE,
            },
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
}
