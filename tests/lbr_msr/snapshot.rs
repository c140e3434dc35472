//! A read-only snapshot of the LBR.

use lbr_msr::access::{FakeMsrs, MsrError};
use lbr_msr::record::HwBranchType;
use lbr_msr::snapshot::Snapshot;
use lbr_msr::soft::{Retired, SoftCpu, SoftLbr};
use lbr_msr::{Msr, MsrRead, MsrWrite};

/// The LBR of `key` after user branches 1, 2, ... `count`: number i goes from 0x1000·i to 0x1000·i
/// + 8. Recording is off again.
fn recorded(key: &str, count: u64) -> (SoftCpu, SoftLbr) {
    let soft = SoftCpu::preset(key).unwrap();
    let registers = soft.caps.registers;
    let mut ring = SoftLbr::new(&soft.caps, soft.perf_capabilities);
    let before = ring.read(registers.control).unwrap();
    // Architectural LBR: all branch types and both rings.
    let filter = if key == "06_8F" { 0x7F_0006 } else { 0 };
    ring.write(registers.control, before | registers.enable | filter).unwrap();
    for i in 1..=count {
        ring.retire(&Retired::user(0x1000 * i, 0x1000 * i + 8, HwBranchType::Cond));
    }
    ring.write(registers.control, before & !registers.enable | filter).unwrap();
    (soft, ring)
}

#[test]
fn newest_first_whatever_the_order_of_the_registers() {
    for (key, count, depth, first_slot) in [
        // 35 records in an LBR of 32 that starts at 1: the last is at 35 mod 32.
        ("06_5E", 35, 32, 3),
        ("06_0F", 6, 4, 2),
        ("06_8F", 40, 32, 0),
        ("19_61", 20, 16, 0),
        ("06_0D", 9, 8, 1),
    ] {
        let (soft, mut ring) = recorded(key, count);
        let snapshot = Snapshot::read(&mut ring, &soft.caps).unwrap();
        assert_eq!((snapshot.depth, snapshot.records.len()), (depth, depth as usize), "{key}");
        assert_eq!(snapshot.records[0].0, first_slot, "{key}");
        assert!(!snapshot.torn() && !snapshot.recording, "{key}");
        for (age, (_, raw)) in snapshot.records.iter().enumerate() {
            let number = count - age as u64;
            let entry = lbr_msr::decode::decode(soft.caps.layout, raw).unwrap();
            assert_eq!((entry.from, entry.to), (0x1000 * number, 0x1000 * number + 8), "{key}");
        }
    }
}

#[test]
fn a_snapshot_during_recording_is_torn() {
    let (soft, mut ring) = recorded("06_5E", 3);
    ring.write(Msr(0x1D9), 1).unwrap();
    let snapshot = Snapshot::read(&mut ring, &soft.caps).unwrap();
    assert!(snapshot.recording && !snapshot.moved && snapshot.torn());
    assert_eq!((snapshot.control, snapshot.select, snapshot.position), (1, Some(0), Some(3)));
}

/// Records a branch whenever a register is read, as the reader's system calls would.
struct Busy(SoftLbr, Msr);

impl MsrRead for Busy {
    fn cpu(&self) -> u32 {
        0
    }
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        let value = self.0.read(msr);
        if msr == self.1 {
            self.0.retire(&Retired::user(0x5000, 0x6000, HwBranchType::Ret));
        }
        value
    }
}

#[test]
fn a_snapshot_of_changing_records_is_torn() {
    // At TOS; without it, at the first record.
    for (key, register) in [("06_5E", 0x1C9), ("06_8F", 0x1500), ("19_61", 0xC001_0301)] {
        let (soft, mut ring) = recorded(key, 3);
        let registers = soft.caps.registers;
        let control = ring.read(registers.control).unwrap();
        ring.write(registers.control, control | registers.enable).unwrap();
        let snapshot = Snapshot::read(&mut Busy(ring, Msr(register)), &soft.caps).unwrap();
        assert!(snapshot.moved && snapshot.torn(), "{key}");
    }
}

/// With a smaller IA32_LBR_DEPTH, the registers beyond raise #GP: SDM Vol. 4, Table 2-2.
#[test]
fn a_snapshot_is_as_deep_as_the_depth_register_says() {
    let (soft, mut ring) = recorded("06_8F", 3);
    for depth in [8, 16, 32] {
        ring.write(Msr(0x14CF), depth).unwrap();
        let snapshot = Snapshot::read(&mut ring, &soft.caps).unwrap();
        assert_eq!((u64::from(snapshot.depth), snapshot.records.len() as u64), (depth, depth));
        assert_eq!(snapshot.select, None, "the filter is in the control register");
    }
    // A depth that cannot be.
    for depth in [0, 33, u64::MAX] {
        let mut fake = FakeMsrs::new(0).with(Msr(0x14CE), 0).with(Msr(0x14CF), depth);
        for i in 0..32 {
            for base in [0x1200, 0x1500, 0x1600] {
                fake = fake.with(Msr(base + i), 0);
            }
        }
        let fake = &mut fake.with(Msr(0x38E), 0);
        assert_eq!(Snapshot::read(fake, &soft.caps).unwrap().depth, 32, "{depth}");
    }
}

/// MSROFF is the next index that BRS will write. Linux amd/brs.c.
#[test]
fn a_snapshot_of_brs_starts_below_msroff() {
    let soft = SoftCpu::preset("zen3").unwrap();
    let mut ring = SoftLbr::new(&soft.caps, None);
    ring.write(Msr(0xC000_010F), 0x1C).unwrap();
    for i in 1..=3 {
        ring.retire(&Retired::user(0x1000 * i, 0x1000 * i + 8, HwBranchType::Cond));
    }
    let snapshot = Snapshot::read(&mut ring, &soft.caps).unwrap();
    assert_eq!((snapshot.position, snapshot.select), (Some(3), None));
    let records: Vec<_> = snapshot.records.iter().map(|(slot, raw)| (*slot, raw.from)).collect();
    assert_eq!(records, [(2, 0x3000), (1, 0x2000), (0, 0x1000)]);
}

/// Streamlined freeze: enabled, but not recording.
#[test]
fn frozen_is_not_recording() {
    let soft = SoftCpu::preset("06_5E").unwrap();
    let mut fake = FakeMsrs::new(0).with(Msr(0x1D9), 1).with(Msr(0x1C8), 0).with(Msr(0x1C9), 0);
    for i in 0..32 {
        for base in [0x680, 0x6C0, 0xDC0] {
            fake = fake.with(Msr(base + i), 0);
        }
    }
    let mut frozen = fake.clone().with(Msr(0x38E), 1 << 58);
    assert!(!Snapshot::read(&mut frozen, &soft.caps).unwrap().recording);
    assert!(Snapshot::read(&mut fake, &soft.caps).unwrap().recording);
}

/// On AMD the status is in another register; Intel's does not exist.
#[test]
fn frozen_is_not_recording_on_amd_either() {
    let soft = SoftCpu::preset("zen4").unwrap();
    let mut fake = FakeMsrs::new(0).with(Msr(0xC000_010F), 1 << 6).with(Msr(0xC000_010E), 0);
    for i in 0..32 {
        fake = fake.with(Msr(0xC001_0300 + i), 0);
    }
    for (status, recording) in [(1 << 58, false), (1 << 57, true)] {
        let mut msrs = fake.clone().with(Msr(0xC000_0300), status);
        assert_eq!(Snapshot::read(&mut msrs, &soft.caps).unwrap().recording, recording);
    }
}

#[test]
fn it_reads_every_record_of_every_cpu() {
    for soft in SoftCpu::all() {
        let mut ring = SoftLbr::new(&soft.caps, soft.perf_capabilities);
        let snapshot = Snapshot::read(&mut ring, &soft.caps).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(snapshot.depth, soft.caps.depth, "{}", soft.key);
        let all = soft.caps.order != lbr_msr::caps::Order::Saturating;
        assert!(!all || snapshot.records.len() == soft.caps.depth as usize, "{}", soft.key);
    }
}
