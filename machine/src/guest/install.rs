//! What QEMU calls.
#![allow(unsafe_code, reason = "entry points and callbacks of QEMU's plugin interface are C")]

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lbr_msr::Msr;
use lbr_msr::insn::BranchInsn;
use lbr_msr::soft::Fault;

use super::api::{self, Block, Discontinuity, Switch};
use super::cpuid::Leaf;
use super::entry::{arguments, guarded};
use super::instruction::Hooked;
use super::model::Model;
use super::registers::Answer;
use super::sharing::SharedSelect;
use super::state::{self, RegisterFile};
use super::transaction::{Transaction, abort_status};
use super::translate::{BlockStart, Kept, Transactional, translate};
use super::vcpu::Vcpu;

/// Virtual CPUs that the plugin has room for.
const MOST_VCPUS: usize = 256;

/// RDMSR and WRMSR of this register raise #GP in QEMU outside x2APIC mode, and
/// in it too: nothing is there.
const FAULTS: u64 = 0x8FF;

/// All that the callbacks share.
#[derive(Debug)]
pub(super) struct Machine {
    model: Model,
    /// Virtual CPUs of a core.
    threads: u32,
    /// MSR_LBR_SELECT of each core.
    selects: Vec<Arc<AtomicU64>>,
    /// HLT stands for a C-state deeper than C1.
    deep_idle: bool,
    /// On for a vCPU whose blocks and branches are followed.
    pub(super) switch: Switch,
    pub(super) kept: Kept,
    vcpus: Vec<OnceLock<Mutex<Running>>>,
}

/// A vCPU that has started.
#[derive(Debug)]
struct Running {
    vcpu: Vcpu,
    registers: RegisterFile,
}

static MACHINE: OnceLock<Machine> = OnceLock::new();

impl Machine {
    /// The chosen CPU has transactions.
    pub(super) const fn tsx(&self) -> bool {
        self.model.tsx
    }

    /// The filter register that virtual CPU `index` shares with the others of
    /// its core.
    fn shared_select(&self, index: c_uint) -> Option<SharedSelect> {
        let registers = &self.model.cpu.caps.registers;
        let register = registers.select.filter(|select| *select != registers.control)?;
        let of_core = self.selects.get((index / self.threads) as usize)?;
        Some(SharedSelect::new(register, Arc::clone(of_core)))
    }

    /// The vCPU, for the callback that runs on its thread: nobody else waits
    /// for it but the plugin's last word.
    fn vcpu(&self, index: c_uint) -> Option<MutexGuard<'_, Running>> {
        let slot = self.vcpus.get(index as usize)?.get()?;
        Some(slot.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs `action` on a vCPU of the machine; `None` before either exists.
fn on_vcpu<T>(
    index: c_uint,
    action: impl FnOnce(&'static Machine, &mut Running) -> T,
) -> Option<T> {
    guarded(|| {
        let machine = MACHINE.get()?;
        let mut running = machine.vcpu(index)?;
        Some(action(machine, &mut running))
    })
}

/// The version of the plugin interface; QEMU looks for the symbol.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "QEMU finds it by its symbol")]
pub static qemu_plugin_version: c_int = api::VERSION;

/// Where QEMU starts the plugin. 0: it is installed.
///
/// # Safety
/// Called by QEMU alone: `argv` holds `argc` strings.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "QEMU finds it by its symbol")]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    _info: *const c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    guarded(|| {
        // SAFETY: QEMU's own argument vector.
        let given = unsafe { arguments(argc, argv) };
        let machine = match prepare(&given) {
            Ok(machine) => machine,
            Err(why) => {
                eprintln!("lbr guest plugin: {why}");
                return 1;
            }
        };
        if MACHINE.set(machine).is_err() {
            eprintln!("lbr guest plugin: it can be loaded once only");
            return 1;
        }
        // SAFETY: the id is the one QEMU passed in.
        unsafe { api::register(id, vcpu_started, translated, diverted, ended) };
        0
    })
}

fn prepare(given: &[(String, String)]) -> Result<Machine, String> {
    const KNOWN: &str = "there are cpu=FF_MM, lie=NAME, threads=N, idle=deep";
    let mut model = None;
    let mut faults = Vec::<Fault>::new();
    let mut threads = 1;
    let mut deep_idle = false;
    for (name, value) in given {
        match (name.as_str(), value.as_str()) {
            ("cpu", _) => model = Some(Model::new(value)?),
            ("lie", _) => faults.push(value.parse().map_err(|error| format!("{error}"))?),
            ("threads", _) => {
                threads = value
                    .parse()
                    .ok()
                    .filter(|threads| (1..=MOST_VCPUS as u32).contains(threads))
                    .ok_or_else(|| format!("threads={value}: expected 1 to {MOST_VCPUS}"))?;
            }
            ("idle", "deep") => deep_idle = true,
            _ => return Err(format!("unknown argument {name}={value}; {KNOWN}")),
        }
    }
    let model = model.ok_or("needs cpu=FF_MM, the CPU whose LBR the guest gets")?;
    model.set_faults(faults.into_iter().collect());
    Ok(Machine {
        model,
        threads,
        selects: std::iter::repeat_with(Arc::default).take(MOST_VCPUS).collect(),
        deep_idle,
        switch: Switch::new(),
        kept: Kept::default(),
        vcpus: std::iter::repeat_with(OnceLock::new).take(MOST_VCPUS).collect(),
    })
}

extern "C" fn vcpu_started(index: c_uint, _: *mut c_void) {
    guarded(|| {
        let (Some(machine), Some(registers)) = (MACHINE.get(), RegisterFile::find()) else {
            eprintln!("lbr guest plugin: QEMU names no registers of virtual CPU {index}");
            return;
        };
        let Some(slot) = machine.vcpus.get(index as usize) else {
            eprintln!(
                "lbr guest plugin: virtual CPU {index} has no LBR: there is room for {MOST_VCPUS}"
            );
            return;
        };
        let vcpu = Vcpu::new(&machine.model, index, machine.shared_select(index));
        // A vCPU that was unplugged and comes back starts afresh.
        let running = Running { vcpu, registers };
        if let Err(running) = slot.set(Mutex::new(running))
            && let (Some(slot), Ok(running)) = (slot.get(), running.into_inner())
        {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = running;
        }
    });
}

extern "C" fn translated(block: *mut c_void, _: *mut c_void) {
    guarded(|| {
        if let Some(machine) = MACHINE.get() {
            // SAFETY: the block that QEMU is telling of.
            translate(machine, &unsafe { Block::new(block) });
        }
    });
}

pub(super) extern "C" fn block_started(index: c_uint, block: *mut c_void) {
    on_vcpu(index, |machine, running| {
        // SAFETY: registered with a `BlockStart`.
        let block = unsafe { api::data::<BlockStart>(block) };
        finish_cpuid(machine, running);
        let Running { vcpu, registers } = running;
        if vcpu.recording() {
            let start = registers.rip.get();
            vcpu.located(start, block.address);
            vcpu.block(start, block.cycles, || level(registers));
        } else {
            // It was on for CPUID alone.
            machine.switch.set(index, false);
        }
    });
}

pub(super) extern "C" fn branch_started(index: c_uint, branch: *mut c_void) {
    on_vcpu(index, |_, running| {
        if running.vcpu.recording() {
            // SAFETY: registered with a `BranchInsn`.
            running.vcpu.branch(*unsafe { api::data::<BranchInsn>(branch) });
        }
    });
}

pub(super) extern "C" fn read_msr(index: c_uint, next: *mut c_void) {
    let done = on_vcpu(index, |machine, Running { vcpu, registers }| {
        let Some(msr) = addressed(registers) else { return false };
        vcpu.follow(&machine.model);
        match vcpu.read(msr) {
            Answer::Done(value) => {
                registers.rax.set(value & 0xFFFF_FFFF);
                registers.rdx.set(value >> 32);
                true
            }
            Answer::Fault => fault(vcpu, registers),
            Answer::NotOurs => false,
        }
    });
    if done == Some(true) {
        // SAFETY: registered with access to the program counter; nothing is
        // left to drop in this frame.
        unsafe { api::continue_at(next as u64) }
    }
}

pub(super) extern "C" fn write_msr(index: c_uint, next: *mut c_void) {
    let done = on_vcpu(index, |machine, Running { vcpu, registers }| {
        let Some(msr) = addressed(registers) else { return false };
        let value = registers.rax.get() & 0xFFFF_FFFF | registers.rdx.get() << 32;
        vcpu.follow(&machine.model);
        let before = machine.model.version();
        let answer = vcpu.write(msr, value, &machine.model);
        if machine.model.version() != before {
            // All software LBRs are as after a reset.
            for select in &machine.selects {
                select.store(0, Ordering::Relaxed);
            }
        }
        machine.switch.set(index, vcpu.recording());
        match answer {
            Answer::Done(()) => true,
            Answer::Fault => fault(vcpu, registers),
            Answer::NotOurs => false,
        }
    });
    if done == Some(true) {
        // SAFETY: as in `read_msr`.
        unsafe { api::continue_at(next as u64) }
    }
}

/// The register that RDMSR or WRMSR names; `None` where the instruction faults
/// whatever it names.
fn addressed(registers: &RegisterFile) -> Option<Msr> {
    // ECX alone counts.
    (level(registers) == 0).then(|| Msr((registers.rcx.get() & 0xFFFF_FFFF) as u32))
}

fn level(registers: &RegisterFile) -> u8 {
    (registers.cs.get() & 3) as u8
}

/// Lets the emulator raise #GP by the instruction that is about to execute.
/// [`diverted`] puts RCX back before the guest can see it. `false`: the
/// instruction must execute.
fn fault(vcpu: &mut Vcpu, registers: &RegisterFile) -> bool {
    vcpu.faulting_rcx = Some(registers.rcx.get());
    registers.rcx.set(FAULTS);
    false
}

pub(super) extern "C" fn before_cpuid(index: c_uint, last_of_block: *mut c_void) {
    on_vcpu(index, |machine, Running { vcpu, registers }| {
        let low = |value: u64| (value & 0xFFFF_FFFF) as u32;
        vcpu.asked = Some((low(registers.rax.get()), low(registers.rcx.get())));
        if !last_of_block.is_null() {
            // No instruction of this block follows: the next block must tell.
            machine.switch.set(index, true);
        }
    });
}

pub(super) extern "C" fn after_cpuid(index: c_uint, _: *mut c_void) {
    on_vcpu(index, finish_cpuid);
}

fn finish_cpuid(machine: &Machine, Running { vcpu, registers }: &mut Running) {
    let Some((leaf, sub_leaf)) = vcpu.asked.take() else { return };
    let low = |value: u64| (value & 0xFFFF_FFFF) as u32;
    let answer = Leaf {
        eax: low(registers.rax.get()),
        ebx: low(registers.rbx.get()),
        ecx: low(registers.rcx.get()),
        edx: low(registers.rdx.get()),
    };
    let patched = machine.model.patch.apply(leaf, sub_leaf, answer);
    if patched != answer {
        registers.rax.set(patched.eax.into());
        registers.rbx.set(patched.ebx.into());
        registers.rcx.set(patched.ecx.into());
        registers.rdx.set(patched.edx.into());
    }
}

/// A block that holds instructions of TSX starts.
pub(super) extern "C" fn block_located(index: c_uint, translated: *mut c_void) {
    on_vcpu(index, |_, Running { vcpu, registers }| {
        vcpu.located(registers.rip.get(), translated as u64);
    });
}

pub(super) extern "C" fn transactional(index: c_uint, told: *mut c_void) {
    let next = on_vcpu(index, |_, Running { vcpu, registers }| {
        // SAFETY: registered with a `Transactional`.
        let told = *unsafe { api::data::<Transactional>(told) };
        let address = vcpu.at(told.address);
        let next = address.wrapping_add(told.insn.length());
        // Behind the two bytes of the opcode; what cannot be read there raises
        // #UD like what QEMU lacks.
        let operand = || state::memory(address.wrapping_add(2));
        match told.insn {
            Hooked::Begin => vcpu.begin(Transaction {
                fallback: next.wrapping_add_signed(i64::from(operand()? as i32)),
                general: registers.general.map(state::Register::get),
            }),
            Hooked::Abort => {
                let status = abort_status(operand()? as u8);
                if let Some(undone) = vcpu.abort(address) {
                    for (register, value) in registers.general.iter().zip(undone.general) {
                        register.set(value);
                    }
                    registers.rax.set(status);
                    return Some(undone.fallback);
                }
            }
            _ => vcpu.end_transaction(),
        }
        Some(next)
    });
    if let Some(Some(next)) = next {
        // SAFETY: as in `read_msr`.
        unsafe { api::continue_at(next) }
    }
}

pub(super) extern "C" fn halted(index: c_uint, _: *mut c_void) {
    on_vcpu(index, |machine, Running { vcpu, .. }| {
        if machine.deep_idle {
            vcpu.deep_c_state();
        }
    });
}

pub(super) extern "C" fn idt_loaded(index: c_uint, info: u32, _address: u64, _: *mut c_void) {
    on_vcpu(index, |_, running| {
        // LIDT reads a limit of 2 bytes and a base; in 64-bit mode it has 8.
        if let Some(base) = api::value_of_8_bytes(info) {
            running.vcpu.idt = Some(base);
        }
    });
}

extern "C" fn diverted(index: c_uint, kind: c_int, from: u64, to: u64, _: *mut c_void) {
    on_vcpu(index, |machine, running| {
        // A CPUID that ended its block: the answer is still in the registers.
        finish_cpuid(machine, running);
        let Running { vcpu, registers } = running;
        match Discontinuity::from_code(kind) {
            Discontinuity::Raised => vcpu.raised(),
            Discontinuity::Other => {}
            Discontinuity::Delivered => {
                if let Some(rcx) = vcpu.faulting_rcx.take() {
                    registers.rcx.set(rcx);
                }
                let (cpl, debug) = if vcpu.recording() {
                    (level(registers), vcpu.idt.and_then(debug_handler) == Some(to))
                } else {
                    (0, false)
                };
                vcpu.delivered(from, to, cpl, debug);
                machine.switch.set(index, vcpu.recording());
            }
        }
    });
}

/// Where the handler of vector 1 (#DB) is, by the 16-byte gate of 64-bit mode.
fn debug_handler(idt: u64) -> Option<u64> {
    let low = state::memory(idt.wrapping_add(16))?;
    let high = state::memory(idt.wrapping_add(24))?;
    Some(low & 0xFFFF | (low >> 48) << 16 | high << 32)
}

extern "C" fn ended(_: *mut c_void) {
    guarded(|| {
        let Some(machine) = MACHINE.get() else { return };
        for index in 0..MOST_VCPUS as c_uint {
            let Some(running) = machine.vcpu(index) else { continue };
            let counts = running.vcpu.counts;
            let line = format!(
                "lbr guest plugin: CPU {index}: {} branches retired while recording, \
                 {} registers read, {} written, {} #GP, {} interrupts and exceptions\n",
                counts.retired, counts.reads, counts.writes, counts.faults, counts.discontinuities
            );
            // The line holds no zero byte.
            if let Ok(line) = CString::new(line) {
                api::log(&line);
            }
        }
    });
}
