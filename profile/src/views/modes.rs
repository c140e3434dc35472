//! Around which counts a distribution gathers.
//!
//! A peak of the density is a mode where a valley parts it from every higher
//! one. The density at a count is taken over a window to either side that is a
//! part of the count itself, because what is noise between 300 and 301 is none
//! between 3 and 4. Wide humps show in wide windows and narrow peaks that stand
//! side by side in narrow ones: a narrower window adds what it parts, more
//! surely, from all that was found so far.

/// How peaks are told from each other with a window of one width.
struct Scale {
    /// The window reaches so far to either side, as a part of the value.
    window: u32,
    /// Within this part of each other, and within 2, values are one neighbourhood.
    near: u32,
    /// A valley is at most so high, by the lower peak.
    valley: f64,
    /// By so many standard deviations of the difference a valley is lower.
    sure: f64,
}

const SCALES: [Scale; 4] = [
    Scale { window: 12, near: 8, valley: 0.7, sure: 3.6 },
    Scale { window: 24, near: 16, ..NARROW },
    Scale { window: 48, near: 32, ..NARROW },
    Scale { window: 96, near: 64, ..NARROW },
];
/// More windows are more chances to be wrong.
const NARROW: Scale = Scale { window: 0, near: 0, valley: 0.5, sure: 4.4 };
/// A mode holds at least this share of the samples within its neighbourhood.
const MODE_SHARE: f64 = 0.05;

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
    let mut found: Vec<usize> = Vec::new();
    for scale in &SCALES {
        let points = points(&pieces, &below, scale);
        let density = |at: usize| points.get(at).map_or(0.0, Point::density);
        let raw = |at: usize| {
            let piece = points.get(at).and_then(|point| pieces.get(point.piece?));
            piece.map_or(0.0, Piece::density)
        };
        let mut peaks: Vec<usize> = (0..points.len())
            .filter(|&at| {
                points.get(at).is_some_and(|point| {
                    let near = scale.near(point.value);
                    let last = point.value.saturating_add(near);
                    let samples = below.between(point.value.saturating_sub(near), last);
                    point.piece.is_some() && samples >= MODE_SHARE * all
                })
            })
            .collect();
        peaks.sort_by(|&a, &b| {
            density(b).total_cmp(&density(a)).then(raw(b).total_cmp(&raw(a))).then(a.cmp(&b))
        });
        let here = |piece: &usize| points.iter().position(|point| point.piece == Some(*piece));
        let mut here: Vec<usize> = found.iter().filter_map(here).collect();
        for peak in peaks {
            // A farther peak lies behind at least the same valley.
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

/// The values themselves, and the middles of the gaps between them.
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
    /// Within this of each other two values are one neighbourhood.
    fn near(&self, value: u32) -> u32 {
        (value / self.near).max(2)
    }

    /// Whether a valley lies between two peaks.
    fn parted(&self, points: &[Point], one: usize, other: usize) -> bool {
        let between = points.get(one.min(other)..=one.max(other)).unwrap_or_default();
        let (Some(low), Some(high)) = (between.first(), between.last()) else { return false };
        if high.value - low.value <= self.near(high.value) {
            return false;
        }
        let peak = if low.density() < high.density() { low } else { high };
        between.iter().any(|valley| {
            // As many as the window of the peak would hold there. Where a narrow
            // window is empty, one sample more could be.
            let scale = peak.width / valley.width;
            let expected = valley.samples * scale;
            let deviation = (peak.samples + (valley.samples + 1.0) * scale * scale).sqrt();
            expected <= self.valley * peak.samples
                && peak.samples - expected >= self.sure * deviation
        })
    }
}

/// The piece around a peak whose value occurred most often.
fn most_frequent(points: &[Point], pieces: &[Piece], scale: &Scale, peak: usize) -> Option<usize> {
    let peak = points.get(peak)?;
    // Also where the density is that of the value alone.
    let reach = (peak.value / scale.window).max(1);
    let first = peak.value.saturating_sub(reach);
    let from = pieces.partition_point(|piece| piece.end <= first);
    let window = pieces.get(from..)?.iter().enumerate();
    let window = window.take_while(|(_, piece)| piece.first <= peak.value.saturating_add(reach));
    // Of equals the least one.
    let best =
        window.reduce(|best, next| if next.1.density() > best.1.density() { next } else { best });
    best.map(|(at, _)| from + at)
}
