//! LLVM's sample profile of lines, as llvm-profgen makes it
//! (`ProfileGenerator::generateLineNumBasedProfile`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ExportError;
use super::binary::Binary;
use super::debug::{Frame, Functions};
use super::program::Program;
use super::ranges::Ranges;
use super::samples::{self, Line, Samples};
use crate::clean::add;
use crate::code::symbols::DebugDirs;

/// Start-up code that the compiler links to every program, without debug information.
const START_UP: &[&str] = &[
    "_start",
    "_init",
    "_fini",
    "_dl_relocate_static_pie",
    "__libc_csu_init",
    "__libc_csu_fini",
    "__do_global_ctors_aux",
    "__do_global_dtors_aux",
    "frame_dummy",
    "register_tm_clones",
    "deregister_tm_clones",
];

/// Line information that a profile would need.
#[derive(Debug, Default)]
pub(super) struct Lacks {
    /// Files of split debug information that are not there.
    pub(super) missing: Vec<String>,
    /// Functions without it, with the number of their executed instructions, the most
    /// first.
    pub(super) unknown: Vec<(String, u64)>,
}

/// The profile.
pub(super) fn text(
    program: &mut Program,
    dirs: &DebugDirs,
    lacks: &mut Lacks,
) -> Result<String, ExportError> {
    let path = program.binary.path().to_owned();
    if program.binary.has_probes {
        return Err(ExportError::Probes { path });
    }
    let functions = Functions::of(&path, dirs, program.binary.base);
    let Some(mut functions) = functions else { return Err(ExportError::NoDebug { path }) };
    lacks.missing = functions.missing().map(str::to_owned).collect();
    if functions.all.is_empty() {
        let files = super::some_of(&lacks.missing);
        return Err(match lacks.missing.is_empty() {
            true => ExportError::NoDebug { path },
            false => ExportError::NoPieces { path, files },
        });
    }
    let mut flow = false;
    program.binary.for_each_symbol(|addr, name| {
        functions.symbol(addr, name);
        // Compilers say so by a symbol (`checkUseFSDiscriminator`).
        flow |= name == "__llvm_fs_discriminator__";
    });
    let ranges = Ranges::of(program);
    let mut made = Made { functions: BTreeMap::new(), missing: BTreeMap::new(), flow };
    made.add_ranges(program, &mut functions, &ranges);
    made.add_branches(&mut functions, &ranges);
    lacks.unknown = by_symbol(&made.missing, &program.binary);
    Ok(samples::text(made.functions))
}

/// Sums by the symbol that each address follows, without start-up code and the
/// stubs of libraries.
fn by_symbol(missing: &BTreeMap<u64, u64>, binary: &Binary) -> Vec<(String, u64)> {
    let missing: Vec<(u64, u64)> = missing
        .iter()
        .map(|(addr, count)| (*addr, *count))
        .filter(|of| !binary.is_stub(of.0))
        .collect();
    // By address, the last symbol at or before it and after the previous address.
    let mut nearest: Vec<Option<(u64, String)>> = vec![None; missing.len()];
    binary.for_each_symbol(|addr, name| {
        let at = missing.partition_point(|(of, _)| *of < addr);
        if let Some(known) = nearest.get_mut(at)
            && known.as_ref().is_none_or(|(of, _)| *of <= addr)
            && !name.is_empty()
        {
            *known = Some((addr, name.to_owned()));
        }
    });
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    let mut symbol = String::from("[unknown]");
    for ((_, count), nearest) in missing.into_iter().zip(nearest) {
        symbol = nearest.map_or(symbol, |(_, name)| name);
        if !START_UP.contains(&symbol.as_str()) {
            add(sums.entry(symbol.clone()).or_default(), count);
        }
    }
    let mut sums: Vec<(String, u64)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    sums
}

/// The discriminator of a probe holds the base discriminator too
/// (`PseudoProbeDwarfDiscriminator::isDwarfBaseDiscriminatorEncoded`).
const PROBE_HAS_BASE: u32 = 1 << 28;

/// The profile while it is made.
struct Made {
    functions: BTreeMap<Arc<str>, Samples>,
    /// Executed instructions that no function of the debug information has, by
    /// address.
    missing: BTreeMap<u64, u64>,
    /// Discriminators are flow-sensitive: they have bits of their own in place
    /// of factors.
    flow: bool,
}

impl Made {
    /// `populateBodySamplesForAllFunctions`: a line has the count of the
    /// instruction of it that ran most, and a function the sum over the bytes
    /// of its instructions.
    fn add_ranges(&mut self, program: &mut Program, functions: &mut Functions, of: &Ranges) {
        let Program { binary, losses, .. } = program;
        for ((start, last), count) in disjoint(&with_functions(&of.ranges, functions)) {
            binary.walk(start, last, |insn| {
                let frames = functions.frames(insn.addr);
                add(&mut losses.instructions, count);
                if !self.add_instruction(&frames, (insn.len.into(), count)) && count > 0 {
                    add(&mut losses.without_lines, count);
                    add(self.missing.entry(insn.addr).or_default(), count);
                }
                true
            });
        }
    }

    /// Whether it belongs to a function.
    fn add_instruction(&mut self, frames: &[Frame], (len, count): (u64, u64)) -> bool {
        let flow = self.flow;
        let Some(leaf) = frames.last().filter(|_| is_named(frames)) else { return false };
        let Some(samples) = self.leaf(frames, count.saturating_mul(len)) else { return false };
        let at = samples.body.entry((leaf.line, base(leaf.discriminator, flow))).or_default();
        at.count = at.count.max(count.saturating_mul(copies(leaf.discriminator, flow)));
        true
    }

    /// `populateBoundarySamplesForAllFunctions`: any branch to the entry of a
    /// function is a call of it, jumps and those from outside too.
    fn add_branches(&mut self, functions: &mut Functions, of: &Ranges) {
        let flow = self.flow;
        for (&(from, to), &count) in &of.branches {
            let Some(part) = functions.parts.get(&to).filter(|part| part.is_entry) else {
                continue;
            };
            let Some(callee) = functions.all.get(part.function) else { continue };
            let callee: Arc<str> = samples::canonical(&callee.name).into();
            // The mark of a source outside is looked up as an address too: where
            // the linker left functions at 0 that it dropped, they call.
            let frames = functions.frames(from);
            if let Some(leaf) = frames.last().filter(|_| is_named(&frames))
                && let Some(caller) = self.leaf(&frames, 0)
            {
                let line = (leaf.line, base(leaf.discriminator, flow));
                let at = caller.body.entry(line).or_default();
                add(at.targets.entry(Arc::clone(&callee)).or_default(), count);
            }
            add(&mut self.functions.entry(callee).or_default().head, count);
        }
    }

    /// The innermost function of some frames; all of them get samples
    /// (`getLeafProfileAndAddTotalSamples`).
    fn leaf(&mut self, frames: &[Frame], total: u64) -> Option<&mut Samples> {
        let flow = self.flow;
        let (outer, inner) = frames.split_first()?;
        let mut samples = self.functions.entry(Arc::clone(&outer.function)).or_default();
        add(&mut samples.total, total);
        let mut caller = outer;
        for frame in inner {
            let line: Line = (caller.line, base(caller.discriminator, flow));
            let inlined = samples.inlined.entry(line).or_default();
            samples = inlined.entry(Arc::clone(&frame.function)).or_default();
            add(&mut samples.total, total);
            caller = frame;
        }
        Some(samples)
    }
}

/// The symbolizer stops at a function without a name.
fn is_named(frames: &[Frame]) -> bool {
    frames.iter().all(|frame| !frame.function.is_empty())
}

/// Adds the functions that ranges begin in, whole and run no times: what did
/// not run is cold, and not unknown (`preprocessRangeCounter`).
fn with_functions(
    ranges: &BTreeMap<(u64, u64), u64>,
    functions: &Functions,
) -> BTreeMap<(u64, u64), u64> {
    let mut all = ranges.clone();
    for (start, _) in ranges.keys() {
        let Some((_, part)) = functions.part(*start) else { continue };
        let Some(function) = functions.all.get(part.function) else { continue };
        for (start, end) in &function.ranges {
            all.entry((*start, end - 1)).or_default();
        }
    }
    all
}

/// Ranges that do not overlap, with the sums of those that they are parts of
/// (`findDisjointRanges`). What lies in none is in none of them.
fn disjoint(ranges: &BTreeMap<(u64, u64), u64>) -> Vec<((u64, u64), u64)> {
    /// What begins or ends at an address: count, and how many ran no times.
    #[derive(Default)]
    struct Point {
        begins: Option<(u64, i64)>,
        ends: Option<(u64, i64)>,
    }
    let mut points: BTreeMap<u64, Point> = BTreeMap::new();
    for (&(start, last), &count) in ranges {
        let mut put = |at: u64, of: fn(&mut Point) -> &mut Option<(u64, i64)>| {
            let (sum, zeros) = of(points.entry(at).or_default()).get_or_insert_default();
            add(sum, count);
            // One at most of those that begin at an address counts, as there.
            *zeros = (*zeros).max(i64::from(count == 0));
        };
        put(start, |point| &mut point.begins);
        put(last, |point| &mut point.ends);
    }
    let mut found = Vec::new();
    let (mut begin, mut depth, mut count) = (None, 0i64, 0u64);
    for (addr, point) in points {
        if let Some((sum, zeros)) = point.begins {
            found.extend(begin.map(|begin| ((begin, addr - 1), count)));
            begin = Some(addr);
            add(&mut count, sum);
            depth += zeros;
        }
        if let Some((sum, zeros)) = point.ends {
            found.extend(begin.map(|begin| ((begin, addr), count)));
            count = count.saturating_sub(sum);
            depth -= zeros;
            begin = (count > 0 || depth > 0).then(|| addr + 1);
        }
    }
    found
}

/// The base discriminator (`DILocation::getBaseDiscriminatorFromDiscriminator`); of
/// flow-sensitive ones all of it (`ProfileGeneratorBase::getBaseDiscriminator`).
/// If the low three bits and a higher one are set, LLVM takes it for a pseudo
/// probe's, whichever compiler made it.
fn base(discriminator: u32, flow: bool) -> u32 {
    match discriminator {
        whole if flow => whole,
        probe if probe & 7 == 7 && probe > 7 => match probe & PROBE_HAS_BASE {
            0 => probe >> 3 & 0xffff,
            _ => probe >> 16 & 7,
        },
        encoded => prefixed(encoded),
    }
}

/// How many copies of a line a loop has been unrolled or vectorized into
/// (`DILocation::getDuplicationFactorFromDiscriminator`).
fn copies(discriminator: u32, flow: bool) -> u64 {
    let next = match (discriminator & 1, discriminator & 0x40) {
        (1, _) => discriminator >> 1,
        (_, 0) => discriminator >> 7,
        _ => discriminator >> 14,
    };
    if flow { 1 } else { prefixed(next).max(1).into() }
}

/// A number of up to 12 bits in front of other components
/// (`getUnsignedFromPrefixEncoding`).
fn prefixed(word: u32) -> u32 {
    if word & 1 == 1 {
        return 0;
    }
    let word = word >> 1;
    if word & 0x20 != 0 { word >> 1 & 0xfe0 | word & 0x1f } else { word & 0x1f }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{base, copies, disjoint};
    use crate::export::samples::canonical;

    /// The three drawings above LLVM's own function.
    #[test]
    fn ranges_are_cut_where_others_begin_and_end() {
        let cut = |ranges: &[((u64, u64), u64)]| disjoint(&BTreeMap::from_iter(ranges.to_vec()));
        let nested = cut(&[((10, 20), 100), ((10, 30), 200)]);
        assert_eq!(nested, [((10, 20), 300), ((21, 30), 200)]);
        let touching = cut(&[((10, 20), 100), ((20, 30), 200)]);
        assert_eq!(touching, [((10, 19), 100), ((20, 20), 300), ((21, 30), 200)]);
        let within = cut(&[((10, 90), 0), ((20, 30), 100), ((50, 60), 200)]);
        let expected =
            [((10, 19), 0), ((20, 30), 100), ((31, 49), 0), ((50, 60), 200), ((61, 90), 0)];
        assert_eq!(within, expected);
        assert_eq!(cut(&[((1, 2), 5), ((8, 9), 5)]), [((1, 2), 5), ((8, 9), 5)]);
    }

    /// A discriminator is base, factor and copy, each of 1 (a bit that is set:
    /// zero), 7 or 14 bits.
    #[test]
    fn discriminators_hold_several_numbers() {
        assert_eq!((base(0, false), copies(0, false)), (0, 1));
        // Base 3; then factor 4 behind 7 bits.
        assert_eq!((base(3 << 1, false), copies(3 << 1, false)), (3, 1));
        assert_eq!((base(3 << 1 | 8 << 7, false), copies(3 << 1 | 8 << 7, false)), (3, 4));
        // No base, factor 4.
        assert_eq!((base(1 | 8 << 1, false), copies(1 | 8 << 1, false)), (0, 4));
        // Base 0x25 takes 14 bits: its low five, a mark, then the others.
        let wide = (0x25 & 0x1f | 0x20 | (0x25 & 0xfe0) << 1) << 1;
        assert_eq!((base(wide, false), copies(wide | 8 << 14, false)), (0x25, 4));
        assert_eq!((base(0x1234, true), copies(0x1234, true)), (0x1234, 1));
    }

    /// Probe numbers are bits 3 to 18; with bit 28 set, bits 16 to 18 are the
    /// base. `llvm-profgen` of LLVM 19 makes .1, .4 and .7 of 15, 39 and 63.
    #[test]
    fn discriminators_like_those_of_probes() {
        let pairs = [(15, 1), (39, 4), (63, 7), (0x7_ffff, 0xffff), (7 | 5 << 16 | 1 << 28, 5)];
        for (discriminator, expected) in pairs {
            assert_eq!((base(discriminator, false), copies(discriminator, false)), (expected, 1));
        }
        // All components empty; low bits that are not all set.
        assert_eq!((base(7, false), base(11, false)), (0, 0));
    }

    #[test]
    fn names_lose_what_compilers_append() {
        assert_eq!(canonical("f.llvm.123"), "f");
        assert_eq!(canonical("f.part.0"), "f");
        assert_eq!(canonical("f.part.0.llvm.7"), "f");
        assert_eq!(canonical("f.__uniq.5"), "f.__uniq.5");
        assert_eq!(canonical("f.cold"), "f.cold");
        assert_eq!(canonical("f.llvm.1.x"), "f.llvm.1.x");
    }
}
