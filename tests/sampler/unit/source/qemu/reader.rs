use lbr_msr::soft::{SoftCpu, SoftLbr};

use super::*;
use crate::config::RecordConfig;

/// A recorder that is only asked for its model and period.
struct Asked(Option<SoftLbr>, Option<u64>);

struct NoRing;

impl Retire for NoRing {
    fn retire(&mut self, _: &Retired) -> Result<(), Closed> {
        Err(Closed)
    }
    fn finish(self) -> Result<(), Closed> {
        Err(Closed)
    }
}

impl Recorder for Asked {
    type Ring = NoRing;
    fn start(&self, _: ThreadId) -> Result<NoRing, Closed> {
        Err(Closed)
    }
    fn emit(&self, _: Event) -> Result<(), Closed> {
        Err(Closed)
    }
    fn is_closed(&self) -> bool {
        false
    }
    fn model(&self) -> Option<SoftLbr> {
        self.0.clone()
    }
    fn period(&self) -> Option<u64> {
        self.1
    }
}

fn thinning(select: u64, period: Option<u64>) -> (u32, Option<(usize, Option<u64>)>, bool) {
    let cpu = SoftCpu::preset("06_5E").expect("a preset");
    let config = RecordConfig::modelled(cpu.caps, cpu.perf_capabilities, select);
    let open = config.expect("armed").open.expect("registers");
    let mut registers = open(ThreadId { pid: 1, tid: 1 }).expect("armed");
    let thin = Thinning::of(&Asked(registers.soft().cloned(), period));
    (thin.wanted, thin.sampling, thin.is_by_clock())
}

/// Skylake has 32 records. Tags: see the record's tests. MSR_LBR_SELECT: CPL_EQ_0, JCC.
#[test]
fn branches_that_no_drain_would_see_are_left_out() {
    let all = 0x7E_007E;
    assert_eq!(thinning(0x1, Some(31)), (all, None, false), "every branch is recorded");
    assert_eq!(thinning(0x1, Some(32)), (all, Some((32, Some(32))), false));
    assert_eq!(thinning(0x1, Some(1000)), (all, Some((32, Some(1000))), false));
    assert_eq!(thinning(0x1, None), (all, Some((32, None)), true));
    assert_eq!(thinning(0x5, Some(31)).0, 0x7C_007C, "without conditional branches");
    assert_eq!(thinning(0x3C5, Some(1000)).1, None, "returns drop frames");
    let none = Thinning::of(&Asked(None, Some(1000)));
    assert_eq!((none.wanted, none.sampling), (u32::MAX, None), "registers of another kind");
}
