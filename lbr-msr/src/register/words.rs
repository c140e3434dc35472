//! Descriptions of values that a list of codes cannot give: numbers, addresses, and bits that
//! depend on other bits. Each function takes the field, its value, and the register's value.

use alloc::{
    format,
    string::{String, ToString},
};

use super::{
    Field, LbrSelect, bits,
    brbe::BrbInf,
    record::{ArchInfo, CYCLES_MAX, CyclesTo, FlagsFrom, TsxFrom},
    sign_extend,
};

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

/// An address below a flag in bit 63.
pub(super) fn address_under_flag(_: &Field, _: u64, register: u64) -> String {
    format!("address {:#x}", FlagsFrom(register).ip())
}

/// An address below flags in bits 63:61.
pub(super) fn address_under_tsx(_: &Field, _: u64, register: u64) -> String {
    format!("address {:#x}", TsxFrom(register).ip())
}

/// An address below a cycle count.
pub(super) fn address_under_cycles(_: &Field, _: u64, register: u64) -> String {
    format!("address {:#x}", CyclesTo(register).ip())
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

pub(super) fn sign_copies(field: &Field, value: u64, register: u64) -> String {
    copies(field, value, bits(register, 47, 1), "bit 47")
}

pub(super) fn amd_sign_copies(field: &Field, value: u64, register: u64) -> String {
    copies(field, value, bits(register, 57, 1), "bit 57")
}

fn copies(field: &Field, value: u64, sign: u64, of: &str) -> String {
    let all = if sign == 0 { 0 } else { field.of(u64::MAX) };
    let verdict = if value == all { "copies" } else { "not copies" };
    format!("{verdict} of {of}")
}

pub(super) fn cycles(_: &Field, value: u64, _: u64) -> String {
    if value == u64::from(CYCLES_MAX) {
        "65535 core cycles or more since the previous record".to_string()
    } else {
        format!("{value} core cycles since the previous record")
    }
}

/// Architectural LBR, with its valid bit.
pub(super) fn valid_cycles(field: &Field, value: u64, register: u64) -> String {
    if ArchInfo(register).cycles_valid() {
        cycles(field, value, register)
    } else {
        "no count: CYC_CNT_VALID is 0".to_string()
    }
}

pub(super) fn occurrences(_: &Field, value: u64, _: u64) -> String {
    match value {
        3 => "3 or more occurrences".to_string(),
        1 => "1 occurrence".to_string(),
        n => format!("{n} occurrences"),
    }
}

pub(super) fn pebs_format(_: &Field, value: u64, _: u64) -> String {
    format!("PEBS record layout {value}")
}

pub(super) fn tos(_: &Field, value: u64, _: u64) -> String {
    format!("record {value} is the newest")
}

pub(super) fn depth(_: &Field, value: u64, _: u64) -> String {
    format!("{value} records")
}

/// EN_CALLSTACK of MSR_LBR_SELECT, which requires certain other bits. SDM 17.9.
pub(super) fn call_stack_mode(_: &Field, value: u64, register: u64) -> String {
    let others = LbrSelect::from_bits_retain(register);
    if value == 0 {
        "no call-stack mode"
    } else if others & LbrSelect::BRANCHES != LbrSelect::BRANCHES_OF_CALL_STACK {
        "call-stack mode, but bits 8:2 are not 1110001b as it needs: the records are undefined"
    } else if others.contains(LbrSelect::RINGS) {
        "call-stack mode, but with both rings suppressed: the records are undefined"
    } else {
        "call-stack mode: calls push, returns pop"
    }
    .to_string()
}

/// NEAR_REL_CALL of Nehalem's MSR_LBR_SELECT.
pub(super) fn relative_call_beside_jump(_: &Field, value: u64, register: u64) -> String {
    beside_jump("near relative calls", value, register, LbrSelect::NEAR_REL_JMP, "NEAR_REL_JMP")
}

/// NEAR_IND_CALL of Nehalem's MSR_LBR_SELECT.
pub(super) fn indirect_call_beside_jump(_: &Field, value: u64, register: u64) -> String {
    beside_jump("near indirect calls", value, register, LbrSelect::NEAR_IND_JMP, "NEAR_IND_JMP")
}

/// NEAR_RET of Nehalem's MSR_LBR_SELECT.
pub(super) fn return_beside_jump(_: &Field, value: u64, register: u64) -> String {
    beside_jump("near returns", value, register, LbrSelect::NEAR_IND_JMP, "NEAR_IND_JMP")
}

fn beside_jump(what: &str, value: u64, register: u64, jump: LbrSelect, name: &str) -> String {
    match (value, register & jump.bits()) {
        (0, 0) => format!("{what} are recorded"),
        (0, _) => format!("{what} are not recorded: {name} suppresses them too"),
        _ => format!("{what} are not recorded"),
    }
}

pub(super) fn overflows(_: &Field, value: u64, _: u64) -> String {
    match value {
        0 => "no counter overflowed".to_string(),
        _ => format!("overflowed: {}", one_bits(value)),
    }
}

/// The positions of the set bits, as a list.
fn one_bits(value: u64) -> String {
    let mut list = String::new();
    for i in (0..64).filter(|i| value >> i & 1 != 0) {
        if !list.is_empty() {
            list.push_str(", ");
        }
        list.push_str(&i.to_string());
    }
    list
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

/// The cycle count, printed with its mantissa.
pub(super) fn brbe_cycles(_: &Field, _: u64, register: u64) -> String {
    match BrbInf(register).cycles() {
        Some(count) => format!("{count} cycles since the previous record"),
        None if BrbInf(register).cycles_unknown() => "no count: CCU is 1".to_string(),
        None => "out of range".to_string(),
    }
}

pub(super) fn brbe_exponent(_: &Field, value: u64, _: u64) -> String {
    match value {
        0 => "the mantissa alone".to_string(),
        e => format!("(256 + mantissa) << {}", e - 1),
    }
}
