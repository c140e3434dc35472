//! The performance monitor's interrupt, delivered through the emulator's local APIC.

use super::state;
use super::vcpu::Vcpu;

/// The local APIC's registers for the performance monitor's interrupt and for sending interrupts
/// (the low half of ICR). SDM 11.5.1, 11.6.1.
const LVTPC: u64 = 0xFEE0_0340;
const ICR_LOW: u64 = 0xFEE0_0300;
/// LVTPC: no interrupt.
const MASKED: u32 = 1 << 16;
/// LVTPC and ICR: mode and vector.
const MODE_AND_VECTOR: u32 = 0x7FF;
/// ICR: to the CPU that sends it.
const TO_SELF: u32 = 1 << 18;

/// Makes the local APIC of the current vCPU send the interrupt configured in LVTPC. `false`: it is
/// masked, or the APIC is not at its reset address.
pub(super) fn deliver(vcpu: &Vcpu) -> bool {
    let Some(lvt) = state::physical(LVTPC).filter(|lvt| lvt & MASKED == 0) else {
        return false;
    };
    if vcpu.delivery_masks() && !state::set_physical(LVTPC, lvt | MASKED) {
        return false;
    }
    state::set_physical(ICR_LOW, TO_SELF | lvt & MODE_AND_VECTOR)
}
