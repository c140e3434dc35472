//! Filters: names, register values, and conversions in both directions.

use lbr_msr::caps::FilterRegister;
use lbr_msr::filter::register::to_register_disarmed;
use lbr_msr::filter::{
    BranchClasses, BranchFilter, FilterError, from_register, software_filter, to_register,
    to_register_including,
};
use proptest::prelude::*;

const SANDY_BRIDGE: FilterRegister =
    FilterRegister::LbrSelect { jumps_swallow_calls: false, call_stack: false };
const NEHALEM: FilterRegister =
    FilterRegister::LbrSelect { jumps_swallow_calls: true, call_stack: false };
const HASWELL: FilterRegister =
    FilterRegister::LbrSelect { jumps_swallow_calls: false, call_stack: true };
const ARCH: FilterRegister = FilterRegister::LbrCtl { cpl: true, branch: true, call_stack: true };
const BARE_ARCH: FilterRegister =
    FilterRegister::LbrCtl { cpl: false, branch: false, call_stack: false };
const AMD: FilterRegister = FilterRegister::AmdSelect;

fn filter(text: &str) -> BranchFilter {
    text.parse().unwrap()
}

#[track_caller]
fn value(text: &str, register: FilterRegister) -> u64 {
    to_register(filter(text), register).unwrap()
}

#[test]
fn names() {
    assert_eq!(filter("any,u,no_far"), BranchFilter::DEFAULT);
    assert_eq!(filter("user,any,kernel"), filter("any,u,k"));
    assert_eq!(filter(" any, u "), filter("any,u"));
    assert_eq!(BranchFilter::DEFAULT.to_string(), "any,u,no_far");
    assert_eq!(filter("k,u,cond,any_ret").to_string(), "any_ret,cond,u,k");
    for wrong in ["", "u,", "anycall", "Any", "hv", "any;u", "abort_tx"] {
        let error = wrong.parse::<BranchFilter>().unwrap_err();
        let FilterError::Unknown { name } = &error else { panic!("{error:?}") };
        assert!(wrong.contains(name.as_str()));
        assert!(error.to_string().contains("any_call, any_ret"), "{error}");
    }
}

/// perf's names have no relative jumps: of MSR_LBR_SELECT's suppress bits 1FFH, CPL_NEQ_0, JCC and
/// NEAR_REL_JMP are clear. SDM 17.4.8.2.
#[test]
fn classes_without_a_name_are_recorded_too() {
    let also = BranchClasses::REL_JMP;
    assert_eq!(to_register_including(filter("cond,u"), also, HASWELL), Ok(0x1FF - 0x86));
}

/// Worked values from the facts, 4.2 and 5.2.
#[test]
fn worked_values() {
    assert_eq!(value("any", HASWELL), 0x000);
    assert_eq!(value("any,u,k", HASWELL), 0x000);
    assert_eq!(value("any,u", HASWELL), 0x001);
    assert_eq!(value("u", HASWELL), 0x001);
    assert_eq!(value("any,u,no_far", HASWELL), 0x101);
    assert_eq!(value("any,k", HASWELL), 0x002);
    assert_eq!(value("cond,u", HASWELL), 0x1F9);
    assert_eq!(value("any_call,u", SANDY_BRIDGE), 0x0E5);
    assert_eq!(value("any_ret,u", SANDY_BRIDGE), 0x0DD);
    assert_eq!(value("stack,u", HASWELL), 0x3C5);
    assert_eq!(value("stack,k", HASWELL), 0x3C6);
    assert_eq!(value("stack,u,k", HASWELL), 0x3C4);
    // The bit order of MSR_LBR_SELECT: indirect jumps 6, relative ones 7.
    assert_eq!(value("ind_jmp,u", HASWELL), 0x1FF & !0x42);
    assert_eq!(value("ind_call,u", HASWELL), 0x1FF & !0x12);
    assert_eq!(value("call,u", HASWELL), 0x1FF & !0x0A);

    assert_eq!(value("any,u", AMD), 0x001);
    assert_eq!(value("any,u,no_far", AMD), 0x101);
    assert_eq!(value("any,k", AMD), 0x002);
    assert_eq!(value("cond,u", AMD), 0x1F9);

    assert_eq!(value("any,u", ARCH), 0x7F_0005);
    assert_eq!(value("any,u,no_far", ARCH), 0x3F_0005);
    assert_eq!(value("any,k", ARCH), 0x7F_0003);
    assert_eq!(value("any,u,k", ARCH), 0x7F_0007);
    assert_eq!(value("stack,u", ARCH), 0x38_000D);
    // The bit order of IA32_LBR_CTL: relative jumps 17, indirect ones 18.
    assert_eq!(value("ind_jmp,u", ARCH), (1 << 18) | 5);
    assert_eq!(value("ind_call,u", ARCH), (1 << 20) | 5);
    assert_eq!(value("call,u", ARCH), (1 << 19) | 5);
    assert_eq!(value("cond,u", ARCH), (1 << 16) | 5);
    assert_eq!(to_register_disarmed(filter("any,u,no_far"), ARCH), Ok(0x3F_0004));
    assert_eq!(to_register_disarmed(filter("stack,u"), ARCH), Ok(0x38_000C));
    assert_eq!(to_register_disarmed(filter("any,u"), HASWELL), Ok(0x001));

    assert_eq!(value("any", BARE_ARCH), 1);
    assert_eq!(value("any,u,k", FilterRegister::None), 0);
    assert_eq!(value("any,u,save_type", HASWELL), 0x001);
}

/// Nehalem, Westmere and Silvermont: calls and returns need the jumps open.
#[test]
fn jump_filters_are_not_set_if_they_suppress_calls() {
    // any_call: bits 3, 4, 6, 7, 8 open; JCC (2), RET (5) and ring 0 suppressed.
    assert_eq!(value("any_call,u", NEHALEM), 0x025);
    // any_ret: bits 5, 6, 7, 8 open.
    assert_eq!(value("any_ret,u", NEHALEM), 0x01D);
    // ind_call: bits 4 and 6 open.
    assert_eq!(value("ind_call,u", NEHALEM), 0x1AD);
    assert_eq!(value("ind_jmp,u", NEHALEM), 0x1BD);
    assert_eq!(value("any,u,no_far", NEHALEM), 0x101);

    let calls = BranchClasses::CALLS | BranchClasses::OTHER;
    assert_eq!(software_filter(filter("any_call,u"), NEHALEM), Some(calls));
    let returns = BranchClasses::RET | BranchClasses::OTHER;
    assert_eq!(software_filter(filter("any_ret,u"), NEHALEM), Some(returns));
    assert_eq!(software_filter(filter("any,u"), NEHALEM), None);
    assert_eq!(software_filter(filter("cond,u"), NEHALEM), None);
    assert_eq!(software_filter(filter("any_call,u"), SANDY_BRIDGE), None);
    assert_eq!(software_filter(filter("any_call,u"), ARCH), None);

    // Call-stack mode excludes jumps, even if they swallow calls otherwise.
    let both = FilterRegister::LbrSelect { jumps_swallow_calls: true, call_stack: true };
    assert_eq!(value("stack,u", both), 0x3C5);
    assert_eq!(software_filter(filter("stack,u"), both), None);

    // Suppressing indirect jumps there also suppresses indirect calls and returns.
    let captured = from_register(0x040, NEHALEM).unwrap();
    let lost = BranchClasses::IND_JMP | BranchClasses::IND_CALL | BranchClasses::RET;
    assert_eq!(captured.classes, BranchClasses::all() - lost);
    let captured = from_register(0x040, SANDY_BRIDGE).unwrap();
    assert_eq!(captured.classes, BranchClasses::all() - BranchClasses::IND_JMP);
}

#[test]
fn the_impossible_is_refused_with_the_facility_named() {
    let refused = |text: &str, register| to_register(filter(text), register).unwrap_err();
    for text in ["any,u", "any,u,no_far", "cond", "any,k", "stack,u", "any,stack,u,k"] {
        let error = refused(text, FilterRegister::None);
        assert!(matches!(error, FilterError::NoFilterRegister { .. }));
        assert!(error.to_string().contains("no filter register"), "{error}");
    }
    for (register, name) in
        [(SANDY_BRIDGE, "MSR_LBR_SELECT"), (AMD, "AMD LBR_SELECT"), (BARE_ARCH, "IA32_LBR_CTL")]
    {
        let error = refused("stack,u", register);
        assert_eq!(error, FilterError::NoCallStack { register: name });
        assert!(error.to_string().contains(name));
    }
    assert!(matches!(refused("stack,any,u", HASWELL), FilterError::StackAlone { .. }));
    assert!(matches!(refused("stack,cond,u", ARCH), FilterError::StackAlone { .. }));
    assert!(matches!(refused("any,u", BARE_ARCH), FilterError::NoRingFilter { .. }));
    assert!(matches!(refused("cond", BARE_ARCH), FilterError::NoTypeFilter { .. }));
}

/// Linux's lbr.c offers call stacks only if CPUID.1CH:EBX announces all three of bits 2:0.
#[test]
fn call_stacks_of_architectural_lbr_need_both_filters() {
    for bits in 0..8 {
        let [cpl, branch, call_stack] = [0, 1, 2].map(|bit| bits >> bit & 1 == 1);
        let register = FilterRegister::LbrCtl { cpl, branch, call_stack };
        assert_eq!(register.call_stack(), bits == 7, "{bits:#b}");
        let value = to_register(filter("stack,u,k"), register);
        let none = Err(FilterError::NoCallStack { register: "IA32_LBR_CTL" });
        assert_eq!(value, if bits == 7 { Ok(0x38_000F) } else { none }, "{bits:#b}");
    }
}

#[test]
fn values_read_back() {
    let read = |value, register| from_register(value, register).unwrap();
    assert_eq!(read(0x101, HASWELL).filter(), Some(BranchFilter::DEFAULT));
    assert_eq!(read(0x3F_0005, ARCH).filter(), Some(BranchFilter::DEFAULT));
    assert_eq!(read(0x3C5, HASWELL).filter(), Some(filter("stack,u")));
    assert_eq!(read(0x0E5, SANDY_BRIDGE).filter(), Some(filter("any_call,u")));
    for value in [0, !0] {
        assert_eq!(read(value, FilterRegister::None).filter(), Some(filter("any,u,k")));
    }

    // Captured sets that perf's names cannot express.
    let relative_jumps_only = read(0x1FF & !0x82, HASWELL);
    assert_eq!(relative_jumps_only.filter(), None);
    assert_eq!(relative_jumps_only.classes, BranchClasses::REL_JMP);
    let far_only = read(1 << 22 | 5, ARCH);
    assert_eq!((far_only.filter(), far_only.classes), (None, BranchClasses::OTHER));
    assert_eq!(read(0x003, HASWELL).filter(), None);
    assert_eq!(read(0x1FD, HASWELL).filter(), None);

    let reserved = |value, register| match from_register(value, register).unwrap_err() {
        FilterError::Reserved { reserved, .. } => reserved,
        other => panic!("{other}"),
    };
    assert_eq!(reserved(0x3C5, SANDY_BRIDGE), 0x200);
    assert_eq!(reserved(0x3C5, AMD), 0x200);
    assert_eq!(reserved(0x400, HASWELL), 0x400);
    assert_eq!(reserved(0x80_0011, ARCH), 0x80_0010);
    assert_eq!(reserved(0x7, BARE_ARCH), 0x6);
    // A published library's default, which records far branches.
    for value in [0x2C5, 0x2C6, 0x3C7, 0x200] {
        let error = from_register(value, HASWELL).unwrap_err();
        assert!(matches!(error, FilterError::UndefinedCallStack { .. }), "{value:#x}");
    }
}

/// BRBFCR_EL1: types are bits 17 (DIRECT) to 22 (CONDDIR), and bit 16 (EnI) inverts them (Arm
/// ARM, BRBFCR_EL1).
#[test]
fn brbe_types_are_recorded_or_excluded() {
    let classes = |value| from_register(value, FilterRegister::Brbfcr).unwrap().classes;
    assert_eq!(classes(1 << 19 | 1 << 22), BranchClasses::RET | BranchClasses::COND);
    let jumps = BranchClasses::REL_JMP | BranchClasses::IND_JMP;
    assert_eq!(classes(0x79_0000), jumps);
    assert_eq!(classes(0), BranchClasses::empty());
    assert_eq!(classes(0x01_0000), BranchClasses::all() - BranchClasses::OTHER);
    assert_eq!(value("any_call,u", FilterRegister::Brbfcr), 3 << 20);
    // BRBCR_EL1 has the levels: EL0, where it is set up here.
    let captured = from_register(0x7E_0000, FilterRegister::Brbfcr).unwrap();
    assert_eq!((captured.user, captured.kernel, captured.call_stack), (true, false, false));
    assert_eq!(value("any,u", FilterRegister::Brbfcr), 0x7E_0000);
    let kernel = to_register(filter("any,k"), FilterRegister::Brbfcr);
    assert!(matches!(kernel, Err(FilterError::NoRingFilter { .. })));
    // PAUSED, a bit above the types, and BANK.
    for bit in [7, 15, 23, 28] {
        let refused = from_register(1 << bit | 1 << 17, FilterRegister::Brbfcr);
        let expected = FilterError::Reserved {
            value: 1 << bit | 1 << 17,
            reserved: 1 << bit,
            register: "BRBFCR_EL1",
        };
        assert_eq!(refused, Err(expected));
    }
}

/// The jump bits, which call-stack mode sets, suppress no calls there.
#[test]
fn call_stack_mode_round_trips_whether_or_not_jumps_swallow_calls() {
    for jumps_swallow_calls in [false, true] {
        let register = FilterRegister::LbrSelect { jumps_swallow_calls, call_stack: true };
        let filter = BranchFilter::STACK | BranchFilter::USER;
        let value = to_register(filter, register).unwrap();
        assert_eq!(value, 0x3C5);
        assert_eq!(from_register(value, register).unwrap().filter(), Some(filter));
    }
}

fn any_register() -> impl Strategy<Value = FilterRegister> {
    prop_oneof![
        Just(FilterRegister::None),
        Just(AMD),
        (any::<bool>(), any::<bool>()).prop_map(|(jumps_swallow_calls, call_stack)| {
            FilterRegister::LbrSelect { jumps_swallow_calls, call_stack }
        }),
        (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(cpl, branch, call_stack)| {
            FilterRegister::LbrCtl { cpl, branch, call_stack }
        }),
    ]
}

fn any_filter() -> impl Strategy<Value = BranchFilter> {
    any::<u32>().prop_map(BranchFilter::from_bits_truncate)
}

proptest! {
    #[test]
    fn names_round_trip(filter in any_filter()) {
        prop_assume!(!filter.is_empty());
        prop_assert_eq!(filter.to_string().parse::<BranchFilter>(), Ok(filter));
    }

    /// The register captures the requested classes, plus jumps that software must drop.
    #[test]
    fn a_value_captures_what_was_asked(filter in any_filter(), register in any_register()) {
        let Ok(value) = to_register(filter, register) else { return Ok(()) };
        let captured = from_register(value, register).unwrap();
        prop_assert_eq!((captured.user, captured.kernel), (filter.user(), filter.kernel()));
        prop_assert_eq!(captured.call_stack, filter.contains(BranchFilter::STACK));
        match software_filter(filter, register) {
            Some(keep) => {
                prop_assert!(captured.classes.contains(keep) && captured.classes != keep);
                prop_assert_eq!(keep, filter.classes());
            }
            None => {
                prop_assert_eq!(captured.classes, filter.classes());
                let named = captured.filter().unwrap();
                prop_assert_eq!(named.classes(), filter.classes());
                prop_assert_eq!(to_register(named, register), Ok(value));
            }
        }
    }

    /// Every register value has a meaning or is refused.
    #[test]
    fn every_value_has_a_meaning(value in 0u64..0x80_0000, register in any_register()) {
        if let Ok(captured) = from_register(value, register)
            && let Some(filter) = captured.filter()
        {
            prop_assert_eq!(filter.classes(), captured.classes);
            prop_assert_eq!((filter.user(), filter.kernel()), (captured.user, captured.kernel));
        }
    }
}
