//! Time ranges in the syntax of `perf report --time`.

use std::fmt;

use crate::read::brstack::seconds;

const SECOND: u64 = 1_000_000_000;

/// A time range, inclusive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Times {
    /// From and to, in nanoseconds of the recording's clock; `None` is its start or end.
    Between {
        /// The first.
        from: Option<u64>,
        /// The last.
        to: Option<u64>,
    },
    /// Fractions, from 0 to 1, of the time between the first and last sample.
    Share {
        /// The first.
        from: f64,
        /// The last.
        to: f64,
    },
}

/// Why a text is not a list of time ranges.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTimes {
    /// An end is not a number.
    #[error("{0:?} is not a time: write seconds as perf script prints them, such as 12.5,13.25")]
    Number(String),
    /// The range is reversed.
    #[error("{0:?} ends before it starts")]
    Backwards(String),
    /// Not a fraction of the time.
    #[error("{0:?} is not a share of the time: write 10%-20%, or 10%/2 for the second tenth")]
    Share(String),
}

impl Times {
    /// Parses perf's syntax: `START,STOP` in seconds, either optional, several separated by spaces;
    /// or `10%-20%` and `10%/2`, several separated by commas.
    ///
    /// # Errors
    /// [`NotTimes`].
    pub fn parse(text: &str) -> Result<Vec<Times>, NotTimes> {
        if text.contains('%') {
            return text.split([',', ' ']).filter(|part| !part.is_empty()).map(share).collect();
        }
        let spans: Vec<&str> = text.split_ascii_whitespace().collect();
        if spans.is_empty() {
            return Err(NotTimes::Number(text.to_owned()));
        }
        spans.into_iter().map(between).collect()
    }

    /// Its ends in nanoseconds, given the times of the first and last sample; `None` if those are
    /// needed but unknown.
    pub(super) fn resolve(self, whole: Option<(u64, u64)>) -> Option<(u64, u64)> {
        match self {
            Times::Between { from, to } => Some((from.unwrap_or(0), to.unwrap_or(u64::MAX))),
            Times::Share { from, to } => {
                // perf writes zeros for unknown times.
                let (first, last) = whole.filter(|(first, last)| first <= last && *last > 0)?;
                let all = (last - first) as f64;
                let at = |share: f64| first.saturating_add((share * all).round() as u64);
                Some((at(from), at(to)))
            }
        }
    }
}

/// `START,STOP`.
fn between(text: &str) -> Result<Times, NotTimes> {
    let (from, to) = text.split_once(',').unwrap_or((text, ""));
    let end = |end: &str| match end {
        "" => Ok(None),
        end => nanoseconds(end).map(Some).ok_or_else(|| NotTimes::Number(end.to_owned())),
    };
    let (from, to) = (end(from)?, end(to)?);
    if from.zip(to).is_some_and(|(from, to)| to < from) {
        return Err(NotTimes::Backwards(text.to_owned()));
    }
    Ok(Times::Between { from, to })
}

/// `10%-20%`, `10%/2`, `10%`.
fn share(text: &str) -> Result<Times, NotTimes> {
    let wrong = || NotTimes::Share(text.to_owned());
    let percent = |text: &str| {
        let number: f64 = text.strip_suffix('%')?.parse().ok()?;
        (0.0..=100.0).contains(&number).then_some(number / 100.0)
    };
    if let Some((from, to)) = text.split_once('-') {
        let (from, to) = (percent(from).ok_or_else(wrong)?, percent(to).ok_or_else(wrong)?);
        return if from <= to { Ok(Times::Share { from, to }) } else { Err(wrong()) };
    }
    let (part, which) = text.split_once('/').unwrap_or((text, "1"));
    let part = percent(part).filter(|part| *part > 0.0).ok_or_else(wrong)?;
    let which: u32 = which.parse().ok().filter(|which| *which > 0).ok_or_else(wrong)?;
    let (from, to) = (part * f64::from(which - 1), part * f64::from(which));
    // The last of three parts of 33.4% is cut off at the end.
    if from < 1.0 { Ok(Times::Share { from, to: to.min(1.0) }) } else { Err(wrong()) }
}

/// Seconds with up to nine decimals.
fn nanoseconds(text: &str) -> Option<u64> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let point = if text.contains('.') { "" } else { ".0" };
    seconds(format!("{text}{point}").as_bytes())
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |nanos: u64| format!("{}.{:09}", nanos / SECOND, nanos % SECOND);
        match *self {
            Times::Between { from: Some(from), to: Some(to) } => {
                write!(f, "{} to {}", seconds(from), seconds(to))
            }
            Times::Between { from: Some(from), to: None } => write!(f, "from {} on", seconds(from)),
            Times::Between { from: None, to: Some(to) } => write!(f, "up to {}", seconds(to)),
            Times::Between { from: None, to: None } => write!(f, "any"),
            Times::Share { from, to } => write!(f, "{} to {}%", from * 100.0, to * 100.0),
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/profile/unit/read/select/times.rs"]
mod tests;
