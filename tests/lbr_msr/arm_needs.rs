//! The registers that a plan needs, as an administrator must list them.

use lbr_msr::Msr;
use lbr_msr::access::msr_safe::Allowlist;
use lbr_msr::arm::{ArmOptions, ArmPlan, Need};
use lbr_msr::soft::SoftCpu;

fn needs(key: &str, value: u64, freeze_on_pmi: bool) -> Vec<Need> {
    let cpu = SoftCpu::preset(key).unwrap();
    let options = ArmOptions { freeze_on_pmi, ..ArmOptions::default() };
    ArmPlan::new(&cpu.caps, value, options).unwrap().needs()
}

fn need(msr: u32, write_mask: u64) -> Need {
    Need { msr: Msr(msr), write_mask }
}

/// SDM 17.4.8, 17.7.2, Linux lbr.c: the registers that arming, draining and restoring access.
#[test]
fn skylake_needs_its_records_filter_and_enable() {
    let mut expected = vec![
        need(0x1C8, 0x3FF),
        need(0x1C9, 0),
        need(0x1D9, 1),
        need(0x38E, 0),
        need(0x390, 1 << 58),
        need(0x570, 0),
    ];
    for first in [0x680, 0x6C0, 0xDC0] {
        expected.extend((first..first + 32).map(|msr| need(msr, u64::MAX)));
    }
    assert_eq!(needs("06_5E", 0x101, false), expected);
    let frozen = needs("06_5E", 0x101, true);
    assert!(frozen.contains(&need(0x1D9, 0x801)), "FREEZE_LBRS_ON_PMI is written as well");
    // Call-stack mode clears it: SDM 17.9.
    assert!(needs("06_5E", 0x3C5, false).contains(&need(0x1D9, 0x801)));
}

/// Of a register with bits for others, only those that arming sets.
#[test]
fn a_shared_register_is_needed_bit_by_bit() {
    let arch = needs("06_8F", 0x7F_0004, true);
    assert!(arch.contains(&need(0x1D9, 0x800)) && arch.contains(&need(0x390, 1 << 58)));
    let amd = needs("19_61", 0x101, true);
    assert!(amd.contains(&need(0xC000_010F, 1 << 6)) && amd.contains(&need(0xC000_0302, 1 << 58)));
}

#[test]
fn architectural_lbr_needs_its_control_and_depth() {
    let needs = needs("06_8F", 0x3F_0004, false);
    for expected in [need(0x14CE, 0x7F_000F), need(0x14CF, 0xFF), need(0x1500, u64::MAX)] {
        assert!(needs.contains(&expected), "{expected:?} in {needs:?}");
    }
    assert!(!needs.iter().any(|need| need.msr == Msr(0x1D9)), "DEBUGCTL is not touched");
}

#[test]
fn an_allowlist_is_compared_with_the_needs() {
    let needs = needs("06_3C", 0x101, false);
    let line = |need: &Need| lbr_msr::access::msr_safe::line(need);
    let all: String = needs.iter().map(|need| line(need) + "\n").collect();
    assert_eq!(Allowlist::parse(&all).missing(&needs), []);
    // As in the lists that msr-safe ships: present, not writable.
    let read_only: String = needs.iter().map(|need| format!("{:#x} 0x0\n", need.msr.0)).collect();
    let missing = Allowlist::parse(&read_only).missing(&needs);
    assert!(missing.iter().all(|need| need.write_mask != 0));
    assert!(missing.contains(&need(0x1D9, 1)) && missing.contains(&need(0x680, u64::MAX)));
    assert!(!missing.iter().any(|need| need.msr == Msr(0x1C9)), "TOS is only read");
    assert_eq!(Allowlist::parse("").missing(&needs), needs);
}
