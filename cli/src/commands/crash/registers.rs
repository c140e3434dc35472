//! `lbr crash` on the branch records of a CPU.

use std::path::Path;

use lbr_msr::BranchFilter;
use lbr_msr::decode::decode;
use lbr_msr::record::BranchEntry;
use lbr_msr::snapshot::Snapshot;
use sampler::flight::{Flight, Trigger};
use sampler::interrupt::Interrupts;
use sampler::source::Command;
use sampler::source::cpu::target::Program;
use sampler::target::{Affinity, Moved};

use super::{Crash, recorder};
use crate::commands::backend::{look, not_started, open_for, refused};
use crate::commands::machine::MachineArgs;
use crate::commands::record::hardware::{arm, description, plan, recordable, restore};
use crate::exit::{OrExit, Result, USAGE, usage};
use crate::present::say;

/// Runs the program on one CPU. Also returns that CPU's description, as in a recording.
pub(super) fn fly(
    args: &Crash,
    path: &Path,
    command: &Command,
    interrupts: Interrupts,
) -> Result<(Flight, String)> {
    if args.at.trigger == Trigger::Call || args.children {
        return Err(usage!(
            "--at call and --children need every branch: --backend soft records them"
        ));
    }
    let machine = MachineArgs::from(args.host.clone());
    let cpu = args.cpu.map_or_else(|| machine.usual_cpu(), Ok)?;
    let (caps, ..) = look(args.backend, cpu, &machine, recordable)?;
    let plan = plan(BranchFilter::ANY | BranchFilter::USER | BranchFilter::NO_FAR, &caps)?;
    let root = machine.root();
    let ring = open_for(&plan, args.backend, cpu, &root)?;
    let allowed = Affinity::current()?;
    let only = allowed.only(cpu).or_exit(USAGE)?;
    if allowed.without(&[cpu]).is_none() {
        return Err(usage!("lbr needs an allowed CPU besides CPU {cpu}, whose records it reads"));
    }
    let program = Program::launch(path, command, &only).map_err(not_started)?;
    // The watchdog process, which arming starts, inherits it.
    let _moved = Moved::off(&[cpu], &allowed);
    let mut armed = arm(vec![ring], &plan, &root)?;
    let mut failed = None;
    let flight = {
        let mut read = || -> Vec<BranchEntry> {
            let mut entries = Vec::new();
            for ring in &mut armed {
                let records = ring.freeze().and_then(|frozen| {
                    let snapshot = Snapshot::read(ring.registers(), &caps)?;
                    ring.thaw(&frozen)?;
                    Ok(snapshot.records)
                });
                match records {
                    Ok(records) => entries
                        .extend(records.iter().filter_map(|(_, raw)| decode(caps.layout, raw))),
                    Err(error) => failed = Some(error),
                }
            }
            entries.truncate(args.last.into());
            entries
        };
        recorder(args, interrupts).on_cpu(program, &mut read).map_err(not_started)
    };
    restore(armed)?;
    let flight = flight?;
    if let Some(error) = failed {
        return Err(refused(error));
    }
    if flight.foreign > 0 {
        say!(
            "{} newer records on CPU {cpu} are of other code and omitted; keep other programs off \
             that CPU (taskset, isolcpus)",
            flight.foreign
        );
    }
    Ok((flight, description(&caps)))
}
