//! Text formats of recorded CPUID.
//!
//! | layout | a leaf |
//! |---|---|
//! | InstLatX64, AIDA64, Everest | `CPUID 00000004: 1C004121-01C0003F-0000003F-00000000 [SL 00]`, in reports without the colon |
//! | cpuid of S. Noonan | `CPUID 00000004:00 = 1c004121 01c0003f 0000003f 00000000 \| ...` |
//! | `cpuid -r`, raw-cpuid | `0x00000004 0x00: eax=0x1c004121 ebx=0x01c0003f ecx=0x0000003f edx=0x00000000` |
//! | `x86info -r` | `eax in: 0x00000004, eax = 1c004121 ebx = 01c0003f ecx = 0000003f edx = 00000000` |
//! | libcpuid | `intel_fn4[0]=1c004121 01c0003f 0000003f 00000000` |
//! | `cpucontrol -i` | `cpuid level 0x4: 0x1c004121 0x01c0003f 0x0000003f 0x00000000` |
//! | CPU-Z, tables | `0x00000004 0x1C004121 0x01C0003F 0x0000003F 0x00000000`, with or without `0x` |

use alloc::vec::Vec;

use super::{CpuidRegisters, EXTENDED};
use crate::text::leading_number;

/// The meaning of a line.
pub(super) enum DumpLine {
    /// The following leaves belong to this logical CPU, or to the next one if it has no number.
    Cpu(Option<u32>),
    /// A leaf.
    Leaf(Leaf),
    /// Starts like a leaf of this format but cannot be parsed.
    Broken(&'static str),
    /// Something else: a title, decoded text.
    Other,
}

/// A recorded leaf.
pub(super) struct Leaf {
    pub(super) leaf: u32,
    /// `None` if the text does not number sub-leaves.
    pub(super) subleaf: Option<u32>,
    pub(super) registers: CpuidRegisters,
}

/// Parses a line of one format: `None` if it is not of this format, `Some(None)` if it only starts
/// like a leaf.
type Reader = fn(&str) -> Option<Option<Leaf>>;

/// Parses a trimmed line.
pub(super) fn read(line: &str) -> DumpLine {
    if let Some(cpu) = cpu_header(line) {
        return DumpLine::Cpu(cpu);
    }
    let layouts: [(&'static str, Reader); 5] = [
        ("InstLatX64 or AIDA64", by_dashes),
        ("cpuid -r", by_names),
        ("cpucontrol -i", by_level),
        ("libcpuid", by_index),
        ("a table of five columns", by_columns),
    ];
    for (layout, read) in layouts {
        match read(line) {
            Some(Some(leaf)) => return DumpLine::Leaf(leaf),
            Some(None) => return DumpLine::Broken(layout),
            None => {}
        }
    }
    DumpLine::Other
}

/// A line that introduces a logical CPU's leaves: its number, if it has one.
fn cpu_header(line: &str) -> Option<Option<u32>> {
    // cpuid -r: `CPU 3:`, with -1 `CPU:`.
    if line == "CPU:" {
        return Some(None);
    }
    if let Some(cpu) = line.strip_prefix("CPU ").and_then(|rest| rest.strip_suffix(':')) {
        return cpu.trim().parse().ok().map(Some);
    }
    // CPU-Z: `CPU Thread 3`.
    if let Some(cpu) = line.strip_prefix("CPU Thread ") {
        return cpu.trim().parse().ok().map(Some);
    }
    // InstLatX64: `CPU#003 AffMask: 0x...`.
    if line.starts_with("CPU#") && line.contains("AffMask") {
        return leading_number(line.strip_prefix("CPU#")?).map(Some);
    }
    // By processor group of 64: `Group: 0x00 Affinity mask: 0x0000000000000008`.
    if let Some(rest) = line.strip_prefix("Group: ")
        && let Some((group, mask)) = rest.split_once(" Affinity mask: ")
    {
        let mask = u64::from_str_radix(mask.trim().strip_prefix("0x")?, 16).ok()?;
        let base = prefixed(group.trim())?.checked_mul(64)?;
        let bit = (mask != 0).then(|| mask.trailing_zeros())?;
        return base.checked_add(bit).map(Some);
    }
    // `------[ Logical CPU #3 ]------`, `------[ CPUID Registers / Logical CPU #3 ]------`,
    // `CPUID Registers (CPU #3 Virtual)`, libcpuid's `____ Logical CPU #3 ____`.
    let framed = line.starts_with("---") || line.starts_with("___") || line.starts_with("CPUID R");
    let (_, rest) = line.split_once("CPU #").filter(|_| framed)?;
    leading_number(rest).map(Some)
}

/// `CPUID` and a leaf number of eight digits. AIDA64 also writes other lines that start with that
/// word (`CPUID CPU Name`, `CPUID Manufacturer`).
fn by_dashes(line: &str) -> Option<Option<Leaf>> {
    let rest = line.strip_prefix("CPUID ")?.trim_start();
    let leaf = rest.get(..8).and_then(hex)?;
    let rest = rest.get(8..)?;
    if !rest.starts_with([':', ' ', '\t']) {
        return None;
    }
    let values = || {
        let rest = rest.strip_prefix(':').unwrap_or(rest);
        // `00 = ...`, directly after the colon.
        let (subleaf, rest) = match rest.split_once(" = ") {
            Some((subleaf, rest)) => (Some(hex(subleaf)?), rest),
            None => (None, rest),
        };
        let rest = rest.trim_start();
        let end = rest.find(|c: char| !(c.is_ascii_hexdigit() || c == '-' || c == ' '));
        let (values, note) = rest.split_at(end.unwrap_or(rest.len()));
        let subleaf = match note.split_once("[SL ") {
            Some((_, number)) => Some(hex(number.split_once(']')?.0.trim())?),
            None => subleaf,
        };
        let words = values.split(['-', ' ']).filter(|word| !word.is_empty());
        Some(Leaf { leaf, subleaf, registers: four(words)? })
    };
    Some(values())
}

/// `eax=0x... ebx=0x... ecx=0x... edx=0x...`, in either case, after leaf and sub-leaf.
fn by_names(line: &str) -> Option<Option<Leaf>> {
    let begins = line.starts_with("0x") || line.starts_with("eax in");
    let lower = line.to_ascii_lowercase();
    let names = lower.rfind("eax=").or_else(|| lower.rfind("eax ="));
    let (head, tail) = lower.split_at(names.filter(|_| begins)?);
    let values = || {
        let mut keys = head
            .split(|c: char| c.is_whitespace() || matches!(c, ':' | ',' | '.' | '_'))
            .filter(|word| !matches!(*word, "" | "eax" | "in"));
        let leaf = prefixed(keys.next()?)?;
        let subleaf = match keys.next() {
            Some(number) => Some(prefixed(number)?),
            None => None,
        };
        let words: Vec<&str> =
            tail.split([' ', '=', ',', '\t']).filter(|word| !word.is_empty()).collect();
        let mut registers = [0; 4];
        for (i, name) in ["eax", "ebx", "ecx", "edx"].iter().enumerate() {
            let [register, value] = words.get(2 * i..2 * i + 2)? else { return None };
            *registers.get_mut(i)? =
                hex(value.strip_prefix("0x").unwrap_or(value)).filter(|_| register == name)?;
        }
        Some(Leaf { leaf, subleaf, registers })
    };
    Some(values())
}

/// `cpuid level 0x4, level_type 0x1: 0x... 0x... 0x... 0x...`
fn by_level(line: &str) -> Option<Option<Leaf>> {
    let rest = line.strip_prefix("cpuid level ")?;
    let values = || {
        let (head, values) = rest.split_once(':')?;
        let (leaf, subleaf) = match head.split_once(", level_type ") {
            Some((leaf, subleaf)) => (leaf, Some(prefixed(subleaf.trim())?)),
            None => (head, None),
        };
        let words = values.split_whitespace().map(|word| word.strip_prefix("0x").unwrap_or(word));
        Some(Leaf { leaf: prefixed(leaf.trim())?, subleaf, registers: four(words)? })
    };
    Some(values())
}

/// `basic_cpuid[0]=00000016 756e6547 6c65746e 49656e69` and similar. The index counts leaves in
/// `basic_cpuid` and `ext_cpuid`, sub-leaves elsewhere.
fn by_index(line: &str) -> Option<Option<Leaf>> {
    let (name, rest) = line.split_once('[')?;
    let fixed = match name {
        "basic_cpuid" | "ext_cpuid" => None,
        "intel_fn4" => Some(0x4),
        "intel_fn11" => Some(0xB),
        "intel_fn12h" => Some(0x12),
        "intel_fn14h" => Some(0x14),
        "amd_fn8000001dh" => Some(0x8000_001D),
        "amd_fn80000026h" => Some(0x8000_0026),
        _ => return None,
    };
    let values = || {
        let (index, values) = rest.split_once("]=")?;
        let index: u32 = index.parse().ok()?;
        let base = if name == "ext_cpuid" { EXTENDED } else { 0 };
        let (leaf, subleaf) = match fixed {
            Some(leaf) => (leaf, index),
            None => (base.checked_add(index)?, 0),
        };
        let registers = four(values.split_whitespace())?;
        Some(Leaf { leaf, subleaf: Some(subleaf), registers })
    };
    Some(values())
}

/// Only leaf and registers, eight digits each.
fn by_columns(line: &str) -> Option<Option<Leaf>> {
    let words: Vec<u32> = line
        .split_whitespace()
        .map(|word| word.strip_prefix("0x").unwrap_or(word))
        .map(|word| hex(word).filter(|_| word.len() == 8))
        .collect::<Option<_>>()?;
    let [leaf, registers @ ..] = words.as_slice() else { return None };
    let registers = registers.try_into().ok()?;
    Some(Some(Leaf { leaf: *leaf, subleaf: None, registers }))
}

fn four<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<CpuidRegisters> {
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
