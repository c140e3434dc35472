//! AMD's three facilities, each announced by CPUID.

use raw_cpuid::{CpuId, CpuIdReader};

use super::{Probed, Why};
use crate::{
    address::{AMD_DBG_EXTN_CFG, AMD_LBR_SELECT, AMD_SAMP_BR_FROM, AMD_SAMP_BR_TO},
    caps::{Facility, FilterRegister, Layout, LbrCaps, Order, Quirks, RegisterMap},
    register::DbgExtnCfg,
};

/// CPUID.80000008H:EBX, Branch Sampling. Linux cpufeatures.
const LEAF_80000008_EBX_BRS: u32 = 1 << 31;
/// CPUID leaf that describes PerfMonV2 and LbrExtV2. Linux asm/perf_event.h.
pub(super) const LEAF_DEBUG: u32 = 0x8000_0022;
/// CPUID.80000022H:EAX: LBR and counters freeze at a PMI. Linux scattered.c.
const LEAF_DEBUG_EAX_FREEZE: u32 = 1 << 2;
/// Records of Branch Sampling. Linux amd/brs.c.
const BRS_DEPTH: u32 = 16;

impl Probed {
    pub(super) fn amd<R: CpuIdReader>(self, cpuid: &R) -> Result<LbrCaps, Why> {
        let typed = CpuId::with_cpuid_reader(cpuid.clone());
        let stack = typed
            .get_extended_performance_monitoring_and_debug()
            .filter(|debug| debug.has_lbr_stack())
            .map(|debug| u32::from(debug.num_lbr_stack_size()))
            .filter(|depth| *depth > 0);
        // BRS is Zen 3's; the leaf that announces it holds the address sizes too, never 0.
        let announces = self.identity.family == 0x19
            && stack.is_none()
            && typed.get_processor_capacity_feature_info().is_some();
        let sizes = cpuid.cpuid1(0x8000_0008);
        if announces && sizes.eax == 0 {
            return Err(Why::BrsUnknown);
        }
        let has_brs = announces && sizes.ebx & LEAF_80000008_EBX_BRS != 0;
        let (virt_bits, single) = (self.virt_bits, self.single());
        let stacked = |enable: DbgExtnCfg, select| RegisterMap {
            from: AMD_SAMP_BR_FROM,
            to: Some(AMD_SAMP_BR_TO),
            stride: 2,
            select,
            control: AMD_DBG_EXTN_CFG,
            enable: enable.bits(),
            ..single.registers
        };
        if let Some(depth) = stack {
            // raw-cpuid has no getter for EAX[2]: LBR and counters freeze at a PMI.
            let freezes = cpuid.cpuid1(LEAF_DEBUG).eax & LEAF_DEBUG_EAX_FREEZE != 0;
            let mut quirks = Quirks::FUSED_FROM;
            quirks.set(Quirks::STREAMLINED_FREEZE, freezes);
            Ok(LbrCaps {
                facility: Facility::AmdLbrV2,
                depth,
                layout: Layout::AmdV2 { virt_bits },
                registers: stacked(DbgExtnCfg::LBRV2EN, Some(AMD_LBR_SELECT)),
                order: Order::NewestFirst,
                filter: FilterRegister::AmdSelect,
                quirks,
                ..single
            })
        } else if has_brs {
            Ok(LbrCaps {
                facility: Facility::AmdBrs,
                depth: BRS_DEPTH,
                layout: Layout::AmdBrs { virt_bits },
                registers: stacked(DbgExtnCfg::BRSMEN, None),
                order: Order::Saturating,
                ..single
            })
        } else if single.cpu.family >= 0xF {
            Ok(single)
        } else {
            Err(Why::AmdBefore64Bit)
        }
    }
}
