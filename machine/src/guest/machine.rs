//! What the plugin knows while the virtual machine runs: the chosen CPU, the
//! virtual CPUs, and the values that its callbacks are given.

use std::collections::HashMap;
use std::ffi::c_uint;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lbr_msr::insn::BranchInsn;

use super::api::Switch;
use super::entry::guarded;
use super::instruction::Hooked;
use super::model::Model;
use super::sharing::SharedSelect;
use super::state::RegisterFile;
use super::vcpu::Vcpu;

/// Virtual CPUs that the plugin has room for.
pub(super) const MOST_VCPUS: usize = 256;

/// All that the callbacks share.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) model: Model,
    /// Virtual CPUs of a core.
    threads: u32,
    /// MSR_LBR_SELECT of each core.
    pub(super) selects: Vec<Arc<AtomicU64>>,
    /// HLT stands for a C-state deeper than C1.
    pub(super) deep_idle: bool,
    /// On for a vCPU whose blocks and branches are followed.
    pub(super) switch: Switch,
    pub(super) callback_data: CallbackData,
    pub(super) vcpus: Vec<OnceLock<Mutex<Running>>>,
}

/// A vCPU that has started.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) vcpu: Vcpu,
    pub(super) registers: RegisterFile,
}

/// The one machine of the process.
pub(super) static MACHINE: OnceLock<Machine> = OnceLock::new();

impl Machine {
    /// A machine without virtual CPUs yet.
    pub(super) fn new(model: Model, threads: u32, deep_idle: bool) -> Machine {
        Machine {
            model,
            threads,
            selects: std::iter::repeat_with(Arc::default).take(MOST_VCPUS).collect(),
            deep_idle,
            switch: Switch::new(),
            callback_data: CallbackData::default(),
            vcpus: std::iter::repeat_with(OnceLock::new).take(MOST_VCPUS).collect(),
        }
    }

    /// The chosen CPU has transactions.
    pub(super) const fn tsx(&self) -> bool {
        self.model.tsx
    }

    /// The filter register that virtual CPU `index` shares with the others of
    /// its core.
    pub(super) fn shared_select(&self, index: c_uint) -> Option<SharedSelect> {
        let registers = &self.model.cpu.caps.registers;
        let register = registers.select.filter(|select| *select != registers.control)?;
        let of_core = self.selects.get((index / self.threads) as usize)?;
        Some(SharedSelect::new(register, Arc::clone(of_core)))
    }

    /// The vCPU, for the callback that runs on its thread: nobody else waits
    /// for it but the plugin's last word.
    pub(super) fn vcpu(&self, index: c_uint) -> Option<MutexGuard<'_, Running>> {
        let slot = self.vcpus.get(index as usize)?.get()?;
        Some(slot.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs `action` on a vCPU of the machine; `None` before either exists.
pub(super) fn on_vcpu<T>(
    index: c_uint,
    action: impl FnOnce(&'static Machine, &mut Running) -> T,
) -> Option<T> {
    guarded(|| {
        let machine = MACHINE.get()?;
        let mut running = machine.vcpu(index)?;
        Some(action(machine, &mut running))
    })
}

/// What the callback of a block is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BlockStart {
    /// Where it was when QEMU translated it. QEMU keeps one translation of a
    /// page for all its mappings: it may execute elsewhere.
    pub(super) address: u64,
    /// What its instructions take together.
    pub(super) cycles: u32,
}

/// What the callback of an instruction of TSX is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Transactional {
    pub(super) insn: Hooked,
    /// As QEMU translated it.
    pub(super) address: u64,
}

/// What callbacks are given, which has to stay for as long as the machine runs.
/// QEMU may translate the same code many times: equal values are stored once.
#[derive(Debug, Default)]
pub(super) struct CallbackData {
    blocks: Mutex<HashMap<BlockStart, &'static BlockStart>>,
    /// By address: in another address space it may hold another branch.
    branches: Mutex<HashMap<u64, Vec<&'static BranchInsn>>>,
    transactional: Mutex<HashMap<Transactional, &'static Transactional>>,
}

impl CallbackData {
    pub(super) fn block(&self, block: BlockStart) -> &'static BlockStart {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.entry(block).or_insert_with(|| Box::leak(Box::new(block)))
    }

    pub(super) fn transactional(&self, insn: Transactional) -> &'static Transactional {
        let mut stored = self.transactional.lock().unwrap_or_else(PoisonError::into_inner);
        stored.entry(insn).or_insert_with(|| Box::leak(Box::new(insn)))
    }

    pub(super) fn branch(&self, branch: BranchInsn) -> &'static BranchInsn {
        let mut branches = self.branches.lock().unwrap_or_else(PoisonError::into_inner);
        let here = branches.entry(branch.ip).or_default();
        match here.iter().find(|known| ***known == branch) {
            Some(known) => known,
            None => {
                let stored: &'static BranchInsn = Box::leak(Box::new(branch));
                here.push(stored);
                stored
            }
        }
    }
}
