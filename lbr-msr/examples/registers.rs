//! Arms the software LBR of a CPU, records branches in it, and reads its registers back: `cargo run
//! -p lbr-msr --example registers -- zen4`.

use std::error::Error;

use lbr_msr::decode::decode;
use lbr_msr::record::HwBranchType;
use lbr_msr::snapshot::Snapshot;
use lbr_msr::soft::{Retired, SoftCpu, SoftLbr};

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1);
    let cpu = SoftCpu::preset(name.as_deref().unwrap_or("skylake"))?;
    let mut lbr = SoftLbr::new(&cpu.caps, cpu.perf_capabilities);
    lbr.arm("any,u".parse()?)?;
    for round in 0..3 {
        let loops = Retired::user(0x40_1020, 0x40_1000, HwBranchType::Cond);
        lbr.retire(&Retired { mispredicted: Some(round == 0), cycles: Some(4), ..loops });
    }
    println!("{}: {} records", cpu.key, cpu.caps.depth);
    for (slot, raw) in Snapshot::read(&mut lbr, &cpu.caps)?.records {
        if let Some(branch) = decode(cpu.caps.layout, &raw) {
            println!(
                "slot {slot}: {:#x} -> {:#x}, {:?} cycles",
                branch.from, branch.to, branch.cycles
            );
        }
    }
    Ok(())
}
