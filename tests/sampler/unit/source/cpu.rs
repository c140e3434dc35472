use lbr_msr::soft::SoftCpu;

use super::*;

/// SDM 18.7 and 18.8: Core 2 and the first Atoms have no MSR_LBR_SELECT; Nehalem has one.
#[test]
fn a_ring_without_a_filter_cannot_be_recorded() {
    for (key, recordable) in
        [("06_0F", false), ("06_1C", false), ("06_1A", true), ("06_8F", true), ("19_61", true)]
    {
        let cpu = SoftCpu::preset(key).expect("a preset");
        assert_eq!(unrecordable(&cpu.caps).is_none(), recordable, "{key}");
    }
}
