//! Entries for every value of a layout's flag bits, computed at compile time.
//!
//! An entry has ten fields of one or two bytes. Setting each separately costs one store; copying a
//! prepared entry costs two in all.

use crate::{
    record::BranchEntry,
    register::record::{ArchInfo, LbrInfo},
};

/// One entry for each of `N` values of the flag bits; `N` is a power of two. Addresses are 0, and
/// so are cycles if the layout has them.
pub(super) struct Templates<const N: usize>([BranchEntry; N]);

impl<const N: usize> Templates<N> {
    /// The entry for a flags value; bits above the flags are ignored.
    #[inline(always)]
    pub(super) fn of(&self, flags: usize) -> &BranchEntry {
        &self.0[flags & (N - 1)]
    }
}

/// An entry with no field known except its addresses. `Default` is not const.
const PLAIN: BranchEntry = BranchEntry {
    from: 0,
    to: 0,
    mispredicted: None,
    in_tx: None,
    abort: None,
    cycles: None,
    cycles_saturated: None,
    hw_type: None,
    branch_type: None,
    spec: None,
    counters: None,
};

/// Format 4, by FROM\[63:61\], without and with TSX.
pub(super) static FLAGS_TSX: [Templates<8>; 2] = [top_three(false, false), top_three(true, false)];
/// Formats 5 and 7, by INFO\[63:61\], without and with TSX.
pub(super) static INFO: [Templates<8>; 2] = [top_three(false, true), top_three(true, true)];
/// Architectural LBR, by INFO\[63:56\], without and with TSX.
pub(super) static ARCH: [Templates<256>; 2] = [arch(false), arch(true)];

/// MISPRED, IN_TSX and TSX_ABORT have the same order in FROM of format 4 and in INFO.
const fn top_three(tsx: bool, timed: bool) -> Templates<8> {
    let mut all = [PLAIN; 8];
    let mut flags = 0;
    while flags < all.len() {
        let info = LbrInfo((flags as u64) << 61);
        let entry = &mut all[flags];
        entry.mispredicted = Some(info.mispredicted());
        if tsx {
            entry.in_tx = Some(info.in_tx());
            entry.abort = Some(info.abort());
        }
        if timed {
            entry.cycles = Some(0);
            entry.cycles_saturated = Some(false);
        }
        flags += 1;
    }
    Templates(all)
}

const fn arch(tsx: bool) -> Templates<256> {
    let mut all = [PLAIN; 256];
    let mut flags = 0;
    while flags < all.len() {
        let info = ArchInfo((flags as u64) << 56);
        let entry = &mut all[flags];
        entry.mispredicted = Some(info.mispredicted());
        entry.hw_type = info.branch_type();
        if tsx {
            entry.in_tx = Some(info.in_tx());
            entry.abort = Some(info.abort());
        }
        if info.cycles_valid() {
            entry.cycles = Some(0);
            entry.cycles_saturated = Some(false);
        }
        flags += 1;
    }
    Templates(all)
}

/// The values of the four counters, by INFO\[39:32\].
pub(super) struct Logged([[Option<u8>; 4]; 256]);

impl Logged {
    #[inline(always)]
    pub(super) fn of(&self, bits: usize) -> [Option<u8>; 4] {
        self.0[bits & 255]
    }
}

/// Indexed by the bitmap of logged counters.
pub(super) static COUNTERS: [Logged; 16] = {
    const NONE: Logged = Logged([[None; 4]; 256]);
    let mut all = [NONE; 16];
    let mut has = 0;
    while has < all.len() {
        let mut bits = 0;
        while bits < 256 {
            let info = ArchInfo((bits as u64) << 32);
            let mut i = 0;
            while i < 4 {
                if has >> i & 1 != 0 {
                    all[has].0[bits][i] = Some(info.counter(i as u32));
                }
                i += 1;
            }
            bits += 1;
        }
        has += 1;
    }
    all
};
