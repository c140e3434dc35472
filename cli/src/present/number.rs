//! Numbers and lists for people.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;

use indicatif::HumanCount;
use profile::interval::Interval;

/// A number with its thousands apart: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    HumanCount(number).to_string()
}

/// A grouped number with its noun.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// The nonzero counts, each with its noun in singular or plural and the words after it.
pub(crate) fn counted_nonzero<'a>(
    counts: impl IntoIterator<Item = (u64, &'a str, &'a str, &'a str)>,
) -> impl Iterator<Item = String> {
    let counts = counts.into_iter().filter(|(count, ..)| *count > 0);
    counts.map(|(count, one, many, what)| {
        format!("{} {what}", counted(count, one, many)).trim_end().to_owned()
    })
}

/// The nonzero counts, each with its noun.
pub(crate) fn nonzero(counts: impl IntoIterator<Item = (impl Display, u64)>) -> Vec<String> {
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    counts.map(|(what, count)| format!("{} {what}", grouped(count))).collect()
}

/// A list as text, with `between` between its items.
pub(crate) fn joined(items: impl IntoIterator<Item = impl Display>, between: &str) -> String {
    let items = items.into_iter().map(|item| item.to_string());
    items.collect::<Vec<_>>().join(between)
}

/// The items that apply.
pub(crate) fn applicable<T>(items: impl IntoIterator<Item = (bool, T)>) -> impl Iterator<Item = T> {
    items.into_iter().filter_map(|(applies, item)| applies.then_some(item))
}

/// The sum of each key's counts, in the order in which the keys first come.
pub(crate) fn summed<K: Clone + Eq + Hash>(
    counts: impl Iterator<Item = (K, u64)>,
) -> Vec<(K, u64)> {
    let (mut sums, mut known): (Vec<(K, u64)>, HashMap<K, usize>) = Default::default();
    for (key, count) in counts {
        let at = *known.entry(key).or_insert_with_key(|key| {
            sums.push((key.clone(), 0));
            sums.len() - 1
        });
        sums[at].1 = sums[at].1.saturating_add(count);
    }
    sums
}

/// A part as a share of the whole, 0 to 1; `None` if the whole is 0.
pub(crate) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// A share, 0 to 1, in percent: `12.50%`. Only zero is `0%`, and only all is `100.00%`.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0%".to_owned(),
        percent if percent > 0.0 && percent < 0.005 => "<0.01%".to_owned(),
        percent if (99.995..100.0).contains(&percent) => ">99.99%".to_owned(),
        percent => format!("{percent:.2}%"),
    }
}

/// A part as a share of the whole, in percent; `-` if the whole is 0.
pub(crate) fn part(part: u64, whole: u64) -> String {
    share(part, whole).map_or_else(dash, percent)
}

/// An interval of shares, in percent.
pub(crate) fn range(Interval { low, high }: Interval) -> String {
    format!("{:.2} to {:.2}%", low * 100.0, high * 100.0)
}

/// The two ends of an interval.
pub(crate) fn ends(interval: Option<Interval>) -> (Option<f64>, Option<f64>) {
    interval.map(|Interval { low, high }| (low, high)).unzip()
}

/// Unknown is not zero.
pub(crate) fn dash() -> String {
    "-".to_owned()
}
