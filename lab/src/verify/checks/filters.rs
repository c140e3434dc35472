//! Checks which branch classes each bit of the filter register suppresses.

use lbr_msr::caps::{Facility, FilterRegister};
use lbr_msr::record::HwBranchType::{self, Cond, IndCall, IndJmp, Other, RelCall, RelJmp, Ret};
use lbr_msr::register::{LbrCtl, LbrSelect};

use super::super::bench::{Bench, Difference, Facts, Filled, require};
use super::super::check::{Documented, Finding, Spec, answer, not_applicable};
use super::super::{Kernel, RunError, SubjectKind};

/// A check of one filter bit: its suppress bit and its capture bit.
macro_rules! filter {
    ($id:literal, $what:literal, $suppress:ident, $capture:ident, $needs:expr) => {
        Spec {
            id: $id,
            what: concat!("the filter for ", $what),
            run: "One branch of each class runs, into ring 0 and within user mode, with this \
                  filter alone set.",
            why: "A filter that suppresses too much or too little makes every share wrong, \
                  without an error.",
            falsified: "A suppressed branch has a record, or another branch has none or two.",
            needs: $needs,
            documented: |facts| documented(facts, LbrSelect::$suppress, LbrCtl::$capture),
            look: |bench| look(bench, LbrSelect::$suppress, LbrCtl::$capture),
        }
    };
}

pub(in crate::verify) const CHECKS: &[Spec] = &[
    filter!("filter.ring_0", "branches into ring 0", CPL_EQ_0, OS, BASE),
    filter!("filter.user", "branches into other rings", CPL_NEQ_0, USR, BASE),
    filter!("filter.cond", "conditional branches", JCC, COND, BASE),
    Spec {
        id: "filter.jumps",
        what: "the filters for jumps leave calls and returns alone",
        run: "One branch of each class runs with both jump filters set.",
        why: "Sampling calls only is done with these filters; before Sandy Bridge they suppress \
              calls too.",
        falsified: "A call or a return has no record.",
        needs: BASE,
        documented: |facts| match facts.caps.filter {
            FilterRegister::LbrSelect { jumps_swallow_calls: true, .. } => not_applicable(
                "on this generation they include calls and returns (SDM Table 17-11)",
            ),
            FilterRegister::LbrSelect { .. } | FilterRegister::AmdSelect => {
                answer("calls and returns are recorded", "SDM 17.8, Table 17-12; Linux amd/lbr.c")
            }
            _ => not_applicable("each class has its own bit"),
        },
        look: jumps,
    },
    filter!("filter.rel_call", "near relative calls", NEAR_REL_CALL, NEAR_REL_CALL, BASE),
    filter!("filter.ind_call", "near indirect calls", NEAR_IND_CALL, NEAR_IND_CALL, BASE),
    filter!("filter.ret", "near returns", NEAR_RET, NEAR_RET, BASE),
    filter!("filter.ind_jmp", "near indirect jumps", NEAR_IND_JMP, NEAR_IND_JMP, AFTER_JUMPS),
    filter!("filter.rel_jmp", "near relative jumps", NEAR_REL_JMP, NEAR_REL_JMP, AFTER_JUMPS),
    filter!("filter.far", "far branches", FAR_BRANCH, OTHER_BRANCH, BASE),
    Spec {
        id: "zero_length",
        what: "a call to the next instruction is not a near call",
        run: "A call to the next instruction runs, as position-independent code uses to read its \
              own address.",
        why: "Such a call never returns: recorded as a call, it unbalances call stacks.",
        falsified: "The call is recorded, or another branch is not.",
        needs: BASE,
        documented: |facts| match facts.caps.facility {
            Facility::IntelArch => answer("it is not recorded", "SDM24 Table 20-2"),
            _ => not_applicable("calls are recorded whatever their length"),
        },
        look: |bench| {
            let value = bench.facts.open();
            let (_, difference) = bench.compared(Kernel::ZeroLengthCall, value)?;
            Ok(if difference.is_none() {
                Finding::same("it is not recorded")
            } else if difference.extra.iter().any(|known| known.like.zero_length_call) {
                Finding::differs("it is recorded")
            } else {
                Finding::differs(words(&difference))
            })
        },
    },
];

const BASE: &[&str] = &["depth", "bits.select"];
const AFTER_JUMPS: &[&str] = &["depth", "bits.select", "filter.jumps"];

/// The filter value that suppresses one bit's branches; `None` if the CPU lacks the bit.
fn value(facts: &Facts, suppress: LbrSelect, capture: LbrCtl) -> Option<u64> {
    match facts.caps.filter {
        FilterRegister::None | FilterRegister::Brbfcr => None,
        FilterRegister::LbrSelect { .. } | FilterRegister::AmdSelect => {
            // The filter for other rings can only be observed if ring 0 is recorded, unless ring
            // 0's branches would overwrite all others.
            let alone = facts.kind == SubjectKind::Software;
            let mut base = LbrSelect::from_bits_retain(facts.open());
            if suppress == LbrSelect::CPL_NEQ_0 && alone {
                base -= LbrSelect::CPL_EQ_0;
            }
            Some((base | suppress).bits())
        }
        FilterRegister::LbrCtl { cpl, branch, .. } => {
            let ring = capture == LbrCtl::OS || capture == LbrCtl::USR;
            if ring && !cpl || !ring && !branch {
                return None;
            }
            let alone = facts.kind == SubjectKind::Software;
            let mut base = LbrCtl::from_bits_retain(facts.open());
            if capture == LbrCtl::USR && alone {
                base |= LbrCtl::OS;
            }
            Some((base - capture).bits())
        }
    }
}

fn documented(facts: &Facts, suppress: LbrSelect, capture: LbrCtl) -> Documented {
    let value = value(facts, suppress, capture).ok_or("no such filter")?;
    let left_out = match suppress {
        LbrSelect::CPL_EQ_0 => "branches into ring 0".to_owned(),
        LbrSelect::CPL_NEQ_0 => "branches into other rings".to_owned(),
        _ => {
            let classes: Vec<&str> = CLASSES
                .iter()
                .filter(|class| !passes(facts, value, **class))
                .map(|class| class_name(*class))
                .collect();
            classes.join(", ")
        }
    };
    let source = match facts.caps.facility {
        Facility::IntelArch => "SDM24 Table 20-3; Linux lbr.c (arch)",
        Facility::AmdLbrV2 => "Linux amd/lbr.c",
        _ => "SDM Tables 17-11 to 17-13; Linux lbr.c",
    };
    answer(format!("{left_out} suppressed, all others recorded"), source)
}

const CLASSES: [HwBranchType; 7] = [Cond, RelJmp, IndJmp, RelCall, IndCall, Ret, Other];

/// The name of a class in reports.
pub(super) fn class_name(class: HwBranchType) -> &'static str {
    if class == Other { "far" } else { class.name() }
}

fn passes(facts: &Facts, value: u64, class: HwBranchType) -> bool {
    facts.captured(value).is_some_and(|captured| captured.classes.keeps(class))
}

/// Whether the documentation is unclear: SDM Table 17-11 does not mention that Nehalem's
/// NEAR_REL_JMP suppresses returns as well; Linux does not set it if it wants returns.
fn in_doubt(facts: &Facts, suppress: LbrSelect) -> bool {
    let swallow =
        matches!(facts.caps.filter, FilterRegister::LbrSelect { jumps_swallow_calls: true, .. });
    swallow && suppress == LbrSelect::NEAR_REL_JMP
}

fn look(bench: &mut Bench<'_>, suppress: LbrSelect, capture: LbrCtl) -> Result<Finding, RunError> {
    let value = require(value(&bench.facts, suppress, capture), "no such filter")?;
    let compare = |facts: &Facts, filled: &Filled| {
        let mut difference = facts.compare(filled, value);
        if in_doubt(facts, suppress) {
            difference.missing.retain(|known| known.like.class != Ret);
        }
        difference
    };
    let (_, difference) = bench.until(Kernel::EveryClass, value, compare, Difference::is_none)?;
    Ok(Finding::either(difference.is_none(), "as expected", words(&difference)))
}

/// Lists the differences by class and ring.
fn words(difference: &Difference) -> String {
    let list = |branches: &[super::super::Known]| {
        let mut names: Vec<String> = branches
            .iter()
            .map(|known| {
                let ring = if known.like.cpl_after == 0 { " into ring 0" } else { "" };
                format!("{}{ring}", class_name(known.like.class))
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        names.join(", ")
    };
    let mut parts = Vec::new();
    if !difference.extra.is_empty() {
        parts.push(format!("{} recorded although suppressed", list(&difference.extra)));
    }
    if !difference.missing.is_empty() {
        parts.push(format!("{} not recorded", list(&difference.missing)));
    }
    if difference.repeated > 0 {
        parts.push("branches recorded twice".into());
    }
    if difference.unknown > 0 {
        parts.push(format!("{} records that match no branch", difference.unknown));
    }
    parts.join("; ")
}

fn jumps(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    let value = bench.facts.open() | (LbrSelect::NEAR_IND_JMP | LbrSelect::NEAR_REL_JMP).bits();
    let call = |class| matches!(class, RelCall | IndCall | Ret);
    let missing = |facts: &Facts, filled: &Filled| {
        let mut difference = facts.compare(filled, value);
        difference.missing.retain(|known| call(known.like.class));
        Difference { missing: difference.missing, ..Difference::default() }
    };
    let (_, difference) = bench.until(Kernel::EveryClass, value, missing, Difference::is_none)?;
    let missing = format!("{}: they count as jumps, as before Sandy Bridge", words(&difference));
    Ok(Finding::either(difference.is_none(), "calls and returns are recorded", missing))
}
