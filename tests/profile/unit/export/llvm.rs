use std::collections::BTreeMap;

use super::{base, copies, disjoint};
use crate::export::samples::canonical;

/// The three drawings above LLVM's own function.
#[test]
fn ranges_are_split_where_others_start_and_end() {
    let cut = |ranges: &[((u64, u64), u64)]| disjoint(&BTreeMap::from_iter(ranges.to_vec()));
    let nested = cut(&[((10, 20), 100), ((10, 30), 200)]);
    assert_eq!(nested, [((10, 20), 300), ((21, 30), 200)]);
    let touching = cut(&[((10, 20), 100), ((20, 30), 200)]);
    assert_eq!(touching, [((10, 19), 100), ((20, 20), 300), ((21, 30), 200)]);
    let within = cut(&[((10, 90), 0), ((20, 30), 100), ((50, 60), 200)]);
    let expected = [((10, 19), 0), ((20, 30), 100), ((31, 49), 0), ((50, 60), 200), ((61, 90), 0)];
    assert_eq!(within, expected);
    assert_eq!(cut(&[((1, 2), 5), ((8, 9), 5)]), [((1, 2), 5), ((8, 9), 5)]);
}

/// A discriminator consists of base, factor and copy, each of 1 bit (set: zero), 7 or 14 bits.
#[test]
fn discriminators_hold_several_numbers() {
    assert_eq!((base(0, false), copies(0, false)), (0, 1));
    // Base 3; then factor 4 after 7 bits.
    assert_eq!((base(3 << 1, false), copies(3 << 1, false)), (3, 1));
    assert_eq!((base(3 << 1 | 8 << 7, false), copies(3 << 1 | 8 << 7, false)), (3, 4));
    // No base, factor 4.
    assert_eq!((base(1 | 8 << 1, false), copies(1 | 8 << 1, false)), (0, 4));
    // Base 0x25 takes 14 bits: its low five, a marker, then the others.
    let wide = (0x25 & 0x1f | 0x20 | (0x25 & 0xfe0) << 1) << 1;
    assert_eq!((base(wide, false), copies(wide | 8 << 14, false)), (0x25, 4));
    assert_eq!((base(0x1234, true), copies(0x1234, true)), (0x1234, 1));
}

/// Probe numbers are bits 3 to 18; with bit 28 set, bits 16 to 18 are the base. LLVM 19's
/// `llvm-profgen` converts 15, 39 and 63 to .1, .4 and .7.
#[test]
fn discriminators_like_those_of_probes() {
    let pairs = [(15, 1), (39, 4), (63, 7), (0x7_ffff, 0xffff), (7 | 5 << 16 | 1 << 28, 5)];
    for (discriminator, expected) in pairs {
        assert_eq!((base(discriminator, false), copies(discriminator, false)), (expected, 1));
    }
    // All components empty; not all of the low bits are set.
    assert_eq!((base(7, false), base(11, false)), (0, 0));
}

#[test]
fn compiler_suffixes_are_stripped() {
    assert_eq!(canonical("f.llvm.123"), "f");
    assert_eq!(canonical("f.part.0"), "f");
    assert_eq!(canonical("f.part.0.llvm.7"), "f");
    assert_eq!(canonical("f.__uniq.5"), "f.__uniq.5");
    assert_eq!(canonical("f.cold"), "f.cold");
    assert_eq!(canonical("f.llvm.1.x"), "f.llvm.1.x");
}
