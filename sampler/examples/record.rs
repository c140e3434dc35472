//! Records a program on the software LBR, one instruction at a time, and counts
//! its branches: `cargo run -p lbr-sampler --example record -- ls /`.

use std::collections::BTreeMap;
use std::error::Error;

use lbr_msr::filter::to_register_disarmed;
use lbr_msr::record::Event;
use lbr_msr::soft::SoftCpu;
use lbr_sampler::source::ptrace::Ptrace;
use lbr_sampler::target::Command;
use lbr_sampler::{RecordConfig, Sampling, record};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let program = words.next().ok_or("usage: record PROGRAM [ARGUMENT..]")?;
    let cpu = SoftCpu::preset("skylake")?;
    let select = to_register_disarmed("any,u".parse()?, cpu.caps.filter)?;
    let config = RecordConfig::modelled(cpu.caps, cpu.perf_capabilities, select)?;
    let config = RecordConfig { sampling: Sampling::Period(31), ..config };
    let command = Command { program, args: words.collect(), ..Command::default() };

    let mut events: Vec<Event> = Vec::new();
    let summary = record(&mut Ptrace::new(command)?, config, &mut events)?;

    let mut types: BTreeMap<String, u64> = BTreeMap::new();
    for event in &events {
        let Event::Sample(sample) = event else { continue };
        for branch in &sample.stack.entries {
            let name =
                branch.branch_type.map_or_else(|| "unknown".to_owned(), |of| format!("{of:?}"));
            *types.entry(name).or_default() += 1;
        }
    }
    println!("{} branches, complete: {}", summary.branches, summary.complete);
    for (name, count) in types {
        println!("{count:>10} {name}");
    }
    Ok(())
}
