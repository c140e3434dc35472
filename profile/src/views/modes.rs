//! Finds the modes of a distribution.
//!
//! A peak of the density is a mode if a valley separates it from every higher peak. The density at
//! a count is computed over a window on both sides whose width is a fraction of the count, because
//! a difference of 1 is noise at 300 but not at 3. Wide windows find wide peaks, narrow ones find
//! narrow peaks that are close together. A narrower window, at a higher confidence, adds peaks that
//! it separates from all found before.

/// Parameters for separating peaks with a window of one width.
struct Scale {
    /// Window size on each side, as a fraction of the value.
    window: u32,
    /// Values within this fraction, and within 2, of each other are neighbours.
    near: u32,
    /// Maximum height of a valley, relative to the lower peak.
    valley: f64,
    /// Number of standard deviations by which a valley must be lower.
    sure: f64,
}

const SCALES: [Scale; 4] = [
    Scale { window: 12, near: 8, valley: 0.7, sure: 3.6 },
    Scale { window: 24, near: 16, ..NARROW },
    Scale { window: 48, near: 32, ..NARROW },
    Scale { window: 96, near: 64, ..NARROW },
];
/// Each further window is another chance of an error.
const NARROW: Scale = Scale { window: 0, near: 0, valley: 0.5, sure: 4.4 };
/// Minimum share of the samples in a mode's neighbourhood.
const MODE_SHARE: f64 = 0.05;

/// Values stored together, and their number of samples.
struct Piece {
    first: u32,
    /// The value after the last.
    end: u32,
    samples: u64,
}

impl Piece {
    fn middle(&self) -> u32 {
        self.first + (self.end - self.first) / 2
    }

    fn density(&self) -> f64 {
        self.samples as f64 / f64::from(self.end - self.first)
    }
}

/// Number of samples below a value.
struct Below<'a> {
    pieces: &'a [Piece],
    sums: Vec<f64>,
}

impl Below<'_> {
    fn at(&self, value: u32) -> f64 {
        let index = self.pieces.partition_point(|piece| piece.end <= value);
        let whole = index.checked_sub(1).and_then(|last| self.sums.get(last)).copied();
        let part = self.pieces.get(index).filter(|piece| piece.first < value);
        let part = part.map_or(0.0, |piece| piece.density() * f64::from(value - piece.first));
        whole.unwrap_or(0.0) + part
    }

    /// Number of samples from one value to another, inclusive.
    fn between(&self, first: u32, last: u32) -> f64 {
        self.at(last.saturating_add(1)) - self.at(first)
    }
}

/// The neighbourhood of a value.
#[derive(Clone, Copy)]
struct Point {
    value: u32,
    /// Samples in its window.
    samples: f64,
    /// Values in its window.
    width: f64,
    /// Index of the value in the distribution, not between two values.
    piece: Option<usize>,
}

impl Point {
    fn new(value: u32, below: &Below<'_>, scale: &Scale, piece: Option<usize>) -> Point {
        let reach = value / scale.window;
        let (first, last) = (value - reach, value.saturating_add(reach));
        let width = f64::from(last - first) + 1.0;
        Point { value, samples: below.between(first, last), width, piece }
    }

    fn density(&self) -> f64 {
        self.samples / self.width
    }
}

/// The modes of sorted values with their samples, highest first. `step` returns how many values one
/// of them represents.
pub(crate) fn modes(counts: &[(u32, u64)], step: impl Fn(u32) -> u32) -> Vec<u32> {
    let pieces: Vec<Piece> = counts
        .iter()
        .map(|&(first, samples)| Piece { first, end: first.saturating_add(step(first)), samples })
        .collect();
    let mut sum = 0.0;
    let sums = pieces.iter().map(|piece| {
        sum += piece.samples as f64;
        sum
    });
    let below = Below { sums: sums.collect(), pieces: &pieces };
    let all = below.sums.last().copied().unwrap_or(0.0);
    let mut found: Vec<usize> = Vec::new();
    for scale in &SCALES {
        let points = points(&pieces, &below, scale);
        let density = |at: usize| points[at].density();
        let raw = |at: usize| points[at].piece.map_or(0.0, |piece| pieces[piece].density());
        let mut peaks: Vec<usize> = (0..points.len())
            .filter(|&at| {
                let Point { value, piece, .. } = points[at];
                let near = scale.near(value);
                let (first, last) = (value.saturating_sub(near), value.saturating_add(near));
                piece.is_some() && below.between(first, last) >= MODE_SHARE * all
            })
            .collect();
        peaks.sort_by(|&a, &b| {
            density(b).total_cmp(&density(a)).then(raw(b).total_cmp(&raw(a))).then(a.cmp(&b))
        });
        let here = |piece: &usize| points.iter().position(|point| point.piece == Some(*piece));
        let mut here: Vec<usize> = found.iter().filter_map(here).collect();
        for peak in peaks {
            // A farther peak is separated by at least the same valley.
            let lower = here.iter().copied().filter(|other| *other <= peak).max();
            let higher = here.iter().copied().filter(|other| *other >= peak).min();
            let parted =
                |other: Option<usize>| other.is_none_or(|other| scale.parted(&points, peak, other));
            if parted(lower) && parted(higher) {
                here.push(peak);
            }
        }
        found =
            here.into_iter().filter_map(|at| most_frequent(&points, &pieces, scale, at)).collect();
    }
    found.into_iter().filter_map(|at| Some(pieces.get(at)?.first)).collect()
}

/// The values, and the middle of each gap between them.
fn points(pieces: &[Piece], below: &Below<'_>, scale: &Scale) -> Vec<Point> {
    let mut points = Vec::with_capacity(pieces.len() * 2);
    let mut end = None;
    for (index, piece) in pieces.iter().enumerate() {
        if let Some(end) = end.filter(|end| *end < piece.first) {
            points.push(Point::new(end + (piece.first - 1 - end) / 2, below, scale, None));
        }
        points.push(Point::new(piece.middle(), below, scale, Some(index)));
        end = Some(piece.end);
    }
    points
}

impl Scale {
    /// Distance within which two values are neighbours.
    fn near(&self, value: u32) -> u32 {
        (value / self.near).max(2)
    }

    /// Whether a valley separates two peaks.
    fn parted(&self, points: &[Point], one: usize, other: usize) -> bool {
        let between = points.get(one.min(other)..=one.max(other)).unwrap_or_default();
        let (Some(low), Some(high)) = (between.first(), between.last()) else { return false };
        if high.value - low.value <= self.near(high.value) {
            return false;
        }
        let peak = if low.density() < high.density() { low } else { high };
        between.iter().any(|valley| {
            // The number of samples at the density of the peak. One more sample could fall into an
            // empty narrow window.
            let scale = peak.width / valley.width;
            let expected = valley.samples * scale;
            let deviation = (peak.samples + (valley.samples + 1.0) * scale * scale).sqrt();
            expected <= self.valley * peak.samples
                && peak.samples - expected >= self.sure * deviation
        })
    }
}

/// The most frequent value around a peak.
fn most_frequent(points: &[Point], pieces: &[Piece], scale: &Scale, peak: usize) -> Option<usize> {
    let peak = points.get(peak)?;
    // Also for a density of only one value.
    let reach = (peak.value / scale.window).max(1);
    let first = peak.value.saturating_sub(reach);
    let from = pieces.partition_point(|piece| piece.end <= first);
    let window = pieces.get(from..)?.iter().enumerate();
    let window = window.take_while(|(_, piece)| piece.first <= peak.value.saturating_add(reach));
    // Of equal ones, the lowest.
    let best =
        window.reduce(|best, next| if next.1.density() > best.1.density() { next } else { best });
    best.map(|(at, _)| from + at)
}
