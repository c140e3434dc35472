//! The chart as bars of text.

use super::binning::{FOLD, Gaps};
use super::{Bins, Histogram, TEXT_BINS};
use crate::present::escape::escaped;
use crate::present::number::{grouped, percent};
use crate::present::out::{columns, folded};

/// Indent of a folded note.
const INDENT: usize = 4;
/// Default width.
const COLUMNS: usize = 100;
/// Minimum length of the longest bar.
const MIN_BAR: usize = 10;

/// The properties of a terminal.
pub(crate) struct Terminal {
    /// Its columns.
    pub(crate) width: usize,
    /// Whether it shows more than ASCII.
    pub(crate) unicode: bool,
}

impl Terminal {
    /// Standard output as it is: its width, and the character set by the first
    /// of `LC_ALL`, `LC_CTYPE` and `LANG` that is set, as the C library does.
    pub(crate) fn of_stdout() -> Terminal {
        let width = columns(&std::io::stdout()).unwrap_or(COLUMNS);
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
        let locale = locale.unwrap_or_default().to_lowercase();
        let unicode = locale.contains("utf-8") || locale.contains("utf8");
        Terminal { width, unicode }
    }

    /// The characters of a series' bars: a full cell, and eighths of it if available.
    fn fill(&self, series: usize) -> (char, &'static [char]) {
        const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
        match (self.unicode, series % 4) {
            (true, 0) => ('█', &EIGHTHS),
            (true, 1) => ('▒', &[]),
            (true, 2) => ('▓', &[]),
            (true, _) => ('░', &[]),
            (false, 0) => ('#', &[]),
            (false, 1) => ('o', &[]),
            (false, 2) => ('=', &[]),
            (false, _) => ('.', &[]),
        }
    }

    fn bar(&self, series: usize, share: f64, columns: usize) -> String {
        let (whole, parts) = self.fill(series);
        if share <= 0.0 {
            return String::new();
        }
        let steps = parts.len() + 1;
        // Every nonzero bar is visible.
        let units = ((share * (columns * steps) as f64).round() as usize).max(1);
        let mut bar: String = std::iter::repeat_n(whole, units / steps).collect();
        if let Some(part) = (units % steps).checked_sub(1).and_then(|part| parts.get(part)) {
            bar.push(*part);
        }
        bar
    }
}

impl Histogram {
    /// The chart as text, each line ended.
    pub(crate) fn text(&self, terminal: Terminal) -> String {
        let mut out = format!("{}\n", escaped(&self.title));
        if let Some(note) = &self.note {
            for line in folded(&escaped(note), Some(terminal.width), INDENT) {
                out += &format!("{line}\n");
            }
        }
        for (index, series) in self.series.iter().enumerate() {
            let (swatch, _) = terminal.fill(index);
            let label = escaped(&series.label);
            let colon = if label.is_empty() { "" } else { ": " };
            out += &format!("{swatch} {label}{colon}{}\n", series.facts());
        }
        let Some(bins) = Bins::of(&self.series, TEXT_BINS, Gaps::Folded) else {
            return out + "no run has a cycle count\n";
        };
        out.push('\n');
        self.rows(&mut out, &bins, terminal);
        out
    }

    fn rows(&self, out: &mut String, bins: &Bins, terminal: Terminal) {
        let n = |series: usize| self.series.get(series).map_or(0, |s| s.n).max(1) as f64;
        let label = |first: u32| match bins.width {
            1 => first.to_string(),
            width => format!("{first}-{}", first.saturating_add(width - 1)),
        };
        let last = bins.bins.last().map_or(0, |bin| bin.first);
        let widest = label(last).len().max("saturated".len());
        let most = self.series.iter().map(|s| grouped(s.n).len()).max().unwrap_or(0).max(4);
        // Bars of one series are of runs, of several of shares: the same
        // lengths up to a factor, which is the longest bar.
        let share = |series: usize, runs: f64| runs / n(series);
        let all = || bins.bins.iter().flat_map(|bin| bin.runs.iter().enumerate());
        let longest = all().map(|(series, runs)| share(series, *runs)).fold(0.0, f64::max);
        let used = widest + 2 + most + 2 + 7 + 2 + "  < mode 65535".len();
        let columns = terminal.width.saturating_sub(used).max(MIN_BAR);
        *out += &format!("{:>widest$}  {:>most$}  {:>7}\n", "cycles", "runs", "share");
        let mut row = |label: &str, series: usize, runs: Option<f64>, bar: &str, modes: &[u32]| {
            let cells = |runs: f64| (grouped(runs.round() as u64), percent(share(series, runs)));
            let (runs, percent) = runs.map(cells).unwrap_or_default();
            *out += format!("{label:>widest$}  {runs:>most$}  {percent:>7}  {bar}").trim_end();
            if !modes.is_empty() {
                let arrow = if terminal.unicode { '◂' } else { '<' };
                let modes: Vec<String> = modes.iter().map(u32::to_string).collect();
                *out += &format!("  {arrow} mode {}", modes.join(", "));
            }
            out.push('\n');
        };
        let mut at = 0;
        while let Some(bin) = bins.bins.get(at) {
            let rest = bins.bins.get(at..).unwrap_or_default();
            let empty = rest.iter().take_while(|bin| bin.is_empty()).count();
            if empty >= FOLD {
                row(if terminal.unicode { "⋮" } else { ":" }, 0, None, "", &[]);
                at += empty;
                continue;
            }
            for (series, runs) in bin.runs.iter().enumerate() {
                let label = if series == 0 { label(bin.first) } else { String::new() };
                let bar = terminal.bar(series, share(series, *runs) / longest, columns);
                let modes = bin.modes.get(series).map_or(&[][..], Vec::as_slice);
                row(&label, series, Some(*runs), &bar, modes);
            }
            at += 1;
        }
        let over = last.saturating_add(bins.width - 1);
        for (series, beyond) in bins.beyond.iter().enumerate().filter(|(_, beyond)| **beyond > 0) {
            let largest = bins.largest_beyond.unwrap_or(over);
            let what = format!("up to {}, not drawn", grouped(u64::from(largest)));
            row(&format!("> {over}"), series, Some(*beyond as f64), &what, &[]);
        }
        for (series, of) in self.series.iter().enumerate().filter(|(_, s)| s.saturated > 0) {
            let what = "the highest count of a record";
            row("saturated", series, Some(of.saturated as f64), what, &[]);
        }
    }
}
