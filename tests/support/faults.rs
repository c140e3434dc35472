//! The check that detects each injected fault.

use lbr_msr::caps::{Facility, FilterRegister, Layout, LbrCaps, Order, Quirks};
use lbr_msr::soft::Fault;
use lbr_msr::table::{self, SelectScope};

/// The check that detects each fault, and words of its finding. Derived by hand from the fault's
/// description.
pub(crate) fn root(fault: Fault) -> (&'static str, &'static str) {
    match fault {
        Fault::FormatCode => ("lbr_fmt", "0x"),
        Fault::NoInfo => ("registers.info", "none of them exists"),
        Fault::IgnoresRing0 => ("filter.ring_0", "into ring 0 recorded although suppressed"),
        Fault::IgnoresUser => ("filter.user", "recorded although suppressed"),
        Fault::IgnoresCond => ("filter.cond", "cond recorded although suppressed"),
        Fault::IgnoresRelCall => ("filter.rel_call", "rel_call recorded although suppressed"),
        Fault::IgnoresIndCall => ("filter.ind_call", "ind_call recorded although suppressed"),
        Fault::IgnoresRet => ("filter.ret", "ret recorded although suppressed"),
        Fault::IgnoresIndJmp => ("filter.ind_jmp", "ind_jmp"),
        Fault::IgnoresRelJmp => ("filter.rel_jmp", "rel_jmp"),
        Fault::IgnoresFar => ("filter.far", "far"),
        Fault::FilterPolarity => ("recording", "polarity is swapped"),
        Fault::JumpsSwallowCalls => {
            ("filter.jumps", "ind_call, rel_call, ret not recorded: they count as jumps")
        }
        Fault::TosOffByOne => ("order", "TOS is one too high"),
        Fault::OrderReversed => ("order", "the order is reversed"),
        Fault::NoSignExtension => ("sign", "no sign extension"),
        Fault::HalfDepth => ("depth", ""),
        Fault::DepthKeepsRecords => ("bits.depth_clears", "still there"),
        Fault::CyclesConstant => ("cycles", "it is constant"),
        Fault::CyclesWrap => ("cycles.saturate", "it wraps"),
        Fault::MispredictNever => ("mispredict", "never set"),
        Fault::MispredictInverted => ("mispredict", "inverted"),
        Fault::PushesZeroLengthCalls => ("call_stack.zero_length", "it is pushed"),
        Fault::RecordsZeroLengthCalls => ("zero_length", "it is recorded"),
        Fault::DuplicateNewest => ("records", "the newest is recorded twice"),
        Fault::DoubleAbort => ("tsx.abort", "recorded twice"),
        Fault::TsxNever => ("tsx", "IN_TSX is not set"),
        Fault::TypesSwapped => ("types", "rel_jmp as ind_jmp"),
        Fault::FromNotHidden => ("hidden_from", "is shown"),
        Fault::FusedFrom => ("from", "macro fusion"),
        Fault::CStateWipe => ("c_state", "cleared"),
        Fault::NoFreezeOnPmi => ("freeze", "recording goes on"),
        Fault::FreezeEarly => ("freeze", "AM94"),
        Fault::SmmCorrupts => ("smi", "BU10"),
        Fault::LastExceptionEqual => ("last_exception", "C9"),
        Fault::LerToUnsigned => ("bits.last_exception", "BDM131"),
        Fault::FromWriteChecksFlags => ("bits.records", "HSM182"),
        Fault::SelectSharing => ("select.sharing", ""),
        other => panic!("add the check that detects {other}"),
    }
}

/// Whether the fault is visible in a register of this CPU. `perf_capabilities`:
/// IA32_PERF_CAPABILITIES exists.
pub(crate) fn applies(fault: Fault, caps: &LbrCaps, perf_capabilities: bool) -> bool {
    use Fault::*;

    let row = table::lookup(caps.cpu.family, caps.cpu.model);
    let scope = row.and_then(|row| row.generation.select_scope);
    let own_select = caps.facility == Facility::IntelLegacy && caps.registers.select.is_some();
    let (ring_filter, type_filter) = match caps.filter {
        FilterRegister::None | FilterRegister::Brbfcr => (false, false),
        FilterRegister::LbrCtl { cpl, branch, .. } => (cpl, branch),
        FilterRegister::LbrSelect { .. } | FilterRegister::AmdSelect => (true, true),
    };
    let arch = caps.facility == Facility::IntelArch;
    // Records that can be written and read.
    let runs = caps.facility != Facility::NetBurst;
    let several = runs && caps.depth > 1;
    let wide = caps.facility != Facility::P6 && caps.layout != Layout::Packed32;
    let ler = match caps.facility {
        Facility::IntelLegacy => caps.layout != Layout::Packed32,
        Facility::NetBurst => false,
        _ => true,
    };
    let format_4 = matches!(caps.layout, Layout::Legacy { format, .. } if format.0 == 4);
    let freezes = if caps.facility == Facility::AmdLbrV2 {
        caps.quirks.contains(Quirks::STREAMLINED_FREEZE)
    } else {
        matches!(caps.facility, Facility::IntelLegacy | Facility::IntelArch)
            && perf_capabilities
            && caps.perfmon_version > 1
            && !caps.quirks.contains(Quirks::NO_FREEZE_ON_PMI)
    };
    match fault {
        FormatCode => perf_capabilities,
        NoInfo => caps.registers.info.is_some(),
        IgnoresRing0 | IgnoresUser => ring_filter,
        IgnoresCond | IgnoresRelCall | IgnoresIndCall | IgnoresRet | IgnoresIndJmp
        | IgnoresRelJmp | IgnoresFar => type_filter,
        FilterPolarity => ring_filter && type_filter,
        JumpsSwallowCalls => match caps.filter {
            FilterRegister::LbrSelect { jumps_swallow_calls, .. } => !jumps_swallow_calls,
            FilterRegister::AmdSelect => true,
            FilterRegister::LbrCtl { .. } | FilterRegister::None | FilterRegister::Brbfcr => false,
        },
        TosOffByOne => runs && caps.order == Order::Tos,
        OrderReversed => several && caps.order != Order::Saturating,
        NoSignExtension => runs && wide,
        HalfDepth => several,
        DepthKeepsRecords => caps.registers.depth.is_some(),
        CyclesConstant | CyclesWrap => caps.cycles(),
        MispredictNever | MispredictInverted => caps.mispredict(),
        PushesZeroLengthCalls => caps.call_stack(),
        RecordsZeroLengthCalls => arch,
        DuplicateNewest => several && caps.order != Order::Saturating,
        DoubleAbort | TsxNever => caps.tsx(),
        TypesSwapped => caps.types(),
        FromNotHidden => arch && ring_filter,
        FusedFrom => runs && !caps.quirks.contains(Quirks::FUSED_FROM),
        CStateWipe => runs && !caps.quirks.contains(Quirks::DEEP_C_STATE_WIPES),
        NoFreezeOnPmi | FreezeEarly => freezes,
        SmmCorrupts => runs,
        LastExceptionEqual => runs && ler,
        LerToUnsigned | FromWriteChecksFlags => format_4,
        SelectSharing => own_select && scope != Some(SelectScope::Core),
        other => panic!("list the CPUs on which {other} is visible"),
    }
}
