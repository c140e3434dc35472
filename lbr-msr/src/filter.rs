//! Which branches to record, in perf's names, and the register values that
//! ask for them.
//!
//! Intent is positive: a filter says what to capture. The registers differ in
//! polarity (MSR_LBR_SELECT and AMD's LBR_SELECT suppress, IA32_LBR_CTL
//! captures); each facility's conversion stands in one place.

bitflags::bitflags! {
    /// Branches to capture, as `perf record -j` names them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct BranchFilter: u32 {
        /// `u`: branches that end in user mode.
        const USER = 1 << 0;
        /// `k`: branches that end in the kernel.
        const KERNEL = 1 << 1;
        /// `any`: every branch type.
        const ANY = 1 << 2;
        /// `any_call`: direct, indirect and far calls.
        const ANY_CALL = 1 << 3;
        /// `any_ret`: near and far returns.
        const ANY_RET = 1 << 4;
        /// `ind_call`: indirect calls.
        const IND_CALL = 1 << 5;
        /// `ind_jmp`: indirect jumps.
        const IND_JMP = 1 << 6;
        /// `call`: direct calls.
        const CALL = 1 << 7;
        /// `cond`: conditional branches.
        const COND = 1 << 8;
        /// `stack`: call-stack mode.
        const STACK = 1 << 9;
        /// `no_far`: leave out far branches (system calls and returns,
        /// interrupts, exceptions). Not perf's: it has no name for it.
        const NO_FAR = 1 << 10;
        /// `save_type`: keep the branch type of each entry.
        const SAVE_TYPE = 1 << 11;
    }
}

impl BranchFilter {
    /// `any,u,no_far`: user branches that stay in user mode.
    pub const DEFAULT: BranchFilter =
        BranchFilter::ANY.union(BranchFilter::USER).union(BranchFilter::NO_FAR);
}
