//! Which check finds which lie or erratum.

use lbr_msr::soft::Fault;

/// The check that each fault is found by, and words of what was found. By hand,
/// from what the fault is said to be.
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
        Fault::JumpsSwallowCalls => ("filter.jumps", "taken for jumps"),
        Fault::TosOffByOne => ("order", "TOS is one too high"),
        Fault::OrderReversed => ("order", "the order is reversed"),
        Fault::NoSignExtension => ("sign", "no sign extension"),
        Fault::HalfDepth => ("depth", ""),
        Fault::DepthKeepsRecords => ("bits.depth_clears", "still there"),
        Fault::CyclesConstant => ("cycles", "it is constant"),
        Fault::CyclesWrap => ("cycles.saturate", "it wraps"),
        Fault::MispredictNever => ("mispredict", "never set"),
        Fault::MispredictInverted => ("mispredict", "the wrong way round"),
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
        other => panic!("{other} is not expected to be found by any check: write it here"),
    }
}
