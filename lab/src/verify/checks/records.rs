//! Checks that records are made: each once, as many as announced, in order.

use lbr_msr::caps::{Order, Quirks};

use super::super::bench::{Bench, Facts, Filled};
use super::super::check::{Finding, Spec, answer, not_applicable};
use super::super::{Kernel, RunError};

pub(in crate::verify) const CHECKS: &[Spec] = &[
    Spec {
        id: "recording",
        what: "branches are recorded while recording is on and the filter records everything",
        run: "Up to 3 jumps run while recording is on; if none is recorded, again with every \
              filter bit inverted.",
        why: "All checks of records rest on it.",
        falsified: "None of the jumps is recorded.",
        needs: &["registers.from", "registers.to", "registers.select", "bits.enable"],
        documented: |_| answer("records", "SDM 17.4.2; Linux lbr.c"),
        look: recording,
    },
    Spec {
        id: "records",
        what: "each branch is recorded once",
        run: "Up to 3 jumps at known addresses run, and the records are compared with them.",
        why: "Every count of a report is a count of records.",
        falsified: "A jump has no record or two, or a record belongs to no jump.",
        needs: &["recording"],
        documented: |facts| {
            let count = few(facts);
            answer(format!("{count} of {count} jumps, each once"), "SDM 17.4.8")
        },
        look: |bench| {
            let value = bench.facts.open();
            let kernel = Kernel::Jumps(few(&bench.facts));
            let (filled, difference) = bench.compared(kernel, value)?;
            let wanted = bench.facts.wanted(&filled, value).len();
            let there = wanted - difference.missing.len().min(wanted);
            Ok(if difference.is_none() {
                Finding::same(format!("{there} of {wanted}, each once"))
            } else if difference.repeated > 0 {
                let newest = filled.seen.iter().take(2).map(|seen| seen.raw.to).collect::<Vec<_>>();
                let which = match newest.as_slice() {
                    [one, other] if one == other => "the newest",
                    _ => "one of them",
                };
                Finding::differs(format!("{which} is recorded twice"))
            } else if difference.missing.is_empty() {
                Finding::differs(format!("{} records that match no branch", difference.unknown))
            } else {
                Finding::differs(format!("{there} of {wanted}"))
            })
        },
    },
    Spec {
        id: "depth",
        what: "the LBR stack holds as many records as announced, then wraps",
        run: "Twice the announced depth plus 3 jumps run, and the distinct ones among the \
              records are counted.",
        why: "lbr reads as many records as announced: of a deeper stack it would miss some, of a \
              shallower one it would read some twice.",
        falsified: "The records hold another number of jumps, or others than the newest.",
        needs: &["records", "cpuid"],
        documented: |facts| answer(facts.caps.depth.to_string(), facts.row_source()),
        look: |bench| {
            let value = bench.facts.open();
            let depth = bench.facts.caps.depth as usize;
            let count = 2 * bench.facts.caps.depth + 3;
            let (filled, held) =
                bench.until(Kernel::Jumps(count), value, held, |held| *held == depth)?;
            let difference = bench.facts.compare(&filled, value);
            Ok(if held == depth && difference.is_none() {
                Finding::same(held.to_string())
            } else if held == depth {
                Finding::differs(match beyond(bench)? {
                    Some(tos) => format!("more: TOS comes to {tos}"),
                    None => format!("{held}, but not the expected ones"),
                })
            } else {
                Finding::differs(held.to_string())
            })
        },
    },
    Spec {
        id: "order",
        what: "the slots of the newest record and the ones before it",
        run: "The announced depth plus 3 jumps run (BRS: the depth), and the records are read in \
              the documented order.",
        why: "Straight-line code is derived from neighboring records: a wrong order yields code \
              that never ran.",
        falsified: "The first record is not the newest jump, or a later one is out of order.",
        needs: &["depth"],
        documented: |facts| match facts.caps.order {
            Order::Single => not_applicable("only one record"),
            Order::Tos => answer(
                "TOS holds the index of the newest, older ones downward modulo the depth",
                "SDM 17.4.8; Linux lbr.c",
            ),
            Order::NewestFirst => {
                answer("index 0 is the newest, older ones upward", "Linux lbr.c (arch), amd/lbr.c")
            }
            Order::Saturating => {
                answer("MSROFF - 1 is the newest, older ones downward", "Linux amd/brs.c")
            }
        },
        look: order,
    },
    Spec {
        id: "from",
        what: "FROM is the address of the branch instruction",
        run: "One jump and up to 3 conditional jumps at known addresses run.",
        why: "Symbols, lines and blocks are looked up by FROM.",
        falsified: "FROM is not the address of the jump or, where macro fusion is documented, \
              not within 15 bytes before it.",
        needs: &["records"],
        documented: |facts| {
            if facts.caps.quirks.contains(Quirks::FUSED_FROM) {
                answer("the branch, or the instruction fused with it", "Linux amd/lbr.c")
            } else {
                answer("the branch", "SDM 17.4.8")
            }
        },
        look: from,
    },
];

/// A number of jumps that fits into any LBR stack, even one half as deep as announced.
fn few(facts: &Facts) -> u32 {
    (facts.caps.depth / 2).clamp(1, 3)
}

/// Number of the kernel's branches in the LBR stack.
fn held(facts: &Facts, filled: &Filled) -> usize {
    let mut branches: Vec<_> =
        filled.entries().filter_map(|(_, entry)| facts.branch_of(filled, entry)?.to).collect();
    branches.sort_unstable();
    branches.dedup();
    branches.len()
}

/// TOS, if it points beyond the announced records.
fn beyond(bench: &mut Bench<'_>) -> Result<Option<u64>, RunError> {
    let Some(tos) = bench.facts.caps.registers.tos else { return Ok(None) };
    let depth = bench.facts.caps.depth;
    let value = bench.facts.open();
    // A single lap may end anywhere in a deeper LBR stack.
    for count in [depth + 1, depth / 2] {
        bench.until(Kernel::Jumps(count), value, |_, _| (), |()| true)?;
        let tos = bench.read(tos)?;
        if tos >= u64::from(depth) {
            return Ok(Some(tos));
        }
    }
    Ok(None)
}

fn recording(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    bench.facts.can_run().map_err(|why| RunError::Unavailable(why.into()))?;
    let value = bench.facts.open();
    let some = |held: &usize| *held > 0;
    let kernel = Kernel::Jumps(few(&bench.facts));
    let (filled, count) = bench.until(kernel, value, held, some)?;
    if count > 0 {
        return Ok(Finding::same("records"));
    }
    // On a real CPU, the path to the write that ends recording has overwritten all others.
    let ring_0 = |filled: &Filled| filled.entries().any(|(_, entry)| entry.to >> 46 & 1 != 0);
    if bench.facts.ring(true) == Some(value) && filled.ran.unlisted && ring_0(&filled) {
        return Ok(Finding::differs(
            "branches into ring 0 recorded although suppressed, and no others left",
        ));
    }
    let inverse = match bench.facts.caps.registers.select {
        Some(select) if select == bench.facts.caps.registers.control => value ^ 0x7F_0006,
        Some(_) => value ^ 0x1FF,
        None => return Ok(Finding::differs("no record")),
    };
    let (_, count) = bench.until(kernel, inverse, held, some)?;
    Ok(if count > 0 {
        Finding::differs(
            "no record, but records where the filter's bits are the other way round: its \
             polarity is swapped",
        )
    } else {
        Finding::differs("no record")
    })
}

fn order(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    let value = bench.facts.open();
    let depth = bench.facts.caps.depth as usize;
    let saturating = bench.facts.caps.order == Order::Saturating;
    let count = bench.facts.caps.depth + if saturating { 0 } else { 3 };
    // Indices of the jumps in the documented order, newest first: 0 is the last executed.
    let ages = |facts: &Facts, filled: &Filled| -> Vec<usize> {
        let all = &filled.ran.branches;
        let age = |to: Option<u64>| {
            let at = all.iter().rposition(|known| known.to == to);
            at.map(|at| all.len() - 1 - at)
        };
        let known = filled.entries().filter_map(|(_, entry)| facts.branch_of(filled, entry));
        known.filter_map(|known| age(known.to)).collect()
    };
    let sound: Vec<usize> = (0..depth).collect();
    let (_, found) = bench.until(Kernel::Jumps(count), value, ages, |found| *found == sound)?;
    if found == sound {
        return Ok(Finding::same("as expected"));
    }
    let mut rotated = sound.clone();
    rotated.rotate_right(1);
    let reversed: Vec<usize> = sound.iter().rev().copied().collect();
    let mut upward = reversed.clone();
    upward.rotate_right(1);
    let tos = bench.facts.caps.order == Order::Tos;
    let mut before = sound;
    before.rotate_left(1);
    Ok(Finding::differs(if tos && found == rotated {
        "the newest is at TOS - 1: TOS is one too high"
    } else if tos && found == before {
        "the newest is at TOS + 1: TOS is one too low"
    } else if tos && found == upward {
        "older records are upward of TOS: the order is reversed"
    } else if found == reversed {
        "the first is the oldest: the order is reversed"
    } else {
        "the records are not in any order"
    }))
}

fn from(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    let fused = bench.facts.caps.quirks.contains(Quirks::FUSED_FROM);
    let value = bench.facts.open();
    // How far FROM is before the branch; `None` if it is elsewhere.
    let distances = |facts: &Facts, filled: &Filled| -> Vec<Option<u64>> {
        let distance = |entry| {
            let known = facts.branch_of(filled, entry)?.from?;
            Some(facts.key(known).checked_sub(facts.key(entry.from)).filter(|far| *far < 16))
        };
        filled.entries().filter_map(|(_, entry)| distance(entry)).collect()
    };
    let good = |far: &Option<u64>| matches!(far, Some(0)) || fused && far.is_some();
    for kernel in [Kernel::Jumps(1), Kernel::Predictable(few(&bench.facts))] {
        let all = |far: &Vec<Option<u64>>| !far.is_empty() && far.iter().all(good);
        let (_, far) = bench.until(kernel, value, distances, all)?;
        if far.is_empty() {
            return Ok(Finding::differs("the branches are not recorded"));
        }
        if !far.iter().all(good) {
            return Ok(Finding::differs(if far.iter().all(Option::is_some) {
                "FROM of conditional branches is the instruction before (macro fusion)"
            } else {
                "FROM is another address"
            }));
        }
    }
    Ok(Finding::same("as expected"))
}
