//! AMD's three facilities, each announced by CPUID.

use raw_cpuid::{CpuId, CpuIdReader};

use super::{DEBUGCTL_LBR, Probed, Why};
use crate::{
    address::{
        AMD_DBG_EXTN_CFG, AMD_LBR_SELECT, AMD_SAMP_BR_FROM, AMD_SAMP_BR_TO, IA32_DEBUGCTL,
        MSR_LASTBRANCHFROMIP, MSR_LASTBRANCHTOIP,
    },
    caps::{Facility, FilterRegister, Layout, LbrCaps, Order, Quirks, RegisterMap},
};

/// DBG_EXTN_CFG.LBRV2EN. Linux amd/lbr.c.
const DBG_EXTN_CFG_LBRV2EN: u64 = 1 << 6;
/// DBG_EXTN_CFG.BRSMEN. Linux amd/brs.c.
const DBG_EXTN_CFG_BRSMEN: u64 = 1 << 2;
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
        let stacked = |enable, select| RegisterMap {
            from: AMD_SAMP_BR_FROM,
            to: Some(AMD_SAMP_BR_TO),
            info: None,
            stride: 2,
            tos: None,
            select,
            control: AMD_DBG_EXTN_CFG,
            enable,
            depth: None,
        };
        let virt_bits = self.virt_bits;
        let (facility, depth, layout, registers, order, filter, quirks) = if let Some(depth) = stack
        {
            // raw-cpuid has no getter for EAX[2]: LBR and counters freeze at a PMI.
            let freezes = cpuid.cpuid1(LEAF_DEBUG).eax & LEAF_DEBUG_EAX_FREEZE != 0;
            (
                Facility::AmdLbrV2,
                depth,
                Layout::AmdV2 { virt_bits },
                stacked(DBG_EXTN_CFG_LBRV2EN, Some(AMD_LBR_SELECT)),
                Order::NewestFirst,
                FilterRegister::AmdSelect,
                if freezes {
                    Quirks::FUSED_FROM.union(Quirks::STREAMLINED_FREEZE)
                } else {
                    Quirks::FUSED_FROM
                },
            )
        } else if has_brs {
            (
                Facility::AmdBrs,
                BRS_DEPTH,
                Layout::AmdBrs { virt_bits },
                stacked(DBG_EXTN_CFG_BRSMEN, None),
                Order::Saturating,
                FilterRegister::None,
                Quirks::empty(),
            )
        } else if self.identity.family >= 0xF {
            let pair = RegisterMap {
                from: MSR_LASTBRANCHFROMIP,
                to: Some(MSR_LASTBRANCHTOIP),
                info: None,
                stride: 1,
                tos: None,
                select: None,
                control: IA32_DEBUGCTL,
                enable: DEBUGCTL_LBR,
                depth: None,
            };
            (
                Facility::AmdSingle,
                1,
                Layout::AmdSingle,
                pair,
                Order::Single,
                FilterRegister::None,
                Quirks::empty(),
            )
        } else {
            return Err(Why::AmdBefore64Bit);
        };
        Ok(LbrCaps {
            facility,
            depth,
            depth_mask: 0,
            format: None,
            layout,
            registers,
            order,
            filter,
            quirks,
            perfmon_version: self.perfmon_version,
            assumed: false,
            cpu: self.identity,
        })
    }
}
