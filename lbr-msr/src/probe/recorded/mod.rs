//! CPUID that somebody recorded, in any of the usual texts.

mod text;

use alloc::{collections::BTreeMap, string::String, vec::Vec};
use raw_cpuid::{CpuIdReader, CpuIdResult};

use self::text::DumpLine;
use super::{identify, intel::LEAF_7_EDX_ARCH_LBR};
use crate::{
    caps::Vendor,
    table::{self, Carries, RecordKind},
};

/// First leaf of the extended range.
const EXTENDED: u32 = 0x8000_0000;
/// First leaf of the range that hypervisors describe themselves in.
const HYPERVISOR: u32 = 0x4000_0000;
/// The four registers of a leaf that says nothing.
const ZERO: CpuIdResult = CpuIdResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };

/// The CPUID of one logical CPU, recorded.
///
/// As a [`CpuIdReader`] it answers zeros for what was not recorded: leaves
/// above the highest, sub-leaves that the recorder left out, and leaves that
/// say nothing about branch records. Whether one that does is missing is asked
/// with [`missing`](Self::missing); [`parse`] refuses such a recording.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RecordedCpuid {
    leaves: BTreeMap<(u32, u32), CpuidRegisters>,
}

/// EAX, EBX, ECX, EDX.
type CpuidRegisters = [u32; 4];

/// A logical CPU of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCpu {
    /// Its number; 0 where the recording names none.
    pub cpu: u32,
    /// Its leaves.
    pub cpuid: RecordedCpuid,
}

/// Why a text is no usable recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// No line of any known shape.
    #[error(
        "no CPUID leaf found; known are the texts of `cpuid -r` and x86info -r (`eax=...`), dumps \
         and reports of InstLatX64 and AIDA64 (`CPUID 00000000: ...`), libcpuid \
         (`basic_cpuid[0]=...`), cpucontrol (`cpuid level 0x0: ...`) and CPU-Z"
    )]
    Empty,
    /// A line begins like a leaf and is none.
    #[error("line {line}: `{text}` begins like a CPUID leaf of {layout}, but cannot be read")]
    Line {
        /// Line, counted from 1.
        line: usize,
        /// Who writes such lines.
        layout: &'static str,
        /// Its beginning.
        text: String,
    },
    /// Leaf 0, which names the vendor and the highest leaf, is not recorded:
    /// decoded text shows some leaves raw, but not this one.
    #[error(
        "CPU {cpu}: leaf 0 is not recorded, so this is no complete recording (decoded text is \
         none); record the raw registers of all leaves, for example with: cpuid -r"
    )]
    NoLeafZero {
        /// Logical CPU.
        cpu: u32,
    },
    /// A leaf that probing needs is not recorded.
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
    /// A recording without leaves.
    #[must_use]
    pub fn new() -> RecordedCpuid {
        RecordedCpuid::default()
    }

    /// Copies the leaves that probing looks at from a reader.
    #[must_use]
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

    /// The CPUID of the logical CPU that this runs on. A caller that wants a
    /// certain CPU pins itself to it first.
    #[cfg(target_arch = "x86_64")]
    #[must_use]
    pub fn here() -> RecordedCpuid {
        RecordedCpuid::record(&raw_cpuid::CpuIdReaderNative)
    }

    /// Records a leaf; one recorded before is replaced.
    pub fn insert(&mut self, leaf: u32, subleaf: u32, eax: u32, ebx: u32, ecx: u32, edx: u32) {
        self.leaves.insert((leaf, subleaf), [eax, ebx, ecx, edx]);
    }

    /// A recorded leaf.
    #[must_use]
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

    /// The first leaf that decides about this CPU's branch records, that the
    /// CPU has, and that is not recorded, with the highest leaf of its range.
    /// Which leaves decide depends on the vendor and the model.
    #[must_use]
    pub fn missing(&self) -> Option<(u32, u32)> {
        let Some(first) = self.get(0, 0) else { return Some((0, 0)) };
        let absent =
            |highest: u32| move |leaf: &&u32| **leaf <= highest && self.get(**leaf, 0).is_none();
        let basic =
            |leaves: &[u32]| leaves.iter().find(absent(first.eax)).map(|leaf| (*leaf, first.eax));
        if let Some(missing) = basic(&[1]) {
            return Some(missing);
        }
        let cpu = identify(self);
        match cpu.vendor {
            Vendor::Other(_) => None,
            Vendor::Intel => {
                let row = table::lookup(cpu.family, cpu.model).map(|row| row.generation);
                // Whether it announces Architectural LBR; whether it has TSX.
                let asks = row.is_none_or(|g| g.kind == RecordKind::Arch || g.tsx != Carries::No);
                let seven = basic(if asks { &[7] } else { &[] });
                let announced = self.cpuid2(7, 0).edx & LEAF_7_EDX_ARCH_LBR != 0;
                seven.or_else(|| basic(if announced { &[0x1C] } else { &[] }))
            }
            // From Zen 3 on the extended leaves tell the facility.
            Vendor::Amd if cpu.family < 0x19 => None,
            Vendor::Amd => {
                // 64-bit CPUs all have the extended range.
                let Some(extended) = self.get(EXTENDED, 0) else {
                    return Some((EXTENDED, EXTENDED));
                };
                let highest = extended.eax;
                [0x8000_0008, 0x8000_0022].iter().find(absent(highest)).map(|leaf| (*leaf, highest))
            }
        }
    }
}

impl CpuIdReader for RecordedCpuid {
    fn cpuid2(&self, leaf: u32, subleaf: u32) -> CpuIdResult {
        self.get(leaf, subleaf).unwrap_or(ZERO)
    }
}

/// Reads a recording of one or several logical CPUs. Lines of other shapes
/// (titles, decoded text) are passed over. Where leaf 0 comes again without a
/// line that says of which CPU, it is the next one's.
///
/// # Errors
/// [`RecordingError`].
pub fn parse(text: &str) -> Result<Vec<RecordedCpu>, RecordingError> {
    let mut cpus: BTreeMap<u32, RecordedCpuid> = BTreeMap::new();
    let mut current = 0;
    // What a CPU that has leaves already says again is passed over.
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
        // Most dumps repeat a leaf for each of its sub-leaves, without
        // numbering them.
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
