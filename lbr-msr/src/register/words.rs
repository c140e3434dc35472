//! Descriptions of values that a list of codes cannot give: numbers, addresses, and bits that
//! depend on other bits. Each function takes the field, its value, and the register's value.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use super::{Field, sign_extend};

pub(super) fn number(_: &Field, value: u64, _: u64) -> String {
    value.to_string()
}

/// All 64 bits are the address.
pub(super) fn address(_: &Field, _: u64, register: u64) -> String {
    format!("address {register:#x}")
}

/// FROM of Architectural LBR: all ones hide an address in a ring that was not enabled. Linux's
/// mailing list, confirmed by Intel.
pub(super) fn address_or_hidden(_: &Field, _: u64, register: u64) -> String {
    match register {
        u64::MAX => "hidden: the ring it came from was not enabled".to_string(),
        _ => format!("address {register:#x}"),
    }
}

/// A field that holds the whole address, not extended.
pub(super) fn address_alone(_: &Field, value: u64, _: u64) -> String {
    format!("address {value:#x}")
}

/// AMD's 58 address bits; the CPU's address width decides how many are valid.
pub(super) fn amd_address(_: &Field, value: u64, _: u64) -> String {
    let (narrow, wide) = (sign_extend(value, 48), sign_extend(value, 57));
    if narrow == wide {
        format!("address {narrow:#x}")
    } else {
        format!("address {narrow:#x} with 48-bit virtual addresses, {wide:#x} with 57")
    }
}

/// Copies of the bit below the field.
pub(super) fn sign_copies(field: &Field, value: u64, register: u64) -> String {
    let bit = field.low - 1;
    let all = if register >> bit & 1 == 0 { 0 } else { field.of(u64::MAX) };
    let verdict = if value == all { "copies" } else { "not copies" };
    format!("{verdict} of bit {bit}")
}

pub(super) fn occurrences(_: &Field, value: u64, _: u64) -> String {
    match value {
        3 => "3 or more occurrences".to_string(),
        1 => "1 occurrence".to_string(),
        n => format!("{n} occurrences"),
    }
}

pub(super) fn overflows(_: &Field, value: u64, _: u64) -> String {
    match value {
        0 => "no counter overflowed".to_string(),
        _ => format!("overflowed: {}", one_bits(value)),
    }
}

pub(super) fn enabled(_: &Field, value: u64, _: u64) -> String {
    match value {
        0 => "none".to_string(),
        _ => format!("counters {}", one_bits(value)),
    }
}

pub(super) fn hex(_: &Field, value: u64, _: u64) -> String {
    format!("{value:#x}")
}

/// The four control bits of a fixed counter.
pub(super) fn fixed_counter(_: &Field, value: u64, _: u64) -> String {
    let counts = match value & 3 {
        0 => return "off".to_string(),
        1 => "counts in the kernel",
        2 => "counts in user mode",
        _ => "counts everywhere",
    };
    let threads = if value & 4 == 0 { "" } else { ", of all threads of the core" };
    let pmi = if value & 8 == 0 { "" } else { "; a PMI at overflow, which may freeze the LBR" };
    format!("{counts}{threads}{pmi}")
}

/// The positions of the set bits, as a list.
fn one_bits(value: u64) -> String {
    let set = (0..64).filter(|i| value >> i & 1 != 0);
    set.map(|i| i.to_string()).collect::<Vec<_>>().join(", ")
}

pub(super) fn not_of_branches(_: &Field, value: u64, _: u64) -> String {
    match value {
        0 => "0; unrelated to branch records".to_string(),
        _ => format!("{value:#x}; unrelated to branch records"),
    }
}

pub(super) fn msroff(_: &Field, value: u64, _: u64) -> String {
    match value {
        0 => "no record yet, or all 16 filled: record 15 is the newest".to_string(),
        n => format!("record {n} will be written next, record {} is the newest", n - 1),
    }
}
