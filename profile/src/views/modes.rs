//! Around which counts a distribution gathers.
//!
//! A peak of the density is a mode where a valley parts it from every higher
//! one. The density at a count is taken over a window of a twelfth of it to
//! either side (below 12: of the count alone), because what is noise between
//! 300 and 301 is none between 3 and 4. A valley parts two peaks where its
//! density is at most 70 % of the lower one, and the difference is at least
//! 3.6 times as large as counting alone would make it.

/// A density is taken over this part of the value to either side.
const WINDOW: u32 = 12;
/// A mode holds at least this share of the samples within its neighbourhood.
const MODE_SHARE: f64 = 0.05;
/// A valley is at most so high, by the lower peak.
const VALLEY: f64 = 0.7;
/// By so many standard deviations of the difference a valley is lower.
const SURE: f64 = 3.6;

/// Values that were not told apart, and how many samples they hold.
struct Piece {
    first: u32,
    /// One behind the last.
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

/// Samples below a value.
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

    /// Samples from one value to another, both included.
    fn between(&self, first: u32, last: u32) -> f64 {
        self.at(last.saturating_add(1)) - self.at(first)
    }
}

/// What is near a value.
#[derive(Clone, Copy)]
struct Point {
    value: u32,
    /// Samples in its window.
    samples: f64,
    /// Values in its window.
    width: f64,
    /// The place of the value in the recording, not between two of them.
    piece: Option<usize>,
}

impl Point {
    fn new(value: u32, below: &Below<'_>, piece: Option<usize>) -> Point {
        let reach = value / WINDOW;
        let (first, last) = (value - reach, value.saturating_add(reach));
        let width = f64::from(last - first) + 1.0;
        Point { value, samples: below.between(first, last), width, piece }
    }

    fn density(&self) -> f64 {
        self.samples / self.width
    }
}

/// The modes of sorted values with their samples, the highest first. `step`
/// says how many values one of them stands for.
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
    let points = points(&pieces, &below);
    let mut peaks: Vec<usize> = (0..points.len())
        .filter(|&at| {
            points.get(at).is_some_and(|point| {
                let near = near(point.value);
                let last = point.value.saturating_add(near);
                let samples = below.between(point.value.saturating_sub(near), last);
                point.piece.is_some() && samples >= MODE_SHARE * all
            })
        })
        .collect();
    let raw = |at: usize| {
        let piece = points.get(at).and_then(|point| pieces.get(point.piece?));
        piece.map_or(0.0, Piece::density)
    };
    let density = |at: usize| points.get(at).map_or(0.0, Point::density);
    peaks.sort_by(|&a, &b| {
        density(b).total_cmp(&density(a)).then(raw(b).total_cmp(&raw(a))).then(a.cmp(&b))
    });
    let mut found: Vec<usize> = Vec::new();
    for peak in peaks {
        // A farther peak lies behind at least the same valley.
        let lower = found.iter().copied().filter(|other| *other < peak).max();
        let higher = found.iter().copied().filter(|other| *other > peak).min();
        let parted = |other: Option<usize>| other.is_none_or(|other| parted(&points, peak, other));
        if parted(lower) && parted(higher) {
            found.push(peak);
        }
    }
    found.into_iter().filter_map(|at| most_frequent(&points, &pieces, at)).collect()
}

/// The values themselves, and the middles of the gaps between them.
fn points(pieces: &[Piece], below: &Below<'_>) -> Vec<Point> {
    let mut points = Vec::with_capacity(pieces.len() * 2);
    let mut end = None;
    for (index, piece) in pieces.iter().enumerate() {
        if let Some(end) = end.filter(|end| *end < piece.first) {
            points.push(Point::new(end + (piece.first - 1 - end) / 2, below, None));
        }
        points.push(Point::new(piece.middle(), below, Some(index)));
        end = Some(piece.end);
    }
    points
}

/// Within this of each other two values are one neighbourhood.
fn near(value: u32) -> u32 {
    (value / 8).max(2)
}

/// Whether a valley lies between a peak and a higher one.
fn parted(points: &[Point], peak: usize, higher: usize) -> bool {
    let (first, last) = (peak.min(higher), peak.max(higher));
    let between = points.get(first..=last).unwrap_or_default();
    let (Some(peak), Some(low), Some(high)) = (points.get(peak), between.first(), between.last())
    else {
        return false;
    };
    if high.value - low.value <= near(high.value) {
        return false;
    }
    between.iter().any(|valley| {
        // As many as the window of the peak would hold there. Where a narrow
        // window is empty, one sample more could be.
        let scale = peak.width / valley.width;
        let expected = valley.samples * scale;
        let deviation = (peak.samples + (valley.samples + 1.0) * scale * scale).sqrt();
        expected <= VALLEY * peak.samples && peak.samples - expected >= SURE * deviation
    })
}

/// The value that occurred most often around a peak.
fn most_frequent(points: &[Point], pieces: &[Piece], peak: usize) -> Option<u32> {
    let peak = points.get(peak)?;
    // Also where the density is that of the value alone.
    let reach = (peak.value / WINDOW).max(1);
    let first = peak.value.saturating_sub(reach);
    let from = pieces.partition_point(|piece| piece.end <= first);
    let window = pieces.get(from..)?.iter();
    let window = window.take_while(|piece| piece.first <= peak.value.saturating_add(reach));
    // Of equals the least one.
    let best =
        window.reduce(|best, next| if next.density() > best.density() { next } else { best });
    best.map(|piece| piece.first)
}
