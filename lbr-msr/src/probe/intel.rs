//! Intel: Architectural LBR from CPUID, everything older from the CPU table.

use raw_cpuid::{CpuIdReader, CpuIdResult};

use super::{Assumption, Geometry, Probed, Why};
use crate::{
    access::{MsrError, MsrRead},
    address::{
        IA32_LBR_0_FROM_IP, IA32_LBR_0_INFO, IA32_LBR_0_TO_IP, IA32_LBR_CTL, IA32_LBR_DEPTH,
        IA32_PERF_CAPABILITIES, MSR_LBR_INFO_0,
    },
    caps::{
        CpuIdentity, Facility, FilterRegister, Layout, LbrCaps, Order, Quirks, RegisterMap,
        depths_in,
    },
    format::LbrFormat,
    register::{LbrCtl, PerfCapabilities},
    table::{self, Carries, Generation, RecordKind, SelectScope},
};

/// CPUID.07H:EDX, Architectural LBR. SDM24.
pub(crate) const LEAF_7_EDX_ARCH_LBR: u32 = 1 << 19;

impl Probed {
    pub(super) fn intel<R: CpuIdReader>(
        self,
        cpuid: &R,
        msr: Option<&mut dyn MsrRead>,
        assumption: Option<&Assumption>,
    ) -> Result<LbrCaps, Why> {
        let announced = self.leaf(cpuid, 7).edx & LEAF_7_EDX_ARCH_LBR != 0;
        let leaf = self.leaf(cpuid, 0x1C);
        if announced && leaf.eax & 0xFF != 0 {
            if assumption.is_some() {
                return Err(Why::CannotAssume("this CPU announces Architectural LBR in CPUID"));
            }
            let format = self.read_format(msr).and_then(Result::ok);
            return Ok(self.arch(leaf, format));
        }

        let row = match assumption {
            None => table::lookup(self.identity.family, self.identity.model),
            Some(Assumption::Model { family, model }) => {
                let key = table::lookup(*family, *model);
                Some(key.ok_or(Why::AssumedModelUnknown { family: *family, model: *model })?)
            }
            Some(Assumption::Geometry(geometry)) => {
                let format = self.read_format(msr).and_then(Result::ok).or(geometry.format);
                return self.assumed(*geometry, format.ok_or(Why::AssumedFormatMissing)?);
            }
        };
        let generation = row.map(|row| row.generation);
        if generation.is_some_and(|g| g.kind == RecordKind::Arch) {
            if assumption.is_some() {
                return Err(Why::CannotAssume(
                    "only CPUID tells whether there is Architectural LBR",
                ));
            }
            return Err(self.arch_not_announced(announced));
        }
        if announced {
            return Err(Why::ArchWithoutDepth);
        }

        let needs_pdcm = generation.is_none_or(|g| g.format.needs_register());
        if !self.pdcm && needs_pdcm && assumption.is_none() {
            return Err(match (&self.identity.hypervisor, row) {
                (Some(name), Some(row)) => {
                    Why::HiddenLegacy { hypervisor: name.clone(), uarch: row.uarch }
                }
                (None, Some(row)) => Why::NoPdcm { uarch: row.uarch },
                (_, None) => self.unknown_model(None),
            });
        }
        let reported = match self.read_format(msr) {
            None => None,
            Some(Ok(format)) => Some(format),
            Some(Err(MsrError::Fault { .. })) if self.identity.hypervisor.is_some() => {
                return Err(Why::CapabilitiesFault);
            }
            Some(Err(_)) => None,
        };
        let Some(row) = row else { return Err(self.unknown_model(reported)) };
        let generation = row.generation;
        if let Some(format) = reported
            && generation.format.tells_layout()
        {
            self.check_format(format, generation)?;
        }
        let mut caps = self.legacy(generation, reported);
        caps.assumed = assumption.is_some();
        Ok(caps)
    }

    /// LBR_FMT from IA32_PERF_CAPABILITIES; `None` if the register does not exist or there is no
    /// way to read it.
    fn read_format(&self, msr: Option<&mut dyn MsrRead>) -> Option<Result<LbrFormat, MsrError>> {
        if !self.pdcm {
            return None;
        }
        let value = msr?.read(IA32_PERF_CAPABILITIES);
        Some(value.map(|v| PerfCapabilities::from_bits_retain(v).lbr_format()))
    }

    fn check_format(&self, format: LbrFormat, generation: &Generation) -> Result<(), Why> {
        if format == LbrFormat::NONE {
            return Err(Why::NoModelSpecificLbr);
        }
        if !format.is_known() {
            return Err(Why::UnknownFormat { format });
        }
        let expects_zero = generation.format.layout().is_none_or(|f| f == LbrFormat::FORMAT_32);
        match &self.identity.hypervisor {
            // KVM reports format 0 if the guest has no LBR.
            Some(name) if format == LbrFormat::FORMAT_32 && !expects_zero => {
                Err(Why::HiddenFormatZero { hypervisor: name.clone() })
            }
            _ => Ok(()),
        }
    }

    fn unknown_model(&self, format: Option<LbrFormat>) -> Why {
        Why::UnknownModel {
            key: self.identity.key(),
            format,
            pdcm: self.pdcm,
            hypervisor: self.identity.hypervisor.clone(),
        }
    }

    fn arch_not_announced(&self, announced: bool) -> Why {
        if announced {
            return Why::ArchWithoutDepth;
        }
        let uarch = self.identity.uarch.clone().unwrap_or_default();
        match &self.identity.hypervisor {
            Some(hypervisor) => Why::HiddenArch {
                uarch,
                hypervisor: hypervisor.clone(),
                pdcm: self.pdcm,
                leaf_present: self.max_leaf >= 0x1C,
            },
            None => Why::ArchNotAnnounced { uarch },
        }
    }

    /// What CPUID leaf 1CH, sub-leaf 0 describes. Linux asm/perf_event.h (`cpuid28_*`). raw-cpuid
    /// 11.6 has no getter for it.
    fn arch(self, leaf: CpuIdResult, format: Option<LbrFormat>) -> LbrCaps {
        let depth_mask = (leaf.eax & 0xFF) as u8;
        let mut quirks = self.streamlined_freeze();
        // MWAIT deeper than C1 may clear the records.
        quirks.set(Quirks::DEEP_C_STATE_WIPES, leaf.eax >> 30 & 1 != 0);
        let (layout, single) = (Layout::of_leaf_1c(leaf.ecx, self.tsx), self.single());
        LbrCaps {
            facility: Facility::IntelArch,
            depth: depths_in(depth_mask).last().unwrap_or(0),
            depth_mask,
            format,
            layout,
            registers: RegisterMap {
                from: IA32_LBR_0_FROM_IP,
                to: Some(IA32_LBR_0_TO_IP),
                info: Some(IA32_LBR_0_INFO),
                select: Some(IA32_LBR_CTL),
                control: IA32_LBR_CTL,
                enable: LbrCtl::LBR_EN.bits(),
                depth: Some(IA32_LBR_DEPTH),
                ..single.registers
            },
            order: Order::NewestFirst,
            filter: FilterRegister::LbrCtl {
                cpl: leaf.ebx & 1 != 0,
                branch: leaf.ebx >> 1 & 1 != 0,
                call_stack: leaf.ebx >> 2 & 1 != 0,
            },
            quirks,
            ..single
        }
    }

    fn legacy(self, generation: &Generation, reported: Option<LbrFormat>) -> LbrCaps {
        let lies = matches!(
            (generation.format, reported),
            (table::ExpectedFormat::Lies { reported, .. }, Some(announced)) if reported == announced
        );
        let format = match reported {
            // The last NetBurst CPUs have the register, but their records predate it.
            Some(announced) if !lies && generation.format.tells_layout() => Some(announced),
            _ => generation.format.layout(),
        };
        let layout = match (generation.kind, format) {
            (RecordKind::Packed32, _) | (_, Some(LbrFormat::FORMAT_32)) => Layout::Packed32,
            (_, Some(format)) => Layout::Legacy { format, tsx: self.tsx },
            (_, None) => Layout::Plain,
        };
        let single_record = generation.kind == RecordKind::P6Single;
        let quirks = self.legacy_quirks(generation, format);
        let filter = match generation.select {
            None => FilterRegister::None,
            Some(_) => FilterRegister::LbrSelect {
                jumps_swallow_calls: quirks.contains(Quirks::CALL_FILTERS_NEED_JUMPS),
                call_stack: generation.call_stack != Carries::No,
            },
        };
        let (packed, single) = (layout == Layout::Packed32, self.single());
        LbrCaps {
            facility: generation.facility(),
            depth: generation.depth.unwrap_or(0),
            format: reported,
            layout,
            registers: RegisterMap {
                from: generation.from,
                to: if packed { None } else { generation.to },
                info: format.filter(|f| f.has_info()).map(|_| MSR_LBR_INFO_0),
                tos: generation.tos,
                select: generation.select,
                ..single.registers
            },
            order: if single_record { Order::Single } else { Order::Tos },
            filter,
            quirks,
            ..single
        }
    }

    fn legacy_quirks(&self, generation: &Generation, format: Option<LbrFormat>) -> Quirks {
        let mut quirks = self.streamlined_freeze();
        let CpuIdentity { family, model, stepping, .. } = self.identity;
        match generation.group {
            "P6" | "PM" | "YNH" | "C2" => quirks |= Quirks::TR_CONFLICTS,
            "NB0" | "NB3" => quirks |= Quirks::READ_ONLY_RECORDS,
            "KNL" => quirks |= Quirks::REPORTS_LIP_HAS_MISPRED,
            "NHM" | "SLM" => quirks |= Quirks::CALL_FILTERS_NEED_JUMPS,
            // SDM 17.10.3 for Skylake, Goldmont and later.
            "SKL" | "GLM" | "GLP" | "TNT" => quirks |= Quirks::DEEP_C_STATE_WIPES,
            _ => {}
        }
        if generation.select_scope == Some(SelectScope::CoreShared) {
            quirks |= Quirks::SELECT_SHARED_BY_CORE;
        }
        if generation.group == "HSW" && format == Some(LbrFormat::EIP_FLAGS2) && !self.tsx {
            quirks |= Quirks::TSX_LESS_FORMAT_4;
        }
        if family == 6 {
            // Linux core.c sets lbr_double_abort only for Haswell.
            quirks.set(Quirks::DOUBLE_ABORT, matches!(model, 0x3C | 0x3F | 0x45 | 0x46));
            quirks.set(Quirks::NO_FREEZE_ON_PMI, model == 0x1C && stepping < 10);
            // SDM 36.3.1.2 names these six.
            quirks
                .set(Quirks::PT_DISABLES, matches!(model, 0x3D | 0x47 | 0x4E | 0x4F | 0x56 | 0x5E));
            // The other models with PT for which Linux does not set lbr_pt_coexist, and Cannon
            // Lake, which Linux does not list.
            quirks
                .set(Quirks::PT_EXCLUDES, matches!(model, 0x55 | 0x8E | 0x9E | 0xA5 | 0xA6 | 0x66));
        }
        quirks
    }

    /// From perfmon version 4 on. SDM 17.4.7.
    fn streamlined_freeze(&self) -> Quirks {
        if self.perfmon_version >= 4 { Quirks::STREAMLINED_FREEZE } else { Quirks::empty() }
    }

    fn assumed(self, geometry: Geometry, format: LbrFormat) -> Result<LbrCaps, Why> {
        if !format.is_known() {
            return Err(Why::UnknownFormat { format });
        }
        let packed = format == LbrFormat::FORMAT_32 || geometry.to.is_none();
        let info = geometry.info.filter(|_| format.has_info());
        if format.has_info() && info.is_none() {
            return Err(Why::AssumedInfoMissing { format });
        }
        let layout =
            if packed { Layout::Packed32 } else { Layout::Legacy { format, tsx: self.tsx } };
        let (quirks, single) = (self.streamlined_freeze(), self.single());
        Ok(LbrCaps {
            facility: Facility::IntelLegacy,
            depth: geometry.depth,
            format: Some(format),
            layout,
            registers: RegisterMap {
                from: geometry.from,
                to: geometry.to.filter(|_| !packed),
                info,
                tos: geometry.tos,
                select: geometry.select,
                ..single.registers
            },
            order: match geometry.tos {
                Some(_) => Order::Tos,
                None if geometry.depth == 1 => Order::Single,
                None => Order::NewestFirst,
            },
            filter: match geometry.select {
                None => FilterRegister::None,
                // Only the bits that every LBR_SELECT has are certain.
                Some(_) => {
                    FilterRegister::LbrSelect { jumps_swallow_calls: false, call_stack: false }
                }
            },
            quirks,
            assumed: true,
            ..single
        })
    }
}
