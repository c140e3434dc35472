//! CPUID that somebody recorded: the text of `cpuid -r`, of InstLatX64 and
//! AIDA64, and of libcpuid.

use alloc::{collections::BTreeMap, string::String, vec::Vec};
use raw_cpuid::{CpuIdReader, CpuIdResult};

/// First leaf of the extended range.
const EXTENDED: u32 = 0x8000_0000;
/// First leaf of the range that hypervisors describe themselves in.
const HYPERVISOR: u32 = 0x4000_0000;
/// The four registers of a leaf that says nothing.
const ZERO: CpuIdResult = CpuIdResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };

/// The CPUID of one logical CPU, recorded.
///
/// As a [`CpuIdReader`] it answers zeros for what was not recorded: leaves
/// above the highest, and sub-leaves that the recorder left out. Whether a leaf
/// that probing needs is missing below the highest is asked with
/// [`missing`](Self::missing); [`parse`] refuses such a recording.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RecordedCpuid {
    leaves: BTreeMap<(u32, u32), Registers>,
}

/// EAX, EBX, ECX, EDX.
type Registers = [u32; 4];

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
        "no CPUID leaf found; known are the texts of `cpuid -r`, InstLatX64/AIDA64 dumps \
         (`CPUID 00000000: ...`) and libcpuid dumps (`basic_cpuid[0]=...`)"
    )]
    Empty,
    /// A line begins like a leaf and is none.
    #[error("line {line}: `{text}` begins like a CPUID leaf, but cannot be read")]
    Line {
        /// Line, counted from 1.
        line: usize,
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

    /// The first leaf that probing needs, that this CPU has, and that is not
    /// recorded, with the highest leaf of its range.
    #[must_use]
    pub fn missing(&self) -> Option<(u32, u32)> {
        let Some(first) = self.get(0, 0) else { return Some((0, 0)) };
        let amd = matches!(&vendor(first), b"AuthenticAMD" | b"HygonGenuine");
        let basic: &[u32] = if amd { &[1] } else { &[1, 7, 0xA, 0x1A, 0x1C] };
        let absent = |leaf: &&u32| self.get(**leaf, 0).is_none();
        if let Some(leaf) = basic.iter().filter(|leaf| **leaf <= first.eax).find(absent) {
            return Some((*leaf, first.eax));
        }
        if !amd {
            return None;
        }
        let highest = match self.get(EXTENDED, 0) {
            Some(extended) => extended.eax,
            // 64-bit CPUs all have the extended range.
            None if self.get(1, 0).is_some_and(|leaf| leaf.eax >> 8 & 0xF == 0xF) => {
                return Some((EXTENDED, EXTENDED));
            }
            None => return None,
        };
        [0x8000_0008, 0x8000_0022]
            .iter()
            .filter(|leaf| **leaf <= highest)
            .find(absent)
            .map(|leaf| (*leaf, highest))
    }
}

impl CpuIdReader for RecordedCpuid {
    fn cpuid2(&self, leaf: u32, subleaf: u32) -> CpuIdResult {
        self.get(leaf, subleaf).unwrap_or(ZERO)
    }
}

fn vendor(leaf: CpuIdResult) -> [u8; 12] {
    let mut name = [0; 12];
    let words = [leaf.ebx, leaf.edx, leaf.ecx];
    for (bytes, word) in name.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    name
}

/// Reads a recording of one or several logical CPUs. Lines of other shapes
/// (titles, decoded text) are passed over.
///
/// # Errors
/// [`RecordingError`].
pub fn parse(text: &str) -> Result<Vec<RecordedCpu>, RecordingError> {
    let mut cpus: BTreeMap<u32, RecordedCpuid> = BTreeMap::new();
    let mut current = 0;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(cpu) = cpu_header(line) {
            current = cpu;
            continue;
        }
        let leaf = match read_leaf(line) {
            Shape::Other => continue,
            Shape::Broken => {
                return Err(RecordingError::Line {
                    line: index + 1,
                    text: line.chars().take(60).collect(),
                });
            }
            Shape::Leaf(leaf) => leaf,
        };
        let cpuid = cpus.entry(current).or_default();
        // InstLatX64's older dumps repeat a leaf for each of its sub-leaves,
        // without numbering them.
        let subleaf = leaf.subleaf.unwrap_or_else(|| {
            let recorded = cpuid.leaves.range((leaf.leaf, 0)..=(leaf.leaf, u32::MAX));
            recorded.last().map_or(0, |((_, subleaf), _)| subleaf.saturating_add(1))
        });
        cpuid.leaves.entry((leaf.leaf, subleaf)).or_insert(leaf.registers);
    }
    cpus.retain(|_, cpuid| !cpuid.leaves.is_empty());
    if cpus.is_empty() {
        return Err(RecordingError::Empty);
    }
    let cpus: Vec<RecordedCpu> =
        cpus.into_iter().map(|(cpu, cpuid)| RecordedCpu { cpu, cpuid }).collect();
    for RecordedCpu { cpu, cpuid } in &cpus {
        if cpuid.get(0, 0).is_none() {
            return Err(RecordingError::NoLeafZero { cpu: *cpu });
        }
        if let Some((leaf, highest)) = cpuid.missing() {
            return Err(RecordingError::Missing { cpu: *cpu, leaf, highest });
        }
    }
    Ok(cpus)
}

/// A line that opens the leaves of a logical CPU.
fn cpu_header(line: &str) -> Option<u32> {
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    // cpuid -r: `CPU 3:`, with -1 `CPU:`.
    if line == "CPU:" {
        return Some(0);
    }
    if let Some(cpu) = line.strip_prefix("CPU ").and_then(|rest| rest.strip_suffix(':')) {
        return cpu.trim().parse().ok();
    }
    // InstLatX64: `CPU#003 AffMask: 0x...`, `CPUID Registers (CPU #3)`.
    if line.starts_with("CPU#") && line.contains("AffMask") {
        return number(line.strip_prefix("CPU#")?);
    }
    // AIDA64: `------[ Logical CPU #3 ]------`, libcpuid: `____ Logical CPU #3 ____`.
    let framed = line.starts_with("---") || line.starts_with("___") || line.starts_with("CPUID R");
    let (_, rest) = line.split_once("CPU #").filter(|_| framed)?;
    number(rest)
}

struct Leaf {
    leaf: u32,
    /// `None` where the text does not number sub-leaves.
    subleaf: Option<u32>,
    registers: Registers,
}

enum Shape {
    Leaf(Leaf),
    /// It begins like a leaf and is none.
    Broken,
    /// Something else.
    Other,
}

impl From<Option<Leaf>> for Shape {
    fn from(leaf: Option<Leaf>) -> Shape {
        leaf.map_or(Shape::Broken, Shape::Leaf)
    }
}

fn read_leaf(line: &str) -> Shape {
    if line.starts_with("0x") && line.contains(" eax=") {
        return todd_allen(line).into();
    }
    if let Some(rest) = line.strip_prefix("CPUID ")
        && rest.starts_with(|c: char| c.is_ascii_hexdigit())
        && rest.contains(':')
    {
        return instlat(rest).into();
    }
    libcpuid(line)
}

/// `0x00000004 0x01: eax=0x... ebx=0x... ecx=0x... edx=0x...`
fn todd_allen(line: &str) -> Option<Leaf> {
    let (head, tail) = line.split_once(':')?;
    let mut numbers = head.split_whitespace();
    let leaf = prefixed(numbers.next()?)?;
    let subleaf = match numbers.next() {
        Some(subleaf) => Some(prefixed(subleaf)?),
        None => None,
    };
    let mut words = tail.split_whitespace();
    let mut registers = [0; 4];
    for (name, register) in ["eax=", "ebx=", "ecx=", "edx="].iter().zip(&mut registers) {
        *register = prefixed(words.next()?.strip_prefix(name)?)?;
    }
    Some(Leaf { leaf, subleaf, registers })
}

/// `00000004: 1C004121-01C0003F-0000003F-00000000 [SL 00]`, after `CPUID `.
fn instlat(rest: &str) -> Option<Leaf> {
    let (leaf, tail) = rest.split_once(':')?;
    let tail = tail.trim_start();
    let end = tail.find(|c: char| c != '-' && !c.is_ascii_hexdigit()).unwrap_or(tail.len());
    let (values, note) = tail.split_at(end);
    let subleaf = match note.split_once("[SL ") {
        Some((_, number)) => Some(hex(number.split_once(']')?.0.trim())?),
        None => None,
    };
    Some(Leaf { leaf: hex(leaf.trim())?, subleaf, registers: four(values.split('-'))? })
}

/// `basic_cpuid[0]=00000016 756e6547 6c65746e 49656e69` and its like. The
/// index counts leaves in `basic_cpuid` and `ext_cpuid`, sub-leaves elsewhere.
fn libcpuid(line: &str) -> Shape {
    let Some((name, rest)) = line.split_once('[') else { return Shape::Other };
    let fixed = match name {
        "basic_cpuid" | "ext_cpuid" => None,
        "intel_fn4" => Some(0x4),
        "intel_fn11" => Some(0xB),
        "intel_fn12h" => Some(0x12),
        "intel_fn14h" => Some(0x14),
        "amd_fn8000001dh" => Some(0x8000_001D),
        "amd_fn80000026h" => Some(0x8000_0026),
        _ => return Shape::Other,
    };
    let leaf = || {
        let (index, values) = rest.split_once("]=")?;
        let index: u32 = index.parse().ok()?;
        let base = if name == "ext_cpuid" { EXTENDED } else { 0 };
        let (leaf, subleaf) = match fixed {
            Some(leaf) => (leaf, index),
            None => (base.checked_add(index)?, 0),
        };
        Some(Leaf { leaf, subleaf: Some(subleaf), registers: four(values.split_whitespace())? })
    };
    leaf().into()
}

fn four<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Registers> {
    let mut registers = [0; 4];
    for register in &mut registers {
        *register = hex(words.next()?)?;
    }
    words.next().is_none().then_some(registers)
}

fn prefixed(word: &str) -> Option<u32> {
    hex(word.strip_prefix("0x")?)
}

fn hex(word: &str) -> Option<u32> {
    let digits = !word.is_empty() && word.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| u32::from_str_radix(word, 16).ok())?
}
