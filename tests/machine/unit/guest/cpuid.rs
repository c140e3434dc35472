use super::*;

/// Every bit set, unlike any CPU, to show which bits are taken.
fn all_ones(_leaf: u32, _sub_leaf: u32) -> Leaf {
    Leaf { eax: !0, ebx: !0, ecx: !0, edx: !0 }
}

#[test]
fn exactly_the_documented_bits_are_patched() {
    let zero = Leaf::default();
    let patch = Patch::new(all_ones, true, None);
    assert_eq!(patch.apply(1, 0, zero), Leaf { eax: !0, ecx: 0x8000, ..zero });
    assert_eq!(patch.apply(7, 0, zero), Leaf { ebx: 0x810, edx: 0x8_0000, ..zero });
    assert_eq!(patch.apply(7, 1, zero), zero);
    assert_eq!(patch.apply(0xA, 0, zero), zero);
    assert_eq!(patch.apply(0x1C, 0, zero), all_ones(0x1C, 0));
    assert_eq!(patch.apply(0x8000_0022, 0, zero), Leaf { eax: 2, ebx: 0x3F0, ..zero });
    assert_eq!(patch.apply(0x8000_0001, 0, zero), zero);
}

#[test]
fn bits_that_the_chosen_cpu_lacks_are_cleared() {
    let patch = Patch::new(|_, _| Leaf::default(), false, None);
    let ones = all_ones(0, 0);
    assert_eq!(patch.apply(1, 0, ones), Leaf { eax: 0, ecx: !0x8000, ..ones });
    assert_eq!(patch.apply(7, 0, ones), Leaf { ebx: !0x810, edx: !0x8_0000, ..ones });
    assert_eq!(patch.apply(0x8000_0022, 0, ones), Leaf { eax: !2, ebx: !0x3F0, ..ones });
}

#[test]
fn a_performance_monitor_is_announced() {
    let (zero, ones) = (Leaf::default(), all_ones(0, 0));
    // Skylake: version 4, four counters of 48 bits; no cache events.
    let skylake = Leaf { eax: 0x0730_0404, edx: 0x603, ..zero };
    let pmu = Pmu::intel(skylake, true, false).expect("Skylake has counters");
    let patch = Patch::new(|_, _| skylake, true, Some(&pmu));
    assert_eq!(patch.apply(0xA, 0, ones), Leaf { ebx: 0x1C, ..skylake });
    assert_eq!(patch.apply(0x8000_0001, 0, zero), zero);

    // Zen 4, as recorded.
    let zen4 = Leaf { eax: 7, ebx: 0x0008_4106, ..zero };
    let patch = Patch::new(|_, _| zen4, false, Some(&Pmu::amd(zen4)));
    assert_eq!(patch.apply(0xA, 0, zero), zero);
    assert_eq!(patch.apply(0x8000_0001, 0, zero), Leaf { ecx: 1 << 23, ..zero });
    assert_eq!(patch.apply(0x8000_0022, 0, zero), Leaf { eax: 7, ebx: 0x106, ..zero });
}
