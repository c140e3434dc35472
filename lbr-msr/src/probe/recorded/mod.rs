//! Recorded CPUID, in any of the usual text formats.

mod text;

use alloc::{collections::BTreeMap, string::String, vec::Vec};
use raw_cpuid::{CpuIdReader, CpuIdResult};

use self::text::DumpLine;
use super::{LEAF_7_EDX_ARCH_LBR, amd::LEAF_DEBUG, identify};
use crate::{
    caps::Vendor,
    table::{self, Carries, RecordKind},
};

/// First leaf of the extended range.
const EXTENDED: u32 = 0x8000_0000;
/// First leaf of the range for hypervisors.
const HYPERVISOR: u32 = 0x4000_0000;
/// An empty leaf.
const ZERO: CpuIdResult = CpuIdResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };

/// The recorded CPUID of one logical CPU.
///
/// As a [`CpuIdReader`] it returns zeros for leaves that were not recorded.
/// [`missing`](Self::missing) reports whether one that matters for branch records is absent;
/// [`parse`] refuses such a recording.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RecordedCpuid {
    leaves: BTreeMap<(u32, u32), CpuidRegisters>,
}

/// EAX, EBX, ECX, EDX.
type CpuidRegisters = [u32; 4];

/// A logical CPU of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCpu {
    /// Its number; 0 if the recording does not give one.
    pub cpu: u32,
    /// Its leaves.
    pub cpuid: RecordedCpuid,
}

/// Why a text is not a usable recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// No line has a known format.
    #[error(
        "no CPUID leaf found; accepted are the output of `cpuid -r` and x86info -r (`eax=...`), dumps \
         and reports of InstLatX64 and AIDA64 (`CPUID 00000000: ...`), libcpuid \
         (`basic_cpuid[0]=...`), cpucontrol (`cpuid level 0x0: ...`) and CPU-Z"
    )]
    Empty,
    /// A line starts like a leaf but cannot be parsed.
    #[error("line {line}: `{text}` starts like a CPUID leaf of {layout}, but cannot be parsed")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// The format's name.
        layout: &'static str,
        /// The start of the line.
        text: String,
    },
    /// Leaf 0, which names the vendor and the highest leaf, is absent: decoded text shows some raw
    /// leaves, but not this one.
    #[error(
        "CPU {cpu}: leaf 0 is not recorded, so the recording is incomplete (decoded text is not enough); \
         record the raw registers of all leaves, for example with: cpuid -r"
    )]
    NoLeafZero {
        /// Logical CPU.
        cpu: u32,
    },
    /// A leaf that probing needs is absent.
    #[error(
        "CPU {cpu}: leaf {leaf:#x} is not recorded, although the CPU has it (the highest is \
         {highest:#x}); record all leaves, for example with: cpuid -r"
    )]
    Missing {
        /// Logical CPU.
        cpu: u32,
        /// The leaf.
        leaf: u32,
        /// The highest leaf of its range.
        highest: u32,
    },
}

impl core::fmt::Debug for RecordedCpuid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut map = f.debug_map();
        for ((leaf, subleaf), registers) in &self.leaves {
            map.entry(&format_args!("{leaf:#010x}.{subleaf}"), &format_args!("{registers:08x?}"));
        }
        map.finish()
    }
}

impl RecordedCpuid {
    /// An empty recording.
    pub fn new() -> RecordedCpuid {
        RecordedCpuid::default()
    }

    /// Copies the leaves that probing needs from a reader.
    pub fn record<R: CpuIdReader>(reader: &R) -> RecordedCpuid {
        let mut recorded = RecordedCpuid::new();
        let mut copy = |leaf: u32| {
            let CpuIdResult { eax, ebx, ecx, edx } = reader.cpuid2(leaf, 0);
            recorded.insert(leaf, 0, eax, ebx, ecx, edx);
            (eax, ecx)
        };
        let (highest, _) = copy(0);
        let (_, features) = copy(1);
        for leaf in [0x7, 0xA, 0x1A, 0x1C].into_iter().filter(|leaf| *leaf <= highest) {
            copy(leaf);
        }
        if features >> 31 != 0 {
            copy(HYPERVISOR);
        }
        let (highest, _) = copy(EXTENDED);
        for leaf in [0x8000_0008, 0x8000_0022].into_iter().filter(|leaf| *leaf <= highest) {
            copy(leaf);
        }
        recorded
    }

    /// The CPUID of the logical CPU that this code runs on. To choose the CPU, pin the thread
    /// first.
    #[cfg(target_arch = "x86_64")]
    pub fn here() -> RecordedCpuid {
        RecordedCpuid::record(&raw_cpuid::CpuIdReaderNative)
    }

    /// Adds or replaces a leaf.
    pub fn insert(&mut self, leaf: u32, subleaf: u32, eax: u32, ebx: u32, ecx: u32, edx: u32) {
        self.leaves.insert((leaf, subleaf), [eax, ebx, ecx, edx]);
    }

    /// A recorded leaf.
    pub fn get(&self, leaf: u32, subleaf: u32) -> Option<CpuIdResult> {
        let [eax, ebx, ecx, edx] = *self.leaves.get(&(leaf, subleaf))?;
        Some(CpuIdResult { eax, ebx, ecx, edx })
    }

    /// Every recorded leaf and sub-leaf, ascending.
    pub fn iter(&self) -> impl Iterator<Item = ((u32, u32), CpuIdResult)> + '_ {
        self.leaves.iter().map(|(key, [eax, ebx, ecx, edx])| {
            (*key, CpuIdResult { eax: *eax, ebx: *ebx, ecx: *ecx, edx: *edx })
        })
    }

    /// The first leaf that the CPU has and probing needs, but that is absent, and the highest leaf
    /// of its range. The vendor and the model decide which leaves are needed.
    pub fn missing(&self) -> Option<(u32, u32)> {
        let Some(first) = self.get(0, 0) else { return Some((0, 0)) };
        let absent = |leaf: u32, highest: u32| {
            (leaf <= highest && self.get(leaf, 0).is_none()).then_some((leaf, highest))
        };
        if let Some(missing) = absent(1, first.eax) {
            return Some(missing);
        }
        let cpu = identify(self);
        match cpu.vendor {
            Vendor::Other(_) => None,
            Vendor::Intel => {
                let row = table::lookup(cpu.family, cpu.model).map(|row| row.generation);
                // Leaf 7 announces Architectural LBR and TSX.
                let asks = row.is_none_or(|g| g.kind == RecordKind::Arch || g.tsx != Carries::No);
                let announced = self.cpuid2(7, 0).edx & LEAF_7_EDX_ARCH_LBR != 0;
                let seven = absent(7, first.eax).filter(|_| asks);
                seven.or_else(|| absent(0x1C, first.eax).filter(|_| announced))
            }
            // From Zen 3 on the extended leaves announce the facility.
            Vendor::Amd if cpu.family < 0x19 => None,
            Vendor::Amd => match self.get(EXTENDED, 0) {
                Some(extended) => absent(LEAF_DEBUG, extended.eax),
                // All 64-bit CPUs have the extended range.
                None => Some((EXTENDED, EXTENDED)),
            },
        }
    }
}

impl CpuIdReader for RecordedCpuid {
    fn cpuid2(&self, leaf: u32, subleaf: u32) -> CpuIdResult {
        self.get(leaf, subleaf).unwrap_or(ZERO)
    }
}

/// Parses a recording of one or several logical CPUs. Other lines (titles, decoded text) are
/// skipped. A second leaf 0 without a CPU header starts the next CPU.
///
/// # Errors
/// [`RecordingError`].
pub fn parse(text: &str) -> Result<Vec<RecordedCpu>, RecordingError> {
    let mut cpus: BTreeMap<u32, RecordedCpuid> = BTreeMap::new();
    let mut current = 0;
    // Repeated leaves of an already complete CPU are skipped.
    let (mut announced, mut again) = (false, false);
    let next = |cpus: &BTreeMap<u32, RecordedCpuid>| match cpus.last_key_value() {
        Some((last, _)) => last.saturating_add(1),
        None => 0,
    };
    for (index, line) in text.lines().enumerate() {
        let leaf = match text::read(line.trim()) {
            DumpLine::Other => continue,
            DumpLine::Broken(layout) => {
                return Err(RecordingError::Line {
                    line: index + 1,
                    layout,
                    text: line.trim().chars().take(60).collect(),
                });
            }
            DumpLine::Cpu(number) => {
                current = number.unwrap_or_else(|| next(&cpus));
                announced = number.is_some();
                again = cpus.contains_key(&current);
                continue;
            }
            DumpLine::Leaf(leaf) => leaf,
        };
        if again {
            continue;
        }
        let repeated = cpus.get(&current).is_some_and(|cpuid| cpuid.get(0, 0).is_some());
        if leaf.leaf == 0 && leaf.subleaf.unwrap_or(0) == 0 && repeated && !announced {
            current = next(&cpus);
        }
        let cpuid = cpus.entry(current).or_default();
        // Most dumps repeat a leaf for each of its sub-leaves without numbering them.
        let subleaf = leaf.subleaf.unwrap_or_else(|| {
            let recorded = cpuid.leaves.range((leaf.leaf, 0)..=(leaf.leaf, u32::MAX));
            recorded.last().map_or(0, |((_, subleaf), _)| subleaf.saturating_add(1))
        });
        cpuid.leaves.entry((leaf.leaf, subleaf)).or_insert(leaf.registers);
    }
    if cpus.is_empty() {
        return Err(RecordingError::Empty);
    }
    for (cpu, cpuid) in &cpus {
        if cpuid.get(0, 0).is_none() {
            return Err(RecordingError::NoLeafZero { cpu: *cpu });
        }
        if let Some((leaf, highest)) = cpuid.missing() {
            return Err(RecordingError::Missing { cpu: *cpu, leaf, highest });
        }
    }
    Ok(cpus.into_iter().map(|(cpu, cpuid)| RecordedCpu { cpu, cpuid }).collect())
}
