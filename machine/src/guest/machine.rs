//! The plugin's state while the virtual machine runs: the chosen CPU, the virtual CPUs, and the
//! data of callbacks.

use std::collections::HashMap;
use std::ffi::c_uint;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lbr_msr::insn::BranchInsn;

use super::api::Number;
use super::instruction::Hooked;
use super::model::Model;
use super::pmu::Happened;
use super::sharing::SharedSelect;
use super::state::RegisterFile;
use super::vcpu::Vcpu;

/// Maximum number of virtual CPUs.
pub(super) const MOST_VCPUS: usize = 256;

/// State shared by all callbacks.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) model: Model,
    /// Virtual CPUs per core.
    threads: u32,
    /// MSR_LBR_SELECT of each core.
    pub(super) selects: Vec<Arc<AtomicU64>>,
    /// Whether HLT means a C-state deeper than C1.
    pub(super) deep_idle: bool,
    pub(super) watch: Watch,
    pub(super) callback_data: CallbackData,
    /// `None` before it starts.
    pub(super) vcpus: Vec<Mutex<Option<Running>>>,
}

/// A vCPU reports the start of a block when its cycle number reaches this value.
pub(super) const DUE: u64 = 1 << 30;

/// Per-vCPU numbers in generated code: counters, and switches for reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    /// Cycles, offset so that they reach [`DUE`] when the next block must be reported.
    pub(super) cycles: Number,
    pub(super) instructions: Number,
    pub(super) retired: Number,
    /// Nonzero: report each branch.
    pub(super) branches: Number,
    /// Nonzero: report each far branch.
    pub(super) far_branches: Number,
}

impl Watch {
    fn new() -> Watch {
        let [cycles, instructions, retired, branches, far_branches] = Number::several();
        Watch { cycles, instructions, retired, branches, far_branches }
    }

    /// Adds what has been executed so far to the vCPU's counters. `rest` is the part of the present
    /// block that will not execute.
    pub(super) fn count(&self, index: c_uint, vcpu: &mut Vcpu, rest: BlockPart) {
        if vcpu.counting {
            vcpu.executed(self.so_far(index), rest);
        }
    }

    fn so_far(&self, index: c_uint) -> Happened {
        Happened {
            instructions: self.instructions.get(index),
            cycles: self.cycles.get(index),
            branches: self.retired.get(index),
            ..Happened::default()
        }
    }

    /// Requests the vCPU's next reports. Executed instructions must have been counted.
    pub(super) fn settle(&self, index: c_uint, vcpu: &mut Vcpu) {
        let (recording, counting) = (vcpu.recording, vcpu.counting);
        if vcpu.reports != (recording, counting) {
            vcpu.reports = (recording, counting);
            self.branches.set(index, recording.into());
            self.far_branches.set(index, (recording || counting).into());
        } else if recording {
            // Every block is already reported.
            return;
        }
        self.cycles.set(index, DUE.saturating_sub(vcpu.cycles_to_wait()));
        vcpu.counted = self.so_far(index);
    }
}

/// A started vCPU.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) vcpu: Vcpu,
    pub(super) registers: RegisterFile,
}

/// The process's only machine.
pub(super) static MACHINE: OnceLock<Machine> = OnceLock::new();

impl Machine {
    /// A machine without virtual CPUs.
    pub(super) fn new(model: Model, threads: u32, deep_idle: bool) -> Machine {
        Machine {
            model,
            threads,
            selects: std::iter::repeat_with(Arc::default).take(MOST_VCPUS).collect(),
            deep_idle,
            watch: Watch::new(),
            callback_data: CallbackData::default(),
            vcpus: std::iter::repeat_with(Mutex::default).take(MOST_VCPUS).collect(),
        }
    }

    /// The filter register that virtual CPU `index` shares with the others of its core.
    pub(super) fn shared_select(&self, index: c_uint) -> Option<SharedSelect> {
        let registers = &self.model.cpu.caps.registers;
        let register = registers.select.filter(|select| *select != registers.control)?;
        let of_core = self.selects.get((index / self.threads) as usize)?;
        Some(SharedSelect::new(register, Arc::clone(of_core)))
    }
}

/// Runs the body of an entry point. A panic must not unwind into C, and after one the plugin's
/// records cannot be trusted: it aborts the emulator.
pub(super) fn guarded<T>(body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        // The panic hook has printed the message.
        eprintln!("lbr plugin: stopped by a bug in the plugin, see above; please report it");
        std::process::abort()
    })
}

/// Runs `action` on a vCPU; `None` before it exists.
pub(super) fn on_vcpu<T>(
    index: c_uint,
    action: impl FnOnce(&'static Machine, &mut Running) -> T,
) -> Option<T> {
    guarded(|| {
        let machine = MACHINE.get()?;
        let slot = machine.vcpus.get(index as usize)?;
        // Only the final statistics compete for the lock.
        let mut running = slot.lock().unwrap_or_else(PoisonError::into_inner);
        Some(action(machine, running.as_mut()?))
    })
}

/// Data of a block's callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BlockStart {
    /// Its address when QEMU translated it. QEMU keeps one translation of a page for all its
    /// mappings, so it may execute at another address.
    pub(super) address: u64,
    /// The total cycles of its instructions.
    pub(super) cycles: u32,
}

/// A part of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct BlockPart {
    pub(super) instructions: u32,
    pub(super) cycles: u32,
    /// 1 if a branch ends it.
    pub(super) branches: u32,
}

/// Data of the callback of an instruction that accesses a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Access {
    /// The next instruction, as QEMU translated it.
    pub(super) next: u64,
    /// The part of the block from there on.
    pub(super) rest: BlockPart,
}

/// Data of the callback of a TSX instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Transactional {
    pub(super) insn: Hooked,
    /// Its address when QEMU translated it.
    pub(super) address: u64,
}

/// Data of callbacks, which must live as long as the machine. QEMU may translate the same code many
/// times: equal values are stored once.
#[derive(Debug)]
pub(super) struct Stored<T: 'static>(Mutex<HashMap<T, &'static T>>);

impl<T: Copy + Eq + Hash> Stored<T> {
    pub(super) fn get(&self, value: T) -> &'static T {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(value).or_insert_with(|| Box::leak(Box::new(value)))
    }
}

impl<T> Default for Stored<T> {
    fn default() -> Stored<T> {
        Stored(Mutex::default())
    }
}

/// The data of each kind of callback.
#[derive(Debug, Default)]
pub(super) struct CallbackData {
    pub(super) blocks: Stored<BlockStart>,
    pub(super) branches: Stored<BranchInsn>,
    pub(super) transactional: Stored<Transactional>,
    pub(super) accesses: Stored<Access>,
}
