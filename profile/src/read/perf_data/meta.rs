//! Metadata of a recording that `lbr` writes.

use lbr_msr::BranchFilter;
use lbr_msr::record::SourceKnowledge;

use super::attr::{EventAttr, Rate};
use super::layout::{attr_flags, branch, sample_type};
use crate::read::note::Source;
use crate::read::registers::argument_mask;

/// Id of the only event.
pub(crate) const EVENT_ID: u64 = 0x4242;
/// `PERF_TYPE_HARDWARE`, `PERF_COUNT_HW_BRANCH_INSTRUCTIONS`: the event that periods count.
const EVENT: (u32, u64) = (0, 4);
/// Fields of each sample.
const SAMPLE_TYPE: u64 = sample_type::IDENTIFIER
    | sample_type::IP
    | sample_type::TID
    | sample_type::TIME
    | sample_type::CPU
    | sample_type::PERIOD
    | sample_type::RAW
    | sample_type::BRANCH_STACK;

/// Metadata of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Host name.
    pub hostname: Option<String>,
    /// Kernel release.
    pub osrelease: Option<String>,
    /// Name and version of the recorder.
    pub version: String,
    /// Architecture, as `uname -m` names it.
    pub arch: String,
    /// CPUs online and available.
    pub nrcpus: Option<(u32, u32)>,
    /// CPU description; for a software LBR `software LBR (06_5E), not measured`.
    pub cpudesc: Option<String>,
    /// CPU as `GenuineIntel,6,94,3`.
    pub cpuid: Option<String>,
    /// Command line of the recorder.
    pub cmdline: Vec<String>,
    /// Name of the event.
    pub event: String,
    /// The branch filter.
    pub filter: BranchFilter,
    /// The sampling rate.
    pub rate: Rate,
    /// The fields that the source knows besides a branch's addresses.
    pub knowledge: SourceKnowledge,
    /// The source of branches.
    pub source: Source,
    /// Whether to keep types and speculation of entries. AutoFDO's create_llvm_prof warns about
    /// every entry with a type.
    pub types: bool,
    /// Whether samples may have a function's argument registers.
    pub arguments: bool,
    /// zstd level (1 to 22) for the records; `None` for no compression.
    pub compression: Option<i32>,
}

impl Meta {
    /// The metadata of this machine, with a software LBR, the default filter and 997 samples per
    /// second.
    pub fn of_this_machine() -> Meta {
        let line = |path: &str| {
            let text = std::fs::read_to_string(path).ok()?;
            Some(text.trim().to_owned()).filter(|line| !line.is_empty())
        };
        let cpus = |name: &str| {
            line(&format!("/sys/devices/system/cpu/{name}")).and_then(|list| count_cpus(&list))
        };
        Meta {
            hostname: line("/proc/sys/kernel/hostname"),
            osrelease: line("/proc/sys/kernel/osrelease"),
            version: format!("lbr {}", env!("CARGO_PKG_VERSION")),
            arch: std::env::consts::ARCH.to_owned(),
            nrcpus: cpus("online").zip(cpus("present")),
            cpudesc: None,
            cpuid: None,
            cmdline: std::env::args().collect(),
            event: "branches:u".to_owned(),
            filter: BranchFilter::DEFAULT,
            rate: Rate::Frequency(997),
            knowledge: SourceKnowledge::USER_BRANCHES,
            source: Source::Software,
            types: true,
            arguments: false,
            compression: None,
        }
    }

    pub(crate) fn attr(&self) -> EventAttr {
        let mut flags = attr_flags::INHERIT
            | attr_flags::EXCLUDE_HV
            | attr_flags::MMAP
            | attr_flags::COMM
            | attr_flags::TASK
            | attr_flags::SAMPLE_ID_ALL
            | attr_flags::MMAP2
            | attr_flags::COMM_EXEC;
        if !self.filter.contains(BranchFilter::KERNEL) {
            flags |= attr_flags::EXCLUDE_KERNEL;
        }
        let sample_period = match self.rate {
            Rate::Frequency(hz) => {
                flags |= attr_flags::FREQ;
                hz
            }
            Rate::Period(branches) => branches,
        };
        EventAttr {
            kind: EVENT.0,
            size: 128,
            config: EVENT.1,
            sample_period,
            sample_type: SAMPLE_TYPE | if self.arguments { sample_type::REGS_USER } else { 0 },
            flags,
            branch_sample_type: self.branch_sample_type(),
            sample_regs_user: if self.arguments { argument_mask() } else { 0 },
            ids: vec![EVENT_ID],
            name: Some(self.event.clone()),
            ..EventAttr::default()
        }
    }

    /// The filter as perf's bits, which cannot express `no_far`.
    fn branch_sample_type(&self) -> u64 {
        let filters = [
            (BranchFilter::USER, branch::USER),
            (BranchFilter::KERNEL, branch::KERNEL),
            (BranchFilter::ANY, branch::ANY),
            (BranchFilter::ANY_CALL, branch::ANY_CALL),
            (BranchFilter::ANY_RET, branch::ANY_RETURN),
            (BranchFilter::IND_CALL, branch::IND_CALL),
            (BranchFilter::IND_JMP, branch::IND_JUMP),
            (BranchFilter::CALL, branch::CALL),
            (BranchFilter::COND, branch::COND),
            (BranchFilter::STACK, branch::CALL_STACK),
        ];
        let fields = [
            (self.types, branch::TYPE_SAVE),
            (!self.knowledge.mispredict, branch::NO_FLAGS),
            (!self.knowledge.cycles, branch::NO_CYCLES),
        ];
        let filters = filters.map(|(name, bit)| (self.filter.contains(name), bit));
        let all = filters.into_iter().chain(fields).filter(|(is_set, _)| *is_set);
        all.fold(0, |word, (_, bit)| word | bit)
    }
}

/// Number of CPUs in a list such as `0-3,8`.
fn count_cpus(list: &str) -> Option<u32> {
    list.split(',').try_fold(0u32, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
#[path = "../../../../tests/profile/unit/read/perf_data/meta.rs"]
mod tests;
