//! The fields of a record: flags, cycles, types, and the sign of addresses.

use lbr_msr::caps::{Facility, Layout, Quirks};
use lbr_msr::record::RawEntry;

use super::super::bench::{Bench, Facts, Filled, cannot_tell, require};
use super::super::check::{Documented, Finding, Spec, answer, applies_if, not_applicable};
use super::super::{Kernel, RunError};
use super::filters::class_name;

/// Checks that those of the flags depend on.
const FLAGS: &[&str] = &["records", "depth", "lbr_fmt", "registers.info"];

pub(in crate::verify) const CHECKS: &[Spec] = &[
    Spec {
        id: "sign",
        what: "addresses of the upper half are recorded with their sign",
        run: "Branches of ring 0 run and are recorded.",
        why: "Without its sign, a kernel address is taken for a user address and finds no symbol.",
        falsified: "An address with its top bit set has a 0 among the bits above.",
        needs: &["records", "depth", "lbr_fmt", "filter.user"],
        documented: |facts| match sign_bits(facts) {
            (0, 0) => not_applicable("records hold 32 bits of an address"),
            (from, 0) => answer(
                format!("the bits {from:#x} of FROM are copies of its sign"),
                "SDM Tables 17-8, 17-14; Linux lbr.c",
            ),
            (from, to) => answer(
                format!("the bits {from:#x} of FROM and {to:#x} of TO are copies of its sign"),
                "SDM Tables 17-8, 17-9, 17-14; Linux lbr.c, amd/lbr.c",
            ),
        },
        look: sign,
    },
    Spec {
        id: "hidden_from",
        what: "FROM of a branch out of a ring that is not recorded",
        run: "A branch out of ring 0 runs while only user mode is recorded.",
        why: "Otherwise a recording of user code discloses kernel addresses.",
        falsified: "FROM is an address, or the branch has no record.",
        needs: &["sign", "filter.ring_0"],
        documented: |facts| match facts.ring(true) {
            Some(_) if facts.caps.facility == Facility::IntelArch => {
                answer("all ones", "Linux mailing list, confirmed by Intel")
            }
            _ => not_applicable("it is recorded as it is"),
        },
        look: hidden_from,
    },
    Spec {
        id: "mispredict",
        what: "the mispredict flag, on predictable and on unpredictable branches",
        run: "8 predictable and 16 unpredictable branches run, repeatedly.",
        why: "`report --view mispredict` is a count of this flag.",
        falsified: "The flag is never set, is set on more than a quarter of the predictable \
              branches, or on less than an eighth of the unpredictable ones.",
        needs: FLAGS,
        documented: |facts| {
            applies_if(facts.caps.mispredict(), "records have no mispredict flag")?;
            let expected = "hardly ever set on predictable branches, often on unpredictable ones";
            answer(expected, "SDM Tables 17-8, 17-16; Linux lbr.c")
        },
        look: mispredict,
    },
    Spec {
        id: "cycles",
        what: "the cycle counter grows with a chain of dependent instructions",
        run: "Chains of 20, 200 and 2000 dependent instructions run, each ended by a branch; the \
              least count of several runs is taken.",
        why: "`hist` and `--view loops` take the count for time.",
        falsified: "The count does not grow from chain to chain, or is not marked valid.",
        needs: FLAGS,
        documented: |facts| cycles_documented(facts, "longer chains, higher counts"),
        look: cycles,
    },
    Spec {
        id: "cycles.saturate",
        what: "the cycle counter saturates",
        run: "A chain of 70,000 dependent instructions runs.",
        why: "A count that wraps makes the longest waits look like the shortest.",
        falsified: "The count is not 65535.",
        needs: &["cycles"],
        documented: |facts| cycles_documented(facts, "65535 after a longer chain"),
        look: |bench| {
            let counts = counts(bench, [LONG])?;
            Ok(match counts {
                [Some(0xFFFF)] => Finding::same("65535"),
                [Some(count)] => Finding::differs(format!("{count} after {LONG} cycles: it wraps")),
                [None] => Finding::differs("no valid count"),
            })
        },
    },
    Spec {
        id: "tsx",
        what: "the transaction flags",
        run: "A branch runs in a transaction, then a transaction aborts.",
        why: "Code that was rolled back is reported apart.",
        falsified: "IN_TSX is not set on the branch, or no record of the abort has TSX_ABORT.",
        needs: FLAGS,
        documented: |facts| {
            let none = "CPUID announces neither HLE nor RTM, or records have no flags";
            applies_if(facts.caps.tsx(), none)?;
            let expected = "IN_TSX on a branch in a transaction, TSX_ABORT on an abort";
            answer(expected, "SDM Tables 17-14, 17-16; Linux lbr.c")
        },
        look: tsx,
    },
    Spec {
        id: "tsx.abort",
        what: "a transaction abort is recorded once",
        run: "A transaction aborts, and the records of the abort are counted.",
        why: "Haswell records an abort twice, which doubles its count.",
        falsified: "There are no records of the abort, or more than one.",
        needs: &["tsx"],
        documented: |facts| {
            applies_if(facts.caps.tsx(), "records have no transaction flags")?;
            answer("one record of it", "SDM 17.9; Linux lbr.c")
        },
        look: abort,
    },
    Spec {
        id: "types",
        what: "the branch type of each class",
        run: "One branch of each class runs, and the type field of its record is read.",
        why: "lbr uses the type if the code cannot be read.",
        falsified: "A record has the type of another class.",
        needs: FLAGS,
        documented: |facts| {
            const TYPES: &str =
                "cond 0, ind_jmp 1, rel_jmp 2, ind_call 3, rel_call 4, ret 5, others 8 to 15";
            applies_if(facts.caps.types(), "records have no branch type")?;
            answer(TYPES, "SDM24 Table 20-2")
        },
        look: |bench| {
            let value = bench.facts.open();
            let wrong = |facts: &Facts, filled: &Filled| {
                let pairs = filled.entries().filter_map(|(_, entry)| {
                    Some((facts.branch_of(filled, entry)?.like.class, entry.hw_type))
                });
                pairs.filter(|(class, reported)| *reported != Some(*class)).collect::<Vec<_>>()
            };
            let (_, wrong) = bench.until(Kernel::EveryClass, value, wrong, Vec::is_empty)?;
            let mut swapped: Vec<String> = wrong
                .into_iter()
                .map(|(class, reported)| {
                    format!("{} as {}", class_name(class), reported.map_or("reserved", class_name))
                })
                .collect();
            swapped.sort_unstable();
            swapped.dedup();
            Ok(Finding::either(swapped.is_empty(), "as expected", swapped.join(", ")))
        },
    },
];

/// The bits of FROM and TO that hold copies of the address's sign.
const fn sign_bits(facts: &Facts) -> (u64, u64) {
    // With five-level paging, bits 56:48 belong to the address.
    let above: u64 = if facts.linear_bits == 57 { !0 << 57 } else { !0 << 48 };
    const BELOW_63: u64 = !(1 << 63);
    const BELOW_61: u64 = (1 << 61) - 1;
    match facts.caps.layout {
        Layout::Packed32 | Layout::Brbe => (0, 0),
        Layout::Plain if matches!(facts.caps.facility, Facility::P6) => (0, 0),
        Layout::Plain | Layout::Arch { .. } | Layout::AmdSingle => (above, above),
        Layout::Legacy { format, .. } => match format.0 {
            3 => (above & BELOW_63, above),
            4 => (above & BELOW_61, above),
            6 => (above & BELOW_63, 0),
            _ => (above, above),
        },
        Layout::AmdV2 { .. } => (above & BELOW_63, above & BELOW_61),
        Layout::AmdBrs { .. } => (above, above & BELOW_61),
    }
}

fn sign(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    let (from_bits, to_bits) = sign_bits(&bench.facts);
    // Records only branches into ring 0 if a filter can: all of their targets are in the upper
    // half.
    let value = bench.facts.ring(false).unwrap_or_else(|| bench.facts.open());
    // Whether bits of `raw` that should copy the sign fail to, if the sign is set.
    let wrong = |facts: &Facts, raw: &RawEntry| {
        let top = facts.linear_bits - 1;
        let high = |word: u64| word >> top & 1 != 0;
        let missing = |word: u64, bits: u64| high(word) && word & bits != bits;
        // All ones represent a hidden address.
        missing(raw.from, from_bits) || missing(raw.to, to_bits)
    };
    let any_wrong =
        |facts: &Facts, filled: &Filled| filled.entries().any(|(seen, _)| wrong(facts, &seen.raw));
    let (filled, found) = bench.until(Kernel::KernelAddresses, value, any_wrong, |found| !found)?;
    let high = |seen: &RawEntry| (seen.to | seen.from) >> 46 & 1 != 0;
    if !filled.entries().any(|(seen, _)| high(&seen.raw)) {
        return cannot_tell("no branch of ring 0 was recorded");
    }
    let missing = "the bits above the address are 0: no sign extension";
    Ok(Finding::either(!found, "as expected", missing))
}

fn hidden_from(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    let value = require(bench.facts.ring(true), "nothing filters by ring")?;
    let shown = |facts: &Facts, filled: &Filled| {
        let out = filled.entries().filter_map(|(seen, entry)| {
            let known = facts.branch_of(filled, entry)?;
            (known.like.cpl_before == 0 && known.like.cpl_after != 0).then_some(seen.raw.from)
        });
        out.collect::<Vec<_>>()
    };
    let hidden = |from: &Vec<u64>| !from.is_empty() && from.iter().all(|from| *from == u64::MAX);
    let (_, from) = bench.until(Kernel::KernelAddresses, value, shown, hidden)?;
    Ok(match from.first() {
        None => Finding::differs("the branch out of ring 0 is not recorded"),
        Some(&u64::MAX) => Finding::same("all ones"),
        Some(_) => Finding::differs("the address in ring 0 is shown"),
    })
}

/// Number of the kernel's records with the flag, and number of all its records.
fn flagged(facts: &Facts, filled: &Filled) -> (u32, u32) {
    let known = filled.entries().filter(|(_, entry)| facts.branch_of(filled, entry).is_some());
    known.fold((0, 0), |(set, all), (_, entry)| {
        (set + u32::from(entry.mispredicted == Some(true)), all + 1)
    })
}

fn mispredict(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    let value = bench.facts.open();
    let mut rates = [(0, 0); 2];
    let kernels = [Kernel::Predictable(8), Kernel::Unpredictable(16)];
    for (kernel, (set, all)) in kernels.into_iter().zip(&mut rates) {
        for _ in 0..bench.cpu.attempts() {
            let filled = bench.fill(kernel, value)?;
            let (more, of) = flagged(&bench.facts, &filled);
            *set += more;
            *all += of;
        }
    }
    let [(foreseen, of_foreseen), (random, of_random)] = rates;
    let found = format!(
        "set on {foreseen} of {of_foreseen} predictable and {random} of {of_random} unpredictable"
    );
    Ok(if random == 0 && foreseen == 0 {
        Finding::differs(format!("never set ({found})"))
    } else if foreseen * 2 > of_foreseen {
        Finding::differs(format!("{found}: the flag is inverted"))
    } else {
        Finding::of(foreseen * 4 <= of_foreseen && random * 8 >= of_random, found)
    })
}

/// A chain longer than a 16-bit counter can count.
const LONG: u32 = 70_000;

fn cycles_documented(facts: &Facts, expected: &str) -> Documented {
    applies_if(facts.caps.cycles(), "records have no cycle count")?;
    answer(expected, "SDM Table 17-16, 17.6; Linux lbr.c")
}

/// The cycle count of the branch after each chain: the minimum of several runs. Discards runs with
/// another branch in the chain, from an interrupt.
fn counts<const N: usize>(
    bench: &mut Bench<'_>,
    lengths: [u32; N],
) -> Result<[Option<u32>; N], RunError> {
    let value = bench.facts.open();
    let mut counts = [None; N];
    for (length, count) in lengths.into_iter().zip(&mut counts) {
        let mut interrupted = true;
        for _ in 0..bench.cpu.attempts() {
            let filled = bench.fill(Kernel::Chain(length), value)?;
            let ends: Vec<_> = filled.ran.branches.iter().take(2).copied().collect();
            let known = |entry| bench.facts.branch_of(&filled, entry).copied();
            let row: Vec<_> = filled.entries().map(|(_, entry)| (known(entry), entry)).collect();
            // In either order, which is for another check.
            let whole = row.windows(2).any(|pair| {
                matches!(pair, [(Some(one), _), (Some(other), _)]
                    if ends == [*one, *other] || ends == [*other, *one])
            });
            if !whole {
                continue;
            }
            interrupted = false;
            let closing = ends.get(1).copied();
            let found =
                row.iter().find_map(|(known, entry)| (*known == closing).then_some(entry.cycles?));
            *count = match (*count, found) {
                (Some(least), Some(found)) => Some(found.min(least)),
                (known, found) => known.or(found),
            };
            if length == LONG && count.is_some() {
                // A saturated count has no noise.
                break;
            }
        }
        if interrupted {
            return Err(RunError::Unavailable(format!(
                "each of {} runs of the chain of {length} was interrupted",
                bench.cpu.attempts()
            )));
        }
    }
    Ok(counts)
}

fn cycles(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    let lengths = [20, 200, 2000];
    let [Some(short), Some(middle), Some(long)] = counts(bench, lengths)? else {
        return Ok(Finding::differs("no valid count"));
    };
    let found = format!("{short}, {middle} and {long} for chains of 20, 200 and 2000");
    Ok(if short == middle && middle == long {
        Finding::differs(format!("{found}: it is constant"))
    } else {
        Finding::of(short < middle && middle < long, found)
    })
}

fn tsx(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    let value = bench.facts.open();
    let inside = |facts: &Facts, filled: &Filled| {
        let mut of = filled.entries().filter_map(|(_, entry)| {
            let known = facts.branch_of(filled, entry)?;
            (known.like.in_tx && !known.like.abort).then_some(entry.in_tx == Some(true))
        });
        of.any(|set| set)
    };
    let (_, set) = bench.until(Kernel::Transaction { abort: false }, value, inside, |set| *set)?;
    if !set {
        return Ok(Finding::differs("IN_TSX is not set on a branch in a transaction"));
    }
    let aborted =
        |_: &Facts, filled: &Filled| filled.entries().any(|(_, entry)| entry.abort == Some(true));
    let (_, set) = bench.until(Kernel::Transaction { abort: true }, value, aborted, |set| *set)?;
    Ok(Finding::either(set, "as expected", "TSX_ABORT is not set on an abort"))
}

fn abort(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    let value = bench.facts.open();
    let records = |facts: &Facts, filled: &Filled| {
        let of = filled.entries().filter(|(_, entry)| {
            facts.branch_of(filled, entry).is_some_and(|known| known.like.abort)
        });
        of.count()
    };
    let kernel = Kernel::Transaction { abort: true };
    let (_, count) = bench.until(kernel, value, records, |count| *count == 1)?;
    let known = if bench.facts.caps.quirks.contains(Quirks::DOUBLE_ABORT) {
        " (a known Haswell erratum: Linux lbr_double_abort)"
    } else {
        ""
    };
    Ok(match count {
        1 => Finding::same("one record"),
        2 => Finding::differs(format!("it is recorded twice{known}")),
        n => Finding::differs(format!("{n} records")),
    })
}
